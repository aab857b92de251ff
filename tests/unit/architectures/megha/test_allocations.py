"""The truth of a Local Master without its Local Master: what is free, and what each Global Master lacks."""

from __future__ import annotations

import msgspec
import pytest

from volery.architectures.megha.allocations import AttemptTable, ClusterState, GmSyncState, SlotAllocations
from volery.architectures.megha.amounts.allocations import AmountAllocations
from volery.architectures.megha.amounts.view import Capacities
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import UNIT_SHIFT, Request
from volery.architectures.megha.partitions import Layout
from volery.core import model
from volery.core.events import Fact
from volery.core.model import Task
from volery.policies.match import bytes_vector
from volery.roles.recovery.leases import RunningAttempt

FOUR = model.Cluster.uniform(4)
"""node/0 and node/1 are gm/0's partition 0, node/2 and node/3 gm/1's partition 1."""
ROOM = model.Cluster((0,) * 4, (1,) * 4, "room", ("cpu_milli",), ((1000,),) * 4)


class Cluster(ClusterState):
    """As much of a Local Master as its allocations depend on."""

    def __init__(self, layout: Layout) -> None:
        self.gms = {gm.address: gm for gm in (GmSyncState(0, 2), GmSyncState(1, 2))}
        self.attempts = AttemptTable(layout)
        self.drained_nodes: set[str] = set()

    @property
    def drained(self) -> set[str]:
        return self.drained_nodes

    def is_usable(self, node: str) -> bool:
        return node not in self.drained_nodes

    def observe(self, fact: Fact) -> None: ...
    def send_before_state(self, gm: GmSyncState) -> None: ...


def slots(*, twice: bool = False) -> tuple[SlotAllocations, Cluster]:
    layout = Layout(FOUR, 2, 1)
    cluster = Cluster(layout)
    return SlotAllocations(cluster, layout, range(2), notice(twice)), cluster


def notice(twice: bool) -> MeghaConfig:
    return MeghaConfig(completion_notice="twice" if twice else "once")


def amounts(*, repartition: bool = False, twice: bool = False) -> tuple[AmountAllocations, Cluster]:
    layout = Layout(ROOM, 2, 1, by_machine=True)
    cluster = Cluster(layout)
    config = msgspec.structs.replace(notice(twice), repartition=repartition)
    allocations = AmountAllocations(cluster, layout, Capacities(ROOM, layout), range(2), config)
    return allocations, cluster


def end(allocations: SlotAllocations | AmountAllocations, cluster: Cluster, task: int) -> GmSyncState:
    """The record of the owner of a task that ends."""
    return allocations.end(cluster.attempts.by_task.pop(task))


def active(task: int, node: int, amount: int, owner: str = "gm/0") -> RunningAttempt:
    return RunningAttempt(task, 0, 0, owner, (node // 2) << UNIT_SHIFT | node % 2, (amount,))


def test_a_slot_is_given_once_and_the_others_lack_what_its_owner_knows() -> None:
    held, lm = slots()
    wanted = Request(1, 0, (Task(1, 0), Task(2, 0)), (0, 0))
    starts, refused = held.allot_requested(wanted, lm.gms["gm/0"])
    assert [(task.id, node) for task, _, node in starts] == [(1, "node/0")]
    assert refused == [2]
    assert held.news(lm.gms["gm/0"]) is None
    news = held.news(lm.gms["gm/1"])
    assert news is not None
    assert [(one.partition, bytes_vector(one.taken)) for one in news.changes] == [(0, 1)]
    held.check()


@pytest.mark.parametrize("twice", [False, True])
def test_the_end_of_a_task_is_repeated_to_its_owner_only_where_it_is_told_twice(twice: bool) -> None:
    held, lm = slots(twice=twice)
    owner = lm.gms["gm/0"]
    held.allot_requested(Request(1, 0, (Task(1, 0),), (0,)), owner)
    assert end(held, lm, 1) is owner
    assert bool(held.news(owner)) is twice
    held.check()


def test_slots_of_a_drained_machine_stay_taken_when_their_tasks_end() -> None:
    held, lm = slots()
    held.allot_requested(Request(1, 0, (Task(1, 0),), (0,)), lm.gms["gm/0"])
    lm.drained_nodes.add("node/0")
    held.recount("node/0")
    end(held, lm, 1)
    held.check()
    lm.drained_nodes.clear()
    held.recount("node/0")
    held.check()
    held.check_rest()


def test_machines_take_the_tasks_of_a_request_as_long_as_they_have_enough() -> None:
    held, lm = amounts(repartition=True)
    tasks = tuple(Task(number, 0, request=(amount,)) for number, amount in enumerate((600, 600, 400, 600)))
    wanted, owner = Request(1, 0, tasks, (0, 0, 0, 1)), lm.gms["gm/0"]
    starts, refused = held.allot_requested(wanted, owner)
    assert refused == [1]
    assert [(task.id, node) for task, _, node in starts] == [(0, "node/0"), (2, "node/0"), (3, "node/1")]
    assert owner.lacks[0] == 0b01
    held.consider()
    assert lm.gms["gm/1"].lacks[0] == 0b11
    held.check()


@pytest.mark.parametrize("twice", [False, True])
def test_an_end_gives_amounts_back_and_the_owner_lacks_it_if_it_is_told_twice(twice: bool) -> None:
    held, lm = amounts(twice=twice)
    owner = lm.gms["gm/0"]
    held.allot_requested(Request(1, 0, (Task(1, 0, request=(600,)),), (0,)), owner)
    assert end(held, lm, 1) is owner
    held.check()
    held.consider()
    assert [gm.lacks[0] for gm in lm.gms.values()] == [int(twice), 1]


def test_a_drained_machine_has_nothing_free_until_it_is_back() -> None:
    held, lm = amounts()
    small, owner = Task(1, 0, request=(0,)), lm.gms["gm/0"]
    held.allot_requested(Request(1, 0, (Task(0, 0, request=(600,)),), (0,)), owner)
    lm.drained_nodes.add("node/0")
    held.recount("node/0")
    held.check()
    assert held.allot_requested(Request(2, 0, (small,), (0,)), owner) == ([], [1])
    end(held, lm, 0)
    held.check()
    held.consider()
    assert [gm.lacks[0] for gm in lm.gms.values()] == [1, 1]
    lm.drained_nodes.clear()
    held.recount("node/0")
    held.check()
    assert held.room_for(held.packing[(1000,)], 0, 0, 0)


def test_what_a_task_took_comes_back_once_and_all_but_its_owner_lack_it() -> None:
    held, lm = amounts()
    one = active(1, 0, 600)
    lm.attempts.put(one)
    held.allot(one, is_lent=True)
    assert not held.room_for(held.packing[(600,)], 0, 0, 0)
    held.check()
    lm.attempts.remove(one)
    held.free(one)
    assert held.room_for(held.packing[(1000,)], 0, 0, 0)
    held.consider()
    assert [gm.lacks[0] for gm in lm.gms.values()] == [0, 1]
    held.check()


def test_a_machine_has_place_for_as_many_attempts_as_it_offers_amounts_for() -> None:
    held, _ = amounts()
    running = [active(task, 0, 400) for task in range(3)]
    assert held.seats("node/0", running) == running[:2]


def test_what_one_gm_has_caused_the_others_lack_once_they_are_considered() -> None:
    held, lm = amounts()
    held.has_changed(1, 0, lm.gms["gm/1"])
    assert [gm.lacks[1] for gm in lm.gms.values()] == [0, 1]
    held.consider()
    assert [gm.lacks[1] for gm in lm.gms.values()] == [1, 1]


def test_attempts_are_listed_by_node_where_nodes_report_and_searched_elsewhere() -> None:
    layout = Layout(ROOM, 2, 1, by_machine=True)
    for table in (AttemptTable(layout), AttemptTable(layout, [f"node/{number}" for number in range(4)])):
        first, second = active(1, 0, 1), active(2, 2, 1)
        for attempt in (second, first):
            table.put(attempt)
        assert list(table.at("node/0")) == [first]
        assert table.find(2, "node/2") is second
        assert table.find(2, "node/0") is None
        table.remove(first)
        assert list(table) == [second]
        assert not table.at("node/0")
