"""The slots of machines, as the scheduler promises them."""

from __future__ import annotations

import pytest

from volery.architectures.quincy.tasks import NOWHERE, Item, Machines
from volery.core.model import Cluster, Task


def item(task: int) -> Item:
    return Item(Task(task, task), (), (), 5)


def machines(*slots: int) -> Machines:
    return Machines(Cluster((0,) * len(slots), slots), lambda _task, _holders: 100)


def started(slots: Machines, one: Item, machine: int, now: int = 10) -> None:
    slots.place(one, machine)
    assert slots.start(machine, now) == [one]
    slots.check()


def test_a_placed_task_starts_at_once_where_a_slot_is_idle() -> None:
    slots, one = machines(1, 1), item(0)
    started(slots, one, 1)
    assert (one.machine, one.began_us, one.waited_us) == (1, 10, 5)
    assert (slots.free, slots.room.used_mbps) == ([1, 0], [0, 100])
    assert slots.counts == {0: 1}


def test_a_promised_slot_is_had_when_the_task_before_has_ended() -> None:
    slots, first, second = machines(1), item(0), item(1)
    started(slots, first, 0)
    slots.stop(first, beneficiary=1)
    slots.place(second, 0)
    assert slots.start(0, 20) == [], "the first still runs"
    assert slots.movable() == [], "what is being stopped cannot be moved"
    assert slots.end(0) == 0
    assert slots.start(0, 30) == [second]
    slots.check()
    assert slots.free == [0]


def test_a_task_that_is_moved_has_its_new_place_before_it_has_left_the_old_one() -> None:
    slots, one = machines(1, 1), item(0)
    started(slots, one, 0)
    slots.stop(one, beneficiary=0)
    slots.place(one, 1)
    assert slots.start(1, 20) == [], "it runs elsewhere"
    assert slots.end(0) == 0
    assert one.machine == 1
    assert slots.start(1, 30) == [one]
    assert slots.free == [1, 0]


def test_a_promise_that_is_given_up_frees_the_slot() -> None:
    slots, first, second = machines(1), item(0), item(1)
    started(slots, first, 0)
    slots.stop(first, beneficiary=1)
    slots.place(second, 0)
    assert slots.promised_to(1) == [second]
    slots.release(second)
    assert (second.machine, slots.free) == (NOWHERE, [1])
    slots.check()


def test_no_slot_is_promised_twice() -> None:
    slots = machines(1)
    slots.place(item(0), 0)
    with pytest.raises(AssertionError, match="has no slot to promise"):
        slots.place(item(1), 0)
