"""Stage T10: who loses a running task to whom, and what becomes of it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, seconds, starts, trace_of_rows

from volery.architectures import configure, lookup
from volery.conformance.cases import busy_cases
from volery.conformance.outcomes import demand_all_finished, demand_capacity, demand_constraints
from volery.conformance.verdict import run as conformance_run
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.model import Cluster
from volery.core.records import Records
from volery.metrics.preemption import preemption_summary, taken_back
from volery.sim import Options


def _lost(records: Records) -> list[tuple[int, int]]:
    return [(one.task, one.beneficiary) for one in records.preemptions]


def test_by_default_nobody_loses_anything() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(0, 5))
    records = run("pipeline", trace, cores_cluster(1))
    assert starts(records) == [0, 9]
    assert not records.lost


def test_the_lower_priority_is_killed_and_starts_from_zero() -> None:
    """9 s of priority 0, after 1 s priority 5 for 1 s: the first has run 1 s in vain and begins anew at 2 s."""
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(0, 5))
    records = run("pipeline", trace, cores_cluster(1), T10="priority")
    assert starts(records) == [2, 1]
    assert [seconds(at) for at in records.finish_us] == [11, 2]
    assert list(records.attempt) == [1, 0]
    assert _lost(records) == [(0, 1)]
    summary = preemption_summary(records, cores_cluster(1))
    assert summary is not None
    assert summary.wasted_s == 1


def test_what_was_done_is_kept_where_the_run_says_so() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(0, 5))
    records = run("pipeline", trace, cores_cluster(1), T10="priority", progress="keep")
    assert [seconds(at) for at in records.finish_us] == [10, 2]
    assert [seconds(one.kept_us) for one in records.lost] == [1]


def test_production_does_not_preempt_production() -> None:
    """Borg, section 2.5; 9 and 11 are both of the band, 8 is not."""
    for low, expected in ((9, [0, 9]), (8, [2, 1])):
        trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(low, 11))
        assert starts(run("pipeline", trace, cores_cluster(1), T10="priority")) == expected
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(9, 11))
    monitored = run("pipeline", trace, cores_cluster(1), T10="priority/production_to:10")
    assert starts(monitored) == [2, 1], "what is above the band preempts it"


def test_equal_priorities_never_preempt_each_other() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(5, 5))
    assert starts(run("pipeline", trace, cores_cluster(1), T10="priority")) == [0, 9]


def test_the_machine_whose_losers_matter_least_is_taken() -> None:
    """Machine 0 runs priority 3, machine 1 priority 1: the task of priority 5 gets machine 1."""
    trace = trace_of_rows([(0.0, 2, 9.0), (0.1, 2, 9.0), (1.0, 2, 1.0)], priority=(3, 1, 5))
    records = run("pipeline", trace, cores_cluster(2, 2), T10="priority")
    assert _lost(records) == [(1, 2)]
    assert list(records.worker) == [0, 1, 1]


def test_no_more_are_ended_than_have_to_be() -> None:
    """Of 1, 1 and 2 cores, lowest priority first, 2 are needed: the two of 1 core would do, the one of 2 does alone.

    From the lowest priority up: tasks 0 and 1 (priority 0), which suffice.
    """
    trace = trace_of_rows([(0.0, 1, 9.0), (0.1, 1, 9.0), (0.2, 2, 9.0), (1.0, 2, 1.0)], priority=(0, 0, 1, 5))
    records = run("pipeline", trace, cores_cluster(4), T10="priority")
    assert sorted(_lost(records)) == [(0, 3), (1, 3)]
    trace = trace_of_rows([(0.0, 1, 9.0), (0.1, 3, 9.0), (1.0, 2, 1.0)], priority=(0, 1, 5))
    records = run("pipeline", trace, cores_cluster(4), T10="priority")
    assert _lost(records) == [(1, 2)], "the task of 1 core would end in vain"


def test_the_place_goes_to_the_task_for_which_it_was_made_whatever_the_order_of_the_queue() -> None:
    """T2=fifo puts the task that was preempted first; it waits all the same."""
    trace = trace_of_rows([(0.0, 1, 9.0), (1.0, 1, 1.0)], priority=(0, 5))
    records = run("pipeline", trace, cores_cluster(1), T10="priority", T2="fifo")
    assert starts(records) == [2, 1]
    assert len(records.preemptions) == 1


def test_two_levels_preempt_at_the_lower_one() -> None:
    trace = trace_of_rows([(0.0, 1, 9.0), (0.1, 1, 9.0), (1.0, 1, 1.0)], priority=(0, 0, 5))
    records = run("pipeline", trace, cores_cluster(1, 1), T10="priority", lrms="2")
    assert _lost(records) == [(0, 2)]
    assert starts(records) == [2, 0.1, 1]


def test_users_get_their_share_from_the_youngest_tasks_of_others() -> None:
    """Ann has all 4 cores when Bob comes: he is due 2, and takes the two that she got last."""
    rows = [(0.1 * k, 1, 9.0) for k in range(4)] + [(1.0, 1, 9.0) for _ in range(4)]
    trace = trace_of_rows(rows, users=["ann"] * 4 + ["bob"] * 4)
    given = {"T10": "fairness/shares:ann:1+bob:1", "T2": "drf/shares:ann:1+bob:1"}
    records = run("pipeline", trace, cores_cluster(4), **given)
    assert sorted(task for task, _ in _lost(records)) == [2, 3]
    users = [trace.user[job] for job in trace.job_of_task()]
    assert not taken_back(records.preemptions, users)
    assert starts(records)[:2] == [0, 0.1]


def test_without_shares_all_who_want_something_are_due_the_same() -> None:
    rows = [(0.1 * k, 1, 9.0) for k in range(6)] + [(1.0, 1, 9.0) for _ in range(4)]
    trace = trace_of_rows(rows, users=["ann"] * 6 + ["bob"] * 4)
    records = run("pipeline", trace, cores_cluster(6), T10="fairness", T2="drf")
    assert sorted(task for task, _ in _lost(records)) == [3, 4, 5]


def test_whoever_is_within_its_share_loses_nothing() -> None:
    """Of 4 cores Ann is due 3 and has 3, Bob is due 1 and has 1 of 2 that he wants."""
    rows = [(0.1 * k, 1, 9.0) for k in range(3)] + [(1.0, 1, 9.0) for _ in range(2)]
    trace = trace_of_rows(rows, users=["ann"] * 3 + ["bob"] * 2)
    given = {"T10": "fairness/shares:ann:3+bob:1", "T2": "drf/shares:ann:3+bob:1"}
    assert not run("pipeline", trace, cores_cluster(4), **given).preemptions


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"T10": "priority", "T3": "easy"}, "easy reserves by the ends of running tasks"),
        ({"T10": "fairness"}, "it needs T2=drf"),
        ({"T10": "fairness/shares:a:1", "T2": "drf"}, "it needs T2=drf/shares:a:1"),
        ({"T10": "fairness/shares:a:1+b:1(c:1)", "T2": "drf"}, "a tree has no place here"),
    ],
)
def test_what_does_not_go_together_is_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(InputError, match=problem.replace("(", "\\(")):
        run("pipeline", job_of([1.0]), Cluster.uniform(2), **given)


def design(**given: str) -> Architecture:
    """Pipeline with other defaults."""
    entry = lookup("pipeline")
    return msgspec.structs.replace(entry, defaults=configure(entry, given))


def stormy(design: Architecture, **claims: Any) -> Architecture:
    """The design, whose own defaults are what it has under faults."""
    faulty = msgspec.to_builtins(design.defaults)
    claimed = msgspec.structs.replace(design.conformance, fault_parameters=faulty, **claims)
    return msgspec.structs.replace(design, conformance=claimed)


@pytest.mark.slow
@pytest.mark.parametrize("cycle_cost_us", ["0", "70"])
@pytest.mark.parametrize("lrms", ["0", "3"])
def test_random_work_of_many_priorities_keeps_all_rules(lrms: str, cycle_cost_us: str) -> None:
    """Nobody runs twice, nobody is forgotten, no place goes back to a lower priority; invariants hold all the time."""
    preemptions = 0
    given = {"T10": "priority", "lrms": lrms, "cycle_cost_us": cycle_cost_us, "T2": "sjf"}
    for case in busy_cases(seed=50, vectors=True):
        count = case.trace.job_count
        priority = type(case.trace.arrival_us)("q", [(7 * job) % 12 for job in range(count)])
        case = msgspec.structs.replace(case, trace=msgspec.structs.replace(case.trace, priority=priority))
        records = conformance_run(design(**given), case, options=Options(check=True))
        demand_all_finished(case, records)
        demand_capacity(case, records)
        demand_constraints(case, records)
        jobs = case.trace.job_of_task()
        for one in records.preemptions:
            assert priority[jobs[one.task]] < priority[jobs[one.beneficiary]]
        preemptions += len(records.preemptions)
    assert preemptions > 20
