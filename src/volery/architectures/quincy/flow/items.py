"""Waiting tasks in lines by the places that they have arcs to, so that a network holds only those that matter."""

from __future__ import annotations

import bisect
from collections.abc import Callable, Iterable

from volery.core.model import NEVER, JobId, Task, TaskId, Time

Place = tuple[str | int, ...]
"""A node that tasks have arcs to: ("machine", m), ("rack", constraints, r), ("any", constraints) and the like."""

MACHINE = "machine"
NOWHERE = -1


class Item:
    """A task of the scheduler, from its arrival to its end.

    Args:
        task: the task.
        entries: places that it has arcs to, with what they cost.
        holders: machines that hold its input.
        now: its arrival.

    Attributes:
        since: arrival, later by the time that it has run: the time since then is its whole wait.
        waited_us: in all, when it was last launched.
        machine: on which it runs, or that it has been promised; NOWHERE: it waits.
        began_us: when it was launched; NEVER while it does not run.
        attempt: the one that runs, or the next.
    """

    __slots__ = ("attempt", "began_us", "entries", "holders", "machine", "since", "task", "waited_us")

    def __init__(self, task: Task, entries: tuple[tuple[Place, int], ...], holders: tuple[int, ...], now: Time) -> None:
        self.task = task
        self.entries = entries
        self.holders = holders
        self.since = now
        self.waited_us: Time = 0
        self.machine = NOWHERE
        self.began_us: Time = NEVER
        self.attempt = 0


Entry = tuple[Time, TaskId]
_Line = list[Entry]
SPARE = 16


class WaitingItems:
    """The tasks that wait, per job and place, the longest waiting first.

    Of the tasks of one job that have an arc to a place, for the same cost, those that have waited longest gain most. So
    of each line as many matter as there are slots to be had in all: if one behind them had a slot through that place,
    one of them would have none, and would be as good there or better.

    Attributes:
        items: by task.
        counts: per job, of those that wait.
    """

    __slots__ = ("_lines", "counts", "items")

    def __init__(self) -> None:
        self.items: dict[TaskId, Item] = {}
        self.counts: dict[JobId, int] = {}
        self._lines: dict[JobId, dict[Place, _Line]] = {}

    def __len__(self) -> int:
        """The number of waiting tasks."""
        return len(self.items)

    def add(self, item: Item) -> None:
        """Let a task wait."""
        self.items[item.task.id] = item
        self.counts[item.task.job] = self.counts.get(item.task.job, 0) + 1
        lines = self._lines.setdefault(item.task.job, {})
        entry = (item.since, item.task.id)
        for place, _ in item.entries:
            line = lines.setdefault(place, [])
            if line and line[-1] > entry:
                bisect.insort(line, entry)
            else:
                line.append(entry)

    def take(self, item: Item) -> None:
        """Remove a task; lines drop it when they are next read."""
        del self.items[item.task.id]
        self.counts[item.task.job] -= 1

    def forget(self, job: JobId) -> None:
        """Drop a job that is done."""
        self._lines.pop(job, None)
        self.counts.pop(job, None)

    def of_job(self, job: JobId) -> list[Item]:
        """The waiting tasks of a job."""
        return [item for item in self.items.values() if item.task.job == job]

    def first(self, places: Callable[[Place], bool], most: int) -> list[Item]:
        """The tasks that matter: of each job and each place where there is room, the first ones.

        Args:
            places: whether there is room at a place.
            most: how many of each line.
        """
        found: dict[TaskId, Item] = {}
        for lines in self._lines.values():
            for place in list(lines):
                if places(place):
                    for item in self._head(lines, place, most):
                        found[item.task.id] = item
        return sorted(found.values(), key=lambda item: (item.task.job, item.since, item.task.id))

    def _head(self, lines: dict[Place, _Line], place: Place, most: int) -> Iterable[Item]:
        """The first tasks of a line; removed ones are cleared away when there are many."""
        line, items, found = lines[place], self.items, list[Item]()
        gone = 0
        for since, task in line:
            item = items.get(task)
            if item is None or item.since != since:
                gone += 1
            else:
                found.append(item)
                if len(found) == most:
                    break
        if gone > SPARE + len(found) or gone == len(line):
            left = [
                (since, task) for since, task in line if (one := items.get(task)) is not None and one.since == since
            ]
            if left:
                lines[place] = left
            else:
                del lines[place]
        return found
