"""The machines of a cell, and randomised first fit on a copy of its state: machines are drawn until one has room.

A machine that has no room for a task is drawn no more for tasks that ask for the same: within one decision machines
only become fuller. So every machine with room is as likely as another. A scheduler of shared state does not draw at all
where an index of its copy shows that no machine has room: a full cell costs one look at the index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from random import Random
from typing import Final, NamedTuple

from msgspec.structs import replace

from volery.core.model import Amounts, Cluster, Gang, Task
from volery.core.resources import SLOT, Packing, packing_of
from volery.policies.capacity import CapacityIndex, Ladders
from volery.policies.gangs import Rooms, by_rack, rack_vectors, spread
from volery.policies.match import Anchors, Matches, SmallRandom
from volery.policies.tags import TagIndex

Kind = tuple[int, Amounts]
"""The constraints and the request of a task: machines have room for all tasks of a kind, or for none."""


class Layout:
    """The machines of a cluster with their resources, of which slots are one.

    Attributes:
        whole: Amounts of each machine with everything free, packed and guarded; to be copied.
        state_bytes: Number of bytes of one machine in a message.
    """

    def __init__(self, cluster: Cluster, rings: Rings) -> None:
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.nodes = [f"node/{machine}" for machine in range(len(capacities))]
        self.packing = packing_of(cluster)
        # One integer for all machines that are alike.
        packed_amounts: dict[Amounts, int] = {}
        self.whole = [packed_amounts.setdefault(amounts, self.packing.free(amounts)) for amounts in capacities]

        self._cluster = cluster
        self._capacities = capacities

        self.capacity = tuple([sum(column) for column in zip(*capacities, strict=True)])
        self.rings = rings
        self.state_bytes = (self.packing.guards.bit_length() + 7) // 8
        self._kinds = list(dict.fromkeys(zip(cluster.constraints, self.whole, strict=True)))
        self._possible: dict[Kind, bool] = {}

    @cached_property
    def ladders(self) -> Ladders:
        """Thresholds of `index`: the amounts of requests."""
        return Ladders(self._capacities, self.packing)

    @cached_property
    def matches(self) -> Matches:
        """The machines that satisfy constraints, as vectors."""
        return Matches(self._cluster.constraints, Anchors(self._cluster.constraints))

    @cached_property
    def racks(self) -> tuple[int, ...]:
        """A bit vector of the machines of each rack."""
        return rack_vectors(self._cluster)

    @cached_property
    def index(self) -> CapacityIndex:
        """Machines on which nothing runs; to be copied."""
        return CapacityIndex(self._capacities, self.ladders)

    def fits_somewhere(self, task: Task) -> bool:
        """True if some machine, empty, could run the task."""
        kind = (task.constraints, task.request)
        if kind not in self._possible:
            packed = self.packing[task.request]
            guards = self.packing.guards
            self._possible[kind] = any(
                not task.constraints & ~constraints and (capacity - packed) & guards == guards
                for constraints, capacity in self._kinds
            )

        return self._possible[kind]

    def encode(self, free: Sequence[int]) -> bytes:
        """The free amounts of some machines, as bytes."""
        width = self.state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    def decode(self, octets: bytes) -> list[int]:
        """The free amounts in a message."""
        width = self.state_bytes
        return [int.from_bytes(octets[start : start + width], "little") for start in range(0, len(octets), width)]


class FreeCopy:
    """A scheduler's copy of what machines have free.

    Once it was found full, it finds out by an index, without a look at each machine, whether there is room.

    Attributes:
        free: Free amounts of each machine, packed and guarded; change it through `put` alone.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._index: CapacityIndex | None = None
        self.free = list(layout.whole)

    @property
    def put(self) -> Callable[[int, int], None]:
        """Sets what a machine has free."""
        return self.free.__setitem__ if self._index is None else self._index.put

    def found_full(self) -> None:
        """Keep an index from now on: a search has found no room."""
        if self._index is None:
            index = self._index = self._layout.index.copy()
            for machine, amounts in enumerate(self.free):
                index.put(machine, amounts)
            self.free = index.free

    def has_room(self, kinds: Iterable[Kind]) -> bool:
        """False if no machine has room for a task of one of these kinds; True if one has, or without an index."""
        if self._index is None:
            return True

        ladders = self._layout.ladders
        matches = self._layout.matches
        pick = self._index.pick
        return any(pick(ladders[request], matches[needs], "first") >= 0 for needs, request in kinds)


class Contest(NamedTuple):
    """A problem of placing in which what lower priorities hold may be claimed, too.

    Args:
        lower: Per lower priority, the lowest first: machine -> amounts that its tasks hold there.
    """

    placing: PlacementProblem
    lower: Sequence[Mapping[int, int]]


def place_over(contest: Contest) -> PlacementAnswer:
    """Place on machines with room first, then on those with tasks of the lowest priority, and so on upwards."""
    tasks = contest.placing.tasks
    problem = contest.placing._replace(whole=None)
    packing = problem.packing
    free = list(problem.free)
    unplaced = list(range(len(tasks)))

    places: list[int] = []
    machines: list[int] = []
    requests: list[Amounts] = []
    for level in ({}, *contest.lower):
        for machine, amounts in level.items():
            # What tasks of this priority hold counts as free from here on, as that of lower ones does.
            free[machine] = packing.settled(free[machine] + amounts)

        answer = place(problem._replace(tasks=[tasks[number] for number in unplaced], free=free))
        claims = answer.claims([tasks[number] for number in unplaced])
        for position, machine, task in zip(answer.places, answer.machines, claims, strict=True):
            places.append(unplaced[position])
            free[machine] = packing.settled(free[machine] - packing[task.request])

        machines += answer.machines
        requests += answer.requests

        placed_numbers = set(places)
        unplaced = [number for number in unplaced if number not in placed_numbers]

        if not unplaced:
            break

    return (
        NOWHERE
        if unplaced and contest.placing.whole is not None
        else PlacementAnswer(tuple(places), tuple(machines), tuple(requests))
    )


MISSES_MAX: Final = 48
"""Number of draws in vain for one task, after which listing the machines with room is cheaper than drawing on."""
RINGS_MAX: Final = 1024
"""Number of constraint sets whose machines are remembered; traces have some hundreds of frequent ones."""


class PlacementProblem(NamedTuple):
    """A problem of placing tasks, which is solved without any effect but its answer.

    Args:
        free: Free amounts of each machine, packed and guarded; it is not changed.
        pools: Constraint set of these tasks -> machines to draw from.
        whole: Shape in which all are placed or none; None: each may be placed alone.
        tags: Tags of what is placed already; the solution may count in it. None: none of these tasks has tags.
        racks: Bit vector of the machines of each rack, where `whole` prefers or requires one.
    """

    tasks: Sequence[Task]
    free: Sequence[int]
    pools: Mapping[int, Sequence[int]]
    packing: Packing
    seed: int
    whole: Gang | None = None
    tags: TagIndex | None = None
    racks: Sequence[int] = ()


class PlacementAnswer(NamedTuple):
    """The answer: places of the tasks that found room, and the machine of each.

    Args:
        requests: Requests of these tasks, with the devices that they take; nothing where no task takes any.
    """

    places: tuple[int, ...]
    machines: tuple[int, ...]
    requests: tuple[Amounts, ...] = ()

    def claims(self, tasks: Sequence[Task]) -> list[Task]:
        """The tasks that found room, as they are claimed."""
        placed_tasks = [tasks[place] for place in self.places]
        if not self.requests:
            return placed_tasks
        return [replace(task, request=request) for task, request in zip(placed_tasks, self.requests, strict=True)]


NOWHERE: Final = PlacementAnswer((), ())
ANYWHERE: Final = Gang()
"""The shape of a gang that has none."""


def place(problem: PlacementProblem) -> PlacementAnswer:
    """Find a machine for each task, as far as there is room."""
    if problem.tags is not None:
        return _place_tagged(problem, problem.tags)
    if problem.racks:
        return _place_in_racks(problem)
    if problem.whole is not None and problem.whole.nodes:
        return _place_shaped(problem, problem.whole)
    free = problem.free
    packing = problem.packing
    guards = packing.guards
    draw = SmallRandom(problem.seed).below

    free_after: dict[int, int] = {}
    drawn_from: dict[Kind, list[int]] = {}

    places: list[int] = []
    machines: list[int] = []
    requests: list[Amounts] = []

    for number, task in enumerate(problem.tasks):
        kind = (task.constraints, task.request)
        pool = drawn_from.get(kind)
        if pool is None:
            pool = drawn_from[kind] = list(problem.pools[task.constraints])

        packed = packing[task.request]
        misses = 0
        # Less than this as a number is less of something: it excludes most of a full cell at once.
        floor = packed | guards

        while pool:
            position = draw(len(pool))
            machine = pool[position]
            if (
                free[machine] >= floor
                and ((amounts := free_after.get(machine) or free[machine]) - packed) & guards == guards
            ):
                amounts_left = amounts - packed
                if packing.device_count:
                    taken_amounts = packing.named(amounts, packed)
                    amounts_left = packing.settled(amounts - taken_amounts)
                    requests.append(packing.naming(task, taken_amounts).request)
                free_after[machine] = amounts_left
                places.append(number)
                machines.append(machine)
                break

            # No task of this kind finds room here later: machines only become fuller within one decision.
            last_machine = pool.pop()
            if last_machine != machine:
                pool[position] = last_machine

            misses += 1
            if misses == MISSES_MAX:
                pool[:] = [
                    candidate
                    for candidate in pool
                    if free[candidate] >= floor
                    and ((free_after.get(candidate) or free[candidate]) - packed) & guards == guards
                ]
        else:
            if problem.whole is not None:
                # A gang is placed whole or not at all.
                return NOWHERE

    return PlacementAnswer(tuple(places), tuple(machines), tuple(requests))


def _place_in_racks(problem: PlacementProblem) -> PlacementAnswer:
    """Place a gang that prefers or requires one rack."""

    def placed(rack: int) -> PlacementAnswer | None:
        pools = {needs: [machine for machine in pool if rack >> machine & 1] for needs, pool in problem.pools.items()}
        answer = place(problem._replace(pools=pools, racks=()))
        return answer if answer.places else None

    assert problem.whole is not None, "tasks that may start apart have no rack"
    return by_rack(problem.whole, problem.racks, placed) or NOWHERE


def _place_shaped(problem: PlacementProblem, shape: Gang) -> PlacementAnswer:
    """Place a gang in its shape, on machines from a random one on; each has room for its largest members."""
    packing, free, tasks = problem.packing, problem.free, problem.tasks
    if not tasks:
        return NOWHERE

    largest = packing[tuple(map(max, zip(*[task.request or SLOT for task in tasks], strict=True)))]
    pools = list(problem.pools.values())
    shared_machines = set(pools[0]).intersection(*pools[1:])
    first = SmallRandom(problem.seed).below(max(1, len(pools[0])))
    machines = [machine for machine in (*pools[0][first:], *pools[0][:first]) if machine in shared_machines]

    rooms = Rooms(packing)
    places = spread([(machine, rooms[free[machine], largest]) for machine in machines], len(tasks), shape)
    if not places:
        return NOWHERE

    chosen = [machine for machine, count in places for _ in range(count)]
    requests: list[Amounts] = []
    free_after: dict[int, int] = {}
    for task, machine in zip(tasks, chosen, strict=True) if packing.device_count else ():
        amounts = free_after.get(machine, free[machine])
        taken_amounts = packing.named(amounts, packing[task.request])
        free_after[machine] = packing.settled(amounts - taken_amounts)
        requests.append(packing.naming(task, taken_amounts).request)
    return PlacementAnswer(tuple(range(len(tasks))), tuple(chosen), tuple(requests))


def _place_tagged(problem: PlacementProblem, index: TagIndex) -> PlacementAnswer:
    """Place one task after another on the machines that the tags of all before it leave to it."""
    free = list(problem.free)
    packing = problem.packing

    draw = SmallRandom(problem.seed)
    places: list[int] = []
    machines: list[int] = []
    requests: list[Amounts] = []

    for number, task in enumerate(problem.tasks):
        pool = problem.pools[task.constraints]

        # Tags of the tasks placed before this one count, so each is searched for alone.
        if task.tags is not None:
            allowed_machines = index.allowed(task.tags)
            pool = [machine for machine in pool if allowed_machines >> machine & 1]

        seed = draw.below(1 << 32)
        answer = place(problem._replace(tasks=(task,), free=free, pools={task.constraints: pool}, seed=seed, tags=None))

        if not answer.places:
            continue
        machine = answer.machines[0]
        claim = answer.claims([task])[0]
        free[machine] = packing.settled(free[machine] - packing[claim.request])

        if task.tags is not None:
            index.add(machine, task.tags)

        places.append(number)
        machines.append(machine)
        requests += answer.requests

    return PlacementAnswer(tuple(places), tuple(machines), tuple(requests))


class Rings:
    """The machines that satisfy a constraint set, in one random order; shared inside a build."""

    def __init__(self, cluster: Cluster, stream: Random) -> None:
        self._constraints = cluster.constraints
        self._order = list(range(len(cluster.constraints)))
        stream.shuffle(self._order)
        self._rings: dict[int, list[int]] = {0: self._order}

    def suitable(self, needs: int) -> list[int]:
        """The machines that satisfy a constraint set; not to be changed."""
        ring = self._rings.get(needs)
        if ring is None:
            constraints = self._constraints
            ring = [machine for machine in self._order if not needs & ~constraints[machine]]

            if len(self._rings) < RINGS_MAX:
                self._rings[needs] = ring
        return ring


def stretch(ring: Sequence[int], pickiness: float, start: float) -> Sequence[int]:
    """The stretch of machines that a picky job considers, in random order; one at least, if there are any.

    Args:
        pickiness: Share of them that is left out (0 to 1).
        start: Place where the stretch begins, uniform on [0, 1).
    """
    length = max(1, len(ring) - int(pickiness * len(ring)))
    first = int(start * len(ring))
    return [*ring[first : first + length], *ring[: max(0, first + length - len(ring))]]
