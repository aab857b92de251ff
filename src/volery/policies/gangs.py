"""Machines for gangs: all members at once, in the shape of their gang, or none.

Members that ask for the same and suit the same machines are placed exactly: a gang finds room wherever there is some.
So are unlike members that take one slot each, by augmenting paths (Kuhn, Naval Research Logistics Quarterly, 1955).
Other unlike members are placed largest first; a gang that finds no room so on the empty cluster cannot be placed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import reduce
from operator import itemgetter, or_
from typing import NamedTuple, TypeVar

from volery.core.locality import racks_of
from volery.core.model import REQUIRES_RACK, Cluster, Gang
from volery.core.resources import REMEMBERED_MAX, SLOT, Packing
from volery.policies.match import Matches, positions

Answer = TypeVar("Answer")
Places = list[tuple[int, int]]
"""Machines, each with the count of members that it is given; nothing: there is no room."""


class Rooms(dict[tuple[int, int], int]):
    """(Free amounts, request), both packed -> count of tasks with this request that find room together.

    Args:
        packing: Packing of the machines' amounts.
    """

    def __init__(self, packing: Packing) -> None:
        super().__init__()
        self._packing = packing

    def __missing__(self, key: tuple[int, int]) -> int:
        free, packed = key
        packing = self._packing
        if packing.device_count:
            count = self._by_devices(free, packed)
        else:
            pairs = zip(packing.amounts(free), packing.amounts(packed), strict=True)
            count = min([offered // asked for offered, asked in pairs if asked], default=1 << 40)
        if len(self) >= REMEMBERED_MAX:
            self.clear()
        self[key] = count
        return count

    def _by_devices(self, free: int, packed: int) -> int:
        packing = self._packing
        guards = packing.guards
        count = 0
        # A request of nothing would find room without end; machines run fewer tasks than this.
        while (free - packed) & guards == guards and count < 1 << 12:
            free = packing.settled(free - packing.named(free, packed))
            count += 1
        return count


def spread(rooms: Iterable[tuple[int, int]], size: int, gang: Gang) -> Places:
    """Spread the members of a gang over machines.

    Args:
        rooms: Machines in order of preference, each with the count of members that find room there.
        size: Count of members.
        gang: Shape of the gang.
    """
    if not gang.nodes:
        places: Places = []
        for machine, room in rooms:
            taken = min(room, size)
            if taken:
                places.append((machine, taken))
                size -= taken
            if not size:
                return places
        return []

    # Machines that take most come first, so that the shape is met wherever it can be.
    counts = [(machine, min(room, gang.tasks_per_node)) for machine, room in rooms if room]
    chosen = sorted(counts, key=itemgetter(1), reverse=True)[: gang.nodes]
    if len(chosen) < gang.nodes or sum([count for _, count in chosen]) < size:
        return []

    places = []
    for number, (machine, count) in enumerate(chosen):
        # One member at least is left for each of the machines that follow.
        taken = min(count, size - (gang.nodes - number - 1))
        places.append((machine, taken))
        size -= taken
    return places


def rack_vectors(cluster: Cluster) -> tuple[int, ...]:
    """A bit vector of the machines of each rack, in the order of their numbers."""
    vectors: dict[int, int] = {}
    for machine, rack in enumerate(racks_of(cluster)):
        vectors[rack] = vectors.get(rack, 0) | 1 << machine
    return tuple([vectors[rack] for rack in sorted(vectors)])


def by_rack(gang: Gang, racks: Sequence[int], place: Callable[[int], Answer]) -> Answer:
    """Place a gang in the first rack that has room for it, if it wants one; where it only prefers that, else anywhere.

    Philly's scheduler places jobs so, and relaxes the demand for one rack (Jeon et al., USENIX ATC 2019).

    Args:
        gang: Shape of the gang.
        racks: Bit vector of the machines of each rack, one rack at least.
        place: Function that places the gang on machines of a vector; its answer is false where there is no room.
    """
    for rack in racks if gang.rack else ():
        if answer := place(rack):
            return answer
    return answer if gang.rack == REQUIRES_RACK else place(-1)


class MemberDemand(NamedTuple):
    """Members of a gang that are alike.

    Args:
        packed: Request of each, packed.
        machines: Bit vector of the machines that suit them.
        members: Count of these members.
    """

    packed: int
    machines: int
    members: int


def assign(demands: Sequence[MemberDemand], free: Sequence[int], packing: Packing) -> list[list[int]]:
    """The machines of the members of each demand, where all find room together; empty: they do not.

    Args:
        demands: Members by what they need.
        free: Free amounts of each machine, packed and guarded; they are not changed.
        packing: Packing of the amounts.
    """
    order = sorted(range(len(demands)), key=lambda place: (demands[place].machines.bit_count(), -demands[place].packed))
    are_alike = len({demand.packed for demand in demands}) == 1 and not packing.device_count
    search = _Search(demands, free, packing)

    for place in order:
        for _ in range(demands[place].members):
            if not search.place(place) and not (are_alike and search.augment(place, set())):
                return []
    return search.machines()


class _Search:
    """Members of unlike demands on machines."""

    def __init__(self, demands: Sequence[MemberDemand], free: Sequence[int], packing: Packing) -> None:
        self._demands = demands
        self._packing = packing
        self._free = list(free)
        self._places = [positions(demand.machines) for demand in demands]
        self._members: dict[int, list[int]] = {}

    def place(self, demand: int) -> bool:
        """Give a member the first machine with room."""
        packing, packed = self._packing, self._demands[demand].packed
        guards = packing.guards
        for machine in self._places[demand]:
            free = self._free[machine]
            if (free - packed) & guards == guards:
                self._free[machine] = packing.settled(free - packing.named(free, packed))
                self._members.setdefault(machine, []).append(demand)
                return True
        return False

    def augment(self, demand: int, machines_seen: set[int]) -> bool:
        """Give a member the place of another that finds one elsewhere."""
        for machine in self._places[demand]:
            if machine in machines_seen:
                continue
            machines_seen.add(machine)
            for number, other in enumerate(self._members.get(machine, ())):
                if other != demand and (self.place(other) or self.augment(other, machines_seen)):
                    self._members[machine][number] = demand
                    return True
        return False

    def machines(self) -> list[list[int]]:
        """The machines of the members of each demand."""
        machines: list[list[int]] = [[] for _ in self._demands]
        for machine, demands in self._members.items():
            for demand in demands:
                machines[demand].append(machine)
        return machines


class UnitGangs:
    """Places gangs on units of one slot each, which a master keeps as bit vectors.

    Args:
        matches: Constraint set -> vector of the units that satisfy it.
        machine_of: Machine of each unit.
    """

    def __init__(self, matches: Matches, machine_of: Sequence[int]) -> None:
        self._matches = matches
        self._machine_of = machine_of
        self._packing = Packing(1)

    def suitable(self, needs: Sequence[int]) -> int:
        """The units that suit some member of a gang with these constraint sets."""
        return reduce(or_, map(self._matches.__getitem__, dict.fromkeys(needs)))

    def choose(self, needs: Sequence[int], gang: Gang, units: int, last: int = 0) -> list[int]:
        """The unit of each member; nothing: not all of them find room.

        Members of a gang with a shape each get a machine that suits all of them.

        Args:
            needs: Constraint set of each member.
            gang: Shape of the gang.
            units: Vector of the units that it may take.
            last: Vector of units that are taken only where others are too few.
        """
        counts = Counter(needs)
        if len(counts) > 1 and not gang.nodes:
            return self._choose_unlike(needs, counts, units & ~last) or (
                self._choose_unlike(needs, counts, units) if units & last else []
            )

        fitting = units & self._matches[reduce(or_, counts)]
        if fitting.bit_count() < len(needs):
            return []
        ordered = [*positions(fitting & ~last), *positions(fitting & last)]
        if gang.nodes:
            units_on: dict[int, list[int]] = {}
            for unit in ordered:
                units_on.setdefault(self._machine_of[unit], []).append(unit)
            places = spread([(machine, len(there)) for machine, there in units_on.items()], len(needs), gang)
            return [unit for machine, count in places for unit in units_on[machine][:count]]
        return ordered[: len(needs)]

    def _choose_unlike(self, needs: Sequence[int], counts: Mapping[int, int], units: int) -> list[int]:
        slot = self._packing[SLOT]
        demands = [MemberDemand(slot, units & self._matches[need], count) for need, count in counts.items()]
        free = [self._packing.free(SLOT)] * len(self._machine_of)
        assigned = dict(zip(counts, map(iter, assign(demands, free, self._packing)), strict=False))
        return [next(assigned[need]) for need in needs] if assigned else []


def rooms_on(machines: int, free: Sequence[int], packed: int, rooms: Rooms) -> Places:
    """The machines of a vector with the count of tasks of a request that each has room for, those without left out."""
    return [(machine, room) for machine in positions(machines) if (room := rooms[free[machine], packed])]
