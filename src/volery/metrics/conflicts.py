"""Scheduling conflicts of an idealised schedule (Thiyyakat et al., IoT 2023, section 2.3 and figure 5).

The paper counts, per second, tasks that wait for a worker node, assuming that tasks may switch to another node when
that helps and that no delay carries over into later seconds. We make that exact: the conflicts of a second are the
tasks active at its beginning (each taken to start on arrival) minus the largest number of them that the cluster can
run at once, a maximum matching of tasks and slots under the placement constraints. No schedule has fewer tasks waiting.
"""

from __future__ import annotations

import numpy as np

from volery.core.model import Cluster
from volery.core.trace import Trace
from volery.metrics.columns import Longs
from volery.metrics.demand import changes_by_second, runnable_tasks


def conflicts_per_second(trace: Trace, cluster: Cluster) -> tuple[Longs, Longs]:
    """Count the tasks that no matching can run, at the beginning of each second.

    Args:
        trace: tasks active for less than a second between two beginnings are not seen.
        cluster: to match them with; tasks that fit no machine are left out.

    Returns:
        seconds (since the run began) and the conflicts in each, from the first to the last second with a task.
    """
    begin, end, needs = runnable_tasks(trace, cluster)
    distinct, kind = np.unique(needs, return_inverse=True)
    matching = Matching([int(need) for need in distinct], cluster)
    seconds, conflicts = [], []
    for second, came, went in changes_by_second(begin, end, kind):
        change = np.bincount(came, minlength=distinct.size) - np.bincount(went, minlength=distinct.size)
        for k in np.flatnonzero(change):
            matching.change(int(k), int(change[k]))
        seconds.append(second)
        conflicts.append(matching.improve())
    return np.array(seconds, dtype=np.int64), np.array(conflicts, dtype=np.int64)


class Matching:
    """A maximum matching of tasks and slots, kept up while tasks come and go.

    Tasks with equal constraints are one kind: any of them may hold any slot that the kind holds. Sets of slots are
    bits of one integer, slots of machines with few constraints first, so that the lowest bit is the least valuable.
    """

    def __init__(self, needs: list[int], cluster: Cluster) -> None:
        slots = [bits for bits, count in zip(cluster.constraints, cluster.slots, strict=True) for _ in range(count)]
        slots.sort(key=lambda bits: (bits.bit_count(), bits))
        columns = [_bit_set(np.array(slots, dtype=np.int64) >> c & 1) for c in range(63)]
        self._free = (1 << len(slots)) - 1
        self._can = [self._free] * len(needs)
        for kind, need in enumerate(needs):
            while need:
                self._can[kind] &= columns[(need & -need).bit_length() - 1]
                need &= need - 1
        # Only kinds that hold a slot or have a task waiting: a second costs what is active, not what was ever seen.
        self._held: dict[int, int] = {}
        self._waiting: dict[int, int] = {}

    def change(self, kind: int, amount: int) -> None:
        """Let tasks of a kind come (positive) or go (negative); those that wait go first."""
        waiting = self._waiting.pop(kind, 0) + amount
        for _ in range(-waiting):
            self._release(kind)
        if waiting > 0:
            self._waiting[kind] = waiting

    def improve(self) -> int:
        """Match as many tasks as can be matched; returns how many are left waiting."""
        for kind in list(self._waiting):
            while kind in self._waiting and self._free & self._can[kind]:
                self._take(kind)
                self._count_waiting(kind)
        while self._waiting and self._augment():
            pass
        return sum(self._waiting.values())

    def check(self) -> None:
        """Raise when a slot is held twice or by a task that does not fit."""
        seen = self._free
        for kind, held in self._held.items():
            assert held, "a kind without a slot is kept"
            assert not held & seen, "a slot is held twice"
            assert not held & ~self._can[kind], "a slot is held by a task that does not fit"
            seen |= held

    def _release(self, kind: int) -> None:
        """Free the most valuable slot that the kind holds."""
        slot = 1 << (self._held[kind].bit_length() - 1)
        self._free |= slot
        self._held[kind] ^= slot
        if not self._held[kind]:
            del self._held[kind]

    def _take(self, kind: int) -> None:
        """Hold the least valuable free slot that fits."""
        slots = self._free & self._can[kind]
        slot = slots & -slots
        self._free ^= slot
        self._held[kind] = self._held.get(kind, 0) | slot

    def _count_waiting(self, kind: int) -> None:
        """One task of the kind no longer waits."""
        self._waiting[kind] -= 1
        if not self._waiting[kind]:
            del self._waiting[kind]

    def _augment(self) -> bool:
        """Find one waiting task a slot by moving others; False when no chain of moves does (Berge: it is maximum)."""
        frontier = list(self._waiting)
        moved_by: dict[int, tuple[int, int] | None] = dict.fromkeys(frontier)
        reached = 0
        for kind in frontier:
            reach = self._can[kind] & ~reached
            if reach & self._free:
                self._shift(kind, moved_by)
                return True
            reached |= reach
            for other, held in self._held.items():
                slots = held & reach
                if slots and other not in moved_by:
                    moved_by[other] = (kind, slots & -slots)
                    frontier.append(other)
        return False

    def _shift(self, kind: int, moved_by: dict[int, tuple[int, int] | None]) -> None:
        """Give `kind` a free slot, and along the chain the slot that it held to whoever asked for it."""
        self._take(kind)
        while (step := moved_by[kind]) is not None:
            mover, slot = step
            self._held[kind] ^= slot
            self._held[mover] = self._held.get(mover, 0) | slot
            kind = mover
        self._count_waiting(kind)


def _bit_set(flags: Longs) -> int:
    return int.from_bytes(np.packbits(flags.astype(np.bool_), bitorder="little").tobytes(), "little")
