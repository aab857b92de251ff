"""Run summaries, on records built by hand."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.metrics.test_jobs import MS, records_of

from volery.core.events import Counted, Measured
from volery.core.model import NEVER, Cluster
from volery.core.records import PATH_SHIFT, Records
from volery.metrics import (
    RunSummary,
    summarise,
    utilisation,
)


def summary_of(records: Records, cutoff_us: int | None = None) -> RunSummary:
    return summarise(
        records,
        Cluster.uniform(4),
        architecture="megha",
        parameters={"gms": 2},
        seed=3,
        cutoff_us=cutoff_us,
        wall_s=2.0,
        cpu_s=0.5,
        peak_rss_mb=61.0,
    )


class TestSummarise:
    def test_numbers_are_those_of_the_definitions(self) -> None:
        jobs = [[(0, (i + 1) * 1_000_000)] for i in range(100)]
        answers = [(i + 1) * 1_000_000 + (i + 1) * 1000 for i in range(100)]
        estimates = [(i + 1) * 1_000_000 for i in range(100)]
        run = summary_of(records_of([0] * 100, jobs, answers, estimates), 50_000_000)
        assert run.delay_s.count == 100
        assert run.delay_s.mean == pytest.approx(0.0505)
        assert run.delay_s.p50 == pytest.approx(0.0505)
        assert run.delay_s.p90 == pytest.approx(0.0901)
        assert run.delay_s.p99 == pytest.approx(0.09901)
        assert run.delay_s.max == pytest.approx(0.1)
        assert run.short is not None
        assert run.long is not None
        assert (run.short.jobs, run.long.jobs) == (50, 50)
        assert run.short.delay_s.max == pytest.approx(0.05)
        assert run.slowdown.p50 == pytest.approx(1.001)
        assert run.slowdown_per_job.max == pytest.approx(1.001)
        assert run.makespan_s == pytest.approx(100.1)
        assert run.tasks_per_cpu_s == 200
        assert (run.workers, run.slots, run.cutoff_s, run.trace) == (4, 4, 50.0, "hand-made")

    def test_slowdown_is_a_ratio_of_percentiles_not_a_percentile_of_ratios(self) -> None:
        records = records_of([0, 0, 0], [[(0, 10)], [(0, 20)], [(0, 1000)]], [40, 20, 1000])
        run = summary_of(records)
        assert run.slowdown.p50 == 40 / 20
        assert run.slowdown_per_job.p50 == 1.0

    def test_classes_are_absent_without_a_cutoff_or_without_such_a_job(self) -> None:
        records = records_of([0], [[(0, 1)]], [2], estimates=[10])
        assert (summary_of(records).short, summary_of(records).long) == (None, None)
        assert summary_of(records, 10).long is None
        assert summary_of(records, 9).short is None

    def test_tasks_of_no_duration_have_no_slowdown(self) -> None:
        run = summary_of(records_of([0], [[(5, 5)]], [9]))
        assert run.slowdown.p50 is None
        assert run.slowdown_per_job.count == 0
        assert run.delay_s.max == pytest.approx(9e-6)

    def test_means_of_the_allocation_parts_sum_to_the_mean_of_the_total(self) -> None:
        records = records_of([0], [[(10 * MS, 11 * MS), (3 * MS, 4 * MS), (NEVER, NEVER)]], [12 * MS])
        records.path[0] = (2 * MS << PATH_SHIFT) + 1 * MS
        records.waited_us[1] = 1 * MS
        parts = summary_of(records).allocation_s
        whole = parts.communication.mean + parts.processing.mean + parts.worker_queueing.mean
        assert parts.total.count == 2
        assert parts.total.mean == pytest.approx(0.0065)
        assert whole + parts.framework_queueing.mean == pytest.approx(parts.total.mean)

    def test_counters_are_flat_and_messages_stand_alone(self) -> None:
        records = records_of([0, 0], [[(0, 1)], [(0, 1)]], [2, 2])
        for fact in (Counted("messages", 8), Counted("inconsistencies"), Counted("inconsistencies")):
            records.observe(fact)
        for length in (1, 5):
            records.observe(Measured("queue_length", length))
        records.rejections = 3
        run = summary_of(records)
        assert (run.messages, run.messages_per_task) == (8, 4.0)
        assert run.counters == {
            "inconsistencies": 2.0,
            "queue_length_count": 2.0,
            "queue_length_max": 5.0,
            "queue_length_mean": 3.0,
            "submissions_rejected": 3.0,
        }

    def test_a_summary_survives_json(self) -> None:
        run = summary_of(records_of([0], [[(0, 1)]], [2]), 5)
        assert msgspec.json.decode(msgspec.json.encode(run), type=RunSummary) == run

    def test_a_run_in_which_nothing_ran_is_summarised(self) -> None:
        records = records_of([7], [[(NEVER, NEVER)]], [8])
        records.unsatisfiable[0] = 1
        run = summary_of(records, 5)
        assert (run.delay_s.count, run.unsatisfiable_tasks, run.utilisation_mean) == (0, 1, 0.0)

    def test_summarising_leaves_the_records_alone(self) -> None:
        records = records_of([0, 3], [[(5, 9), (1, 2)], [(4, 8)]], [10, 11])
        before = records.digest()
        summary_of(records, 5)
        utilisation(records, Cluster.uniform(4))
        assert records.digest() == before
