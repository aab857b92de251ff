"""Job tables and measures of workflows, on records built by hand."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np
import pytest

from volery.conformance.cases import trace_of
from volery.core.events import Allotted
from volery.core.limits import LimitSummary
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.metrics import job_table, summarise
from volery.metrics.demand import runnable_tasks
from volery.metrics.jobs import allotment_summary, deadline_summary, limit_summary, workflow_summary
from volery.metrics.tasks import allocation

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

    def test_the_bounded_slowdown_takes_short_jobs_for_10_s_and_is_1_at_least(self) -> None:
        """Feitelson et al., JSSPP 1997: max((wait + run) / max(run, 10 s), 1)."""
        jobs = [[(40, 60)], [(28, 30)], [(0, 2)]]
        seconds = [[(start * SECOND, finish * SECOND) for start, finish in job] for job in jobs]
        records = records_of([0, 0, 0], seconds, [60 * SECOND, 30 * SECOND, 2 * SECOND])
        found = summarise(
            records, Cluster.uniform(3), architecture="a", parameters={}, seed=0, cutoff_us=5 * SECOND, wall_s=0,
            cpu_s=0, peak_rss_mb=0,
        )  # fmt: skip
        bounded = found.bounded_slowdown
        assert bounded is not None
        assert (bounded.count, bounded.p50, bounded.max) == (3, 3, 3)
        assert bounded.mean == pytest.approx(7 / 3)

    @pytest.mark.parametrize("is_paced", [False, True])
    def test_a_task_that_its_limit_has_ended_counts_as_long_as_that(self, is_paced: bool) -> None:
        trace = trace_of("t", [0, 0], [[100, 30], [100]])
        records = Records(msgspec.structs.replace(trace, limit_us=array("q", [60, NEVER])))
        records.start_us[:], records.finish_us[:] = array("q", [0, 0, 0]), array("q", [60, 30, 100])
        records.answered_us[:] = array("q", [61, 101])
        records.over_limit |= {(0, 0), (2, 7)}  # the second is of another attempt than that which counts
        assert job_table(records, is_paced=is_paced).ideal_us.tolist() == [60, 100]
        assert limit_summary(records) == LimitSummary(enforced=True, jobs=1, over_jobs=1, over_tasks=1)
        flow = Records(with_parents(records.trace, [(), (0,), ()]))
        flow.start_us[:], flow.finish_us[:] = array("q", [0, 60, 0]), array("q", [60, 90, 100])
        flow.answered_us[:], flow.over_limit = array("q", [91, 101]), {(0, 0)}
        assert job_table(flow).ideal_us.tolist() == [90, 100]
        assert limit_summary(records_of([0], [[(0, 1)]], [1])) is None

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
    assert job_table(records, is_paced=True).ideal_us.tolist() == [4 * S]
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


def test_what_is_late_or_never_answered_has_missed_its_deadline() -> None:
    trace = trace_of("due", [0, 0, SECOND, SECOND], [[1], [1], [1], [1]])
    trace = msgspec.structs.replace(trace, deadline_us=array("q", [5, 5, 2 * SECOND, NEVER]))
    records = Records(trace)
    records.answered_us = array("q", [5, 6, NEVER, 4 * SECOND])
    found = deadline_summary(records)
    assert found is not None
    assert (found.jobs, found.met, found.attainment) == (3, 1, 1 / 3)
    assert (found.best_effort_jrt_s.count, found.best_effort_jrt_s.mean) == (1, 3.0)


def test_runs_of_a_recurring_job_are_spread_as_the_longest_over_the_shortest() -> None:
    trace = trace_of("recurring", [0] * 5, [[1, 1]] * 5)
    trace = with_parents(trace, [(), (0,), (), (2,), (), (4,), (), (6,), (), (8,)])
    trace = msgspec.structs.replace(trace, deadline_us=array("q", [10, 10, 20, 10, 10]), user=("a", "a", "a", "b", ""))
    made = Records(trace)
    made.answered_us = array("q", [5, 8, 8, 9, 9])
    found = deadline_summary(made)
    assert found is not None
    assert found.spread is not None
    assert (found.spread.count, found.spread.mean) == (1, 2.0), "0.8 over 0.4 of the time to the deadline"


def test_a_user_with_several_jobs_of_other_graphs_or_of_none_has_no_recurring_job() -> None:
    trace = trace_of("users", [0] * 4, [[1, 1, 1]] * 2 + [[1, 1]] * 2)
    trace = with_parents(trace, [(), (0,), (0,), (), (3,), (4,), (), (), (), ()])
    trace = msgspec.structs.replace(trace, deadline_us=array("q", [10] * 4), user=("alice", "alice", "bob", "bob"))
    made = Records(trace)
    made.answered_us = array("q", [2, 9, 3, 8])
    found = deadline_summary(made)
    assert found is not None
    assert found.spread is None


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
