"""Utilisation, waiting tasks and refused placements over time, on records built by hand and in runs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyarrow import parquet
from tests.comparison import compare
from tests.unit.metrics.test_jobs import records_of

from volery.conformance.cases import trace_of
from volery.core.events import Transaction
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import LostAttempt, Records, TimeHistogram
from volery.metrics import (
    mean_utilisation,
    refused_tasks,
    utilisation,
    waiting_tasks,
)

BEGINS_US = np.array([1, 2, 3]) * SECOND


def records() -> Records:
    return Records(trace_of("t", [0], [[SECOND]]))


def tried(ended_us: int, refused: int) -> Transaction:
    return Transaction("scheduler/0", "batch", 0, 0, 1, 1, refused, 0, 0, ended_us)


def test_refusals_fall_into_the_interval_of_their_moment_and_none_is_lost() -> None:
    found = records()
    kept = found.moments["inconsistencies"] = TimeHistogram()
    for now, amount in ((SECOND, 1), (2 * SECOND - 1, 2), (2 * SECOND, 4), (0, 8), (9 * SECOND, 16)):
        kept.note(now, amount)
    assert refused_tasks(found, BEGINS_US).tolist() == [11, 4, 16]


def test_conflicts_of_transactions_count_when_their_outcome_is_known() -> None:
    found = records()
    found.transactions += [tried(2 * SECOND, 3), tried(3 * SECOND, 0)]
    assert refused_tasks(found, BEGINS_US).tolist() == [0, 3, 0]
    found.transactions.pop(0)
    assert refused_tasks(found, BEGINS_US).tolist() == [0, 0, 0], "attempts without a conflict are known to have none"


def test_a_design_that_refuses_nothing_has_no_numbers() -> None:
    assert np.isnan(refused_tasks(records(), BEGINS_US)).all()
    assert refused_tasks(records(), BEGINS_US[:0]).size == 0


@pytest.mark.slow
def test_what_a_folder_keeps_sums_to_the_counter_of_the_run(tmp_path: Path) -> None:
    found = compare("megha:gms=3,lms=3", "pigeon", trace="syn:30x20", workers=35, folder=tmp_path)
    table = parquet.read_table(tmp_path / "utilisation.parquet", columns=["label", "refused_tasks"])
    labels, refused = table["label"].to_numpy(), table["refused_tasks"].to_numpy()
    counted = found.runs[0].counters["inconsistencies"]
    assert counted > 0
    assert refused[labels == "megha:gms=3,lms=3"].sum() == pytest.approx(counted)
    assert np.isnan(refused[labels == "pigeon"]).all()


class TestUtilisation:
    def test_intervals_hold_exact_averages(self) -> None:
        records = records_of([0], [[(0, 10), (5, 15), (15, 20)]], [20])
        times, fractions = utilisation(records, Cluster.uniform(2), points=4)
        assert times.tolist() == [0, 5, 10, 15]
        assert fractions.tolist() == [0.5, 1.0, 0.5, 0.5]

    def test_interval_bounds_inside_a_task_split_it(self) -> None:
        records = records_of([0], [[(1, 8)]], [10])
        _, fractions = utilisation(records, Cluster.uniform(1), points=2)
        assert fractions.tolist() == pytest.approx([3 / 4, 4 / 4])

    def test_the_average_over_all_intervals_is_the_mean(self) -> None:
        random = np.random.default_rng(1)
        start = random.integers(50, 10_000, 500)
        finish = start + random.integers(0, 3_000, 500)
        tasks = [[(int(s), int(f))] for s, f in zip(start, finish, strict=True)]
        records = records_of([50] * 500, tasks, [20_000] * 500)
        cluster = Cluster.uniform(100, slots=3)
        times, fractions = utilisation(records, cluster, points=7)
        widths = np.diff(np.append(times, finish.max()))
        assert float((fractions * widths).sum() / widths.sum()) == pytest.approx(mean_utilisation(records, cluster))
        assert mean_utilisation(records, cluster) == pytest.approx((finish - start).sum() / ((finish.max() - 50) * 300))

    def test_time_before_the_first_start_is_idle(self) -> None:
        assert mean_utilisation(records_of([0], [[(6, 10)]], [10]), Cluster.uniform(1)) == 0.4

    def test_killed_attempts_occupied_their_slot(self) -> None:
        records = records_of([0, 0], [[(6, 10)], [(2, NEVER)]], [10, NEVER])
        records.attempt[0] = 1
        records.lost.append(LostAttempt(0, 0, 0, 1, NEVER))
        records.killed = {(0, 0): 4, (1, 0): 7}
        assert mean_utilisation(records, Cluster.uniform(1)) == pytest.approx((4 + 3 + 5) / 10)

    @pytest.mark.parametrize("tasks", [[], [[(NEVER, NEVER)]], [[(0, 0)]]])
    def test_runs_without_busy_time_are_idle(self, tasks: list[list[tuple[int, int]]]) -> None:
        records = records_of([0] * len(tasks), tasks, [0] * len(tasks))
        assert mean_utilisation(records, Cluster.uniform(1)) == 0.0
        assert not utilisation(records, Cluster.uniform(1))[1].any()


class TestWaitingTasks:
    def test_tasks_wait_from_their_submission_to_the_start_that_counts(self) -> None:
        records = records_of([0, 10], [[(0, 20), (15, 20)], [(20, 40)]], [20, 40])
        times, _ = utilisation(records, Cluster.uniform(2), points=4)
        assert times.tolist() == [0, 10, 20, 30]
        assert waiting_tasks(records, times).tolist() == [1.0, 1.5, 0.0, 0.0]

    def test_what_never_started_is_left_out(self) -> None:
        records = records_of([0], [[(NEVER, NEVER), (5, 10)]], [10])
        times, _ = utilisation(records, Cluster.uniform(2), points=2)
        assert waiting_tasks(records, times).tolist() == [1.0, 0.0]

    @pytest.mark.parametrize("tasks", [[], [[(NEVER, NEVER)]], [[(0, 0)]]])
    def test_a_run_that_takes_no_time_has_no_queue(self, tasks: list[list[tuple[int, int]]]) -> None:
        records = records_of([0] * len(tasks), tasks, [0] * len(tasks))
        times, _ = utilisation(records, Cluster.uniform(1))
        assert not waiting_tasks(records, times).any()
