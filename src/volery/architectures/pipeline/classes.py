"""Equivalence classes of the tasks that wait in stage T2, each blocked or not.

Machines only become fuller while a cycle lasts, and a class that fits nowhere goes on to fit nowhere until something is
given back. Such a class is *blocked*: it is passed over without a look at its tasks. Room that is given back on a
machine unblocks the classes that fit it, and room that is taken there blocks those of them that fit no more. So the
cost of a decision depends on how many classes may fit, and not on how many tasks wait.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.policies import Kind
from volery.core.model import Amounts
from volery.core.resources import Packing

LOOP_MAX: Final = 32
"""Number of blocked classes above which a numpy pass is faster than a loop."""
ANYWHERE: Final = -1
"""The machine of a class that may fit on any."""

Column = npt.NDArray[np.int64]


class EquivalenceClasses:
    """The classes that wait, in the order in which they came.

    Args:
        offered: Constraints that each machine meets.

    Attributes:
        counts: Number of tasks that wait, by class.
        unblocked: Classes that may fit, each with the only machine where it may, or `ANYWHERE`.
        blocked: Classes that fit nowhere; those with machines of their own are listed by machine instead, because room
            elsewhere does not concern them.
    """

    __slots__ = (
        "_blocked",
        "_blocked_at",
        "_constraints_of",
        "_guards",
        "_kind_of_slot",
        "_masks",
        "_packing",
        "_requests",
        "_slots",
        "_spare_slots",
        "blocked",
        "counts",
        "unblocked",
    )

    def __init__(self, packing: Packing, offered: Sequence[int]) -> None:
        self._packing = packing
        self._guards = packing.guards
        self._constraints_of = offered
        self.counts: dict[Kind, int] = {}
        self.unblocked: dict[Kind, int] = {}
        self.blocked: dict[Kind, None] = {}
        self._blocked_at: dict[int, dict[Kind, None]] = {}
        self._slots: dict[Kind, int] = {}
        self._kind_of_slot: list[Kind | None] = []
        self._spare_slots: list[int] = []
        self._masks: Column = np.zeros(0, dtype=np.int64)
        self._requests: Column = np.zeros((0, 0), dtype=np.int64)
        self._blocked: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def amounts_of(self, kind: Kind) -> Amounts:
        """The amounts that each task of a class asks for."""
        return self._packing.amounts(kind.packed)

    def joined(self, kind: Kind) -> None:
        """Count a task that waits."""
        count = self.counts.get(kind, 0)
        self.counts[kind] = count + 1
        if not count:
            self.unblocked[kind] = ANYWHERE

    def left(self, kind: Kind) -> None:
        """Count a task that waits no longer."""
        count = self.counts[kind] - 1
        if count:
            self.counts[kind] = count
            return

        del self.counts[kind]
        self._forget_narrow(kind)
        self.unblocked.pop(kind, None)
        self.blocked.pop(kind, None)

        slot = self._slots.pop(kind, None)
        if slot is not None:
            self._blocked[slot] = False
            self._kind_of_slot[slot] = None
            self._spare_slots.append(slot)

    def block(self, kind: Kind) -> None:
        """Block a class, which fits nowhere."""
        del self.unblocked[kind]

        for machine in kind.machines:
            self._blocked_at.setdefault(machine, {})[kind] = None
        if kind.machines:
            return

        self.blocked[kind] = None
        # The columns are made only where there are many blocked classes.
        if self._slots:
            # First the slot: it may make the columns anew.
            slot = self._slot(kind)
            self._blocked[slot] = True

    def unblock(self, kind: Kind, machine: int = ANYWHERE) -> None:
        """Unblock a class, which may fit on this machine if on any."""
        if kind.machines:
            self._forget_narrow(kind)
            self.unblocked[kind] = machine
        elif kind in self.blocked:
            del self.blocked[kind]
            self.unblocked[kind] = machine
            if self._slots:
                self._blocked[self._slots[kind]] = False

    def _forget_narrow(self, kind: Kind) -> None:
        for machine in kind.machines:
            self._blocked_at.get(machine, {}).pop(kind, None)

    def given_back(self, machine: int, free: int) -> None:
        """Unblock the classes that fit a machine with this much free, packed and guarded."""
        for kind, only_machine in self.unblocked.items():
            # A class that may fit on another machine may fit on this one as well, from now on.
            if only_machine not in (ANYWHERE, machine):
                self.unblocked[kind] = ANYWHERE

        fitting_kinds = self._fitting(machine, free) if self.blocked else []

        if self._blocked_at:
            narrow = self._blocked_at.get(machine, ())
            guards = self._guards
            fitting_kinds += [
                kind for kind in narrow if (free - kind.packed) & guards == guards and kind.suitable >> machine & 1
            ]

        for kind in fitting_kinds:
            self.unblock(kind, machine)

    def taken(self, machine: int, free: int) -> None:
        """Block the classes that were unblocked because of a machine and do not fit what is free there now."""
        guards = self._guards
        full_kinds = [
            kind
            for kind, only_machine in self.unblocked.items()
            if only_machine == machine and (free - kind.packed) & guards != guards
        ]
        for kind in full_kinds:
            self.block(kind)

    def _fitting(self, machine: int, free: int) -> list[Kind]:
        """The blocked classes without machines of their own that fit a machine."""
        guards = self._guards
        if len(self.blocked) <= LOOP_MAX:
            return [
                kind
                for kind in self.blocked
                if (free - kind.packed) & guards == guards and kind.suitable >> machine & 1
            ]

        if not self._slots:
            for kind in self.blocked:
                # First the slot: it may make the columns anew.
                slot = self._slot(kind)
                self._blocked[slot] = True

        count = len(self._kind_of_slot)
        fits = self._blocked[:count] & ((self._masks[:count] & ~np.int64(self._constraints_of[machine])) == 0)
        for column, amount in zip(self._requests, self._packing.amounts(free), strict=True):
            fits &= column[:count] <= amount

        fitting_kinds = [self._kind_of_slot[slot] for slot in np.flatnonzero(fits).tolist()]
        return [kind for kind in fitting_kinds if kind is not None and kind.suitable >> machine & 1]

    def _slot(self, kind: Kind) -> int:
        """The place of a class in the columns."""
        slot = self._slots.get(kind)
        if slot is not None:
            return slot

        # Slots of classes that have left are used again.
        if self._spare_slots:
            slot = self._spare_slots.pop()
            self._kind_of_slot[slot] = kind
        else:
            slot = len(self._kind_of_slot)
            self._kind_of_slot.append(kind)
            if slot == len(self._masks):
                self._lengthen()

        self._slots[kind] = slot
        self._masks[slot] = kind.constraints
        self._requests[:, slot] = self._packing.amounts(kind.packed)
        return slot

    def _lengthen(self) -> None:
        length = 2 * len(self._masks) or 4 * LOOP_MAX
        rows = len(self._packing.amounts(0))
        masks = self._masks
        blocked = self._blocked
        requests = self._requests

        self._masks = np.zeros(length, dtype=np.int64)
        self._blocked = np.zeros(length, dtype=np.bool_)
        self._requests = np.zeros((rows, length), dtype=np.int64)

        if len(masks):
            self._masks[: len(masks)] = masks
            self._blocked[: len(masks)] = blocked
            self._requests[:, : len(masks)] = requests

    def check(self) -> None:
        """Raise AssertionError unless every class that waits is either blocked or not, in the columns too."""
        narrow_kinds = {kind for kinds in self._blocked_at.values() for kind in kinds}
        assert all(kind in self._blocked_at[machine] for kind in narrow_kinds for machine in kind.machines)

        blocked_kinds = self.blocked.keys() | narrow_kinds
        assert self.unblocked.keys() | blocked_kinds == self.counts.keys()
        assert not self.unblocked.keys() & blocked_kinds

        if self._slots:
            kinds_in_columns = {kind for kind, slot in self._slots.items() if self._blocked[slot]}
            assert kinds_in_columns == self.blocked.keys(), "the columns know other blocked classes"
