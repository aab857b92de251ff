"""Queues of tasks with placement constraints.

Queued tasks are grouped by constraint set, FIFO inside each group, so that "the first queued task that this worker
satisfies" looks at distinct constraint sets and never at the queue: a loop when they are few, one numpy pass when many.
"""

from __future__ import annotations

from collections import deque
from typing import Final

import numpy as np

from volery.core.model import Task

ZERO: Final = np.int64(0)
LOOP_MAX: Final = 48
"""Above this many distinct constraint sets a numpy pass is faster than a loop."""


class ConstraintQueue:
    """First come first served among the tasks that fit.

    Attributes:
        length: how many tasks wait; a field, because it is read once per task and `len()` costs a call.
    """

    __slots__ = ("_back", "_front", "_heads", "_lines", "_masks", "_slots", "length")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._lines: list[deque[tuple[int, Task]]] = []
        self._masks = np.zeros(0, dtype=np.int64)
        self._heads = np.zeros(0, dtype=np.int64)
        self._back = 0
        self._front = 0
        self.length = 0

    def masks(self) -> list[int]:
        """The distinct constraint sets that wait."""
        return list(self._slots)

    def push(self, task: Task) -> None:
        """Join at the tail."""
        self._back += 1
        self._line(task.constraints, self._back).append((self._back, task))
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join at the head, before every task that waits."""
        self._front -= 1
        line = self._line(task.constraints, self._front)
        line.appendleft((self._front, task))
        self._heads[self._slots[task.constraints]] = self._front
        self.length += 1

    def _line(self, mask: int, head: int) -> deque[tuple[int, Task]]:
        slot = self._slots.get(mask)
        if slot is not None:
            return self._lines[slot]
        slot = self._slots[mask] = len(self._lines)
        if slot == len(self._masks):
            room = np.zeros(max(16, slot), dtype=np.int64)
            self._masks = np.concatenate([self._masks, room])
            self._heads = np.concatenate([self._heads, room])
        self._masks[slot] = mask
        self._heads[slot] = head
        line: deque[tuple[int, Task]] = deque()
        self._lines.append(line)
        return line

    def pop_fitting(self, offered: int) -> Task | None:
        """Take the task that has waited longest among those that a worker with these constraints satisfies."""
        count = len(self._lines)
        if count > LOOP_MAX:
            # methods and arrays throughout: numpy's functions and Python integers would double the time
            fitting = ((self._masks[:count] & np.array(~offered)) == ZERO).nonzero()[0]
            if not fitting.size:
                return None
            return self._take(int(fitting[self._heads[fitting].argmin()]))
        lacking, best, chosen = ~offered, None, -1
        for mask, slot in self._slots.items():
            if not mask & lacking:
                head = self._lines[slot][0][0]
                if best is None or head < best:
                    best, chosen = head, slot
        return None if best is None else self._take(chosen)

    def _take(self, slot: int) -> Task:
        line = self._lines[slot]
        task = line.popleft()[1]
        self.length -= 1
        if line:
            self._heads[slot] = line[0][0]
        else:
            self._close(slot, task.constraints)
        return task

    def _close(self, slot: int, mask: int) -> None:
        """Remove an empty line; the last one takes its slot."""
        del self._slots[mask]
        last = len(self._lines) - 1
        line = self._lines.pop()
        if slot != last:
            moved = int(self._masks[last])
            self._lines[slot] = line
            self._masks[slot] = moved
            self._heads[slot] = self._heads[last]
            self._slots[moved] = slot
