"""Deadlines of a run."""

from __future__ import annotations

from array import array

import msgspec

from volery.conformance.cases import trace_of
from volery.core.model import NEVER, SECOND
from volery.core.records import Records
from volery.metrics import deadline_summary


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
