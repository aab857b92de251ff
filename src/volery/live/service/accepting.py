"""Jobs on their way into the store: planned, compared with what is known under their keys, and written down."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from volery.core.errors import InputError
from volery.core.model import JobId, Message, Task, TaskId, Time
from volery.live.cluster.fleet import Fleet
from volery.live.jobs import JobDescription, PlannedTask, plan, submission
from volery.live.service.errors import ConflictError
from volery.live.service.feeding import TASKS_PER_TURN
from volery.live.service.slices import in_slices
from volery.live.service.store import JobStore
from volery.live.status import Receipt

WARNINGS_MAX: Final = 5
IMPOSSIBLE_MAX: Final = 10_000
"""Tasks of one job that no machine can run: each is a row that is written at once, while others wait."""


class NewJob(NamedTuple):
    """A job that has got its numbers.

    Args:
        number: its own.
        first: of its first task.
        description: as it was submitted.
        tasks: how many.
        obstacles: place and reason of each task that no machine can run.
        messages: that submit it.
        place: what errors call it.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    tasks: int
    obstacles: list[tuple[int, str]]
    messages: tuple[Message, ...]
    place: str


async def planned(tasks: Iterator[PlannedTask]) -> tuple[list[Task], list[tuple[int, str]]]:
    """A job's tasks, and place and reason of those that no machine can run; others have turns meanwhile.

    Raises:
        InputError: as `plan`.
    """
    found, obstacles = list[Task](), list[tuple[int, str]]()
    async for task, obstacle in in_slices(tasks):
        if obstacle:
            obstacles.append((len(found), obstacle))
        found.append(task)
    return found, obstacles


async def messages_of(number: JobId, tasks: Sequence[Task], user: str) -> tuple[Message, ...]:
    """The messages that submit a job; others have turns meanwhile."""
    return tuple([message async for message in in_slices(submission(number, tasks, user, TASKS_PER_TURN))])


async def planned_jobs(
    descriptions: Sequence[JobDescription], places: Sequence[str], number: JobId, first: TaskId, fleet: Fleet
) -> list[NewJob]:
    """Jobs that are numbered from `number` on, and their tasks from `first` on.

    Raises:
        InputError: constraints that the fleet gives no meaning to.
    """
    jobs: list[NewJob] = []
    for at, (description, place) in enumerate(zip(descriptions, places, strict=True), number):
        tasks, obstacles = await planned(plan(description, at, first, fleet, place))
        if len(obstacles) > IMPOSSIBLE_MAX:
            problem = (
                f"no machine can run {len(obstacles):,} of its tasks, more than the {IMPOSSIBLE_MAX:,} that are kept"
            )
            raise InputError(f"{place}.tasks", f"{problem}; the first: {obstacles[0][1]}")
        messages = await messages_of(at, tasks, description.user)
        jobs.append(NewJob(at, first, description, len(tasks), obstacles, messages, place))
        first += len(tasks)
    return jobs


def admit(store: JobStore, jobs: Sequence[NewJob], now_us: Time) -> list[Receipt]:
    """Write jobs into the batch that is under way; nothing is written before all of them are known to be sound.

    Raises:
        ConflictError: a key stands for another job.
    """
    before: dict[tuple[str, str], tuple[NewJob, JobId]] = {}
    known = [_known(store, job, before) if job.description.key else None for job in jobs]
    return [receipt or _insert(store, job, now_us) for job, receipt in zip(jobs, known, strict=True)]


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


def _insert(store: JobStore, job: NewJob, now_us: Time) -> Receipt:
    store.insert(job.number, job.first, job.description, job.tasks, job.obstacles, now_us)
    reasons = {obstacle: place for place, obstacle in reversed(job.obstacles)}
    warnings = tuple([f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items())])
    return Receipt(id=job.number, tasks=job.tasks, warnings=warnings[:WARNINGS_MAX])
