"""The kinds of tasks that wait, each open or closed.

Machines only become fuller while a cycle lasts, and a kind that fits nowhere goes on to fit nowhere until something is
given back. Such a kind is *closed*; what is given back on a machine opens those that fit it, and what is taken
there closes those of them that fit no more. So the cost of a decision depends on how many kinds may fit, and not on
how many tasks wait.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.policies import Kind
from volery.core.resources import Packing

LOOP_MAX: Final = 32
"""Above this many closed kinds a numpy pass is faster than a loop."""
ANYWHERE: Final = -1
"""Stands for the machine where an open kind may fit: it may be any."""

Column = npt.NDArray[np.int64]


class Kinds:
    """The kinds that wait, in the order in which they came.

    Args:
        packing: of vectors.
        offered: per machine, the constraints that it meets.

    Attributes:
        open: kinds that may fit, each with the only machine where it may, or `ANYWHERE`.
        closed: kinds that fit nowhere.
    """

    __slots__ = (
        "_closed",
        "_counts",
        "_guards",
        "_listed",
        "_masks",
        "_offered",
        "_packing",
        "_requests",
        "_slots",
        "_spare",
        "closed",
        "open",
    )  # fmt: skip

    def __init__(self, packing: Packing, offered: Sequence[int]) -> None:
        self._packing = packing
        self._guards = packing.guards
        self._offered = offered
        self._counts: dict[Kind, int] = {}
        self.open: dict[Kind, int] = {}
        self.closed: dict[Kind, None] = {}
        self._slots: dict[Kind, int] = {}
        self._listed: list[Kind | None] = []
        self._spare: list[int] = []
        self._masks: Column = np.zeros(0, dtype=np.int64)
        self._requests: Column = np.zeros((0, 0), dtype=np.int64)
        self._closed: npt.NDArray[np.bool_] = np.zeros(0, dtype=np.bool_)

    def __iter__(self) -> Iterator[Kind]:
        return iter(self._counts)

    def counts(self) -> Iterable[tuple[Kind, int]]:
        """The kinds that wait, with how many of each."""
        return self._counts.items()

    def joined(self, kind: Kind) -> None:
        """One more waits."""
        count = self._counts.get(kind, 0)
        self._counts[kind] = count + 1
        if not count:
            self.open[kind] = ANYWHERE

    def left(self, kind: Kind) -> None:
        """One less waits."""
        count = self._counts[kind] - 1
        if count:
            self._counts[kind] = count
            return
        del self._counts[kind]
        self.open.pop(kind, None)
        self.closed.pop(kind, None)
        slot = self._slots.pop(kind, None)
        if slot is not None:
            self._closed[slot] = False
            self._listed[slot] = None
            self._spare.append(slot)

    def close(self, kind: Kind) -> None:
        """It fits nowhere."""
        del self.open[kind]
        self.closed[kind] = None
        if self._slots:
            slot = self._slot(kind)  # it may make the columns anew
            self._closed[slot] = True

    def reopen(self, kind: Kind, machine: int = ANYWHERE) -> None:
        """It may fit, on this machine if on any."""
        if kind in self.closed:
            del self.closed[kind]
            self.open[kind] = machine
            if self._slots:
                self._closed[self._slots[kind]] = False

    def given_back(self, machine: int, free: int) -> None:
        """A machine has this much free now, packed and guarded: open what fits it."""
        for kind, where in self.open.items():
            if where not in (ANYWHERE, machine):
                self.open[kind] = ANYWHERE
        for kind in self._fitting(machine, free):
            self.reopen(kind, machine)

    def taken(self, machine: int, free: int) -> None:
        """A machine has no more than this free now: close what was opened because of it and does not fit any more."""
        guards = self._guards
        over = [
            kind for kind, where in self.open.items() if where == machine and (free - kind.packed) & guards != guards
        ]
        for kind in over:
            self.close(kind)

    def _fitting(self, machine: int, free: int) -> list[Kind]:
        """The closed kinds that fit a machine."""
        guards = self._guards
        if len(self.closed) <= LOOP_MAX:
            return [
                kind for kind in self.closed if (free - kind.packed) & guards == guards and kind.suitable >> machine & 1
            ]
        if not self._slots:
            self._list_all()
        count = len(self._listed)
        fits = self._closed[:count] & ((self._masks[:count] & ~np.int64(self._offered[machine])) == 0)
        for column, amount in zip(self._requests, self._packing.amounts(free), strict=True):
            fits &= column[:count] <= amount
        found = [self._listed[slot] for slot in np.flatnonzero(fits).tolist()]
        return [kind for kind in found if kind is not None and kind.suitable >> machine & 1]

    def _list_all(self) -> None:
        for kind in self.closed:
            slot = self._slot(kind)  # it may make the columns anew
            self._closed[slot] = True

    def _slot(self, kind: Kind) -> int:
        """The place of a kind in the columns."""
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
        masks, closed, requests = self._masks, self._closed, self._requests
        self._masks = np.zeros(length, dtype=np.int64)
        self._closed = np.zeros(length, dtype=np.bool_)
        self._requests = np.zeros((rows, length), dtype=np.int64)
        if len(masks):
            self._masks[: len(masks)], self._closed[: len(masks)] = masks, closed
            self._requests[:, : len(masks)] = requests

    def check(self) -> None:
        """Raise AssertionError unless every kind that waits is either open or closed, in the columns too."""
        assert self.open.keys() | self.closed.keys() == self._counts.keys()
        assert not self.open.keys() & self.closed.keys()
        if self._slots:
            found = {kind for kind, slot in self._slots.items() if self._closed[slot]}
            assert found == self.closed.keys(), "the columns know other closed kinds"
