"""The sub-clusters: their machines, the constraint sets that each can satisfy, and what is known of them elsewhere."""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from random import Random

from volery.architectures.hydra.messages import Directory
from volery.core.errors import InputError
from volery.core.model import Address, Cluster, Gang, split_evenly
from volery.policies.gangs import UnitGangs
from volery.policies.match import Anchors, Matches

WHOLE = 1000
"""The weight 1, in permille."""
REACH_MAX = 1 << 14
"""Number of constraint sets whose supply is remembered."""


class SubCluster:
    """The machines of one resource manager, in the order of their heartbeats; a machine's place in it is its seat.

    Attributes:
        constraints, slots: Constraints and slots of each seat.
        seat_of: Machine -> seat.
        matches: Constraint set -> bit vector of seats.
    """

    def __init__(self, number: int, machines: Sequence[int], cluster: Cluster, anchors: Anchors, count: int) -> None:
        self.number = number
        self.machines = list(machines)
        self.constraints = [cluster.constraints[machine] for machine in machines]
        self.slots = [cluster.slots[machine] for machine in machines]
        self.seat_of = {machine: seat for seat, machine in enumerate(machines)}
        self.matches = Matches(self.constraints, anchors, count)

    @cached_property
    def part(self) -> Cluster:
        """The machines, as a cluster."""
        return Cluster(tuple(self.constraints), tuple(self.slots), "sub-cluster")

    @cached_property
    def _unit_gangs(self) -> UnitGangs:
        units = [seat for seat, slots in enumerate(self.slots) for _ in range(slots)]
        constraints = [self.constraints[seat] for seat in units]
        return UnitGangs(Matches(constraints, Anchors(constraints)), units)

    @cached_property
    def _first_units(self) -> list[int]:
        return list(accumulate(self.slots, initial=0))

    def seats_for(self, needs: Sequence[int], shape: Gang, slots: Mapping[int, int]) -> list[int]:
        """The seat of each container of a gang; nothing: there is no room for all.

        Args:
            needs: Constraint set of each.
            shape: Machines over which they are spread.
            slots: Seat -> slots that may be taken there.
        """
        units = sum([(1 << count) - 1 << self._first_units[seat] for seat, count in slots.items()])
        chosen = self._unit_gangs.choose(needs, shape, units)
        return [bisect_right(self._first_units, unit) - 1 for unit in chosen]


class Layout:
    """A pure function of the cluster and a stream, shared inside one build.

    Raises:
        InputError: more sub-clusters than machines.
    """

    def __init__(self, cluster: Cluster, count: int, routers: int, proxies: int, stream: Random) -> None:
        machine_count = len(cluster.constraints)
        if count > machine_count:
            problem = f"{count} sub-clusters are more than {machine_count} workers; lower subclusters or add workers"
            raise InputError("hydra:subclusters", problem)

        anchors = Anchors(cluster.constraints)
        self.subclusters: list[SubCluster] = []
        self.sub_of = [0] * machine_count

        for number, members in enumerate(split_evenly(machine_count, count)):
            order = list(members)
            stream.shuffle(order)
            self.subclusters.append(SubCluster(number, order, cluster, anchors, count))
            for machine in members:
                self.sub_of[machine] = number

        self.routers = [f"router/{number}" for number in range(routers)]
        self.proxies_each = proxies
        self.proxies = [f"proxy/{number}/{place}" for number in range(count) for place in range(proxies)]

        self._reach: dict[int, tuple[int, ...]] = {}
        self._holding: dict[tuple[tuple[tuple[int, int], ...], Gang], tuple[int, ...]] = {}

    def host(self, job: int, home: int) -> Address:
        """The proxy beside which the application master of a job stands."""
        return f"proxy/{home}/{job % self.proxies_each}"

    def holding(self, needs: Sequence[int], shape: Gang) -> tuple[int, ...]:
        """The sub-clusters of which the empty machines hold a gang."""
        key = tuple(sorted(Counter(needs).items())), shape
        if key not in self._holding:
            if len(self._holding) >= REACH_MAX:
                self._holding.clear()
            whole = [sub.seats_for(needs, shape, dict(enumerate(sub.slots))) for sub in self.subclusters]
            self._holding[key] = tuple([number for number, seats in enumerate(whole) if seats])
        return self._holding[key]

    def reach(self, mask: int) -> tuple[int, ...]:
        """The sub-clusters that have machines which satisfy a constraint set."""
        subclusters = self._reach.get(mask)
        if subclusters is None:
            subclusters = tuple([sub.number for sub in self.subclusters if sub.matches[mask]])
            if len(self._reach) < REACH_MAX:
                self._reach[mask] = subclusters

        return subclusters


class Membership:
    """The sub-clusters as the state store last reported them to a router or proxy.

    Attributes:
        weights: Weights set by the policy generator, in permille.
        headroom: Free slots of the sub-clusters that have reported them.
    """

    def __init__(self, count: int) -> None:
        self.active = [True] * count
        self.weights = [WHOLE] * count
        self.headroom: dict[int, int] = {}
        self._number = 0

    def update(self, message: Directory) -> tuple[list[int], list[int]]:
        """Take in a report; returns the sub-clusters that are lost by it, and those that are back."""
        # A repeated or overtaken report.
        if message.number <= self._number:
            return [], []

        self._number = message.number
        lost_subclusters = [sub for sub, active in enumerate(message.active) if self.active[sub] and not active]
        returned_subclusters = [sub for sub, active in enumerate(message.active) if active and not self.active[sub]]

        self.active = list(message.active)
        self.weights = list(message.weights)
        self.headroom = {sub: free for sub, free in enumerate(message.free) if free >= 0}

        return lost_subclusters, returned_subclusters

    def usable(self, candidates: Sequence[int]) -> Sequence[int]:
        """The candidates that are active and have a weight; else those that are active; else all of them."""
        active = [sub for sub in candidates if self.active[sub]]
        # A router or proxy that knows of no usable sub-cluster asks all: waiting is worse than asking in vain.
        return [sub for sub in active if self.weights[sub]] or active or candidates


def rm_of(number: int) -> Address:
    return f"rm/{number}"


def sub_of_rm(address: Address) -> int:
    return int(address.split("/")[1])


STORE: Address = "store/0"
GPG: Address = "gpg/0"
