"""The allocator of offers alone."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages

from volery.architectures.omega.messages import Answer, Demand, Ended, Offer, Release
from volery.core.errors import InputError
from volery.core.events import TimerFired
from volery.core.model import SECOND, Cluster, Task
from volery.roles.node import Completed, Launch
from volery.sim.effects import TimerSet

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
