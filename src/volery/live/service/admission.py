"""Jobs on their way into the store: planned, compared with what is known under their keys, and written down."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Set
from types import MappingProxyType
from typing import Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.model import Job, JobId, Message, Task, TaskId, Time
from volery.live.command import decode_payload, encode_payload
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription, TaskDemand, demands, merged_tasks, plan, submission, with_tasks
from volery.live.loop import in_slices
from volery.live.service.store import JobStore
from volery.live.service.throttle import TASKS_PER_TURN
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


class Submission(NamedTuple):
    """A job on its way to its scheduler.

    Args:
        number, first, description: see `NewJob`.
        left: so many of its tasks are to run.
        ended: places of the others.
        begun: see `JobStore.begun`.
        again: its scheduler may have received the job, or a part of it, before.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    fleet: Fleet
    left: int
    ended: Set[int] = frozenset()
    begun: Mapping[int, tuple[int, int]] = MappingProxyType({})
    again: bool = False

    def messages(self, epoch: int) -> Iterator[Message]:
        """The messages that submit it, made as they are taken; each call begins from the first one.

        Args:
            epoch: since which its scheduler has it.
        """
        everything = plan(self.description, self.number, self.first, self.fleet)
        tasks = still_to_run((task for task, _ in everything), self.ended, self.begun)
        messages = submission(self.number, tasks, self.left, self.description.user, TASKS_PER_TURN)
        first = next(messages)
        assert isinstance(first, Submit)
        yield msgspec.structs.replace(first, epoch=epoch)
        if self.again and self._was_sent_in_parts(first.job):
            # A scheduler that has the job takes nothing from `Submit`, and may lack some of these tasks.
            yield MoreTasks(self.number, 0, first.job.tasks, left=self.left)
        yield from messages

    def _was_sent_in_parts(self, job: Job) -> bool:
        """True if the job may have needed several messages when it was first sent; tasks that have ended had a size."""
        return bool(self.ended) or len(job.tasks) < self.left


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


def still_to_run(
    tasks: Iterable[Task], ended: Set[int], begun: Mapping[int, tuple[int, int]]
) -> Iterator[Task]:  # fmt: skip
    """The tasks of a job that is submitted again, without those that ended; the others carry their earlier attempts.

    Args:
        tasks: all of the job, in order.
        ended: the places of those that need not run again.
        begun: see `JobStore.begun`.
    """
    for place, task in enumerate(tasks):
        if place in begun and place not in ended:
            attempts, launched = begun[place]
            carried = msgspec.structs.replace(decode_payload(task.payload), attempts=attempts, launched=launched)
            yield msgspec.structs.replace(task, payload=encode_payload(carried))
        elif place not in ended:
            yield task


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
        problem = f"{key!r} is the key of {which}, which says something else; take another"
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
