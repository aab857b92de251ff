"""Queues of tasks with placement constraints.

Queued tasks are grouped by constraint set, FIFO inside each group, so that "the first queued task that this worker
satisfies" looks at distinct constraint sets and never at the queue: a loop when they are few, one numpy pass when many.

The pass reads one 64-bit key per group: the constraint set above, the number in line of its first task below. Masked
with what the worker lacks, the keys of groups that fit are the bare numbers, so that the smallest key is the answer:
two numpy operations. Sets with constraints beyond `KEY_CONSTRAINTS` do not fit into a key; a queue that meets one
keeps sets and numbers in two arrays from then on and needs five operations.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.core.model import Task

NUMBER_BITS: Final = 40
KEY_CONSTRAINTS: Final = 63 - NUMBER_BITS
FIRST_NUMBER: Final = 1 << (NUMBER_BITS - 1)
"""Numbers in line grow upwards from here at the tail and downwards at the head."""
NUMBER_MASK: Final = (1 << NUMBER_BITS) - 1
KEY_MASK: Final = (1 << KEY_CONSTRAINTS) - 1
LOOP_MAX: Final = 48
"""Above this many distinct constraint sets a numpy pass is faster than a loop; keys are kept until half of it."""
ZERO: Final = np.int64(0)

LIST_MAX: Final = 64
"""A line is a list until it is this long: most are short, and a deque takes 700 bytes for its first task."""

Line = list[tuple[int, Task]] | deque[tuple[int, Task]]


class ConstraintQueue:
    """First come first served among the tasks that fit.

    Attributes:
        length: how many tasks wait; a field, because it is read once per task and `len()` costs a call.
    """

    __slots__ = ("_back", "_front", "_keyed", "_keys", "_lines", "_slots", "_wide_heads", "_wide_masks", "length")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._lines: list[Line] = []
        self._keyed = False
        self._keys = np.zeros(0, dtype=np.int64)
        self._wide_masks: npt.NDArray[np.int64] | None = None
        self._wide_heads = np.zeros(0, dtype=np.int64)
        self._back = FIRST_NUMBER
        self._front = FIRST_NUMBER
        self.length = 0

    def masks(self) -> list[int]:
        """The distinct constraint sets that wait."""
        return list(self._slots)

    def push(self, task: Task) -> None:
        """Join at the tail."""
        self._back += 1
        slot = self._slots.get(task.constraints)
        if slot is None:
            self._open(task, self._back)
        else:
            line = self._lines[slot]
            line.append((self._back, task))
            if len(line) == LIST_MAX:
                self._lines[slot] = deque(line)
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join at the head, before every task that waits."""
        self._front -= 1
        slot = self._slots.get(task.constraints)
        if slot is None:
            self._open(task, self._front)
        else:
            self._lines[slot].insert(0, (self._front, task))
            if self._keyed:
                self._note(slot, task.constraints, self._front)
        self.length += 1

    def pop_fitting(self, offered: int) -> Task | None:
        """Take the task that has waited longest among those that a worker with these constraints satisfies."""
        lacking = ~offered
        if self._keyed:
            count = len(self._lines)
            slot = self._first_by_key(lacking, count) if self._wide_masks is None else self._first_wide(lacking, count)
            return None if slot < 0 or self._lines[slot][0][1].constraints & lacking else self._take(slot)
        best, chosen = 1 << NUMBER_BITS, -1
        for mask, slot in self._slots.items():
            if not mask & lacking:
                head = self._lines[slot][0][0]
                if head < best:
                    best, chosen = head, slot
        return None if chosen < 0 else self._take(chosen)

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this kind out, wherever it stands; the others keep their places. One pass over all."""
        removed: list[Task] = []
        for mask in self.masks():
            slot = self._slots[mask]
            line = self._lines[slot]
            kept = [(number, task) for number, task in line if not unwanted(task)]
            if len(kept) == len(line):
                continue
            removed += [task for _, task in line if unwanted(task)]
            if kept:
                self._lines[slot] = kept if len(kept) < LIST_MAX else deque(kept)
                if self._keyed:
                    self._note(slot, mask, kept[0][0])
            else:
                self._close(slot, mask)
        self.length -= len(removed)
        return removed

    def _first_by_key(self, lacking: int, count: int) -> int:
        """The slot of the smallest masked key; it fits if any does."""
        return int((self._keys[:count] & np.array((lacking & KEY_MASK) << NUMBER_BITS | NUMBER_MASK)).argmin())

    def _first_wide(self, lacking: int, count: int) -> int:
        assert self._wide_masks is not None
        fitting = ((self._wide_masks[:count] & np.array(lacking)) == ZERO).nonzero()[0]
        return int(fitting[self._wide_heads[fitting].argmin()]) if fitting.size else -1

    def _open(self, task: Task, number: int) -> None:
        """Begin a line for a constraint set that nobody waits with."""
        slot = self._slots[task.constraints] = len(self._lines)
        self._lines.append([(number, task)])
        if task.constraints > KEY_MASK and self._wide_masks is None:
            self._wide_masks = np.zeros(0, dtype=np.int64)
            self._keyed = False
        if self._keyed:
            self._note(slot, task.constraints, number)
        elif slot >= LOOP_MAX:
            self._keyed = True
            for known, line in enumerate(self._lines):
                self._note(known, line[0][1].constraints, line[0][0])

    def _note(self, slot: int, mask: int, head: int) -> None:
        """Write down a line's constraint set and the number of its first task, while there are many lines."""
        if self._wide_masks is None:
            if slot == len(self._keys):
                self._keys = _longer(self._keys)
            self._keys[slot] = mask << NUMBER_BITS | head
            return
        if slot == len(self._wide_masks):
            self._wide_masks, self._wide_heads = _longer(self._wide_masks), _longer(self._wide_heads)
        self._wide_masks[slot] = mask
        self._wide_heads[slot] = head

    def _take(self, slot: int) -> Task:
        line = self._lines[slot]
        task = line[0][1]
        del line[0]
        self.length -= 1
        if line:
            if self._keyed:
                self._note(slot, task.constraints, line[0][0])
        else:
            self._close(slot, task.constraints)
        return task

    def _close(self, slot: int, mask: int) -> None:
        """Remove an empty line; the last one takes its slot."""
        del self._slots[mask]
        line = self._lines.pop()
        if slot < len(self._lines):
            number, task = line[0]
            self._lines[slot] = line
            self._slots[task.constraints] = slot
            if self._keyed:
                self._note(slot, task.constraints, number)
        if len(self._lines) < LOOP_MAX // 2:
            self._keyed = False


def _longer(column: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([column, np.zeros(max(16, len(column)), dtype=np.int64)])
