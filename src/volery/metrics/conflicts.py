"""Scheduling conflicts of an idealised schedule (Thiyyakat et al., IoT 2023, section 2.3 and figure 5).

The paper counts, per second, conflicts "where multiple tasks wait for a worker node", assuming that tasks may switch to
another node and that no delay carries over into later seconds, and leaves the rest open. We make it exact in two ways,
both over the tasks active at the beginning of a second, each taken to start on arrival:

- *waiting*: those tasks minus the largest number of them that the cluster can run at once, a maximum matching of tasks
  and slots under the placement constraints. No schedule has fewer tasks waiting: it is a lower bound.
- *collisions*: each task draws one of the slots that it fits, and all but one of those that drew the same slot must
  switch. This is the expected number that must, in closed form: tasks minus slots that somebody draws.
"""

from __future__ import annotations

from collections.abc import Mapping

import msgspec
import numpy as np
import numpy.typing as npt

from volery.core.model import CONSTRAINT_BITS_MAX, Cluster
from volery.core.trace import Trace
from volery.metrics.columns import Floats, Longs
from volery.metrics.demand import changes_by_second, runnable_tasks

ROWS_AT_ONCE = 256
"""Kinds of tasks whose slots are unpacked together: 10 MB at 10,000 slots."""
NEVER_MISSED = -1e3
"""Stands for log(0): a task that fits one slot alone always draws it."""


class Conflicts(msgspec.Struct, frozen=True, eq=False):
    """Conflicts per second.

    Args:
        second: since the run began, from the first to the last second that begins with an active task.
        waiting: tasks that no schedule can run at once with the others.
        collisions: expected number of tasks that find the slot of their random choice taken.
    """

    second: Longs
    waiting: Longs
    collisions: Floats


def conflicts_per_second(trace: Trace, cluster: Cluster) -> Conflicts:
    """Count the conflicts at the beginning of each second.

    Args:
        trace: tasks active for less than a second between two beginnings are not seen.
        cluster: to match them with; tasks that fit no machine are left out.
    """
    begin, end, needs = runnable_tasks(trace, cluster)
    distinct, kind = np.unique(needs, return_inverse=True)
    matching = Matching([int(need) for need in distinct], cluster)
    draws = Draws(distinct, cluster)
    active: dict[int, int] = {}
    seconds, waiting, collisions = [], [], []
    for second, came, went in changes_by_second(begin, end, kind):
        change = np.bincount(came, minlength=distinct.size) - np.bincount(went, minlength=distinct.size)
        for k in np.flatnonzero(change).tolist():
            matching.change(k, int(change[k]))
            active[k] = active.get(k, 0) + int(change[k])
            if not active[k]:
                del active[k]
        seconds.append(second)
        waiting.append(matching.improve())
        collisions.append(draws.collisions(active))
    return Conflicts(np.array(seconds, dtype=np.int64), np.array(waiting, dtype=np.int64), np.array(collisions))


class Draws:
    """Tasks that each draw one of the slots that they fit, uniformly and without looking."""

    def __init__(self, needs: Longs, cluster: Cluster) -> None:
        self._needs = needs
        self._slots = np.repeat(np.array(cluster.constraints, dtype=np.int64), cluster.slots)
        self._fits: dict[int, npt.NDArray[np.uint8]] = {}
        self._log_missed: dict[int, float] = {}

    def collisions(self, active: Mapping[int, int]) -> float:
        """The expected number of tasks that draw a slot in vain; `active` is kind -> number of tasks."""
        log_missed = np.zeros(self._slots.size)
        kinds = sorted(active)
        for at in range(0, len(kinds), ROWS_AT_ONCE):
            some = kinds[at : at + ROWS_AT_ONCE]
            rows = np.unpackbits(np.stack([self._row(k) for k in some]), axis=1, count=self._slots.size)
            weights = np.array([active[k] * self._log_missed[k] for k in some], dtype=np.float32)
            log_missed += weights @ rows.astype(np.float32)
        return max(0.0, sum(active.values()) + float(np.expm1(log_missed).sum()))

    def _row(self, kind: int) -> npt.NDArray[np.uint8]:
        if kind not in self._fits:
            fits = (self._slots & self._needs[kind]) == self._needs[kind]
            count = int(fits.sum())
            self._fits[kind] = np.packbits(fits)
            self._log_missed[kind] = float(np.log1p(-1 / count)) if count > 1 else NEVER_MISSED
        return self._fits[kind]


class Matching:
    """A maximum matching of tasks and slots, kept up while tasks come and go.

    Tasks with equal constraints are one kind: any of them may hold any slot that the kind holds. Sets of slots are
    bits of one integer, slots of machines with few constraints first, so that the lowest bit is the least valuable.
    """

    def __init__(self, needs: list[int], cluster: Cluster) -> None:
        slots = [bits for bits, count in zip(cluster.constraints, cluster.slots, strict=True) for _ in range(count)]
        slots.sort(key=lambda bits: (bits.bit_count(), bits))
        columns = [_bit_set(np.array(slots, dtype=np.int64) >> c & 1) for c in range(CONSTRAINT_BITS_MAX)]
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
