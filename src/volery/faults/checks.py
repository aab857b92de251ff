"""Rules that hold under any faults, stated over attempts alone: in the lab and of real processes.

The judge of a scenario takes attempts from the lab's records, `make chaos` from files that tasks write. Times are
microseconds of one clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from volery.core.model import NEVER, Amounts, JobId, TaskId, Time


class AttemptRecord(NamedTuple):
    """An attempt that has run.

    Args:
        start_us, end_us: of its time on the machine.
        worker: the machine's number.
        number: of the attempt.
        whole: it came to its own end.
    """

    start_us: Time
    end_us: Time
    worker: int
    number: int
    whole: bool


Attempts = Mapping[TaskId, Sequence[AttemptRecord]]
"""Of each task, in the order of their beginnings."""


class Breach(NamedTuple):
    """A rule that was broken.

    Args:
        kind: of the breach; the same in failures alike.
        problem: in words.
    """

    kind: str
    problem: str


def overlaps(attempts: Attempts) -> Iterator[Breach]:
    """Attempts of a task follow each other and are numbered upwards."""
    for task, of_task in attempts.items():
        for before, after in pairwise(of_task):
            if before.end_us > after.start_us:
                yield Breach(
                    "runs twice",
                    f"task {task} ran on machine {before.worker} until {before.end_us} us and from {after.start_us} us "
                    f"on {after.worker}",
                )
            if before.number >= after.number:
                yield Breach("numbers", f"task {task}: attempt {after.number} after attempt {before.number}")


def excesses(
    attempts: Attempts,
    offered: Sequence[Amounts],
    names: Sequence[str],
    request_of: Callable[[TaskId], Amounts],
) -> Iterator[Breach]:
    """No machine runs more than it has room for.

    Args:
        attempts: of all tasks.
        offered: amounts per machine.
        names: of the resources, for messages.
        request_of: amounts that a task takes.
    """
    changes: dict[int, list[tuple[Time, int, TaskId]]] = defaultdict(list)
    for task, of_task in attempts.items():
        for attempt in of_task:
            if attempt.end_us > attempt.start_us:
                changes[attempt.worker] += [(attempt.start_us, 1, task), (attempt.end_us, -1, task)]
    for worker, events in changes.items():
        running = [0] * len(names)
        for at, change, task in sorted(events):
            for place, amount in enumerate(request_of(task)):
                running[place] += change * amount
                if running[place] > offered[worker][place]:
                    yield Breach("capacity", f"machine {worker} runs {running[place]} {names[place]} at {at} us")


def losses(
    attempts: Attempts, jobs: Mapping[JobId, Sequence[TaskId]], answered_us: Callable[[JobId], Time]
) -> Iterator[Breach]:
    """Every job was reported done, and by then some attempt of each of its tasks had come to its own end.

    It need not be the last attempt: the result of one that was cut off with its node may arrive later.

    Args:
        attempts: of all tasks.
        jobs: every job that was accepted, and its tasks that fit somewhere.
        answered_us: when a job was reported done; `NEVER`: it was not.
    """
    for job, tasks in jobs.items():
        answered = answered_us(job)
        if answered == NEVER:
            yield Breach("lost", f"job {job} was never reported done")
            continue
        for task in tasks:
            ends = [attempt.end_us for attempt in attempts.get(task, ()) if attempt.whole]
            what = f"task {task} of job {job}, answered at {answered} us,"
            if not ends:
                yield Breach("lost", f"{what} never finished")
            elif min(ends) > answered:
                yield Breach("early", f"{what} finished at {min(ends)} us")


def reported_twice(reported: Mapping[TaskId, Collection[int]]) -> Iterator[Breach]:
    """No task has two attempts that were reported to have succeeded.

    A task may run again, and come to its end again, where the report of an attempt was lost with its machine or its
    masters. In the lab jobs are answered, not tasks, and the driver refuses what may not run again.

    Args:
        reported: per task, the attempts that were reported to have succeeded.
    """
    for task, numbers in reported.items():
        if len(numbers) > 1:
            yield Breach("succeeded twice", f"task {task}: attempts {sorted(numbers)} were reported to have succeeded")
