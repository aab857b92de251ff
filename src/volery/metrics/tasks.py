"""Measures of tasks: the allocation time of each, and where it went; the distance from its input.

Allocation time is that of Thiyyakat et al. (arXiv 2103.08413). A task of a workflow arrives when the last of its
parents has finished.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from volery.core.locality import LEVELS, UNPLACED, Pace
from volery.core.model import NEVER, Cluster
from volery.core.records import Records
from volery.metrics.arrays import Flags, Longs, halves, ready_us, view


class AllocationParts(msgspec.Struct, frozen=True, eq=False):
    """Per task, in microseconds, `NEVER` where it did not start; the four parts sum to task start - task arrival.

    Args:
        framework_queueing: Time in the scheduling framework: all that the other three do not explain.
        processing: Time of handling by schedulers and masters.
        worker_queueing: Time in a worker's own queue.
        communication: Time on the wire.
    """

    framework_queueing: Longs
    processing: Longs
    worker_queueing: Longs
    communication: Longs


def allocation_parts(records: Records, among: Flags | None = None) -> Iterator[tuple[str, Longs]]:
    """Yield "total" and then each part over the tasks that started; one further column is in memory at any time.

    `among` marks the tasks that count; all do by default.

    The consumer may reorder what it is given. The causal chain of messages that led to a start may have begun before
    the task arrived (a worker that was already on its way to idle), so a part takes no more than what is left.
    """
    started = view(records.start_us) != NEVER
    if among is not None:
        started &= among
    unexplained = view(records.start_us) - ready_us(records)
    unexplained = unexplained if started.all() else unexplained[started]
    yield "total", unexplained.copy()

    on_the_wire, in_service = halves(records.path)
    for name, column in (("communication", on_the_wire), ("processing", in_service)):
        part = np.minimum(column if unexplained.size == column.size else column[started], unexplained)
        unexplained -= part
        yield name, part
        del part

    part = np.minimum(_worker_waits_us(records, started), unexplained)
    unexplained -= part
    yield "worker_queueing", part
    del part
    yield "framework_queueing", unexplained


def allocation(records: Records) -> AllocationParts:
    """The four parts of every task's allocation time, in microseconds."""
    started = view(records.start_us) != NEVER

    def spread(part: Longs) -> Longs:
        column = np.full(started.size, NEVER, dtype=np.int64)
        column[started] = part
        return column

    return AllocationParts(**{name: spread(part) for name, part in allocation_parts(records) if name != "total"})


def _worker_waits_us(records: Records, started: Flags) -> Longs:
    waited = np.zeros(started.size, dtype=np.int64)
    if records.waited_us:
        count = len(records.waited_us)
        waited[np.fromiter(records.waited_us.keys(), np.int64, count)] = np.fromiter(
            records.waited_us.values(), np.int64, count
        )
    return waited[started]


class LocalitySummary(msgspec.Struct, frozen=True):
    """Distances of tasks from their input in a run; shares of those that ran, by their last attempt.

    Args:
        tasks: Count of tasks that ran and have input.
        node: Share on a machine that holds it (0 to 1).
        rack: Share on another machine, in a rack that holds it.
        any: Share elsewhere.
        node_by_job: Mean over jobs of the share of their tasks on a machine that holds their input.
    """

    tasks: int
    node: float
    rack: float
    any: float
    node_by_job: float = 0.0


def locality_summary(records: Records, cluster: Cluster) -> LocalitySummary | None:
    """Shares of a run; None where no task that ran has input anywhere."""
    trace = records.trace
    if not trace.replicas:
        return None
    pace = Pace(trace, cluster)
    counts = [0] * len(LEVELS)
    shares = []

    for job in range(trace.job_count):
        job_counts = [0] * len(LEVELS)
        for task in range(trace.first[job], trace.first[job + 1]):
            if records.finish_us[task] != NEVER:
                level = pace.level(task, records.worker[task])
                if level != UNPLACED:
                    job_counts[level] += 1

        if ran := sum(job_counts):
            shares.append(job_counts[0] / ran)
            counts = [a + b for a, b in zip(counts, job_counts, strict=True)]

    ran = sum(counts)
    if not ran:
        return None
    node, rack, elsewhere = (count / ran for count in counts)
    return LocalitySummary(ran, node, rack, elsewhere, sum(shares) / len(shares))
