"""The view of a Global Master without its Global Master: what it places, gives away and learns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from volery.architectures.megha.amounts.view import Capacities, CapacityView
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import UNIT_SHIFT, Change, PartitionState, StateUpdate, TasksEnded
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.architectures.megha.view import SlotView
from volery.core.events import Fact
from volery.core.model import Cluster, Task
from volery.policies.match import vector_bytes
from volery.roles.recovery.leases import RunningAttempt

SLOTS = Cluster.uniform(4)
"""Two GMs, one LM: gm/0 owns partition 0, machines 0 and 1; partition 1 is external."""
CONFIG = MeghaConfig(match="min-constraints")
ROOM = Cluster((0,) * 4, (1,) * 4, "room", ("cpu_milli",), ((1000,),) * 4)
View = SlotView | CapacityView


class Master:
    """As much of a Global Master as its view sees; it keeps what is requested and which jobs' tasks have finished."""

    def __init__(self) -> None:
        self.asked: list[tuple[int, list[int], list[int]]] = []
        self.done: list[tuple[int, int]] = []
        self.jobs: Any = SimpleNamespace(finished=lambda job, count: self.done.append((job, count)))

    def request(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        self.asked.append((partition, [task.id for task in tasks], list(places)))

    def request_all(self, batches: Mapping[int, tuple[list[Task], list[int]]]) -> None:
        for partition, (tasks, places) in batches.items():
            self.request(partition, tasks, places)

    def observe(self, fact: Fact) -> None: ...
    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None: ...


def slots() -> tuple[SlotView, Master]:
    layout, master = Layout(SLOTS, 2, 1), Master()
    return SlotView(master, layout, SearchOrder(layout, 0), CONFIG, Random(0)), master


def amounts() -> tuple[CapacityView, Master]:
    layout, master = Layout(ROOM, 2, 1, by_machine=True), Master()
    view = CapacityView(master, layout, Capacities(ROOM, layout), SearchOrder(layout, 0), CONFIG, Random(0))
    return view, master


def whole_machines(count: int) -> list[Task]:
    return [Task(number, 0, request=(1000,)) for number in range(count)]


def halves(count: int) -> list[Task]:
    return [Task(number, 0, request=(500,)) for number in range(count)]


@pytest.mark.parametrize(("made", "fill"), [(slots, [Task(n, 0) for n in range(5)]), (amounts, whole_machines(5))])
def test_internal_units_are_given_before_external_ones_and_the_rest_waits(made: Any, fill: list[Task]) -> None:
    view, master = made()
    assert [task.id for task in view.place(fill)] == [4]
    assert master.asked == [(0, [0, 1], [0, 1]), (1, [2, 3], [0, 1])]
    assert {number: place[1:] for number, place in view.placed.items()} == {0: (0, 0), 1: (0, 1), 2: (1, 0), 3: (1, 1)}


@pytest.mark.parametrize(("made", "fill"), [(slots, [Task(n, 0) for n in range(5)]), (amounts, whole_machines(5))])
def test_what_an_ended_task_had_goes_to_the_queue_before_its_job_is_counted_down(made: Any, fill: list[Task]) -> None:
    view, master = made()
    for task in view.place(fill):
        view.queue.push(task)
    view.check()
    view.end(TasksEnded((1,)), 0)
    assert master.asked[-1] == (0, [4], [1])
    assert master.done == [(0, 1)]
    assert 1 not in view.placed
    view.end(TasksEnded((1,)), 0)
    assert master.done == [(0, 1)], "a repeat is stale"


@pytest.mark.parametrize(("made", "fill"), [(slots, [Task(n, 0) for n in range(4)]), (amounts, whole_machines(4))])
def test_a_view_in_which_a_free_unit_fits_a_waiting_task_fails_its_check(made: Any, fill: list[Task]) -> None:
    view, _ = made()
    view.place(fill[:3])
    view.queue.push(fill[3])
    with pytest.raises(AssertionError):
        view.check()


def test_slots_that_another_has_taken_are_not_given_until_they_are_freed() -> None:
    view, master = slots()
    taken = StateUpdate(1, changes=(Change(0, b"", vector_bytes(0b11)), Change(1, b"", vector_bytes(0b10))))
    assert view.learn(taken, 0) == [(0, 0), (1, 0)]
    assert [task.id for task in view.place([Task(0, 0), Task(1, 0)])] == [1]
    assert master.asked == [(1, [0], [0])]
    freed = StateUpdate(2, changes=(Change(0, vector_bytes(0b10), b""),))
    assert view.learn(freed, 0) == [(0, 0b10)]
    assert view.free_by_machine() == {1: 1}


def test_a_snapshot_replaces_the_view() -> None:
    view, _ = slots()
    view.learn(StateUpdate(1, changes=(Change(0, vector_bytes(0b01), b""),), is_snapshot=True), 0)
    assert view.free_by_machine() == {0: 1, 2: 1, 3: 1}


def test_a_state_contains_no_request_that_is_under_way() -> None:
    view, _ = amounts()
    (task,) = halves(1)
    assert not view.place([task])
    view.requested(0, (1, 0, (task,), (0,)))
    packing = view.packing
    everything = packing[(1000,)] + packing.guards
    state = PartitionState(0, vector_bytes(0b1), everything.to_bytes(view.capacities.state_bytes, "little"))
    view.learn(StateUpdate(1, 0, (state,), 1), 0)
    assert view.room(0, 0, (1000,)) == 0b10, "half of the machine is promised"
    view.learn(StateUpdate(2, 1, (state,), 1), 0)
    assert view.room(0, 0, (1000,)) == 0b11, "the request has arrived, and this state contains it"


def test_a_task_of_before_is_followed_to_where_it_runs() -> None:
    for view, _ in (slots(), amounts()):
        view.follow(Task(7, 0), RunningAttempt(7, 0, 3, "gm/0", 1 << UNIT_SHIFT | 1))
        assert view.placed[7][1:] == (1, 1)
        assert view.take_back(7).id == 7
        assert not view.placed


def test_reasons_count_units_that_lack_a_constraint_or_are_small_or_taken() -> None:
    view, _ = amounts()
    view.place(halves(1))
    assert view.reasons(view.copies()[0], Task(9, 0, request=(1000,)), 0, called=0b1) == (0, 0, 0, 1)
    assert view.reasons(view.copies()[0], Task(9, 0, request=(1000,)), 0, called=0) == (0, 0, 1, 0)
    assert view.reasons(view.copies()[0], Task(9, 0, request=(2000,)), 0, called=0) == (0, 2, 0, 0)
    assert view.reasons(view.copies()[0], Task(9, 0, constraints=1, request=(1,)), 0, called=0) == (2, 0, 0, 0)
