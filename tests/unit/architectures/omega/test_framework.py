"""A framework alone, on offers of an allocator that is not there."""

from __future__ import annotations

from typing import Any

from tests.unit.architectures.parts import Alone, messages, submit

from volery.architectures.omega.messages import Answer, Demand, Offer, Release, Withdraw
from volery.core.events import Cancel, Computed, JobDone, TimerFired
from volery.core.model import SECOND, Cluster
from volery.sim.effects import ComputeAsked, TimerSet

FRONT, CELL, BATCH, SERVICE = "front/0", "cell/0", "framework/0", "framework/1"
GUARD = 1 << 40


def amounts(*free: int) -> bytes:
    return b"".join((one | GUARD).to_bytes(6, "little") for one in free)


def framework(machines: int, **parameters: Any) -> Alone:
    return Alone("mesos", BATCH, Cluster.uniform(machines), **parameters)


def decided(alone: Alone, effects: list[Any], now: int = 0) -> list[Any]:
    """Answer the decisions that are handed out until there are none; all effects."""
    seen = list(effects)
    while computing := [effect for effect in effects if isinstance(effect, ComputeAsked)]:
        (asked,) = computing
        effects = alone.hear(Computed(asked.key, asked.problem.solve(asked.problem.argument)), BATCH, now)
        if TimerSet("next", now) in effects:
            effects += alone.hear(TimerFired("next"), BATCH, now)
        seen += effects
    return seen


def test_a_framework_takes_jobs_while_the_offer_has_room_and_sums_their_decision_times() -> None:
    mine = framework(3)
    assert messages(mine.hear(submit(0, 0, 0), FRONT), Demand) == [(CELL, Demand(1))]
    assert messages(mine.hear(submit(1, 0), FRONT), Demand) == []
    (first,) = mine.hear(Offer(1, (0, 2), amounts(1, 1)), CELL)
    assert first.problem.decision_us == 110_000
    ((_, reply),) = messages(decided(mine, [first], 110_000), Answer)
    assert sorted(reply.machines) == [0, 2]
    assert (reply.refuse_us, reply.waiting) == (0, True), "job 1 waits; nothing is left for it"
    (second,) = mine.hear(Offer(2, (1,), amounts(1)), CELL, 200_000)
    assert (second.problem.decision_us, second.problem.argument.tasks[0].job) == (105_000, 1)


def test_an_offer_of_no_use_is_refused_for_a_while_and_the_job_comes_again_after_a_second() -> None:
    mine = Alone("mesos", BATCH, Cluster((0, 1), (1, 1)))
    mine.hear(submit(0, 1), FRONT)
    effects = decided(mine, mine.hear(Offer(1, (0,), amounts(1)), CELL))
    assert messages(effects, Answer) == [(CELL, Answer(1, (), (), (), (), 5 * SECOND, False))]
    assert TimerSet(0, SECOND) in effects
    assert mine.hear(TimerFired(0), BATCH, SECOND) == [(CELL, Demand(2))]


def test_a_gang_hoards_until_it_is_whole() -> None:
    mine = framework(3, gang="true")
    mine.hear(submit(0, 0, 0, 0), FRONT)
    effects = decided(mine, mine.hear(Offer(1, (0, 1), amounts(1, 1)), CELL))
    ((_, reply),) = messages(effects, Answer)
    assert (reply.tasks, len(reply.held)) == ((), 2)
    mine.hear(TimerFired(0), BATCH, SECOND)
    effects = decided(mine, mine.hear(Offer(2, (2,), amounts(1)), CELL, SECOND), SECOND)
    ((_, reply),) = messages(effects, Answer)
    assert (sorted(reply.machines), reply.held) == ([0, 1, 2], ())


def test_a_hoard_is_given_up_after_a_while() -> None:
    mine = framework(3, gang="true", hoard_s=9.0)
    mine.hear(submit(0, 0, 0, 0), FRONT)
    effects = decided(mine, mine.hear(Offer(1, (0,), amounts(1)), CELL))
    ((_, reply),) = messages(effects, Answer)
    assert mine.hear(TimerFired(("hoard", 0)), BATCH, 9 * SECOND)[0] == (CELL, Release(1, (reply.held[0].id,)))


def test_tasks_of_a_job_that_is_cancelled_while_the_framework_decides_never_run() -> None:
    mine = framework(4)
    mine.hear(submit(0, 0), FRONT)
    mine.hear(submit(1, 0), FRONT)
    (first,) = mine.hear(Offer(1, (0, 1, 2, 3), amounts(1, 1, 1, 1)), CELL)
    mine.hear(Computed(1, first.problem.solve(first.problem.argument)), BATCH)
    (second,) = mine.hear(TimerFired("next"), BATCH)
    assert messages(mine.hear(Cancel(0), FRONT), JobDone) == [(FRONT, JobDone(0))]
    ((_, reply),) = messages(decided(mine, [second]), Answer)
    assert [task.job for task in reply.tasks] == [1]
    assert messages(mine.hear(Cancel(1), FRONT), Withdraw) == [(CELL, Withdraw((100,)))]
