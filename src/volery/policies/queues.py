"""Queues of tasks with placement constraints, and with requests of several resources.

Queued tasks are grouped by constraint set, FIFO inside each group, so that "the first queued task that this worker
satisfies" looks at distinct constraint sets and never at the queue: a loop when they are few, one numpy pass when many.

The pass reads one 64-bit key per group: the constraint set above, the number in line of its first task below. Masked
with what the worker lacks, the keys of groups that fit are the bare numbers, so that the smallest key is the answer:
two numpy operations. Sets with constraints beyond `KEY_CONSTRAINTS` do not fit into a key; a queue that meets one
keeps sets and numbers in two arrays from then on and needs five operations. Tasks that ask for several resources are
grouped by kind, which is constraint set and request, in the same way.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.core.model import Amounts, Task
from volery.core.resources import Packing

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

KINDS_LOOP_MAX: Final = 24
"""Above this many kinds a numpy pass is faster than a loop."""
NO_LINE: Final = np.iinfo(np.int64).max

Line = list[tuple[int, Task]] | deque[tuple[int, Task]]
Kind = tuple[int, Amounts]
Column = npt.NDArray[np.int64]


class ConstraintQueue:
    """First come first served among the tasks that fit.

    Attributes:
        length: Count of waiting tasks; a field, because it is read once per task and `len()` costs a call.
    """

    __slots__ = ("_back", "_front", "_has_keys", "_keys", "_lines", "_slots", "_wide_heads", "_wide_masks", "length")

    def __init__(self) -> None:
        self._slots: dict[int, int] = {}
        self._lines: list[Line] = []
        self._has_keys = False
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
            if self._has_keys:
                self._note(slot, task.constraints, self._front)
        self.length += 1

    def pop_fitting(self, offered: int) -> Task | None:
        """Take the task that has waited longest among those that a worker with these constraints satisfies."""
        lacking = ~offered

        if self._has_keys:
            count = len(self._lines)
            slot = self._first_by_key(lacking, count) if self._wide_masks is None else self._first_wide(lacking, count)
            # The smallest masked key is the answer only if its own set fits: where none fits it is any.
            return None if slot < 0 or self._lines[slot][0][1].constraints & lacking else self._take(slot)

        best_number, best_slot = 1 << NUMBER_BITS, -1
        for mask, slot in self._slots.items():
            if not mask & lacking:
                head = self._lines[slot][0][0]
                if head < best_number:
                    best_number, best_slot = head, slot
        return None if best_slot < 0 else self._take(best_slot)

    def remove(self, is_unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this kind out, wherever it stands; the others keep their places. One pass over all."""
        removed: list[Task] = []
        for mask in self.masks():
            slot = self._slots[mask]
            line = self._lines[slot]

            of_line = [task for _, task in line if is_unwanted(task)]
            if not of_line:
                continue
            removed += of_line
            # As a rule the line is one job's: a second pass over a million tasks would double the length of the turn.
            is_kept = len(of_line) < len(line)
            kept_entries = [(number, task) for number, task in line if not is_unwanted(task)] if is_kept else []
            if kept_entries:
                self._lines[slot] = kept_entries if len(kept_entries) < LIST_MAX else deque(kept_entries)
                if self._has_keys:
                    self._note(slot, mask, kept_entries[0][0])
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
        # The set does not fit into a key: from here on sets and numbers are kept in two arrays.
        if task.constraints > KEY_MASK and self._wide_masks is None:
            self._wide_masks = np.zeros(0, dtype=np.int64)
            self._has_keys = False

        if self._has_keys:
            self._note(slot, task.constraints, number)
        elif slot >= LOOP_MAX:
            self._has_keys = True
            for open_slot, line in enumerate(self._lines):
                self._note(open_slot, line[0][1].constraints, line[0][0])

    def _note(self, slot: int, mask: int, head: int) -> None:
        """Record a line's constraint set and the number of its first task, while there are many lines."""
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
            if self._has_keys:
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
            if self._has_keys:
                self._note(slot, task.constraints, number)

        # Half of the limit, so that a queue at the limit does not change back and forth.
        if len(self._lines) < LOOP_MAX // 2:
            self._has_keys = False


def _longer(column: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    return np.concatenate([column, np.zeros(max(16, len(column)), dtype=np.int64)])


class VectorQueue:
    """First come first served among the tasks that fit and ask for several resources.

    Attributes:
        length: Count of waiting tasks; a field, because it is read once per task.
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
            offered: Constraints that the machine meets.
            free: Free amounts of the machine, packed and guarded.
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
        return self._first_by_loop(offered, free) if len(self._lines) <= KINDS_LOOP_MAX else self._first(offered, free)

    def _first_by_loop(self, offered: int, free: int) -> int:
        guards, best_number, best_slot = self._packing.guards, NO_LINE, -1
        for (mask, _), slot in self._slots.items():
            if not mask & ~offered and (free - self._packed[slot]) & guards == guards:
                head = self._lines[slot][0][0]
                if head < best_number:
                    best_number, best_slot = head, slot
        return best_slot

    def _first(self, offered: int, free: int) -> int:
        count = len(self._lines)
        fits = (self._masks[:count] & ~np.int64(offered)) == 0
        for column, amount in zip(self._amounts, self._packing.amounts(free), strict=True):
            fits &= column[:count] <= amount

        slot = int(np.where(fits, self._heads[:count], NO_LINE).argmin())
        return slot if fits[slot] else -1

    def remove(self, is_unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out, wherever it stands; the others keep their places. One pass over all."""
        removed: list[Task] = []
        for kind in self.kinds():
            slot = self._slots[kind]
            line = self._lines[slot]
            of_line = [task for _, task in line if is_unwanted(task)]
            if of_line:
                removed += of_line
                is_kept = len(of_line) < len(line)
                self._lines[slot] = deque([entry for entry in line if not is_unwanted(entry[1])] if is_kept else ())
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
        """Record the head of a line; where it is empty the last line takes its place."""
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
        added_count = max(16, len(self._masks))

        self._masks = np.concatenate([self._masks, np.zeros(added_count, dtype=np.int64)])
        self._heads = np.concatenate([self._heads, np.zeros(added_count, dtype=np.int64)])
        amounts: Column = np.zeros((resource_count, len(self._masks)), dtype=np.int64)
        if self._amounts.size:
            amounts[:, : self._amounts.shape[1]] = self._amounts
        self._amounts = amounts
