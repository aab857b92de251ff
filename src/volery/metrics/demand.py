"""Load that a workload puts on a cluster without any scheduler (Thiyyakat et al., IoT 2023, section 2.3).

Tasks are taken to start when they arrive, or when those that they wait for end, and to run without any delay. Tasks
that no machine can run are left out: they never use a resource. The load of a second is the average over that second,
exactly integrated, and the seconds counted are those from the one with the first arrival to the last in which a task
is active.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import msgspec
import numpy as np

from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace
from volery.core.workflows import comes_in_parts, ends_us
from volery.metrics.columns import Flags, Floats, Longs, arrival_of_task_us, view
from volery.metrics.occupancy import busy_time_us


class ConstraintLoad(msgspec.Struct, frozen=True):
    """Load of one constraint over the seconds of a workload: slots that tasks needing it use / slots that have it."""

    constraint: int
    mean: float
    median: float
    p95: float
    p99: float


class TotalLoad(msgspec.Struct, frozen=True):
    """Load of the whole cluster over the seconds of a workload: slots in use / slots."""

    mean: float
    median: float
    p95: float
    p99: float


def constraint_load(trace: Trace, cluster: Cluster) -> list[ConstraintLoad]:
    """Load per constraint, for every constraint that a machine has (figures 2 to 4)."""
    begin, end, needs = runnable_tasks(trace, cluster)
    edges = whole_seconds(begin, end)
    machine_bits, slots = np.array(cluster.constraints, dtype=np.int64), np.array(cluster.slots, dtype=np.int64)
    loads = []
    for constraint in range(int(machine_bits.max()).bit_length()):
        having = int(slots[(machine_bits >> constraint) & 1 == 1].sum())
        if having:
            needing = (needs >> constraint) & 1 == 1
            load = busy_time_us(begin[needing], end[needing], edges) / (np.diff(edges) * having)
            loads.append(ConstraintLoad(constraint, *_statistics(load)))
    return loads


def total_load(trace: Trace, cluster: Cluster) -> TotalLoad:
    """Load of the cluster as a whole (table 1)."""
    begin, end, _ = runnable_tasks(trace, cluster)
    edges = whole_seconds(begin, end)
    return TotalLoad(*_statistics(busy_time_us(begin, end, edges) / (np.diff(edges) * cluster.slot_count)))


def _statistics(load: Floats) -> tuple[float, float, float, float]:
    median, p95, p99 = (float(p) for p in np.percentile(load, (50, 95, 99)))
    return float(load.mean()), median, p95, p99


def runnable_tasks(trace: Trace, cluster: Cluster) -> tuple[Longs, Longs, Longs]:
    """Begin, end (in microseconds, without any delay) and constraints of the tasks that some machine can run."""
    end = arrival_of_task_us(trace) + view(ends_us(trace) if comes_in_parts(trace) else trace.duration_us)
    begin = end - view(trace.duration_us)
    needs = view(trace.constraints) if trace.constraints else np.zeros(trace.task_count, dtype=np.int64)
    fits = satisfiable(needs, cluster)
    return (begin, end, needs) if fits.all() else (begin[fits], end[fits], needs[fits])


def satisfiable(needs: Longs, cluster: Cluster) -> Flags:
    """Per task, whether some machine has all that it needs."""
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
        seconds: with a change, rising; at the last one nothing is active any more.
        first: per second, the place of its first change, and at the end the number of changes.
        kind: per change, rising within a second.
        amount: tasks that came, less those that went.
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
    seen = until_second > from_second
    second = np.append(from_second[seen], until_second[seen])
    of = np.append(kind[seen], kind[seen])
    step = np.repeat(np.array([1, -1], dtype=np.int64), int(seen.sum()))
    order = np.lexsort((of, second))
    second, of = second[order], of[order]
    new = np.flatnonzero(np.append(True, (np.diff(second) != 0) | (np.diff(of) != 0))[: second.size])
    amount = np.add.reduceat(step[order], new) if new.size else np.zeros(0, dtype=np.int64)
    kept = amount != 0
    second, of, amount = second[new][kept], of[new][kept], amount[kept]
    seconds, first = np.unique(second, return_index=True)
    return DemandChanges(seconds, np.append(first, second.size), of, amount)
