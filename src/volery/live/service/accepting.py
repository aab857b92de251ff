"""Jobs on their way into the store: planned, compared with what is known under their keys, and written down."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from volery.core.model import JobId, Task, TaskId, Time
from volery.live.cluster.fleet import Fleet
from volery.live.command import decode_payload, encode_payload
from volery.live.jobs import JobDescription, PlannedTask, plan
from volery.live.service.errors import ConflictError
from volery.live.service.store import JobStore
from volery.live.status import Receipt

WARNINGS_MAX: Final = 5
PIECE: Final = 1000
"""Tasks that are planned at a time, in about 5 ms."""


class NewJob(NamedTuple):
    """A job that has got its numbers.

    Args:
        number: its own.
        first: of its first task.
        description: as it was submitted.
        planned: its tasks.
        place: what errors call it.
    """

    number: JobId
    first: TaskId
    description: JobDescription
    planned: list[PlannedTask]
    place: str


async def planned(tasks: Iterator[PlannedTask]) -> list[PlannedTask]:
    """A job's tasks, planned piece by piece: small jobs at once, and between pieces of large ones others have a turn.

    Not in a thread, which would hold the interpreter for longer than a piece takes.

    Raises:
        InputError: as `plan`.
    """
    found = list(islice(tasks, PIECE))
    while len(found) % PIECE == 0 and (piece := list(islice(tasks, PIECE))):
        await asyncio.sleep(0)
        found += piece
    return found


async def planned_jobs(
    descriptions: Sequence[JobDescription], places: Sequence[str], number: JobId, first: TaskId, fleet: Fleet
) -> list[NewJob]:
    """Jobs that are numbered from `number` on, and their tasks from `first` on.

    Raises:
        InputError: constraints that the fleet gives no meaning to.
    """
    jobs: list[NewJob] = []
    for at, (description, place) in enumerate(zip(descriptions, places, strict=True), number):
        tasks = await planned(plan(description, at, first, fleet, place))
        jobs.append(NewJob(at, first, description, tasks, place))
        first += len(tasks)
    return jobs


def still_to_run(
    tasks: Iterable[Task], ended: Collection[int], begun: Mapping[int, tuple[int, int]]
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
    return Receipt(id=number, tasks=len(job.planned), known=True)


def _insert(store: JobStore, job: NewJob, now_us: Time) -> Receipt:
    obstacles = [(place, obstacle) for place, (_, obstacle) in enumerate(job.planned) if obstacle]
    store.insert(job.number, job.first, job.description, len(job.planned), obstacles, now_us)
    reasons = {obstacle: place for place, obstacle in reversed(obstacles)}
    warnings = tuple([f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items())])
    return Receipt(id=job.number, tasks=len(job.planned), warnings=warnings[:WARNINGS_MAX])
