"""TetriSched's scheduler alone: what it asks to have planned, and what it makes of the answer."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import SUBMITTER, Alone, messages, submit
from tests.unit.effects import ComputeAsked, TimerSet

from volery.architectures import configure, lookup
from volery.architectures.tetrisched.expressions import leaves, written
from volery.architectures.tetrisched.plan import CyclePlan, PlanCost, PlanProblem, solve, unpacked
from volery.core.errors import InputError
from volery.core.events import Cancel, Computed, JobDone, MoreTasks, Submit, TimerFired
from volery.core.model import SECOND, Cluster, Preference, Task
from volery.core.streams import Streams
from volery.live.runtime.port import COMPUTE, checksum
from volery.roles.node import Completed, Kill, Launch

GPU, RACKS = 1, 0b110
FOUR = Cluster((GPU | 2, GPU | 2, 4, 4), (1,) * 4)
"""Two machines with GPUs in one rack, two without in another."""
AT_ONCE: dict[str, Any] = {"cycle_s": 0.0, "plan_ahead_s": 8.0}


def asked(effects: list[Any]) -> PlanProblem:
    (found,) = [effect.problem.argument for effect in effects if isinstance(effect, ComputeAsked)]
    return unpacked(found)


def answered(scheduler: Alone, planning: PlanProblem, now: int = 0) -> list[Any]:
    return scheduler.hear(Computed("plan", solve(planning)), "scheduler/0", now)


def wish(message: Submit, **fields: Any) -> Submit:
    return Submit(msgspec.structs.replace(message.job, **fields))


def test_a_preference_becomes_options_and_a_deadline_culls_starts() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", FOUR, **AT_ONCE)
    job = wish(submit(0, 0, 0, estimate_us=4 * SECOND), preference=Preference(GPU, 0, 200), deadline_us=9 * SECOND)
    planning = asked(scheduler.hear(job))
    assert [written(request) for request in planning.requests] == [
        "max(nCk(c1, 2, 1000.0), nCk(c1, 2, 1, 1, 1000.0), nCk(c0, 2, 0, 2, 1000.0))"
    ], "one quantum on GPUs, two elsewhere; over by 9 s"
    assert {name: bin(units) for name, units in planning.sets.items()} == {"c1": "0b1100", "c0": "0b1111"}, (
        "machines that satisfy few constraints come first"
    )


def test_a_gang_that_wants_one_rack_may_have_either() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", FOUR, cycle_s=0.0, plan_ahead_s=0.0)
    job = wish(submit(0, 0, 0, estimate_us=4 * SECOND), preference=Preference(0, RACKS, 150))
    (request,) = asked(scheduler.hear(job)).requests
    assert [leaf.where for leaf in leaves(request)] == [("c2",), ("c4",), ("c0",)]


def test_who_is_blind_to_machines_expects_the_slow_ones() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", FOUR, cycle_s=0.0, plan_ahead_s=0.0, heterogeneity=False)
    job = wish(submit(0, 0, 0, estimate_us=4 * SECOND), preference=Preference(GPU, 0, 200))
    (request,) = asked(scheduler.hear(job)).requests
    assert [(leaf.where, leaf.duration) for leaf in leaves(request)] == [(("c0",), 2)]


def test_speeds_of_machines_are_options_too() -> None:
    cluster = Cluster((0, 0, 0), (1,) * 3, speeds=(1000, 2000, 2000), reference_speed=2000)
    scheduler = Alone("tetrisched", "scheduler/0", cluster, cycle_s=0.0, plan_ahead_s=0.0)
    (request,) = asked(scheduler.hear(submit(0, 0, 0, estimate_us=8 * SECOND))).requests
    assert [(leaf.where, leaf.duration) for leaf in leaves(request)] == [(("c0.s2000",), 2), (("c0.s1000",), 4)]


def test_what_starts_now_is_launched_and_the_rest_is_planned_again_with_a_hint() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(2), **AT_ONCE)
    first = asked(scheduler.hear(submit(0, 0, 0, estimate_us=4 * SECOND)))
    assert [to for to, _ in messages(answered(scheduler, first), Launch)] == ["node/0", "node/1"]
    second = asked(scheduler.hear(submit(1, 0, 0, estimate_us=4 * SECOND), now=SECOND))
    assert (second.supply.idle, second.supply.held) == (0, ((1, 0b11),))
    assert not messages(answered(scheduler, second, SECOND), Launch)
    third = asked(scheduler.hear(Completed(0), "node/0", 2 * SECOND))
    assert third.before == (1,), "the plan before had it start with the next quantum"


def test_a_task_that_exceeds_its_estimate_is_expected_to_end_with_the_next_quantum() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(1), **AT_ONCE)
    answered(scheduler, asked(scheduler.hear(submit(0, 0, estimate_us=4 * SECOND))))
    late = asked(scheduler.hear(submit(1, 0, estimate_us=4 * SECOND), now=100 * SECOND))
    assert late.supply.held == ((1, 0b1),)


def test_a_deadline_that_cannot_be_met_makes_a_job_best_effort() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(1), cycle_s=0.0, plan_ahead_s=0.0)
    job = wish(submit(0, 0, estimate_us=4 * SECOND), deadline_us=3 * SECOND)
    (request,) = asked(scheduler.hear(job)).requests
    assert [leaf.value < 1 for leaf in leaves(request)] == [True]


def test_plans_keep_the_cycle_apart() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(1))
    assert TimerSet("cycle", 0) in scheduler.hear(submit(0, 0, estimate_us=SECOND)), "jobs of one instant together"
    planning = asked(scheduler.hear(TimerFired("cycle"), "scheduler/0", 0))
    answered(scheduler, planning)
    assert TimerSet("cycle", 4 * SECOND) in scheduler.hear(submit(1, 0, estimate_us=SECOND), now=SECOND)


def test_a_gang_too_large_for_the_cluster_is_refused_whole() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(2), **AT_ONCE)
    effects = scheduler.hear(submit(0, 0, 0, 0, estimate_us=SECOND))
    assert messages(effects, JobDone) == [(SUBMITTER, JobDone(0, 3))]


def test_a_job_too_large_for_the_cluster_takes_what_it_gets_without_gangs() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(2), gangs=False, **AT_ONCE)
    planning = asked(scheduler.hear(submit(0, 0, 0, 0, 0, estimate_us=SECOND)))
    assert written(planning.requests[0]) == "sum(LnCk(c0, 2, 0.5))"
    assert len(messages(answered(scheduler, planning), Launch)) == 2


def test_tasks_with_different_constraints_start_together() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", FOUR, cycle_s=0.0, plan_ahead_s=0.0)
    planning = asked(scheduler.hear(submit(0, GPU, 0, 0, 4, estimate_us=SECOND)))
    assert written(planning.requests[0]).startswith("min(nCk(c1, 1, ")
    sent = messages(answered(scheduler, planning), Launch)
    assert {message.task.constraints: to for to, message in sent}[GPU] in ("node/0", "node/1")
    assert len(sent) == 4


def test_a_job_that_is_cancelled_while_a_plan_is_made_is_not_launched() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(2), **AT_ONCE)
    planning = asked(scheduler.hear(submit(0, 0, estimate_us=SECOND)))
    assert (SUBMITTER, JobDone(0)) in scheduler.hear(Cancel(0))
    assert not messages(answered(scheduler, planning), Launch)


def test_cancelling_kills_what_runs() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(1), gangs=False, **AT_ONCE)
    answered(scheduler, asked(scheduler.hear(submit(0, 0, 0, estimate_us=SECOND))))
    assert scheduler.hear(Cancel(0)) == [("node/0", Kill(0))]
    assert scheduler.hear(Completed(0), "node/0") == [(SUBMITTER, JobDone(0))]


def test_a_chunk_that_comes_later_is_a_gang_of_its_own() -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(3), **AT_ONCE)
    first = submit(0, 0, estimate_us=SECOND)
    answered(scheduler, asked(scheduler.hear(wish(first, task_count=3))))
    more = MoreTasks(0, 1, (Task(1, 0, 0, SECOND), Task(2, 0, 0, SECOND)))
    planning = asked(scheduler.hear(more))
    assert len(messages(answered(scheduler, planning), Launch)) == 2


@pytest.mark.parametrize(
    ("constraints", "text"),
    [("soft", "max(nCk(c1, 2, 1.0), nCk(c0, 2, 0.5))"), ("hard", "nCk(c1, 2, 1.0)"), ("none", "nCk(c0, 2, 1.0)")],
)
def test_alsched_weighs_preferences_without_time(constraints: str, text: str) -> None:
    scheduler = Alone("alsched", "scheduler/0", FOUR, cycle_s=0.0, constraints=constraints)
    job = wish(submit(0, 0, 0, estimate_us=4 * SECOND), preference=Preference(GPU, 0, 200), deadline_us=1)
    assert [written(request) for request in asked(scheduler.hear(job)).requests] == [text]


def test_a_problem_goes_into_a_journal_however_many_machines_there_are() -> None:
    """Journals hold a checksum of what was asked, and their integers have 64 bits."""
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(200), **AT_ONCE)
    effects = scheduler.hear(submit(0, 0, estimate_us=SECOND))
    (problem,) = [effect.problem for effect in effects if isinstance(effect, ComputeAsked)]
    assert checksum([(COMPUTE, "plan", problem)]) == checksum([(COMPUTE, "plan", pickle.loads(pickle.dumps(problem)))])
    assert problem.solve(problem.argument) == solve(asked(effects))


def test_too_many_quanta_are_refused() -> None:
    entry = lookup("tetrisched")
    with pytest.raises(InputError, match="5000 quanta of 1 s; at most 1000"):
        entry.build(Cluster.uniform(1), configure(entry, {"plan_ahead_s": 5000, "quantum_s": 1}), Streams(0))


def test_without_the_solver_only_greedy_plans(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    entry = lookup("tetrisched")
    with pytest.raises(InputError, match=r"\[solve\]"):
        entry.build(Cluster.uniform(1), entry.defaults, Streams(0))
    greedy = configure(entry, {"solver": "greedy"})
    assert entry.build(Cluster.uniform(1), greedy, Streams(0)).components


@pytest.mark.parametrize(
    ("cost", "told"),
    [
        (PlanCost(gap_per_mille=7, rounds=0), {"plan_gap_per_mille": 7, "plan_rounds": 0}),
        (PlanCost(gap_per_mille=7, rounds=3), {"plan_gap_per_mille": 7, "plan_rounds": 3}),
        (PlanCost(gap_per_mille=7), {}),
    ],
)
def test_every_plan_by_prices_is_counted_with_its_gap(cost: PlanCost, told: dict[str, int]) -> None:
    scheduler = Alone("tetrisched", "scheduler/0", Cluster.uniform(1), **AT_ONCE)
    scheduler.hear(submit(0, 0, estimate_us=SECOND))
    plan = Computed("plan", CyclePlan((), (), 0.0, cost))
    assert scheduler.facts(plan, "scheduler/0") == {"plan_jobs": 1} | told
