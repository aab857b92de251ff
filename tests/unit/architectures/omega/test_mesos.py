"""The allocator of offers and a framework, each alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages, submit
from tests.unit.effects import ComputeAsked, TimerSet

from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release, Withdraw
from volery.core.errors import InputError
from volery.core.events import Cancel, Computed, JobDone, TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.node import Completed, Launch

FRONT, CELL, BATCH, SERVICE = "front/0", "cell/0", "framework/0", "framework/1"
GUARD = 1 << 40


def amounts(*free: int) -> bytes:
    return b"".join((one | GUARD).to_bytes(6, "little") for one in free)


def allocator(*slots: int, **parameters: Any) -> Alone:
    return Alone("mesos", CELL, Cluster((0,) * len(slots), slots), **parameters)


def answer(number: int, task: int = -1, machine: int = 0, *, refuse_us: int = 0, waiting: bool = False) -> Answer:
    placed = (Task(task, 0),) if task >= 0 else ()
    return Answer(number, placed, (machine,) * len(placed), (), (), refuse_us, waiting)


def test_offers_come_in_batches_and_hold_all_that_is_free() -> None:
    master = allocator(2, 3)
    assert master.hear(Demand(1), SERVICE, 5) == [TimerSet("batch", SECOND + 1_000 + 5)]
    assert master.hear(Demand(1), BATCH, 9) == [], "the batch is due already"
    effects = master.hear(TimerFired("batch"), CELL, SECOND + 1_005)
    assert effects == [(BATCH, Offer(1, (0, 1), amounts(2, 3)))], "equal shares: the role that is named first"


def test_the_framework_with_the_lowest_dominant_share_is_first() -> None:
    master = allocator(4)
    master.hear(Demand(1), SERVICE)
    master.hear(TimerFired("batch"), CELL)
    assert messages(master.hear(answer(1, 7, waiting=True), SERVICE), Launch) == [("node/0", Launch(1, Task(7, 0)))]
    master.hear(Demand(1), BATCH)
    assert messages(master.hear(TimerFired("batch"), CELL), Offer) == [(BATCH, Offer(2, (0,), amounts(3)))]
    master.hear(answer(2, 8, waiting=True), BATCH)
    master.hear(Completed(7), "node/0")
    assert messages(master.hear(TimerFired("batch"), CELL), Offer) == [(SERVICE, Offer(3, (0,), amounts(3)))]


def test_what_is_offered_is_locked_until_the_answer() -> None:
    master = allocator(1, 1)
    master.hear(Demand(1), SERVICE)
    master.hear(Demand(1), BATCH)
    master.hear(TimerFired("batch"), CELL)
    assert master.hear(TimerFired("batch"), CELL) == [], "nothing is left to offer"
    assert master.hear(answer(7), SERVICE) == [], "no such offer"


def test_a_framework_that_refuses_is_left_alone_for_a_while() -> None:
    master = allocator(1)
    master.hear(Demand(1), BATCH)
    master.hear(TimerFired("batch"), CELL)
    master.hear(answer(1, refuse_us=5 * SECOND, waiting=True), BATCH, SECOND)
    assert master.hear(TimerFired("batch"), CELL, 2 * SECOND) == [TimerSet("batch", 6 * SECOND)]
    assert messages(master.hear(TimerFired("batch"), CELL, 6 * SECOND), Offer) == [(BATCH, Offer(2, (0,), amounts(1)))]


def test_no_offer_is_made_of_crumbs() -> None:
    master = allocator(1, 1, offer_min=1.0)
    master.hear(Demand(1), BATCH)
    master.hear(TimerFired("batch"), CELL)
    master.hear(answer(1, 7, waiting=True), BATCH)
    assert master.hear(TimerFired("batch"), CELL) == []
    assert master.hear(Completed(7), "node/0", 3) == [TimerSet("batch", SECOND + 1_003), (BATCH, Ended(0, 7))]


def test_what_is_held_counts_as_taken_until_it_is_released() -> None:
    master = allocator(1, 1)
    master.hear(Demand(1), BATCH)
    master.hear(TimerFired("batch"), CELL)
    master.hear(Answer(1, (), (), (Task(5, 0),), (0,), 0, True), BATCH)
    assert messages(master.hear(TimerFired("batch"), CELL), Offer) == [(BATCH, Offer(2, (1,), amounts(1)))]
    master.hear(answer(2, waiting=True), BATCH)
    assert master.hear(Release(1, (5,)), BATCH) == []
    assert messages(master.hear(TimerFired("batch"), CELL), Offer) == [(BATCH, Offer(3, (0, 1), amounts(1, 1)))]


def test_shares_are_weights_of_the_two_roles() -> None:
    with pytest.raises(InputError, match=r"mesos:shares: 'batch:1' is not a weight for each role"):
        allocator(1, shares="batch:1")


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
