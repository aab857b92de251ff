"""The truth of a Local Master without its Local Master: what is free, and what each Global Master lacks."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from volery.architectures.megha.allocations import GmSyncState, SlotAllocations
from volery.architectures.megha.amounts import AmountAllocations
from volery.architectures.megha.messages import UNIT_SHIFT, Request
from volery.architectures.megha.partitions import Capacities, Layout
from volery.architectures.megha.recovery import Alone
from volery.architectures.megha.shares import NoShares
from volery.core.model import Cluster, Task
from volery.policies.match import bytes_vector
from volery.roles.node import Launch
from volery.roles.recovery.leases import RunningAttempt

CLUSTER = Cluster.uniform(4)
"""node/0 and node/1 are gm/0's partition 0, node/2 and node/3 gm/1's partition 1."""
ROOM = Cluster((0,) * 4, (1,) * 4, "room", ("cpu_milli",), ((1000,),) * 4)


def around(allocations: Any) -> Any:
    """As much of a Local Master as its allocations see."""
    gms = {told.address: told for told in (GmSyncState(0, 2), GmSyncState(1, 2))}
    there: dict[str, dict[int, RunningAttempt]] = {f"node/{number}": {} for number in range(4)}
    lm = SimpleNamespace(
        gms=gms,
        there=there,
        recovery=Alone(),
        shares=NoShares(),
        observe=lambda fact: None,
        tell_ended=lambda told: None,
    )
    allocations.join(lm)
    return lm


def slots(*, twice: bool = False) -> tuple[SlotAllocations, Any]:
    allocations = SlotAllocations(Layout(CLUSTER, 2, 1), range(2), snapshots=False, twice=twice)
    return allocations, around(allocations)


def amounts(*, repartition: bool = False, twice: bool = False) -> tuple[AmountAllocations, Any]:
    layout = Layout(ROOM, 2, 1, by_machine=True)
    allocations = AmountAllocations(
        layout, Capacities(ROOM, layout), range(2), snapshots=False, twice=twice, repartition=repartition
    )
    return allocations, around(allocations)


def active(task: int, node: int, amount: int, owner: str = "gm/0") -> RunningAttempt:
    return RunningAttempt(task, 0, 0, owner, (node // 2) << UNIT_SHIFT | node % 2, (amount,))


def test_a_slot_is_given_once_and_the_others_lack_what_its_owner_knows() -> None:
    held, lm = slots()
    sent: list[Any] = []
    wanted = Request(1, 0, (Task(1, 0), Task(2, 0)), (0, 0))
    assert held.launch_all(wanted, lm.gms["gm/0"], 0, lambda to, message: sent.append((to, message))) == [2]
    assert sent == [("node/0", Launch(1, Task(1, 0)))]
    assert held.news(lm.gms["gm/0"]) is None
    told = held.news(lm.gms["gm/1"])
    assert told is not None
    assert [(one.partition, bytes_vector(one.taken)) for one in told.changes] == [(0, 1)]
    held.check()


@pytest.mark.parametrize("twice", [False, True])
def test_the_end_of_a_task_is_repeated_to_its_owner_only_where_it_is_told_twice(twice: bool) -> None:
    held, lm = slots(twice=twice)
    owner: GmSyncState = lm.gms["gm/0"]
    held.launch_all(Request(1, 0, (Task(1, 0),), (0,)), owner, 0, lambda to, message: None)
    assert held.end(1) is owner
    assert held.end(1) is None
    assert bool(held.news(owner)) is twice
    held.check()


def test_slots_of_a_drained_machine_stay_taken_when_their_tasks_end() -> None:
    held, lm = slots()
    held.launch_all(Request(1, 0, (Task(1, 0),), (0,)), lm.gms["gm/0"], 0, lambda to, message: None)
    lm.recovery.drained.add("node/0")
    held.close("node/0", closed=True)
    held.end(1)
    held.check()
    lm.recovery.drained.clear()
    held.close("node/0", closed=False)
    held.check()
    held.check_rest()


def test_machines_take_the_tasks_of_a_request_as_long_as_they_have_enough() -> None:
    held, lm = amounts(repartition=True)
    sent: list[tuple[str, object]] = []
    tasks = tuple(Task(number, 0, request=(amount,)) for number, amount in enumerate((600, 600, 400, 600)))
    wanted, owner = Request(1, 0, tasks, (0, 0, 0, 1)), lm.gms["gm/0"]
    assert held.launch_all(wanted, owner, 0, lambda to, message: sent.append((to, message))) == [1]
    launched = [("node/0", Launch(1, tasks[0])), ("node/0", Launch(2, tasks[2])), ("node/1", Launch(3, tasks[3]))]
    assert sent == launched
    assert owner.lacks[0] == 0b01
    held.consider()
    assert lm.gms["gm/1"].lacks[0] == 0b11
    held.check()


@pytest.mark.parametrize("twice", [False, True])
def test_an_end_gives_amounts_back_once_and_the_owner_lacks_it_if_it_is_told_twice(twice: bool) -> None:
    held, lm = amounts(twice=twice)
    owner: GmSyncState = lm.gms["gm/0"]
    held.launch_all(Request(1, 0, (Task(1, 0, request=(600,)),), (0,)), owner, 0, lambda to, message: None)
    assert held.node_of(1) == "node/0"
    assert held.end(1) is owner
    assert held.end(1) is None
    assert held.node_of(1) == ""
    held.check()
    held.consider()
    assert [told.lacks[0] for told in lm.gms.values()] == [int(twice), 1]


def test_a_drained_machine_has_nothing_free_until_it_is_back() -> None:
    held, lm = amounts()
    small, owner = Task(1, 0, request=(0,)), lm.gms["gm/0"]
    held.launch_all(Request(1, 0, (Task(0, 0, request=(600,)),), (0,)), owner, 0, lambda to, message: None)
    lm.recovery.drained.add("node/0")
    held.close("node/0", closed=True)
    held.check()
    assert held.launch_all(Request(2, 0, (small,), (0,)), owner, 1, lambda to, message: None) == [1]
    held.end(0)
    held.check()
    assert [told.lacks[0] for told in lm.gms.values()] == [1, 1]
    lm.recovery.drained.clear()
    held.close("node/0", closed=False)
    held.check()
    assert held.fits(active(2, 0, 1000), "node/0")


def test_what_a_task_took_comes_back_once_and_all_but_its_owner_lack_it() -> None:
    held, lm = amounts()
    one = active(1, 0, 600)
    assert held.fits(one, "node/0")
    lm.there["node/0"][1] = one
    held.allot(one, "node/0", lends=True)
    assert not held.fits(active(2, 0, 600), "node/0")
    assert [told.lacks[0] for told in lm.gms.values()] == [0, 1]
    held.check()
    del lm.there["node/0"][1]
    held.give_back(one, "node/0")
    assert held.fits(active(2, 0, 1000), "node/0")
    held.check()


def test_a_logical_node_is_in_the_partition_of_the_gm_that_borrows() -> None:
    held, _ = amounts(repartition=True)
    held.allot(active(1, 2, 600), "node/2", lends=True)
    assert held.active[1].guest == 0
    held.allot(active(2, 0, 600), "node/0", lends=True)
    assert held.active[2].guest == -1


def test_a_machine_has_place_for_as_many_attempts_as_it_offers_amounts_for() -> None:
    held, _ = amounts()
    running = [active(task, 0, 400) for task in range(3)]
    assert held.seats("node/0", running) == running[:2]


def test_what_one_gm_has_caused_the_others_lack_once_they_are_considered() -> None:
    held, lm = amounts()
    held.has_changed(1, 0, lm.gms["gm/1"])
    assert [told.lacks[1] for told in lm.gms.values()] == [0, 1]
    held.consider()
    assert [told.lacks[1] for told in lm.gms.values()] == [1, 1]
