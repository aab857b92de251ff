"""Limits of jobs in a workload: the work that exceeds them, and a run that enforces or ignores them."""

from __future__ import annotations

import msgspec
import numpy as np

from volery.core.limits import Limits, LimitSummary
from volery.core.model import NEVER
from volery.core.trace import Trace, longs
from volery.workload.arrays import Integers, column, view


def bounded_durations_us(trace: Trace) -> Integers:
    """The durations of tasks, none beyond its limit; the column of the trace itself where there are no limits."""
    if not trace.limit_us:
        return view(trace.duration_us)
    return np.minimum(view(trace.duration_us), _limits_of_tasks(trace))


def cut_at_limits(trace: Trace) -> Trace:
    """The trace with no task longer than its limit, for drivers of all machines alike that do not enforce limits."""
    return msgspec.structs.replace(trace, duration_us=column(bounded_durations_us(trace))) if trace.limit_us else trace


def in_force(trace: Trace, limits: Limits) -> tuple[Trace, LimitSummary | None]:
    """The trace with its limits, or without where they are ignored, and the count of tasks that exceed theirs.

    Without limits in the source there is no count.
    """
    if not trace.limit_us:
        return trace, None
    exceeds = view(trace.duration_us) > _limits_of_tasks(trace)
    summary = LimitSummary(
        limits == "enforce",
        int(np.count_nonzero(view(trace.limit_us) != NEVER)),
        int(np.count_nonzero(np.add.reduceat(exceeds, view(trace.first)[:-1], dtype=np.int64))),
        int(np.count_nonzero(exceeds)),
    )
    return (trace if summary.enforced else msgspec.structs.replace(trace, limit_us=longs())), summary


def _limits_of_tasks(trace: Trace) -> Integers:
    limit_us = view(trace.limit_us)
    endless = np.iinfo(np.int64).max
    return np.repeat(np.where(limit_us == NEVER, endless, limit_us), np.diff(view(trace.first)))
