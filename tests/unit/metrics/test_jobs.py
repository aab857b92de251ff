"""Job tables and run summaries, on records built by hand."""

from __future__ import annotations

import time
from array import array

import msgspec
import numpy as np
import pytest

from volery.conformance.cases import trace_of
from volery.core.events import Counted, Measured
from volery.core.model import NEVER, Cluster
from volery.core.records import PATH_SHIFT, LostAttempt, Records
from volery.core.trace import Trace, longs
from volery.core.workflows import with_parents
from volery.metrics import (
    RunSummary,
    allocation,
    job_table,
    mean_utilisation,
    summarise,
    utilisation,
    waiting_tasks,
    workflow_summary,
)
from volery.metrics.demand import runnable_tasks

MS = 1000


def records_of(
    arrivals: list[int], jobs: list[list[tuple[int, int]]], answers: list[int], estimates: list[int] | None = None
) -> Records:
    """Records of jobs whose tasks are (start, finish) pairs; a task that never ran is (NEVER, NEVER)."""
    tasks = [task for job in jobs for task in job]
    first = array("q", np.cumsum([0] + [len(job) for job in jobs]).tolist())
    trace = Trace(
        "hand-made",
        array("q", arrivals),
        first,
        array("q", [max(finish - start, 1) for start, finish in tasks]),
        array("q", estimates or [1] * len(jobs)),
    )
    records = Records(trace)
    records.start_us[:] = array("q", [start for start, _ in tasks])
    records.finish_us[:] = array("q", [finish for _, finish in tasks])
    records.answered_us[:] = array("q", answers)
    return records


class TestJobTable:
    def test_delay_is_the_answer_less_submission_less_the_longest_task(self) -> None:
        table = job_table(records_of([100, 200], [[(110, 150), (120, 220)], [(300, 301)]], [225, 310]))
        assert table.ideal_us.tolist() == [100, 1]
        assert table.jrt_us.tolist() == [125, 110]
        assert table.delay_us.tolist() == [25, 109]
        assert table.worker_jrt_us.tolist() == [120, 101]
        assert table.tasks.tolist() == [2, 1]

    def test_jobs_without_tasks_do_not_take_their_neighbours_tasks(self) -> None:
        table = job_table(records_of([0, 1, 2, 3], [[], [(1, 5)], [], [(3, 10), (4, 6)]], [0, 6, 2, 11]))
        assert table.ideal_us.tolist() == [NEVER, 4, NEVER, 7]
        assert table.delay_us.tolist() == [NEVER, 1, NEVER, 1]
        assert table.measured.tolist() == [False, True, False, True]

    def test_only_tasks_that_ran_count_for_the_ideal(self) -> None:
        records = records_of([0, 0], [[(NEVER, NEVER), (1, 3)], [(NEVER, NEVER)]], [4, 1])
        records.unsatisfiable[:] = array("q", [1, 1])
        table = job_table(records)
        assert table.ideal_us.tolist() == [2, NEVER]
        assert table.unsatisfiable.tolist() == [1, 1]
        assert table.measured.tolist() == [True, False]

    def test_a_job_that_was_never_answered_is_not_measured(self) -> None:
        table = job_table(records_of([0], [[(1, 3)]], [NEVER]))
        assert table.measured.tolist() == [False]
        assert (table.jrt_us[0], table.delay_us[0], table.worker_jrt_us[0]) == (NEVER, NEVER, 3)

    def test_a_job_whose_estimate_equals_the_cutoff_is_short(self) -> None:
        records = records_of([0, 0], [[(0, 1)], [(0, 1)]], [1, 1], estimates=[500, 501])
        assert job_table(records, 500).is_short.tolist() == [True, False]
        assert job_table(records, None).is_short.tolist() == [True, True]

    def test_an_empty_trace_has_an_empty_table(self) -> None:
        assert job_table(records_of([], [], [])).delay_us.size == 0


class TestAllocation:
    def test_the_parts_sum_to_the_allocation_time(self) -> None:
        records = records_of([0], [[(10 * MS, 11 * MS), (3 * MS, 4 * MS)]], [12 * MS])
        records.path[0] = (2 * MS << PATH_SHIFT) + 1 * MS
        records.path[1] = 1 * MS
        records.waited_us[0] = 4 * MS
        parts = allocation(records)
        assert parts.communication.tolist() == [1 * MS, 1 * MS]
        assert parts.processing.tolist() == [2 * MS, 0]
        assert parts.worker_queueing.tolist() == [4 * MS, 0]
        assert parts.framework_queueing.tolist() == [3 * MS, 2 * MS]

    def test_a_causal_chain_older_than_the_task_never_exceeds_its_allocation_time(self) -> None:
        records = records_of([0], [[(700, 900)]], [1000])
        records.path[0] = (600 << PATH_SHIFT) + 500
        records.waited_us[0] = 50
        parts = allocation(records)
        assert (parts.communication[0], parts.processing[0]) == (500, 200)
        assert (parts.worker_queueing[0], parts.framework_queueing[0]) == (0, 0)

    def test_tasks_that_never_started_have_no_parts(self) -> None:
        records = records_of([0], [[(NEVER, NEVER), (500, 600)]], [700])
        records.path[1] = 500
        records.waited_us[1] = 10
        parts = allocation(records)
        assert parts.communication.tolist() == [NEVER, 500]
        assert parts.framework_queueing.tolist() == [NEVER, 0]


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

    def test_a_million_tasks_take_about_a_second(self) -> None:
        jobs, fanout = 1_000, 1_000
        arrivals = array("q", range(0, jobs * 1000, 1000))
        first = array("q", range(0, jobs * fanout + 1, fanout))
        trace = Trace("large", arrivals, first, longs(jobs * fanout, 9), longs(jobs, 9))
        records = Records(trace)
        np.asarray(records.start_us)[:] = np.repeat(np.asarray(arrivals), fanout) + np.arange(jobs * fanout) % 977
        np.asarray(records.finish_us)[:] = np.asarray(records.start_us) + 9
        records.answered_us[:] = array("q", [a + 2000 for a in arrivals])
        began = time.process_time()
        summary_of(records, 5)
        assert time.process_time() - began < 3


S = 1_000_000


def lived() -> Records:
    """A diamond that came at 10 s, a plain job at 20 s, and a job of which nothing ran."""
    jobs = [[4 * S, 2 * S, 6 * S, 1 * S], [3 * S, 5 * S], [9 * S]]
    trace = trace_of("t", [10 * S, 20 * S, 30 * S], jobs, [[0, 0, 0, 0], [0, 0], [4]])
    trace = with_parents(trace, [(), (0,), (0,), (1, 2), (), (), ()])
    records = Records(trace)
    spans = [(12, 16), (17, 19), (18, 24), (26, 27), (21, 24), (20, 25)]
    for task, (start, finish) in enumerate(spans):
        records.start_us[task], records.finish_us[task] = start * S, finish * S
    records.ready_us[:] = array("q", [10 * S, 16 * S, 16 * S, 24 * S, 20 * S, 20 * S, 30 * S])
    records.answered_us[:] = array("q", [28 * S, 26 * S, 30 * S])
    records.unsatisfiable[2] = 1
    return records


def test_the_ideal_of_a_workflow_is_its_critical_path_and_of_a_plain_job_its_longest_task() -> None:
    table = job_table(lived())
    assert table.ideal_us.tolist() == [11 * S, 5 * S, NEVER]
    assert table.delay_us.tolist() == [7 * S, S, NEVER]


def test_tasks_that_never_ran_are_no_part_of_the_critical_path() -> None:
    records = lived()
    records.start_us[3] = records.finish_us[3] = NEVER
    assert job_table(records).ideal_us.tolist() == [10 * S, 5 * S, NEVER]


def test_response_makespan_schedule_length_and_waiting_are_those_of_the_paper() -> None:
    records = lived()
    table = job_table(records)
    found = workflow_summary(records, table.ideal_us, table.measured)
    assert found is not None
    assert found.workflows == 1
    assert found.task_response_s.count == 6
    assert found.task_response_s.mean == pytest.approx((6 + 9 + 14 + 17 + 4 + 5) / 6)
    assert (found.makespan_s.count, found.makespan_s.mean) == (2, (17 + 5) / 2)
    assert found.schedule_length.max == pytest.approx(17 / 11)
    assert found.schedule_length.mean == pytest.approx((17 / 11 + 1) / 2)
    assert (found.waiting_s.max, found.waiting_s.mean) == (2, 1)


def test_a_task_responds_to_its_own_submission_where_the_trace_says_it() -> None:
    """Section V-A6: TRT from the task's submission; JMS and JWT from the first of its job, NJSL by the graph."""
    records = lived()
    late = array("q", [at * S for at in (10, 10, 14, 25, 20, 20, 30)])
    apart = Records(msgspec.structs.replace(records.trace, submit_us=late))
    for column in ("start_us", "finish_us", "ready_us", "answered_us"):
        getattr(apart, column)[:] = getattr(records, column)
    table, before = job_table(apart), job_table(records)
    found = workflow_summary(apart, table.ideal_us, table.measured)
    plain = workflow_summary(records, before.ideal_us, before.measured)
    assert table.ideal_us.tolist() == [16 * S, 5 * S, NEVER], "task 3 was not there before 25 s"
    assert found.task_response_s.mean == pytest.approx((6 + 9 + 10 + 2 + 4 + 5) / 6)
    for name in ("makespan_s", "waiting_s", "schedule_length", "published_length"):
        assert getattr(found, name) == getattr(plain, name)


def test_allocation_counts_from_the_moment_a_task_was_ready() -> None:
    times = allocation(lived())
    assert (times.framework_queueing[:6] / S).tolist() == [2, 1, 2, 2, 1, 0]


def test_ideals_are_those_of_the_reference_machine_where_machines_have_speeds() -> None:
    trace = trace_of("t", [0], [[4 * S, 2 * S]])
    records = Records(trace)
    records.start_us[:] = array("q", [0, 0])
    records.finish_us[:] = array("q", [2 * S, 8 * S])
    records.answered_us[0] = 8 * S
    assert job_table(records, paced=True).ideal_us.tolist() == [4 * S]
    cluster = Cluster((0, 0), (1, 1), speeds=(2, 1), reference_speed=4)
    summary = summarise(
        records, cluster, architecture="x", parameters={}, seed=0, cutoff_us=None, wall_s=1, cpu_s=1, peak_rss_mb=1
    )
    assert summary.ideal_s.max == 4
    assert summary.workflows is not None
    assert (summary.workflows.workflows, summary.workflows.makespan_s.mean) == (0, 8)
    assert trace.duration_us.tolist() == [4 * S, 2 * S], "the trace is left as it is"


def test_a_workload_asks_for_its_tasks_when_those_that_they_wait_for_end() -> None:
    begin, end, _ = runnable_tasks(lived().trace, Cluster.uniform(1, 9))
    assert (begin / S).tolist() == [10, 14, 14, 20, 20, 20]
    assert np.array_equal((end - begin) / S, [4, 2, 6, 1, 3, 5])


def test_the_published_schedule_length_divides_by_what_the_job_took_once_it_had_begun() -> None:
    """One waited 30 s for 4 s, one began at once, and one took no time at all."""
    trace = trace_of("t", [0, 0, 0], [[4 * S], [2 * S], [0]], [[0], [0], [0]])
    records = Records(trace)
    for task, (start, finish) in enumerate([(30, 34), (0, 2), (7, 7)]):
        records.start_us[task], records.finish_us[task] = start * S, finish * S
    records.answered_us[:] = records.finish_us
    table = job_table(records)
    found = workflow_summary(records, table.ideal_us, table.measured)
    assert found.workflows == 0
    assert found.published_length is not None
    assert (found.published_length.count, found.published_length.mean) == (3, (34 // 4 + 1 + 7) / 3)
    assert found.schedule_length.count == 2
