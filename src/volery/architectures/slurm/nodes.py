"""Nodes of Slurm's controller: what they have free, and which of them a job is given (select/linear, select/cons_tres).

A node vector is an integer with bit k for node k. The choice follows `_eval_nodes` of select/cons_tres in Slurm 22.05:
sets of consecutive nodes, of which the tightest that suffices is taken, or else the largest; one node, where one
suffices, is the one with the least that suffices.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from volery.core.model import Amounts, Cluster, Gang, Task
from volery.core.resources import packing_of
from volery.policies.gangs import Rooms, by_rack, rack_vectors
from volery.policies.match import Anchors, Matches, positions


class JobNeed(NamedTuple):
    """The nodes that a job needs.

    Args:
        task_count: Count of its tasks, which run at once.
        node_count: Count of nodes over which they are spread; 0: any number of nodes.
        tasks_per_node: Largest count of its tasks on one node; 0: any number of tasks.
        request: Units of each resource that each task asks for.
        constraints: Bit set of the constraints that its nodes satisfy.
        is_exclusive: True if its nodes run no other job meanwhile.
        cores: Count of cores that its tasks ask for together.
        gang: Shape of the gang that its tasks form.
    """

    task_count: int
    node_count: int
    tasks_per_node: int
    request: Amounts
    constraints: int
    is_exclusive: bool
    cores: float
    gang: Gang = Gang()

    @property
    def share_max(self) -> int:
        """Largest count of its tasks on one node."""
        return self.tasks_per_node or self.task_count

    def scaled(self, task_count: int) -> JobNeed:
        """The need of so many tasks of the same kind, on no more nodes than tasks."""
        node_count = min(self.node_count, task_count)
        return self._replace(
            task_count=task_count, node_count=node_count, cores=self.cores / self.task_count * task_count
        )


class NodeShare(NamedTuple):
    """A node, and the count of the job's tasks that it runs, or that fit what it has free."""

    node: int
    task_count: int


class NodeAllocation(NamedTuple):
    """A node, what a job takes of it (packed), and the tasks that it runs there."""

    node: int
    packed: int
    tasks: tuple[Task, ...]


class _NodeRun(NamedTuple):
    """A set of consecutive nodes of one weight, with the count of them and of the tasks that fit them."""

    weight: int
    nodes: int
    node_count: int
    room: int


class NodeFacts:
    """Facts of all nodes that never change, shared by the views of what they have free.

    Args:
        cluster: Machines; a slot is a core.
        weights: Weight of each node, of which the lowest is taken first; empty: all are alike.
    """

    def __init__(self, cluster: Cluster, weights: Sequence[int] = ()) -> None:
        capacities = cluster.capacities or tuple([(slot_count,) for slot_count in cluster.slots])
        self.capacities = capacities
        self.packing = packing_of(cluster)
        self.idle = [self.packing.free(amounts) for amounts in capacities]
        self.idle_vectors = _vectors_by(self.idle)
        self.suitable = Matches(cluster.constraints, Anchors(cluster.constraints))
        self.every = self.suitable.every
        self.weight_vectors = sorted(_vectors_by(weights).items()) or [(0, self.every)]
        self.rooms = Rooms(self.packing)
        self.racks = rack_vectors(cluster)


def _vectors_by(values: Sequence[int]) -> dict[int, int]:
    """The vector of the nodes that have each value."""
    vectors: dict[int, int] = {}
    for node, value in enumerate(values):
        vectors[value] = vectors.get(value, 0) | 1 << node
    return vectors


class Nodes:
    """A view of what each node has free: as it is, or as it will be when some jobs have ended.

    Attributes:
        free: Free amounts of each node, packed.
    """

    def __init__(self, table: NodeFacts, free: Sequence[int] | None = None) -> None:
        self.table = table
        self.free = list(table.idle if free is None else free)
        self._vectors = _vectors_by(self.free)

    def copy(self) -> Nodes:
        """Another view that begins with the same state."""
        twin = Nodes.__new__(Nodes)
        twin.table = self.table
        twin.free = list(self.free)
        twin._vectors = dict(self._vectors)
        return twin

    def snapshot(self) -> Nodes:
        """The nodes as they are, to choose from and not to change."""
        twin = Nodes.__new__(Nodes)
        twin.table = self.table
        twin._vectors = dict(self._vectors)
        return twin

    def take(self, parts: Sequence[NodeAllocation]) -> None:
        """Take what a job is given."""
        for part in parts:
            self._put(part.node, self.table.packing.settled(self.free[part.node] - part.packed))

    def give_back(self, parts: Sequence[NodeAllocation]) -> None:
        """Give back what a job had."""
        for part in parts:
            self._put(part.node, self.table.packing.settled(self.free[part.node] + part.packed))

    def _put(self, node: int, free: int) -> None:
        bit = 1 << node
        rest = self._vectors[self.free[node]] ^ bit
        if rest:
            self._vectors[self.free[node]] = rest
        else:
            del self._vectors[self.free[node]]
        self.free[node] = free
        self._vectors[free] = self._vectors.get(free, 0) | bit

    def choose(self, need: JobNeed, candidates: int) -> list[NodeShare] | None:
        """The nodes that a job is given now, with counts of tasks; None: they do not suffice.

        Args:
            need: Needs of the job.
            candidates: Vector of the nodes that it may have.
        """
        return by_rack(need.gang, self.table.racks, lambda rack: self._chosen_in(need, candidates & rack))

    def _chosen_in(self, need: JobNeed, candidates: int) -> list[NodeShare] | None:
        candidates &= self.table.suitable[need.constraints]
        rooms = self._rooms(need, candidates)
        if not _suffices(rooms, need):
            return None

        # Nodes with little room are left out one by one, as Slurm does, where the first choice is stuck with too many.
        for least in sorted(rooms):
            usable = {room: vector for room, vector in rooms.items() if room >= least}
            shares = _chosen(need, usable, self._runs(usable))
            if shares is not None:
                return shares
        return None

    def _rooms(self, need: JobNeed, candidates: int) -> dict[int, int]:
        """The candidates by the count of tasks that fit them, where one does."""
        table = self.table
        packed = table.packing[need.request]
        # A node that cannot run its whole part of an even job gives it no CPU (`_can_job_run_on_node`).
        is_even = need.task_count == need.node_count * need.tasks_per_node
        least = need.tasks_per_node if is_even else 1
        rooms: dict[int, int] = {}

        for free, vector in self._vectors.items():
            usable = vector & candidates
            if need.is_exclusive:
                usable &= table.idle_vectors.get(free, 0)
            room = table.rooms[free, packed] if usable else 0
            if room >= least:
                rooms[room] = rooms.get(room, 0) | usable
        return rooms

    def _runs(self, rooms: dict[int, int]) -> list[_NodeRun]:
        """The sets of consecutive nodes of one weight."""
        usable = sum(rooms.values())
        runs = []
        for weight, vector in self.table.weight_vectors:
            for low, high in _stretches(usable & vector):
                nodes = (1 << high) - (1 << low)
                room = sum([room * (nodes & vector).bit_count() for room, vector in rooms.items()])
                runs.append(_NodeRun(weight, nodes, high - low, room))
        return runs

    def parts(self, need: JobNeed, shares: Sequence[NodeShare], tasks: Sequence[Task]) -> list[NodeAllocation]:
        """The amounts that a job takes of each of its nodes, with the tasks that it runs there, their devices named."""
        packing = self.table.packing
        parts, first = [], 0
        for share in shares:
            free, packed = self.free[share.node], 0
            placed_tasks = []
            for task in tasks[first : first + share.task_count]:
                named = packing.named(free, packing[task.request])
                free = packing.settled(free - named)
                packed += named
                placed_tasks.append(packing.naming(task, named))

            first += share.task_count
            if need.is_exclusive:
                packed = self.free[share.node] - packing.guards
            parts.append(NodeAllocation(share.node, packed, tuple(placed_tasks)))
        return parts


def _stretches(vector: int) -> Iterator[tuple[int, int]]:
    """The first of each set of consecutive nodes, and the node behind its last."""
    low = 0
    while vector:
        zeros = (vector & -vector).bit_length() - 1
        vector >>= zeros
        length = (~vector & (vector + 1)).bit_length() - 1
        yield low + zeros, low + zeros + length
        vector >>= length
        low += zeros + length


def _suffices(rooms: dict[int, int], need: JobNeed) -> bool:
    counts = sorted([(room, vector.bit_count()) for room, vector in rooms.items()], reverse=True)
    node_count = need.node_count or sum([count for _, count in counts])
    room_sum = 0
    for room, count in counts:
        room_sum += min(room, need.share_max) * min(count, node_count)
        node_count -= min(count, node_count)
    return room_sum >= need.task_count and not (need.node_count and node_count)


def _chosen(need: JobNeed, rooms: dict[int, int], runs: list[_NodeRun]) -> list[NodeShare] | None:
    """The nodes of the best sets, until they suffice; None: as many nodes as are allowed do not."""
    missing_tasks = need.task_count
    missing_nodes = need.node_count or 1
    allowed_nodes = need.node_count or need.task_count
    shares: list[NodeShare] = []

    while runs and allowed_nodes:
        best = _best_run(runs, missing_tasks, missing_nodes)
        runs.remove(best)

        for share in _shares(rooms, best.nodes, missing_tasks if missing_nodes <= 1 else 0):
            if not allowed_nodes or (missing_nodes <= 0 and missing_tasks <= 0):
                break
            task_count = min(share.task_count, need.share_max)
            if allowed_nodes == 1 and task_count < missing_tasks:
                continue
            # Each node that is still to come runs one task at least.
            task_count = max(1, min(task_count, missing_tasks - max(0, missing_nodes - 1)))
            shares.append(NodeShare(share.node, task_count))
            missing_tasks -= task_count
            missing_nodes -= 1
            allowed_nodes -= 1

        if missing_nodes <= 0 and missing_tasks <= 0:
            return shares
    return None


def _best_run(runs: Sequence[_NodeRun], missing_tasks: int, missing_nodes: int) -> _NodeRun:
    """The tightest set of the lowest weight that suffices, or else the largest."""
    best = runs[0]
    best_suffices = _run_suffices(best, missing_tasks, missing_nodes)

    for run in runs[1:]:
        suffices = _run_suffices(run, missing_tasks, missing_nodes)
        # As in Slurm, a set with too few nodes and more room than the best so far takes its place.
        is_better = (not best_suffices or run.room < best.room) if suffices else run.room > best.room
        if run.weight < best.weight or (run.weight == best.weight and is_better):
            best, best_suffices = run, suffices
    return best


def _run_suffices(run: _NodeRun, missing_tasks: int, missing_nodes: int) -> bool:
    return run.room >= missing_tasks and run.node_count >= missing_nodes


def _shares(rooms: dict[int, int], nodes: int, task_count: int) -> list[NodeShare]:
    """The nodes of a set with the tasks that fit them; where one of them suffices for so many tasks, the tightest."""
    for room in sorted(rooms) if task_count else ():
        sufficient_nodes = rooms[room] & nodes
        if room >= task_count and sufficient_nodes:
            return [NodeShare((sufficient_nodes & -sufficient_nodes).bit_length() - 1, room)]
    return sorted([NodeShare(node, room) for room, vector in rooms.items() for node in positions(vector & nodes)])
