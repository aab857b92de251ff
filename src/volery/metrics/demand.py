"""Load that a workload puts on a cluster without any scheduler (Thiyyakat et al., IoT 2023, section 2.3).

Tasks are taken to start when they arrive, or when those that they wait for end, and to run without any delay. Tasks
that no machine can run are left out: they never use a resource. The load of a second is the average over that second,
exactly integrated, and the seconds counted are those from the one with the first arrival to the last in which a task
is active.

Conflicts (figure 5) are those of an idealised schedule. The paper counts, per second, conflicts "where multiple tasks
wait for a worker node", assuming that tasks may switch to another node and that no delay carries over into later
seconds, and leaves the rest open. We make it exact in two ways, both over the tasks active at the beginning of a
second:

- *waiting*: those tasks minus the largest number of them that the cluster can run at once, a maximum matching of tasks
  and slots under the placement constraints. No schedule has fewer tasks waiting: it is a lower bound.
- *collisions*: each task draws one of the slots that it fits, and all but one of those that drew the same slot must
  switch. This is the expected number that must, in closed form: tasks minus slots that somebody draws.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from volery.core.model import CONSTRAINT_BITS_MAX, SECOND, Cluster
from volery.core.trace import Trace
from volery.core.workflows import comes_in_parts, ends_us
from volery.metrics.arrays import Flags, Floats, Longs, arrival_of_task_us, asked, view
from volery.metrics.occupancy import busy_time_us


class ConstraintLoad(msgspec.Struct, frozen=True):
    """Load of one constraint over the seconds of a workload: slots that tasks needing it use / slots that have it."""

    constraint: int
    mean: float
    median: float
    p95: float
    p99: float


class TotalLoad(msgspec.Struct, frozen=True):
    """Load of the whole cluster over the seconds of a workload: what is in use / what there is."""

    mean: float
    median: float
    p95: float
    p99: float


def constraint_load(trace: Trace, cluster: Cluster) -> list[ConstraintLoad]:
    """Load per constraint, for every constraint that a machine has (figures 2 to 4)."""
    begin, end, needs = runnable_tasks(trace, cluster)
    edges = whole_seconds(begin, end)
    amount, offered = _main_demand(trace, cluster)
    machine_bits = np.array(cluster.constraints, dtype=np.int64)
    loads = []
    for constraint in range(int(machine_bits.max()).bit_length()):
        having = int(offered[(machine_bits >> constraint) & 1 == 1].sum())
        if having:
            needing = (needs >> constraint) & 1 == 1
            busy = busy_time_us(begin[needing], end[needing], edges, None if amount is None else amount[needing])
            loads.append(ConstraintLoad(constraint, *_statistics(busy / (np.diff(edges) * having))))
    return loads


def total_load(trace: Trace, cluster: Cluster) -> TotalLoad:
    """Load of the cluster as a whole (table 1)."""
    begin, end, _ = runnable_tasks(trace, cluster)
    edges = whole_seconds(begin, end)
    amount, offered = _main_demand(trace, cluster)
    return TotalLoad(*_statistics(busy_time_us(begin, end, edges, amount) / (np.diff(edges) * offered.sum())))


def _main_demand(trace: Trace, cluster: Cluster) -> tuple[Longs | None, Longs]:
    """Requests of runnable tasks, and offers of machines, of the resource of the largest load; None: one slot each."""
    if not cluster.resources:
        return None, np.array(cluster.slots, dtype=np.int64)
    fits, duration_us = _fits(trace, cluster), view(trace.duration_us).astype(np.float64)
    offered = np.array(cluster.capacities, dtype=np.int64)

    totals = offered.sum(axis=0)
    work_us = np.array([(asked(trace, k) * duration_us).sum() for k in range(len(totals))])
    place = int(np.argmax(np.where(totals > 0, work_us / np.maximum(totals, 1), -1)))
    return asked(trace, place)[fits], offered[:, place]


def _statistics(load: Floats) -> tuple[float, float, float, float]:
    median, p95, p99 = (float(p) for p in np.percentile(load, (50, 95, 99)))
    return float(load.mean()), median, p95, p99


def runnable_tasks(trace: Trace, cluster: Cluster) -> tuple[Longs, Longs, Longs]:
    """Begin, end (in microseconds, without any delay) and constraints of the tasks that some machine can run."""
    end = arrival_of_task_us(trace) + view(ends_us(trace) if comes_in_parts(trace) else trace.duration_us)
    begin = end - view(trace.duration_us)
    fits, needs = _fits(trace, cluster), _needs(trace)
    return (begin, end, needs) if fits.all() else (begin[fits], end[fits], needs[fits])


def _needs(trace: Trace) -> Longs:
    return view(trace.constraints) if trace.constraints else np.zeros(trace.task_count, dtype=np.int64)


def _fits(trace: Trace, cluster: Cluster) -> Flags:
    return satisfiable(_needs(trace), cluster)


def satisfiable(needs: Longs, cluster: Cluster) -> Flags:
    """Flags of the tasks for which some machine has all constraints."""
    machines = np.array(sorted(set(cluster.constraints)), dtype=np.int64)
    distinct, kind = np.unique(needs, return_inverse=True)
    fits = np.array([bool(((machines & need) == need).any()) for need in distinct], dtype=np.bool_)
    return fits[kind]


def whole_seconds(begin_us: Longs, end_us: Longs) -> Longs:
    """Bounds of the seconds from the first begin to the last end; at least one second."""
    if not begin_us.size:
        return np.array([0, SECOND], dtype=np.int64)
    first, last = int(begin_us.min()) // SECOND, -(-int(end_us.max()) // SECOND)
    return np.arange(first, max(last, first + 1) + 1, dtype=np.int64) * SECOND


class DemandChanges(msgspec.Struct, frozen=True, eq=False):
    """Tasks by kind that become active, or cease to be, at beginnings of seconds.

    Args:
        seconds: Seconds with a change, rising; at the last one nothing is active any more.
        first: Place of the first change of each second, and at the end the number of changes.
        kind: Kind of each change, rising within a second.
        amount: Count of tasks that came, less those that went.
    """

    seconds: Longs
    first: Longs
    kind: Longs
    amount: Longs

    def each(self) -> Iterator[tuple[Longs, Longs]]:
        """Kinds and amounts, second by second."""
        places = self.first.tolist()
        for low, high in itertools.pairwise(places):
            yield self.kind[low:high], self.amount[low:high]


def changes_by_second(begin_us: Longs, end_us: Longs, kind: Longs) -> DemandChanges:
    """Changes of the tasks that are active at beginnings of seconds: those that have begun by then and end later."""
    from_second, until_second = -(-begin_us // SECOND), -(-end_us // SECOND)
    # A task that begins and ends within one second is active at no beginning of a second.
    is_active = until_second > from_second

    second = np.append(from_second[is_active], until_second[is_active])
    kinds = np.append(kind[is_active], kind[is_active])
    step = np.repeat(np.array([1, -1], dtype=np.int64), int(is_active.sum()))

    order = np.lexsort((kinds, second))
    second, kinds = second[order], kinds[order]
    group_starts = np.flatnonzero(np.append(True, (np.diff(second) != 0) | (np.diff(kinds) != 0))[: second.size])
    amount = np.add.reduceat(step[order], group_starts) if group_starts.size else np.zeros(0, dtype=np.int64)

    has_changed = amount != 0
    second, kinds, amount = second[group_starts][has_changed], kinds[group_starts][has_changed], amount[has_changed]

    seconds, first = np.unique(second, return_index=True)
    return DemandChanges(seconds, np.append(first, second.size), kinds, amount)


ROWS_AT_ONCE = 256
"""Kinds of tasks whose slots are unpacked together: 10 MB at 10,000 slots."""
NEVER_MISSED = -40.0
"""Stands for log(0): a task that fits one slot alone always draws it. No larger, for the sake of rounding."""


class ConflictCounts(msgspec.Struct, frozen=True, eq=False):
    """Conflicts per second.

    Args:
        second: Seconds since the run began, from the first to the last second that begins with an active task.
        waiting: Count of tasks that no schedule can run at once with the others.
        collisions: Expected count of tasks that find the slot of their random choice taken.
    """

    second: Longs
    waiting: Longs
    collisions: Floats


def conflicts_per_second(trace: Trace, cluster: Cluster) -> ConflictCounts:
    """Count the conflicts at the beginning of each second.

    Args:
        trace: Workload; tasks active for less than a second between two beginnings are not seen.
        cluster: Machines to match them with; tasks that fit no machine are left out.
    """
    begin, end, needs = runnable_tasks(trace, cluster)
    distinct, kind = np.unique(needs, return_inverse=True)
    changes = changes_by_second(begin, end, kind)
    matching = Matching([int(need) for need in distinct], cluster)
    draws = SlotDraws(distinct, cluster)
    waiting, collisions = [], []

    for kinds, amounts in changes.each():
        for k, amount in zip(kinds.tolist(), amounts.tolist(), strict=True):
            matching.change(k, amount)
        draws.change(kinds, amounts)
        waiting.append(matching.improve())
        collisions.append(draws.collisions())

    if not waiting:
        return ConflictCounts(np.zeros(0, dtype=np.int64), np.zeros(0, dtype=np.int64), np.zeros(0))
    lasting = np.diff(changes.seconds)  # nothing is active any more at the last change
    seconds = np.arange(changes.seconds[0], changes.seconds[-1])
    return ConflictCounts(
        seconds, np.repeat(np.array(waiting[:-1]), lasting), np.repeat(np.array(collisions[:-1]), lasting)
    )


def over_intervals(conflicts: ConflictCounts, points: int = 1000) -> dict[str, npt.NDArray[Any]]:
    """Conflicts in intervals of so many whole seconds each (the last may have fewer): mean and largest per second.

    Returns:
        columns begin_s, end_s, and of each of the two kinds its mean (waiting, collisions) and maximum (waiting_max,
        collisions_max).
    """
    count = conflicts.second.size
    width = max(1, -(-count // points))
    begin = np.arange(0, count, width, dtype=np.int64)
    edges = np.append(begin, count)
    columns: dict[str, npt.NDArray[Any]] = {
        "begin_s": conflicts.second[begin],
        "end_s": conflicts.second[begin] + np.diff(edges),
    }
    for name, values in (("waiting", conflicts.waiting), ("collisions", conflicts.collisions)):
        columns[name] = np.add.reduceat(values, begin) / np.diff(edges) if count else np.zeros(0)
        columns[f"{name}_max"] = np.maximum.reduceat(values, begin) if count else values
    return columns


class SlotDraws:
    """Tasks that each draw one of the slots that they fit, uniformly and without looking.

    Of every slot the logarithm of the probability that nobody draws it is kept up while tasks come and go; what
    rounding leaves of it is forgotten whenever no task is active.
    """

    def __init__(self, needs: Longs, cluster: Cluster) -> None:
        self._needs = needs
        self._slots = np.repeat(np.array(cluster.constraints, dtype=np.int64), cluster.slots)
        self._fits: dict[int, npt.NDArray[np.uint8]] = {}
        self._log_missed_by = np.zeros(needs.size)
        self._log_missed = np.zeros(self._slots.size)
        self._active = 0

    def change(self, kinds: Longs, amounts: Longs) -> None:
        """Let tasks of these kinds come (positive) or go (negative)."""
        self._active += int(amounts.sum())
        if not self._active:
            self._log_missed[:] = 0.0
            return
        for at in range(0, kinds.size, ROWS_AT_ONCE):
            kinds_of_chunk = kinds[at : at + ROWS_AT_ONCE]
            fits = np.stack([self._row(k) for k in kinds_of_chunk.tolist()])
            weights = amounts[at : at + ROWS_AT_ONCE] * self._log_missed_by[kinds_of_chunk]
            self._log_missed += weights @ np.unpackbits(fits, axis=1, count=self._slots.size)

    def collisions(self) -> float:
        """The expected number of tasks that draw a slot in vain."""
        return max(0.0, self._active + float(np.expm1(self._log_missed).sum()))

    def _row(self, kind: int) -> npt.NDArray[np.uint8]:
        if kind not in self._fits:
            fits = (self._slots & self._needs[kind]) == self._needs[kind]
            count = int(fits.sum())
            self._fits[kind] = np.packbits(fits)
            self._log_missed_by[kind] = np.log1p(-1 / count) if count > 1 else NEVER_MISSED
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
        self._fitting_slots = [self._free] * len(needs)

        for kind, need in enumerate(needs):
            while need:
                self._fitting_slots[kind] &= columns[(need & -need).bit_length() - 1]
                need &= need - 1
        # Only kinds that hold a slot or have a task waiting: a second costs what is active, not what was ever seen.
        self._slots_of: dict[int, int] = {}
        self._waiting: dict[int, int] = {}
        # Slots, all held, whose holders fit none but these: no chain of moves leads from them to a free one, and no
        # search need look at them. What is released there is mostly taken at once by one that waits for just these.
        self._closed_slots = 0
        self._holder = [0] * (len(slots) + 1)

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
            while kind in self._waiting and self._free & self._fitting_slots[kind]:
                self._take(kind)
                self._count_waiting(kind)

        # A free slot among the closed ones opens them: chains of moves may lead there.
        if self._closed_slots & self._free:
            self._closed_slots = 0

        while self._augment():
            pass
        return sum(self._waiting.values())

    def check(self) -> None:
        """Raise when a slot is held twice or by a task that does not fit."""
        slots_seen = self._free
        for kind, slots in self._slots_of.items():
            assert slots, "a kind without a slot is kept"
            assert not slots & slots_seen, "a slot is held twice"
            assert not slots & ~self._fitting_slots[kind], "a slot is held by a task that does not fit"
            slots_seen |= slots

    def _release(self, kind: int) -> None:
        """Free the most valuable slot that the kind holds."""
        slot = 1 << (self._slots_of[kind].bit_length() - 1)
        self._free |= slot
        self._slots_of[kind] ^= slot
        if not self._slots_of[kind]:
            del self._slots_of[kind]

    def _take(self, kind: int) -> None:
        """Hold the least valuable free slot that fits."""
        slots = self._free & self._fitting_slots[kind]
        slot = slots & -slots

        if slot & self._closed_slots and self._fitting_slots[kind] & ~self._closed_slots:
            self._closed_slots = 0
        self._free ^= slot
        self._slots_of[kind] = self._slots_of.get(kind, 0) | slot
        self._holder[slot.bit_length()] = kind

    def _count_waiting(self, kind: int) -> None:
        """One task of the kind no longer waits."""
        self._waiting[kind] -= 1
        if not self._waiting[kind]:
            del self._waiting[kind]

    def _augment(self) -> bool:
        """Find one waiting task a slot by moving others; False when no chain of moves does (Berge: it is maximum)."""
        frontier = [kind for kind in self._waiting if self._fitting_slots[kind] & ~self._closed_slots]
        moved_by: dict[int, tuple[int, int] | None] = dict.fromkeys(frontier)

        reached = self._closed_slots
        for kind in frontier:
            reach = self._fitting_slots[kind] & ~reached
            if reach & self._free:
                self._shift(kind, moved_by)
                return True
            if not reach:
                continue
            reached |= reach
            for holder, slot in self._holders(reach):
                if holder not in moved_by:
                    moved_by[holder] = (kind, slot)
                    frontier.append(holder)
        self._closed_slots = reached
        return False

    def _holders(self, slots: int) -> Iterator[tuple[int, int]]:
        """Kinds that hold any of these slots, each with one of the slots; scans slots or kinds, whichever are fewer."""
        if slots.bit_count() > len(self._slots_of):
            for kind, slots_held in self._slots_of.items():
                common = slots_held & slots
                if common:
                    yield kind, common & -common
            return
        while slots:
            slot = slots & -slots
            slots ^= slot
            yield self._holder[slot.bit_length()], slot

    def _shift(self, kind: int, moved_by: dict[int, tuple[int, int] | None]) -> None:
        """Give `kind` a free slot, and along the chain the slot that it held to the kind before it."""
        self._take(kind)
        while (step := moved_by[kind]) is not None:
            mover, slot = step
            self._slots_of[kind] ^= slot
            self._slots_of[mover] = self._slots_of.get(mover, 0) | slot
            self._holder[slot.bit_length()] = mover
            kind = mover
        self._count_waiting(kind)


def _bit_set(flags: Longs) -> int:
    return int.from_bytes(np.packbits(flags.astype(np.bool_), bitorder="little").tobytes(), "little")
