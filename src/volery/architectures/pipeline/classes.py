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
"""Above this many blocked classes a numpy pass is faster than a loop."""
ANYWHERE: Final = -1
"""The machine of a class that may fit on any."""

Column = npt.NDArray[np.int64]


class EquivalenceClasses:
    """The classes that wait, in the order in which they came.

    Args:
        offered: per machine, the constraints that it meets.

    Attributes:
        counts: of tasks that wait, by class.
        unblocked: classes that may fit, each with the only machine where it may, or `ANYWHERE`.
        blocked: classes that fit nowhere; those with machines of their own are kept by machine instead, because room
            elsewhere does not concern them.
    """

    __slots__ = ("_blocked", "_guards", "_listed", "_masks", "_narrow", "_offered", "_packing", "_requests",
                 "_slots", "_spare", "blocked", "counts", "unblocked")  # fmt: skip

    def __init__(self, packing: Packing, offered: Sequence[int]) -> None:
        self._packing = packing
        self._guards = packing.guards
        self._offered = offered
        self.counts: dict[Kind, int] = {}
        self.unblocked: dict[Kind, int] = {}
        self.blocked: dict[Kind, None] = {}
        self._narrow: dict[int, dict[Kind, None]] = {}
        self._slots: dict[Kind, int] = {}
        self._listed: list[Kind | None] = []
        self._spare: list[int] = []
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
            self._listed[slot] = None
            self._spare.append(slot)

    def block(self, kind: Kind) -> None:
        """Block a class, which fits nowhere."""
        del self.unblocked[kind]
        for machine in kind.machines:
            self._narrow.setdefault(machine, {})[kind] = None
        if kind.machines:
            return
        self.blocked[kind] = None
        if self._slots:
            slot = self._slot(kind)  # it may make the columns anew
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
            self._narrow.get(machine, {}).pop(kind, None)

    def given_back(self, machine: int, free: int) -> None:
        """Unblock the classes that fit a machine with this much free, packed and guarded."""
        for kind, where in self.unblocked.items():
            if where not in (ANYWHERE, machine):
                self.unblocked[kind] = ANYWHERE
        fitting = self._fitting(machine, free) if self.blocked else []
        if self._narrow:
            narrow, guards = self._narrow.get(machine, ()), self._guards
            fitting += [k for k in narrow if (free - k.packed) & guards == guards and k.suitable >> machine & 1]
        for kind in fitting:
            self.unblock(kind, machine)

    def taken(self, machine: int, free: int) -> None:
        """Block the classes that were unblocked because of a machine and do not fit what is free there now."""
        guards = self._guards
        found = [k for k, where in self.unblocked.items() if where == machine and (free - k.packed) & guards != guards]
        for kind in found:
            self.block(kind)

    def _fitting(self, machine: int, free: int) -> list[Kind]:
        """The blocked classes without machines of their own that fit a machine."""
        guards = self._guards
        if len(self.blocked) <= LOOP_MAX:
            return [k for k in self.blocked if (free - k.packed) & guards == guards and k.suitable >> machine & 1]
        if not self._slots:
            for kind in self.blocked:
                slot = self._slot(kind)  # it may make the columns anew
                self._blocked[slot] = True
        count = len(self._listed)
        fits = self._blocked[:count] & ((self._masks[:count] & ~np.int64(self._offered[machine])) == 0)
        for column, amount in zip(self._requests, self._packing.amounts(free), strict=True):
            fits &= column[:count] <= amount
        found = [self._listed[slot] for slot in np.flatnonzero(fits).tolist()]
        return [kind for kind in found if kind is not None and kind.suitable >> machine & 1]

    def _slot(self, kind: Kind) -> int:
        """The place of a class in the columns."""
        slot = self._slots.get(kind)
        if slot is not None:
            return slot
        if self._spare:
            slot = self._spare.pop()
            self._listed[slot] = kind
        else:
            slot = len(self._listed)
            self._listed.append(kind)
            if slot == len(self._masks):
                self._lengthen()
        self._slots[kind] = slot
        self._masks[slot] = kind.constraints
        self._requests[:, slot] = self._packing.amounts(kind.packed)
        return slot

    def _lengthen(self) -> None:
        length = 2 * len(self._masks) or 4 * LOOP_MAX
        rows = len(self._packing.amounts(0))
        masks, blocked, requests = self._masks, self._blocked, self._requests
        self._masks = np.zeros(length, dtype=np.int64)
        self._blocked = np.zeros(length, dtype=np.bool_)
        self._requests = np.zeros((rows, length), dtype=np.int64)
        if len(masks):
            self._masks[: len(masks)], self._blocked[: len(masks)] = masks, blocked
            self._requests[:, : len(masks)] = requests

    def check(self) -> None:
        """Raise AssertionError unless every class that waits is either blocked or not, in the columns too."""
        narrow = {kind for kinds in self._narrow.values() for kind in kinds}
        assert all(kind in self._narrow[machine] for kind in narrow for machine in kind.machines)
        blocked = self.blocked.keys() | narrow
        assert self.unblocked.keys() | blocked == self.counts.keys()
        assert not self.unblocked.keys() & blocked
        if self._slots:
            found = {kind for kind, slot in self._slots.items() if self._blocked[slot]}
            assert found == self.blocked.keys(), "the columns know other blocked classes"
