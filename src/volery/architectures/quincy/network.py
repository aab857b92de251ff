"""Quincy's network of a cluster's state, and the placements that a flow through it means.

    task > its places (machine, rack, anywhere) > .. > machine > sink, slots as capacity
    task > unscheduled of its job > sink

What goes through the unscheduled node of a job waits, or is stopped. With n tasks in the network, of which at least m
and at most M are to run, n - m units may pass it for nothing, and n - M have to. More than n - m pass at a price above
everything else: where constraints or other jobs leave no room for m, the flow still exists.

Where all tasks have one arc, to all machines at the same cost, a flow only chooses the tasks that run (`undecided`).
Each task is worth what its wait costs more than its run, and far more while its job has less than its least. What is
worth most has the slots. So a task worth more than the best that is left out runs in every cheapest flow, and one worth
less than the last that runs waits in every one. The network holds the others: those that start or stop, and those that
are level.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from volery.architectures.quincy.costs import FlowCosts
from volery.architectures.quincy.solver import Graph
from volery.architectures.quincy.tasks import MACHINE, Item, Place, Room
from volery.core.model import JobId

SINK: Final = "sink"
UNSCHEDULED_OF: Final = "unscheduled"
BELOW_FLOOR: Final = 1 << 40
"""Price of each task by which a job runs fewer than it should."""


class GraphBuilder:
    """Builds a graph whose nodes have names."""

    def __init__(self) -> None:
        self.names: list[object] = []
        self._numbers: dict[object, int] = {}
        self._supplies: list[int] = []
        self._arcs: list[tuple[int, int, int, int]] = []

    def node(self, name: object, supply: int = 0) -> int:
        """The number of a node, which is added if it is new; its supply adds up."""
        number = self._numbers.get(name)
        if number is None:
            number = self._numbers[name] = len(self.names)
            self.names.append(name)
            self._supplies.append(0)
        self._supplies[number] += supply
        return number

    def arc(self, tail: int, head: int, capacity: int, cost: int) -> None:
        self._arcs.append((tail, head, capacity, cost))

    def graph(self) -> Graph:
        tails, heads, capacities, costs = zip(*self._arcs, strict=True) if self._arcs else ((), (), (), ())
        return Graph(tuple(self._supplies), tails, heads, capacities, costs)


class NetworkTask(msgspec.Struct, frozen=True):
    """A task in the network."""

    item: Item
    unscheduled: int
    stay: int | None = None


class Bounds(msgspec.Struct, frozen=True):
    """Bounds on the running tasks of a job.

    Args:
        least: Least number of running tasks, if there is room.
        most: Largest number in any case; at least what runs and may not be stopped.
    """

    least: int
    most: int


class FlowNetwork:
    """The network of waiting and running tasks, with the meaning of its nodes."""

    def __init__(self, model: FlowCosts, room: Room) -> None:
        self._model = model
        self._room = room
        self._network = GraphBuilder()
        self._sink = self._network.node((SINK,))
        self._reached: dict[Place, int | None] = {}
        self._nodes: list[int] = []
        self.members: Sequence[NetworkTask] = ()

    @property
    def names(self) -> list[object]:
        """The names of the nodes, by number."""
        return self._network.names

    def place(self, place: Place) -> int | None:
        """The node of a place, with all that it leads to; None where that is no slot."""
        if place not in self._reached:
            self._reached[place] = self._draw(place)
        return self._reached[place]

    def _draw(self, place: Place) -> int | None:
        network = self._network

        if place[0] == MACHINE:
            free = self._room.free[int(place[1])]
            if not free:
                return None
            node = network.node(place)
            network.arc(node, self._sink, free, 0)
            return node

        # No machine below this place is open: no need to look at its arcs.
        if not self._model.machines.matches[int(place[1])] & self._room.open:
            return None

        arcs = [
            (head, capacity, cost)
            for below, capacity, cost in self._model.below(place, self._room)
            if (head := self.place(below)) is not None
        ]

        if not arcs:
            return None

        node = network.node(place)
        for head, capacity, cost in arcs:
            network.arc(node, head, capacity, cost)

        return node

    def draw_tasks(self, members: Sequence[NetworkTask], bounds: Mapping[JobId, Bounds]) -> Graph:
        """The graph, with these tasks."""
        network = self._network
        sink = self._sink

        self.members = members

        counts: dict[JobId, int] = {}
        for member in members:
            job = member.item.task.job
            counts[job] = counts.get(job, 0) + 1

        unscheduled_nodes = {job: network.node((UNSCHEDULED_OF, job)) for job in counts}

        for job, count in counts.items():
            bound = bounds.get(job, Bounds(0, count))
            # Units that end here in any case: the job may not run so many tasks.
            surplus_count = max(0, count - bound.most)
            network.node((UNSCHEDULED_OF, job), -surplus_count)

            least = min(bound.least, count - surplus_count)

            # One more than ever passes: an arc without room would have no price.
            network.arc(unscheduled_nodes[job], sink, count - surplus_count - least + (not least), 0)

            if least:
                network.arc(unscheduled_nodes[job], sink, least + 1, BELOW_FLOOR)

            network.node((SINK,), surplus_count - count)

        for member in members:
            node = network.node(member.item.task.id, 1)
            self._nodes.append(node)
            network.arc(node, unscheduled_nodes[member.item.task.job], 1, member.unscheduled)

            for place, cost in member.item.entries:
                is_own_machine = place == (MACHINE, member.item.machine)
                # A running task has an arc of its own to its machine, which counts the work done.
                if (head := self.place(place)) is not None and not (is_own_machine and member.stay is not None):
                    network.arc(node, head, 1, cost)

            if member.stay is not None:
                head = self.place((MACHINE, member.item.machine))
                assert head is not None, "a task runs where there is no slot"
                network.arc(node, head, 1, member.stay)

        return network.graph()

    def machines(self, graph: Graph, flows: Sequence[int]) -> list[int | None]:
        """The machine of each task, on which its flow ends; None where it waits.

        Units of several tasks meet in a place and part again: the first task takes the first arc.
        """
        arcs_from: dict[int, list[list[int]]] = {}
        for tail, head, flow in zip(graph.tails, graph.heads, flows, strict=True):
            if flow:
                arcs_from.setdefault(tail, []).append([head, flow])

        machine_of = {
            node: int(name[1]) for node, name in enumerate(self.names) if isinstance(name, tuple) and name[0] == MACHINE
        }

        machines: list[int | None] = []

        for node in self._nodes:
            current = node
            machine = None

            # What ends in the sink, or at the node of a job's unscheduled tasks, is led no further.
            while machine is None and current in arcs_from:
                arc = arcs_from[current][0]
                arc[1] -= 1
                if not arc[1]:
                    arcs_from[current].pop(0)
                    if not arcs_from[current]:
                        del arcs_from[current]

                current = arc[0]
                machine = machine_of.get(current)

            machines.append(machine)

        return machines


def fair_floors(task_counts: Mapping[JobId, int], running: Mapping[JobId, int], slots: int) -> dict[JobId, int]:
    """The number of tasks with which each job has its share: the poorest get one more until all slots are given.

    Args:
        task_counts: Number of tasks of each job that could run, those that do included; what is left over when all have
            as many goes to the first of these.
        running: Number of these that keep what they have, whatever their share is.
    """
    floors = {job: min(running.get(job, 0), count) for job, count in task_counts.items()}
    slots_left = slots - sum(floors.values())
    jobs_below = list(task_counts)
    while slots_left > 0 and (jobs_below := [job for job in jobs_below if floors[job] < task_counts[job]]):
        level = min(floors[job] for job in jobs_below)
        poorest_jobs = [job for job in jobs_below if floors[job] == level]
        next_level = min((floors[job] for job in jobs_below if floors[job] > level), default=level + slots_left)
        # All of the poorest rise together, at most to the next level, to what one of them needs, or as far as slots go.
        rise = (
            min(min(task_counts[job] for job in poorest_jobs), next_level, level + slots_left // len(poorest_jobs))
            - level
        )

        # Fewer slots than poorest jobs: the first ones get one more each.
        for job in poorest_jobs if rise else poorest_jobs[:slots_left]:
            floors[job] += max(rise, 1)
            slots_left -= max(rise, 1)

    return floors


FREE = Bounds(0, 1 << 62)


def undecided(
    members: Sequence[NetworkTask], bounds: Mapping[JobId, Bounds], slots: int
) -> tuple[list[NetworkTask], dict[JobId, Bounds]]:
    """The tasks of which a flow has something to say, and the bounds of jobs without those that run on.

    Args:
        members: Tasks of the network; running ones have the slots that they run on among these slots.
        bounds: Bounds of the jobs that have some.
    """
    if not slots:
        return [], {}

    worths = _worths(members, bounds)
    ranked = sorted([worth for worth in worths if worth is not None], reverse=True)

    least_worth_to_run = ranked[slots - 1] if slots <= len(ranked) else 0
    best_worth_left_out = ranked[slots] if slots < len(ranked) else 0

    undecided_members: list[NetworkTask] = []
    running_on: dict[JobId, int] = {}
    for member, worth in zip(members, worths, strict=True):
        # Worth more than the best that is left out: it runs on in every cheapest flow.
        if member.stay is not None and worth is not None and worth > best_worth_left_out:
            job = member.item.task.job
            running_on[job] = running_on.get(job, 0) + 1
        # A waiting task that is worth less than the last that runs waits in every cheapest flow, and is left out.
        elif member.stay is not None or (worth is not None and worth >= least_worth_to_run):
            undecided_members.append(member)

    return undecided_members, {job: _without(bound, running_on.get(job, 0)) for job, bound in bounds.items()}


def _without(bound: Bounds, count: int) -> Bounds:
    return Bounds(max(0, bound.least - count), max(0, bound.most - count))


def _worths(members: Sequence[NetworkTask], bounds: Mapping[JobId, Bounds]) -> list[int | None]:
    """The worth of each task, at least 1; None: its job may not run as many.

    Of tasks of a job that are worth as much the earlier comes first.
    """
    plain_worths = [member.unscheduled - (member.stay or 0) for member in members]

    if not bounds:
        return list(plain_worths)

    places_of: dict[JobId, list[int]] = {}
    for place, member in enumerate(members):
        places_of.setdefault(member.item.task.job, []).append(place)

    worths: list[int | None] = list(plain_worths)
    for job, places in places_of.items():
        bound = bounds.get(job, FREE)

        if len(places) > 1:
            places.sort(key=plain_worths.__getitem__, reverse=True)

        # As `BELOW_FLOOR` in the network: a job's least number of tasks comes before everything else.
        for place in places[: bound.least]:
            worths[place] = plain_worths[place] + BELOW_FLOOR
        # The job may not run more than this, whatever they are worth.
        for place in places[bound.most :]:
            worths[place] = None

    return worths
