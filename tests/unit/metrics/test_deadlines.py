"""Deadlines of a run."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.conformance.cases import trace_of
from volery.core.events import Allotted
from volery.core.model import NEVER, SECOND
from volery.core.records import Records
from volery.metrics import allotment_summary, deadline_summary


def test_what_is_late_or_never_answered_has_missed_its_deadline() -> None:
    trace = trace_of("due", [0, 0, SECOND, SECOND], [[1], [1], [1], [1]])
    trace = msgspec.structs.replace(trace, deadline_us=array("q", [5, 5, 2 * SECOND, NEVER]))
    records = Records(trace)
    records.answered_us = array("q", [5, 6, NEVER, 4 * SECOND])
    found = deadline_summary(records)
    assert found is not None
    assert (found.jobs, found.met, found.attainment) == (3, 1, 1 / 3)
    assert (found.best_effort_jrt_s.count, found.best_effort_jrt_s.mean) == (1, 3.0)


def test_without_deadlines_there_is_nothing_to_say() -> None:
    assert deadline_summary(Records(trace_of("none", [0], [[1]]))) is None
    never = msgspec.structs.replace(trace_of("none", [0], [[1]]), deadline_us=array("q", [NEVER]))
    assert deadline_summary(Records(never)) is None


HOUR = 3600 * SECOND


def records(*facts: Allotted) -> Records:
    """Job 0 has 20 hours of work and 8 hours to its deadline; job 1 has none; job 2 has 4 of 4."""
    trace = trace_of("due", [0, 0, HOUR], [[HOUR] * 20, [HOUR], [2 * HOUR] * 2])
    made = Records(msgspec.structs.replace(trace, deadline_us=array("q", [8 * HOUR, NEVER, 5 * HOUR])))
    for fact in facts:
        made.observe(fact)
    return made


def test_slot_hours_are_held_against_work_over_time_rounded_up() -> None:
    found = allotment_summary(
        records(Allotted(0, 0, 2), Allotted(HOUR, 1, 9), Allotted(2 * HOUR, 0, 5), Allotted(6 * HOUR, 0, 0))
    )
    assert found is not None
    assert (found.jobs, found.slot_hours) == (1, 2 * 2 + 5 * 4), "what job 1 has, without a deadline, does not count"
    assert found.of_oracle == pytest.approx(24 / (3 * 8)), "20 / 8 rounded up, until the deadline"
    assert found.above_oracle == pytest.approx(4 * (5 - 3) / 24)
    assert found.excess_slot_hours == 4 * (5 - 3)
    assert found.changes_per_job == 1


def test_several_jobs_add_up() -> None:
    facts = [Allotted(0, 0, 3), Allotted(HOUR, 2, 1), Allotted(5 * HOUR, 2, 0), Allotted(8 * HOUR, 0, 0)]
    found = allotment_summary(records(*facts))
    assert found is not None
    assert (found.jobs, found.slot_hours, found.of_oracle) == (2, 28, 1.0)
    assert (found.above_oracle, found.changes_per_job) == (0.0, 0.0)


def test_without_guarantees_there_is_nothing_to_say() -> None:
    assert allotment_summary(records()) is None
    assert allotment_summary(records(Allotted(0, 1, 4))) is None
    assert allotment_summary(Records(trace_of("none", [0], [[1]]))) is None
