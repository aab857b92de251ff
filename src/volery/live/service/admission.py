"""Jobs on their way into the store: planned, compared with what is known under their keys, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from volery.core.errors import InputError
from volery.core.model import JobId, TaskId, Time
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription, TaskDemand, demands, merged_tasks, with_tasks
from volery.live.loop import in_slices
from volery.live.service.store import JobStore
from volery.live.status import Receipt

WARNINGS_MAX: Final = 5
IMPOSSIBLE_MAX: Final = 10_000
"""Tasks of one job that no machine can run: each is a row that is written at once, while others wait."""


class ConflictError(InputError):
    """A key belongs to another job already."""


class NewJob(NamedTuple):
    """A job with its numbers.

    Args:
        description: as it was submitted, merged (see `merged`).
        place: what errors call it.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    wanted: list[TaskDemand]
    place: str

    @property
    def tasks(self) -> int:
        return self.wanted[-1].first + self.wanted[-1].tasks


async def wanted(demands: Iterator[TaskDemand]) -> list[TaskDemand]:
    """The needs of a job's tasks; others have turns meanwhile.

    Raises:
        InputError: as `demands`.
    """
    return [one async for one in in_slices(demands)]


async def planned_jobs(
    descriptions: Sequence[JobDescription], places: Sequence[str], number: JobId, first: TaskId, fleet: Fleet
) -> list[NewJob]:
    """Jobs that are numbered from `number` on, and their tasks from `first` on.

    Raises:
        InputError: constraints that the fleet gives no meaning to.
    """
    jobs: list[NewJob] = []
    for at, (description, place) in enumerate(zip(descriptions, places, strict=True), number):
        needs = await wanted(demands(description, fleet, place))
        impossible = [one for one in needs if one.obstacle]
        if (count := sum(one.tasks for one in impossible)) > IMPOSSIBLE_MAX:
            problem = f"no machine can run {count:,} of its tasks, more than the {IMPOSSIBLE_MAX:,} that are kept"
            raise InputError(f"{place}.tasks", f"{problem}; the first: {impossible[0].obstacle}")
        jobs.append(NewJob(at, first, await _merged(description), needs, place))
        first += jobs[-1].tasks
    return jobs


async def _merged(job: JobDescription) -> JobDescription:
    """A job as `merged` gives it; others have turns meanwhile."""
    if isinstance(job.tasks, int):
        return job
    return with_tasks(job, [one async for one in in_slices(merged_tasks(job.tasks))])


def admit(
    store: JobStore, jobs: Sequence[NewJob], now_us: Time, assign: Callable[[JobId, str], None]
) -> list[Receipt]:  # fmt: skip
    """Write jobs into the batch that is under way; nothing is written before all of them are known to be sound.

    Args:
        store, jobs, now_us: where, which and when.
        assign: chooses the scheduler of a new job of a user.

    Raises:
        ConflictError: a key belongs to another job.
    """
    before: dict[tuple[str, str], tuple[NewJob, JobId]] = {}
    known = [_known(store, job, before) if job.description.key else None for job in jobs]
    return [receipt or _insert(store, job, now_us, assign) for job, receipt in zip(jobs, known, strict=True)]


def _known(store: JobStore, job: NewJob, before: dict[tuple[str, str], tuple[NewJob, JobId]]) -> Receipt | None:
    """The receipt of the job that was submitted under the same key, earlier or just before."""
    user, key = job.description.user, job.description.key
    if (twin := before.get((user, key))) is not None:
        number, same, which = twin[1], twin[0].description == job.description, twin[0].place
    elif found := store.job_with_key(user, key):
        number, same, which = found[0], store.describes(found[0], job.description), f"job {found[0]}"
    else:
        before[user, key] = job, job.number
        return None
    if not same:
        problem = f"{key!r} is the key of {which}, which is described otherwise; take another key"
        raise ConflictError(f"{job.place}.key", problem)
    before[user, key] = job, number
    return Receipt(id=number, tasks=job.tasks, known=True)


def _insert(store: JobStore, job: NewJob, now_us: Time, assign: Callable[[JobId, str], None]) -> Receipt:
    refused = [one for one in job.wanted if one.obstacle]
    obstacles = [(place, one.obstacle) for one in refused for place in range(one.first, one.first + one.tasks)]
    store.insert(job.number, job.first, job.description, job.tasks, obstacles, now_us)
    assign(job.number, job.description.user)
    reasons = {one.obstacle: one.first for one in reversed(refused)}
    warnings = tuple([f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items())])
    return Receipt(id=job.number, tasks=job.tasks, warnings=warnings[:WARNINGS_MAX])
