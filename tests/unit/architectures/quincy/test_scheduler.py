"""Quincy's scheduler alone: when it asks, what it makes of the answer, and who stops for whom."""

from __future__ import annotations

import importlib.util
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import Alone, messages, submit
from tests.unit.effects import ComputeAsked, Observed, Sent, TimerSet

from volery.architectures import configure, lookup
from volery.architectures.quincy.solver import solve
from volery.core.errors import InputError
from volery.core.events import Cancel, Computed, JobDone, Preemption, Submit, TimerFired
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.live.runtime.port import COMPUTE, checksum
from volery.roles.node import Completed, Kill, Launch
from volery.study.runs import execute
from volery.study.spec import RunSpec

TWO = Cluster.uniform(2)


def follow(scheduler: Alone, effects: list[Any], now: int = 0) -> list[Any]:
    """Answer what is asked, until nothing is; the effects of all answers."""
    found: list[Any] = []
    while asked := [effect.problem for effect in effects if isinstance(effect, ComputeAsked)]:
        effects = scheduler.hear(Computed("flow", solve(asked[0].argument)), "scheduler/0", now)
        found += effects
    return found


def reading(message: Submit, *holders: tuple[int, ...]) -> Submit:
    return Submit(msgspec.structs.replace(message.job, replicas=holders))


def launches(effects: list[Any]) -> list[tuple[str, int, int]]:
    return [(to, launch.task.id, launch.attempt) for to, launch in messages(effects, Launch)]


def quick(design: str, cluster: Cluster = TWO, **parameters: Any) -> Alone:
    return Alone(design, "scheduler/0", cluster, cycle_s=0.0, **parameters)


def test_a_task_goes_to_its_input_and_one_that_came_later_waits_for_its_own() -> None:
    scheduler = quick("firmament")
    first = follow(scheduler, scheduler.hear(reading(submit(0, 0), (1,))))
    assert launches(first) == [("node/1", 0, 0)]
    effects = scheduler.hear(reading(submit(1, 0), (1,)), now=SECOND)
    later = follow(scheduler, effects, SECOND)
    assert launches(later) == [], "waiting is cheaper than its rack"
    assert TimerSet("cycle", 3 * SECOND) in later, "until then: half a unit per second against one"
    due = scheduler.hear(TimerFired("cycle"), "scheduler/0", 3 * SECOND)
    assert launches(follow(scheduler, due, 3 * SECOND)) == [("node/0", 100, 0)]


def test_a_full_cluster_is_not_asked_about() -> None:
    scheduler = quick("firmament")
    follow(scheduler, scheduler.hear(submit(0, 0, 0, 0)))
    assert scheduler.hear(submit(1, 0))[1:] == [], "accepted, and nothing to decide"
    ended = scheduler.hear(Completed(0, 0, False), "node/0", SECOND)
    assert launches(follow(scheduler, ended, SECOND)) == [("node/0", 2, 0)], "who has waited longest"


def test_a_job_below_its_share_takes_a_slot_and_the_loser_runs_again() -> None:
    scheduler = quick("quincy")
    begun = launches(follow(scheduler, scheduler.hear(submit(0, 0, 0))))
    assert len(begun) == 2
    told = follow(scheduler, scheduler.hear(submit(1, 0), now=SECOND), SECOND)
    ((node, kill),) = messages(told, Kill)
    assert launches(told) == [], "its slot is taken as yet"
    scheduler.component.handle(Completed(kill.task, kill.attempt, True), node, 2 * SECOND)
    effects = scheduler.port.drain()
    facts = [effect.fact for effect in effects if isinstance(effect, Observed)]
    assert facts == [Preemption(2 * SECOND, kill.task, 0, 100, "cost")]
    sent = [(effect.to, effect.message) for effect in effects if isinstance(effect, Sent)]
    assert launches(sent) == [(node, 100, 0)]
    assert not any(isinstance(effect, ComputeAsked) for effect in effects), "all is as the last flow has it"
    ended = scheduler.hear(Completed(100, 0, False), node, 3 * SECOND)
    assert launches(follow(scheduler, ended, 3 * SECOND)) == [(node, kill.task, 1)]


def test_a_task_that_finishes_before_it_is_stopped_is_done() -> None:
    scheduler = quick("quincy")
    follow(scheduler, scheduler.hear(submit(0, 0, 0)))
    told = follow(scheduler, scheduler.hear(submit(1, 0), now=SECOND), SECOND)
    ((node, kill),) = messages(told, Kill)
    ended = scheduler.hear(Completed(kill.task, 0, False), node, SECOND + 1)
    assert [launch.task.id for _, launch in messages(ended, Launch)] == [100]


def test_a_young_task_moves_to_its_input_when_that_comes_free() -> None:
    cluster = Cluster.uniform(3)
    scheduler = quick("quincy", cluster, fairness=False, wait_cost=100.0)
    follow(scheduler, scheduler.hear(reading(submit(0, 0, 0), (0,), (1,))))
    follow(scheduler, scheduler.hear(reading(submit(1, 0), (0,)), now=SECOND), SECOND)
    due = scheduler.hear(TimerFired("cycle"), "scheduler/0", 2 * SECOND)
    assert launches(follow(scheduler, due, 2 * SECOND)) == [("node/2", 100, 0)], "far from its input, for want of room"
    ended = scheduler.hear(Completed(0, 0, False), "node/0", 2 * SECOND + 1000)
    moved = follow(scheduler, ended, 2 * SECOND + 1000)
    ((node, kill),) = messages(moved, Kill)
    assert (node, kill.task) == ("node/2", 100)
    arrived = scheduler.hear(Completed(100, 0, True), "node/2", 2 * SECOND + 2000)
    assert ("node/0", 100, 1) in launches(arrived)


def test_a_job_has_at_most_so_many() -> None:
    scheduler = quick("firmament", Cluster.uniform(4), job_max=2)
    assert len(launches(follow(scheduler, scheduler.hear(submit(0, 0, 0, 0))))) == 2
    assert len(launches(follow(scheduler, scheduler.hear(submit(1, 0), now=1), 1))) == 1


def test_flows_are_a_cycle_apart() -> None:
    scheduler = Alone("quincy", "scheduler/0", Cluster.uniform(1))
    assert TimerSet("cycle", 0) in scheduler.hear(submit(0, 0))
    follow(scheduler, scheduler.hear(TimerFired("cycle"), "scheduler/0", 0))
    assert TimerSet("cycle", SECOND) in scheduler.hear(submit(1, 0), now=10)


def test_a_cancelled_job_leaves_nothing_behind() -> None:
    scheduler = quick("quincy", Cluster.uniform(1))
    follow(scheduler, scheduler.hear(submit(0, 0, 0)))
    assert messages(scheduler.hear(Cancel(0)), Kill) == [("node/0", Kill(0, 0))]
    ended = scheduler.hear(Completed(0, 0, True), "node/0", 5)
    assert messages(ended, JobDone) == [("submitter", JobDone(0))]
    assert scheduler.hear(Completed(0, 0, True), "node/0", 6) == [], "told twice"
    follow(scheduler, ended, 5)
    scheduler.component.check_rest()


def test_a_promise_dies_with_its_job() -> None:
    scheduler = quick("quincy")
    follow(scheduler, scheduler.hear(submit(0, 0, 0)))
    told = follow(scheduler, scheduler.hear(submit(1, 0), now=SECOND), SECOND)
    ((node, kill),) = messages(told, Kill)
    effects = scheduler.hear(Cancel(1), now=SECOND)
    assert messages(effects, JobDone) == [("submitter", JobDone(1))], "it ran nowhere"
    follow(scheduler, effects, SECOND)
    ended = scheduler.hear(Completed(kill.task, 0, True), node, 2 * SECOND)
    assert launches(follow(scheduler, ended, 2 * SECOND)) == [(node, kill.task, 1)]


def test_the_question_can_be_journalled_and_the_work_is_told() -> None:
    scheduler = quick("firmament", decision_ms=2.0, arc_us=100.0)
    (asked,) = [effect for effect in scheduler.hear(submit(0, 0)) if isinstance(effect, ComputeAsked)]
    arcs = len(asked.problem.argument.graph.tails)
    assert asked.problem.decision_us == 2000 + 100 * arcs
    assert checksum([(COMPUTE, asked.key, asked.problem)]) != checksum([])
    facts = scheduler.facts(Computed("flow", solve(asked.problem.argument)), "scheduler/0")
    assert facts["plan_variables"] == arcs
    assert facts["plan_rows"] == len(asked.problem.argument.graph.supplies)
    assert facts["flow_paths"] == 1


def test_what_to_install_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    entry = lookup("quincy")
    with pytest.raises(InputError, match="solver=augmenting"):
        entry.build(TWO, configure(entry, {"solver": "scaling"}), Streams(0))


def digest(**parameters: Any) -> str:
    run = RunSpec(
        architecture="quincy",
        parameters=parameters,
        trace="hdfs:8x7,gap=1,duration=4,spread=0.5,workers=6,racks=2,rack=1.5,any=2",
        workers=6,
        slots=2,
        racks=2,
        constraints="none",
    )
    return execute(run).summary.digest


@pytest.mark.slow
def test_neither_the_solver_nor_where_it_begins_changes_a_run() -> None:
    """Shares, preemption and locality: every tie is broken alike."""
    assert digest() == digest(warm=False) == digest(solver="scaling")
    assert digest(fairness=False) != digest()
