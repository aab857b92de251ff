"""Allocation time of every task, and where it went (Thiyyakat et al., arXiv 2103.08413).

A task of a workflow arrives when the last of its parents has finished.
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import numpy as np

from volery.core.model import NEVER
from volery.core.records import Records
from volery.metrics.columns import Flags, Longs, halves, ready_us, view


class AllocationParts(msgspec.Struct, frozen=True, eq=False):
    """Per task, in microseconds, `NEVER` where it did not start; the four parts sum to task start - task arrival.

    Args:
        framework_queueing: waiting inside the scheduling framework: all that the other three do not explain.
        processing: being handled by schedulers and masters.
        worker_queueing: waiting in a worker's own queue.
        communication: on the wire.
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
    left = view(records.start_us) - ready_us(records)
    left = left if started.all() else left[started]
    yield "total", left.copy()
    on_the_wire, in_service = halves(records.path)
    for name, column in (("communication", on_the_wire), ("processing", in_service)):
        part = np.minimum(column if left.size == column.size else column[started], left)
        left -= part
        yield name, part
        del part
    part = np.minimum(_waited(records, started), left)
    left -= part
    yield "worker_queueing", part
    del part
    yield "framework_queueing", left


def allocation(records: Records) -> AllocationParts:
    """The four parts of every task's allocation time, in microseconds."""
    started = view(records.start_us) != NEVER

    def spread(part: Longs) -> Longs:
        column = np.full(started.size, NEVER, dtype=np.int64)
        column[started] = part
        return column

    return AllocationParts(**{name: spread(part) for name, part in allocation_parts(records) if name != "total"})


def _waited(records: Records, started: Flags) -> Longs:
    waited = np.zeros(started.size, dtype=np.int64)
    if records.waited_us:
        count = len(records.waited_us)
        waited[np.fromiter(records.waited_us.keys(), np.int64, count)] = np.fromiter(
            records.waited_us.values(), np.int64, count
        )
    return waited[started]
