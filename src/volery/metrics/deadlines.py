"""Deadlines that were met (TetriSched's metrics, EuroSys 2016), and slots that were guaranteed, against an oracle's."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec
import numpy as np

from volery.core.model import NEVER, SECOND, JobId, Time
from volery.core.records import Records
from volery.metrics.columns import Flags, view
from volery.metrics.distribution import Distribution, distribution

HOUR_US = 3600 * SECOND


class DeadlineSummary(msgspec.Struct, frozen=True):
    """Deadlines of a run that were met and missed.

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

    `among` marks the jobs that count; all do by default.
    """
    trace = records.trace
    if not trace.deadline_us:
        return None
    due_us, answered_us = view(trace.deadline_us), view(records.answered_us)
    counted = np.ones(due_us.size, dtype=np.bool_) if among is None else among
    has, answered = counted & (due_us != NEVER), answered_us != NEVER
    if not has.any():
        return None
    met = int(np.count_nonzero(has & answered & (answered_us <= due_us)))
    others = counted & ~has & answered
    best_effort_us = (answered_us - view(trace.arrival_us))[others]
    submit_us = view(trace.arrival_us)
    timely = has & answered & (due_us > submit_us)
    relative = distribution((answered_us - submit_us)[timely] / (due_us - submit_us)[timely])
    jobs = int(np.count_nonzero(has))
    return DeadlineSummary(jobs, met, met / jobs, distribution(best_effort_us, unit=SECOND), relative)


class AllotmentSummary(msgspec.Struct, frozen=True):
    """Slots guaranteed to jobs in a run, against an oracle.

    Args:
        jobs: how many jobs with a deadline ever had a guarantee.
        slot_hours: guaranteed slots, summed over these jobs and time.
        of_oracle: the same / slot hours of the oracle (no unit).
        above_oracle: share of the slot hours that lie above what the oracle guarantees (0 to 1).
        excess_slot_hours: these.
        changes_per_job: how often the guarantee of a job was changed, its first and its end not among them.
    """

    jobs: int
    slot_hours: float
    of_oracle: float
    above_oracle: float
    excess_slot_hours: float
    changes_per_job: float


def allotment_summary(records: Records) -> AllotmentSummary | None:
    """The guarantees of a run; None where no design reported any for a job with a deadline."""
    trace, steps = records.trace, dict[JobId, list[tuple[Time, int]]]()
    for fact in records.allotments:
        due = trace.deadline_us[fact.job] if trace.deadline_us else NEVER
        if due > trace.arrival_us[fact.job]:
            steps.setdefault(fact.job, []).append((fact.at_us, fact.slots))
    if not steps:
        return None
    total = above = best = changes = 0
    for job, theirs in steps.items():
        whole_us = trace.deadline_us[job] - trace.arrival_us[job]
        oracle = -(-sum(trace.duration_us[trace.first[job] : trace.first[job + 1]]) // whole_us)
        total += _slot_us(theirs, 0)
        above += _slot_us(theirs, oracle)
        best += oracle * whole_us
        changes += max(0, len(theirs) - 2)
    return AllotmentSummary(
        jobs=len(steps),
        slot_hours=total / HOUR_US,
        of_oracle=total / best if best else 0.0,
        above_oracle=above / total if total else 0.0,
        excess_slot_hours=above / HOUR_US,
        changes_per_job=changes / len(steps),
    )


def _slot_us(steps: Sequence[tuple[Time, int]], beyond: int) -> int:
    """Slots beyond so many, times microseconds: each step lasts until the next; the last one is the end."""
    return sum([max(0, slots - beyond) * (until - at) for (at, slots), (until, _) in itertools.pairwise(steps)])
