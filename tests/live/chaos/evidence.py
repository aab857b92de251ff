"""What tasks have told of themselves, as attempts that the rules of storms can judge.

An attempt begins when it holds its locks. One that came to its end has told when. One that was killed ran, as far as
anybody can know, until another got one of its locks: the kernel gives none away before all processes that hold it are
gone. One that was refused a lock met somebody who still held it, and stands there for a microsecond.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from volery.core.model import JobId, TaskId, Time
from volery.faults.judge import AttemptRecord


class Told(NamedTuple):
    """A line of `task.sh`."""

    what: str
    job: JobId
    place: int
    attempt: int
    node: int
    at_us: Time
    locks: tuple[str, ...]


def read_told(text: str) -> list[Told]:
    """Lines in the order of their times; the last may be torn."""
    told = []
    for line in text.splitlines():
        words = line.split()
        if len(words) == len(Told._fields):
            job, place, attempt, node, at_us = (int(word) for word in words[1:6])
            told.append(Told(words[0], job, place, attempt, node, at_us, tuple(words[6].split(","))))
    return sorted(told, key=lambda line: line.at_us)


def attempts_of(told: Iterable[Told], task_of: dict[tuple[JobId, int], TaskId]) -> dict[TaskId, list[AttemptRecord]]:
    """Attempts by task, in the order of their beginnings.

    Args:
        told: in the order of their times.
        task_of: job and place -> task.
    """
    found: dict[TaskId, list[AttemptRecord]] = {}
    begun: dict[tuple[TaskId, int], Told] = {}
    holder: dict[str, tuple[TaskId, int]] = {}
    latest = 0

    def note(task: TaskId, begin: Told, end_us: Time, *, whole: bool) -> None:
        attempt = AttemptRecord(begin.at_us, end_us, begin.node, begin.attempt, whole)
        found.setdefault(task, []).append(attempt)

    for line in told:
        task = task_of[line.job, line.place]
        key, latest = (task, line.attempt), max(latest, line.at_us)
        match line.what:
            case "refused":
                note(task, line, line.at_us + 1, whole=False)
            case "began":
                for before in {holder[lock] for lock in line.locks if lock in holder}:
                    if (gone := begun.pop(before, None)) is not None:
                        note(before[0], gone, line.at_us, whole=False)
                begun[key] = line
                holder.update(dict.fromkeys(line.locks, key))
            case "ended" if (begin := begun.pop(key, None)) is not None:
                note(task, begin, line.at_us, whole=True)
    for (task, _), begin in begun.items():
        note(task, begin, latest + 1, whole=False)
    for of_task in found.values():
        of_task.sort()
    return found
