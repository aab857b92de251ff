"""Deadlines: how many were met, and how long jobs without one took meanwhile (TetriSched's metrics, EuroSys 2016)."""

from __future__ import annotations

import msgspec
import numpy as np

from volery.core.model import NEVER, SECOND
from volery.core.records import Records
from volery.metrics.columns import Flags, view
from volery.metrics.distribution import Distribution, distribution


class DeadlineSummary(msgspec.Struct, frozen=True):
    """What became of the deadlines of a run.

    Args:
        jobs: how many had one.
        met: how many of these were answered by then.
        attainment: the share that were (0 to 1).
        best_effort_jrt_s: response time of the jobs without one that were answered.
        relative: time to the answer / time to the deadline, of the jobs with one that were answered (no unit).
    """

    jobs: int
    met: int
    attainment: float
    best_effort_jrt_s: Distribution
    relative: Distribution | None = None


def deadline_summary(records: Records, among: Flags | None = None) -> DeadlineSummary | None:
    """The deadlines of a run; None where no job has one. A job that was never answered has missed its own.

    `among` says per job whether it counts; all do by default.
    """
    trace = records.trace
    if not trace.deadline_us:
        return None
    due_us, answered_us = view(trace.deadline_us), view(records.answered_us)
    counted = np.ones(due_us.size, dtype=np.bool_) if among is None else among
    has, told = counted & (due_us != NEVER), answered_us != NEVER
    if not has.any():
        return None
    met = int(np.count_nonzero(has & told & (answered_us <= due_us)))
    others = counted & ~has & told
    best_effort_us = (answered_us - view(trace.arrival_us))[others]
    submit_us = view(trace.arrival_us)
    timely = has & told & (due_us > submit_us)
    relative = distribution((answered_us - submit_us)[timely] / (due_us - submit_us)[timely])
    jobs = int(np.count_nonzero(has))
    return DeadlineSummary(jobs, met, met / jobs, distribution(best_effort_us, unit=SECOND), relative)
