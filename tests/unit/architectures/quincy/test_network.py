"""What the network says of a cluster: places and costs, lines of waiting tasks, shares, bounds."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from volery.architectures.quincy.costs import FlowCosts, LoadSpreading, NetworkAware, QuincyCosts, Rates
from volery.architectures.quincy.network import Bounds, FlowNetwork, NetworkTask, fair_floors
from volery.architectures.quincy.solver import FlowProblem, solve
from volery.architectures.quincy.tasks import Item, Room, WaitingItems
from volery.core.model import SECOND, Cluster, Task

FOUR = Cluster((0,) * 4, (1,) * 4, racks=(0, 0, 1, 1))
THREE_GB = Rates(input_gb=3.0)


def item(model: FlowCosts, number: int, holders: tuple[int, ...] = (), job: int = 0, since: int = 0) -> Item:
    task = Task(number, job, estimate_us=8 * SECOND)
    return Item(task, model.entries(task, holders), holders, since)


def placed(
    model: FlowCosts, room: Room, items: Sequence[Item], now: int, bounds: dict[int, Bounds] | None = None
) -> list[int | None]:
    drawn = FlowNetwork(model, room)
    graph = drawn.draw_tasks([NetworkTask(one, model.unscheduled(now - one.since)) for one in items], bounds or {})
    return drawn.machines(graph, solve(FlowProblem(graph)).flows)


def room_of(*free: int) -> Room:
    room = Room(len(free))
    room.fill(list(free))
    return room


@pytest.mark.parametrize(("seconds", "machines"), [(4, {0}), (8, {0, 1}), (14, {0, 1, 2})])
def test_vector_q1_comes_out_of_the_policy(seconds: int, machines: set[int]) -> None:
    """Vector Q1, drawn by the policy: half a unit per second of waiting, 3 GB on machine 0."""
    model = QuincyCosts(FOUR, THREE_GB)
    tasks = [item(model, number, (0,)) for number in range(3)]
    assert [cost for _, cost in tasks[0].entries] == [0, 3000, 6000], "machine, rack, anywhere"
    found = placed(model, room_of(1, 1, 1, 1), tasks, seconds * SECOND)
    taken = {machine for machine in found if machine is not None}
    assert len(taken) == len(machines)
    assert {machine // 2 for machine in taken} == {machine // 2 for machine in machines}
    assert 0 in taken


def test_places_cost_what_the_dearest_machine_there_costs() -> None:
    model = QuincyCosts(FOUR, THREE_GB)
    assert dict(item(model, 0, (0, 1, 2, 3)).entries)["any", 0] == 0
    assert dict(item(model, 0, (0, 2)).entries)["any", 0] == 3000, "every rack holds it, not every machine"
    assert dict(item(model, 0, (0, 1)).entries) == {
        ("machine", 0): 0,
        ("machine", 1): 0,
        ("rack", 0, 0): 0,
        ("any", 0): 6000,
    }
    assert item(model, 0).entries == ((("any", 0), 0),), "no input: no preference"


def test_constraints_have_aggregators_of_their_own() -> None:
    model = QuincyCosts(Cluster((0, 1, 0, 1), (1,) * 4, racks=(0, 0, 1, 1)), THREE_GB)
    task = Task(0, 0, 1)
    entries = model.entries(task, (0, 1))
    assert [place for place, _ in entries] == [("machine", 1), ("rack", 1, 0), ("any", 1)], "machine 0 does not fit"
    found = placed(model, room_of(1, 0, 1, 1), [Item(task, entries, (0, 1), 0)], 60 * SECOND)
    assert found == [3]


def test_waiting_ends_when_it_is_dearer() -> None:
    model = QuincyCosts(FOUR, THREE_GB)
    patience = model.patience_us(3000)
    assert patience == 6 * SECOND
    assert model.unscheduled(patience) > 3000 >= model.unscheduled(patience - 2)


def test_what_runs_is_worth_its_time() -> None:
    model = QuincyCosts(FOUR, THREE_GB)
    one = item(model, 0, (0,))
    costs = []
    for one.machine in (0, 1, 2):
        costs.append(model.stay(one, 10 * SECOND))
    assert costs == [-10_002, -7_002, -4_002]


def test_load_is_spread_over_the_machines_with_fewest_tasks() -> None:
    model, room = LoadSpreading(FOUR), room_of(2, 2, 2, 0)
    room.tasks = [2, 0, 1, 0]
    found = placed(model, room, [item(model, number) for number in range(3)], 0)
    assert sorted(machine for machine in found if machine is not None) == [1, 1, 2]


def test_network_aware_tasks_go_where_bandwidth_is_left() -> None:
    model, room = NetworkAware(FOUR, 1.0, 1500), room_of(2, 2, 2, 2)
    room.used_mbps = [1000, 300, 0, 600]
    task = item(model, 0, (3,))
    assert model.request_mbps(task.task, (3,)) == 1000, "a gigabyte in 8 s"
    assert model.request_mbps(task.task, ()) == 0
    found = placed(model, room, [item(model, number, (3,)) for number in range(3)], 0)
    assert sorted(machine for machine in found if machine is not None) == [1, 2], (
        "nobody else can carry one, and they not two"
    )


def test_bounds_of_a_job_come_before_costs() -> None:
    model = QuincyCosts(FOUR, THREE_GB)
    tasks = [item(model, number, (0,)) for number in range(3)]
    room = room_of(1, 1, 1, 1)
    assert placed(model, room, tasks, 0).count(None) == 2
    assert placed(model, room, tasks, 0, {0: Bounds(3, 3)}).count(None) == 0, "it is due three"
    assert placed(model, room, tasks, 60 * SECOND, {0: Bounds(0, 1)}).count(None) == 2, "it may have one"
    assert placed(model, room_of(1, 0, 0, 0), tasks, 0, {0: Bounds(3, 3)}).count(None) == 2, "as far as there is room"


def test_shares_are_equal_and_whole() -> None:
    assert fair_floors({0: 9, 1: 9, 2: 1}, {}, 8) == {0: 4, 1: 3, 2: 1}, "what one cannot use the others share"
    assert fair_floors({0: 9, 1: 9}, {0: 6}, 8) == {0: 6, 1: 2}, "nobody loses what it keeps"
    assert fair_floors({0: 2, 1: 1}, {}, 8) == {0: 2, 1: 1}
    assert fair_floors({0: 9, 1: 0, 2: 9}, {0: 3, 2: 5}, 10) == {0: 5, 1: 0, 2: 5}


def begun(since: int) -> int:
    return since


def test_shared_lines_give_all_that_are_level_and_no_more() -> None:
    model, waiting = QuincyCosts(FOUR, THREE_GB), WaitingItems(shared=True)
    for number, (job, since) in enumerate([(2, 0), (2, 0), (1, 1), (0, 1), (3, 2), (3, 9)]):
        waiting.add(item(model, number, job=job, since=since))
    first = [one.task.id for one in waiting.first(lambda _: True, 1, begun)]
    assert first == [0], "of one job as many as there are slots"
    assert [one.task.id for one in waiting.first(lambda _: True, 3, begun)] == [3, 2, 0, 1], "level with the third"
    assert [one.task.id for one in waiting.first(lambda _: True, 4, lambda since: since // 3)] == [3, 2, 0, 1, 4]
    waiting.take(waiting.items[0])
    waiting.take(waiting.items[1])
    assert [one.task.id for one in waiting.first(lambda _: True, 1, begun)] == [3, 2]


def test_lines_give_those_that_have_waited_longest() -> None:
    model, waiting = QuincyCosts(FOUR, THREE_GB), WaitingItems()
    items = [item(model, number, (number % 4,), since=number) for number in range(40)]
    for one in items[::-1]:
        waiting.add(one)
    assert [one.task.id for one in waiting.first(lambda place: place == ("machine", 1), 2, begun)] == [1, 5]
    for one in items[:37]:
        waiting.take(one)
    assert [one.task.id for one in waiting.first(lambda place: place == ("any", 0), 2, begun)] == [37, 38]
    assert [one.task.id for one in waiting.first(lambda place: place == ("machine", 0), 2, begun)] == []
    assert waiting.counts == {0: 3}
    items[1].since = 50
    waiting.add(items[1])
    assert [one.task.id for one in waiting.first(lambda place: place == ("machine", 1), 2, begun)] == [37, 1], (
        "once each"
    )
