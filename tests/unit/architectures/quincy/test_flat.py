"""The choice where all slots are alike, against the network of all tasks."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from volery.architectures.quincy.costs import QuincyCosts, Rates
from volery.architectures.quincy.network import BELOW_FLOOR, Bounds, FlowNetwork, NetworkTask, undecided
from volery.architectures.quincy.solver import FlowProblem, solve
from volery.architectures.quincy.tasks import Item, Room
from volery.core.model import Cluster, Task

MACHINES = 5
MODEL = QuincyCosts(Cluster((0,) * MACHINES, (1,) * MACHINES), Rates())


@st.composite
def cases(draw: st.DrawFn) -> tuple[list[NetworkTask], dict[int, Bounds]]:
    """Tasks of three jobs, some of which run, with waits that are often equal; and bounds that some jobs have."""
    job, wait = st.integers(0, 2), st.integers(1, 6)
    members, entries = [], (("any", 0), 0)
    running = draw(st.integers(0, MACHINES))
    for number, (owner, unscheduled) in enumerate(draw(st.lists(st.tuples(job, wait), max_size=8))):
        members.append(NetworkTask(Item(Task(number, owner), (entries,), (), 0), unscheduled))
    for machine in range(running):
        item = Item(Task(100 + machine, draw(job)), (entries,), (), 0, machine=machine)
        members.append(NetworkTask(item, draw(wait), -draw(wait)))
    bounds = {}
    for owner in draw(st.sets(job)):
        least = draw(st.integers(0, 3))
        bounds[owner] = Bounds(least, least + draw(st.integers(0, 3)))
    return members, bounds


def price(members: list[NetworkTask], bounds: dict[int, Bounds], places: list[int | None]) -> int:
    """What placements cost, with the price of each task that a job lacks."""
    total, runs, of = 0, dict[int, int](), dict[int, int]()
    for member, place in zip(members, places, strict=True):
        item = member.item
        of[item.task.job] = of.get(item.task.job, 0) + 1
        stays = member.stay is not None and place == item.machine
        total += member.unscheduled if place is None else (member.stay or 0) if stays else 0
        runs[item.task.job] = runs.get(item.task.job, 0) + (place is not None)
    for job, bound in bounds.items():
        assert runs.get(job, 0) <= bound.most
        total += BELOW_FLOOR * max(0, min(bound.least, of.get(job, 0)) - runs.get(job, 0))
    return total


def placed(members: list[NetworkTask], bounds: dict[int, Bounds], free: list[int]) -> list[int | None]:
    if not members:
        return []
    room = Room(MACHINES)
    room.fill(free)
    drawn = FlowNetwork(MODEL, room)
    graph = drawn.draw_tasks(members, bounds)
    return drawn.machines(graph, solve(FlowProblem(graph)).flows)


@settings(max_examples=300)
@given(cases())
def test_the_smaller_network_has_the_cost_of_the_whole(case: tuple[list[NetworkTask], dict[int, Bounds]]) -> None:
    members, bounds = case
    whole = placed(members, bounds, [1] * MACHINES)
    left, left_bounds = undecided(members, bounds, MACHINES)
    free = [1] * MACHINES
    kept = {member.item.task.id for member in left}
    for member in members:
        if member.stay is not None and member.item.task.id not in kept:
            free[member.item.machine] = 0
    place_of = dict(zip([member.item.task.id for member in left], placed(left, left_bounds, free), strict=True))
    smaller = [
        place_of.get(member.item.task.id, None if member.stay is None else member.item.machine) for member in members
    ]
    assert price(members, bounds, smaller) == price(members, bounds, whole)
    taken = [place for place in smaller if place is not None]
    assert len(set(taken)) == len(taken), "one task per slot"


def test_what_cannot_change_is_left_out() -> None:
    entries = ((("any", 0), 0),)
    running = [
        NetworkTask(Item(Task(machine, 0), entries, (), 0, machine=machine), 1, -1000) for machine in range(MACHINES)
    ]
    waiting = [NetworkTask(Item(Task(9, 1), entries, (), 0), 500)]
    assert undecided(waiting + running, {}, MACHINES) == ([], {}), "work done is worth more than a short wait"
    left, bounds = undecided(waiting + running, {0: Bounds(4, 9), 1: Bounds(1, 9)}, MACHINES)
    assert [member.item.task.id for member in left if member.stay is None] == [9], "its share is"
    assert bounds[1] == Bounds(1, 9)
