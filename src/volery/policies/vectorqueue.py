"""Queues of tasks that ask for several resources.

Queued tasks are grouped by kind, which is constraint set and request, FIFO inside each group, so that "the first queued
task that this machine can take" looks at kinds and never at the queue: a loop when they are few, one numpy pass when
many.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.core.model import Amounts, Task
from volery.core.resources import Packing

LOOP_MAX: Final = 24
"""Above this many kinds a numpy pass is faster than a loop."""
NO_LINE: Final = np.iinfo(np.int64).max

Kind = tuple[int, Amounts]
Column = npt.NDArray[np.int64]


class VectorQueue:
    """First come first served among the tasks that fit.

    Args:
        packing: of requests.

    Attributes:
        length: how many tasks wait; a field, because it is read once per task.
    """

    __slots__ = ("_amounts", "_back", "_front", "_heads", "_lines", "_masks", "_packed", "_packing", "_slots", "length")

    def __init__(self, packing: Packing) -> None:
        self._packing = packing
        self._slots: dict[Kind, int] = {}
        self._lines: list[deque[tuple[int, Task]]] = []
        self._packed: list[int] = []
        self._masks: Column = np.zeros(0, dtype=np.int64)
        self._heads: Column = np.zeros(0, dtype=np.int64)
        self._amounts: Column = np.zeros((0, 0), dtype=np.int64)
        self._back = self._front = 0
        self.length = 0

    def __contains__(self, kind: object) -> bool:
        return kind in self._slots

    def kinds(self) -> list[Kind]:
        """The distinct constraint sets and requests that wait."""
        return list(self._slots)

    def push(self, task: Task) -> None:
        """Join at the tail."""
        self._back += 1
        self._line_of(task, self._back).append((self._back, task))
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join at the head, before every task that waits."""
        self._front -= 1
        line = self._line_of(task, self._front)
        line.appendleft((self._front, task))
        self._heads[self._slots[task.constraints, task.request]] = self._front
        self.length += 1

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the task that has waited longest among those that a machine can take.

        Args:
            offered: the constraints that the machine meets.
            free: what it has free, packed and guarded.
        """
        slot = self._place(offered, free)
        return None if slot < 0 else self._take(slot)

    def first_fitting(self, offered: int, free: int) -> Task | None:
        """The task that `pop_fitting` would take. It stays."""
        slot = self._place(offered, free)
        return None if slot < 0 else self._lines[slot][0][1]

    def pop_kind(self, kind: Kind) -> Task:
        """Take the task that has waited longest among those of a kind, of which there has to be one."""
        return self._take(self._slots[kind])

    def first(self) -> Task:
        """The task that is next of all; there has to be one. It stays."""
        return self._lines[int(self._heads[: len(self._lines)].argmin())][0][1]

    def any_fitting(self, offered: int, free: int) -> bool:
        """True if `pop_fitting` would find a task."""
        return self._place(offered, free) >= 0

    def _place(self, offered: int, free: int) -> int:
        return self._first_by_loop(offered, free) if len(self._lines) <= LOOP_MAX else self._first(offered, free)

    def _first_by_loop(self, offered: int, free: int) -> int:
        guards, best, chosen = self._packing.guards, NO_LINE, -1
        for (mask, _), slot in self._slots.items():
            if not mask & ~offered and (free - self._packed[slot]) & guards == guards:
                head = self._lines[slot][0][0]
                if head < best:
                    best, chosen = head, slot
        return chosen

    def _first(self, offered: int, free: int) -> int:
        count = len(self._lines)
        fits = (self._masks[:count] & ~np.int64(offered)) == 0
        for column, amount in zip(self._amounts, self._packing.amounts(free), strict=True):
            fits &= column[:count] <= amount
        slot = int(np.where(fits, self._heads[:count], NO_LINE).argmin())
        return slot if fits[slot] else -1

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out, wherever it stands; the others keep their places. One pass over all."""
        removed: list[Task] = []
        for kind in self.kinds():
            slot = self._slots[kind]
            line = self._lines[slot]
            kept = deque([entry for entry in line if not unwanted(entry[1])])
            if len(kept) < len(line):
                removed += [task for _, task in line if unwanted(task)]
                self._lines[slot] = kept
                self._settle(slot, kind)
        self.length -= len(removed)
        return removed

    def _take(self, slot: int) -> Task:
        task = self._lines[slot].popleft()[1]
        self.length -= 1
        self._settle(slot, (task.constraints, task.request))
        return task

    def _line_of(self, task: Task, number: int) -> deque[tuple[int, Task]]:
        kind = (task.constraints, task.request)
        slot = self._slots.get(kind)
        if slot is None:
            slot = self._slots[kind] = len(self._lines)
            self._lines.append(deque())
            self._packed.append(self._packing[task.request])
            amounts = self._packing.amounts(self._packed[slot])
            if slot == len(self._masks):
                self._lengthen(len(amounts))
            self._masks[slot], self._heads[slot], self._amounts[:, slot] = task.constraints, number, amounts
        return self._lines[slot]

    def _settle(self, slot: int, kind: Kind) -> None:
        """Write down the head of a line; where it is empty the last line takes its place."""
        line = self._lines[slot]
        if line:
            self._heads[slot] = line[0][0]
            return
        del self._slots[kind]
        last, packed = self._lines.pop(), self._packed.pop()
        if slot < len(self._lines):
            task = last[0][1]
            self._slots[task.constraints, task.request] = slot
            self._lines[slot], self._packed[slot] = last, packed
            end = len(self._lines)
            self._masks[slot], self._heads[slot] = self._masks[end], self._heads[end]
            self._amounts[:, slot] = self._amounts[:, end]

    def _lengthen(self, resource_count: int) -> None:
        more = max(16, len(self._masks))
        self._masks = np.concatenate([self._masks, np.zeros(more, dtype=np.int64)])
        self._heads = np.concatenate([self._heads, np.zeros(more, dtype=np.int64)])
        grown: Column = np.zeros((resource_count, len(self._masks)), dtype=np.int64)
        if self._amounts.size:
            grown[:, : self._amounts.shape[1]] = self._amounts
        self._amounts = grown
