"""Slots that were guaranteed to jobs with deadlines, against an oracle (Jockey's metrics, EuroSys 2012, as recalled).

The oracle knows a job's work: it guarantees it work / time to the deadline, rounded up to whole slots, from its
submission to its deadline.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import msgspec

from volery.core.model import NEVER, SECOND, JobId, Time
from volery.core.records import Records

HOUR_US = 3600 * SECOND


class AllotmentSummary(msgspec.Struct, frozen=True):
    """What was guaranteed in a run.

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
