"""Decisions of a run as columns, and the age of the views behind them."""

from __future__ import annotations

from volery.conformance.cases import trace_of
from volery.core.model import SECOND
from volery.core.reasons import KEPT_PER_TASK, Decision, Reason, Rejection
from volery.core.records import Records
from volery.metrics.explanations import explained, staleness, staleness_columns


def decided() -> Records:
    """Task 1 is refused at 1 s on a view of 1 s, then placed at 2 s on a fresh one; task 0 is placed at once."""
    records = Records(trace_of("t", [0, 0], [[SECOND], [SECOND]]))
    busy = (Rejection("internal", Reason.BUSY, 3), Rejection("internal", Reason.BUSY, 4))
    records.decisions.note(SECOND, "gm/0", Decision(1, 1, "refused", 0, 5, "lm/0", SECOND))
    records.decisions.note(2 * SECOND, "gm/0", Decision(1, 1, "placed", 0, 6, "lm/1", 0, busy))
    records.decisions.note(0, "gm/1", Decision(0, 0, "placed", 1, 7, "lm/1", 4 * SECOND))
    return records


def test_a_run_without_explanations_has_no_columns() -> None:
    assert explained(Records(trace_of("t", [0], [[SECOND]]))) == {}


def test_decisions_are_rows_by_task_and_time() -> None:
    why = explained(decided())["why"]
    assert why["task"].tolist() == [0, 1, 1]
    assert why["chosen"].tolist() == ["placed", "refused", "placed"]
    assert why["machine"].tolist() == [7, 5, 6]
    assert why["internal_busy"].tolist() == [0, 0, 7]
    assert why["external_busy"].tolist() == [0, 0, 0]


def test_dropped_decisions_are_counted_before_the_first_that_follows_them() -> None:
    records = decided()
    for at in range(KEPT_PER_TASK):
        records.decisions.note((3 + at) * SECOND, "gm/0", Decision(0, 0, "queued"))
    why = explained(records)["why"]
    assert why["dropped"].tolist()[:3] == [0, 1, 0]


def test_staleness_counts_all_requests_and_the_ages_of_placements() -> None:
    found = staleness(*staleness_columns(decided()))
    assert (found.placed, found.refused) == (2, 1)
    assert found.view_age_s == (0.0, 4.0, 4.0, 4.0)
    assert found.rates == (("gm/0", "lm/0", 0, 1), ("gm/0", "lm/1", 1, 0), ("gm/1", "lm/1", 1, 0))


def test_without_placements_no_age_is_known() -> None:
    records = Records(trace_of("t", [0], [[SECOND]]))
    assert staleness(*staleness_columns(records)).view_age_s == ()
