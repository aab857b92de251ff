"""The account of schedulers' transactions, on facts written by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.conformance.cases import trace_of
from volery.core.events import Transaction
from volery.core.model import SECOND, Time
from volery.core.records import Records
from volery.metrics.transactions import TransactionSummary, transaction_summary
from volery.report.groups import group_runs
from volery.report.notes import notes
from volery.report.sections import decisions
from volery.report.tables import plain


def tried(
    job: int,
    began_s: float,
    decision_s: float,
    placed: int,
    refused: int = 0,
    left: int = 0,
    *,
    by: str = "scheduler/0",
    workload: str = "batch",
    abandoned: int = 0,
) -> Transaction:
    began_us: Time = round(began_s * SECOND)
    decision_us = round(decision_s * SECOND)
    ended_us = began_us + decision_us
    return Transaction(by, workload, job, began_us, decision_us, placed, refused, left, abandoned, ended_us)


def account(*facts: Transaction, arrivals_s: tuple[float, ...] = (0, 10, 100)) -> TransactionSummary:
    arrivals = [round(at * SECOND) for at in arrivals_s]
    records = Records(trace_of("t", arrivals, [[SECOND]] * len(arrivals)))
    for fact in facts:
        records.observe(fact)
    found = transaction_summary(records)
    assert found is not None
    return found


def test_waits_are_from_submission_to_the_first_attempt_and_until_all_is_placed() -> None:
    found = account(tried(0, 2, 4, 1, 1, 1), tried(0, 7, 1, 1), tried(1, 10, 3, 1)).workloads["batch"]
    assert (found.wait_first_s.mean, found.wait_first_s.max) == (1.0, 2.0)
    assert (found.wait_full_s.count, found.wait_full_s.max, found.wait_full_s.mean) == (2, 8.0, 5.5)


def test_a_job_that_is_never_fully_placed_has_no_time_until_it_is() -> None:
    found = account(tried(0, 2, 4, 1, 0, 1), tried(0, 7, 1, 0, 0, 1, abandoned=1)).workloads["batch"]
    assert (found.wait_first_s.count, found.wait_full_s.count) == (1, 0)
    assert (found.abandoned_jobs, found.abandoned_tasks, found.fruitless_attempts) == (1, 1, 1)


def test_busyness_is_decision_time_over_the_time_in_which_jobs_come_and_fruitless_attempts_stand_beside() -> None:
    """Ten periods of 10 s: half of each of the first six is spent deciding; one attempt finds no room."""
    facts = [tried(0, 10 * k, 5, 1, refused=k % 2) for k in range(6)] + [tried(0, 90, 10, 0)]
    load = account(*facts).schedulers["scheduler/0"]
    assert (load.busyness, load.busyness_mad) == (0.5, 0.0)
    assert (load.useful, load.wasted, load.fruitless) == pytest.approx((0.15, 0.15, 0.1))
    assert load.attempts == 7


def test_a_decision_counts_in_each_period_that_it_touches_and_not_beyond_the_last_submission() -> None:
    load = account(tried(0, 95, 400, 1)).schedulers["scheduler/0"]
    assert load.useful == pytest.approx(0.05)
    whole = account(tried(0, 5, 400, 1)).schedulers["scheduler/0"]
    assert (whole.busyness, whole.useful) == pytest.approx((1.0, 0.95))


def test_periods_are_days_in_long_runs() -> None:
    day = 86_400
    facts = [tried(0, day * k, share * day, 1) for k, share in enumerate((0.1, 0.3, 0.9))]
    load = account(*facts, arrivals_s=(0, 3 * day)).schedulers["scheduler/0"]
    assert (load.busyness, load.busyness_mad) == pytest.approx((0.3, 0.2))


def test_where_all_jobs_come_at_once_the_time_until_the_last_attempt_counts() -> None:
    assert account(tried(0, 0, 5, 1), arrivals_s=(0, 0)).schedulers["scheduler/0"].useful == 1.0


def test_a_transaction_with_any_conflict_is_no_success() -> None:
    """3 means four attempts on average (section 4.1)."""
    found = account(tried(0, 0, 1, 0, 1, 1), tried(0, 2, 1, 5, 1, 1), tried(0, 4, 1, 0, 2, 1), tried(0, 6, 1, 1))
    assert found.conflict_fraction == found.workloads["batch"].conflict_fraction == 3.0


def test_types_of_jobs_and_schedulers_are_told_apart() -> None:
    found = account(
        tried(0, 0, 1, 1), tried(1, 0, 1, 0, 1, 1, by="scheduler/1"), tried(2, 0, 1, 1, by="scheduler/2", workload="x")
    )
    assert list(found.schedulers) == ["scheduler/0", "scheduler/1", "scheduler/2"]
    assert {name: one.schedulers for name, one in found.workloads.items()} == {"batch": 2, "x": 1}
    assert (found.workloads["batch"].wasted, found.workloads["x"].wasted) == pytest.approx((0.005, 0.0))


def test_a_run_without_transactions_has_no_account() -> None:
    assert transaction_summary(Records(trace_of("t", [0], [[1]]))) is None


def test_the_comparison_shows_them_and_says_how_many_tasks_were_given_up() -> None:
    found = account(tried(0, 2, 4, 1, 1, 2), tried(0, 7, 1, 0, 0, 2, abandoned=2), tried(1, 20, 20, 1))
    run = msgspec.structs.replace(sample_run("omega", unsatisfiable=2), transactions=found)
    groups = group_runs([run, sample_run("megha")])
    assert decisions(groups) == [
        ["omega", "batch", "0.0 % ± 0.0 %", "4.0 %", "1.0 %", "1.00", "6.00 s", "30.0 s", "1.00"]
    ]
    assert "Decisions of the schedulers" in plain([run])
    assert "Decisions of the schedulers" not in plain([sample_run("megha")])
    told = notes(groups)
    assert "Tasks that schedulers gave up after too many attempts: up to 2." in told
    assert not any("no machine can run" in note for note in told)
