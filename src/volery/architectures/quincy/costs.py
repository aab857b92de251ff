"""Costs of waiting, of running somewhere and of running on: the policies of Quincy and Firmament.

Costs are whole thousandths of what moving a gigabyte through one rack's switch costs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Protocol

import msgspec

from volery.architectures.quincy.tasks import MACHINE, Item, Place, Room
from volery.core.locality import ANY, NODE, RACK, racks_of
from volery.core.model import SECOND, Cluster, Task, Time
from volery.policies.match import Anchors, Matches, positions

UNIT = 1000
"""Cost of moving a gigabyte through one switch."""
INERTIA = 2
"""Amount by which what runs is cheaper where it is: more than rounding makes of what is equal."""
ANYWHERE, IN_RACK = "any", "rack"
MEGABITS_PER_GB = 8000


class RankedMachines:
    """Lists the machines that satisfy constraints."""

    def __init__(self, cluster: Cluster) -> None:
        self.matches = Matches(cluster.constraints, Anchors(cluster.constraints))
        rank = sorted(range(len(cluster.constraints)), key=lambda m: (-cluster.constraints[m].bit_count(), m))
        self._place = {machine: place for place, machine in enumerate(rank)}

    def among(self, constraints: int, machines: int) -> list[int]:
        """Machines of a vector; those that satisfy the fewest constraints come last, where solvers look first."""
        return sorted(positions(self.matches[constraints] & machines), key=self._place.__getitem__)


class FlowCosts(Protocol):
    """A policy: the places that tasks have arcs to, where these lead, and their costs."""

    machines: RankedMachines
    alike: bool
    """True if all slots below a place cost the same."""

    def request_mbps(self, task: Task, holders: Sequence[int]) -> int:
        """The bandwidth that a task is taken to need; 0: the policy is not aware of the network."""
        ...

    def entries(self, task: Task, holders: Sequence[int]) -> tuple[tuple[Place, int], ...]:
        """Places that a task has arcs to, and their costs."""
        ...

    def below(self, place: Place, room: Room) -> Iterable[tuple[Place, int, int]]:
        """The arcs of a place that is no machine: receivers, capacities of at least 1, and costs."""
        ...

    def unscheduled(self, waited_us: Time) -> int:
        """The cost of letting a task wait that has waited for `waited_us` in all."""
        ...

    def patience_us(self, cost: int) -> Time | None:
        """The wait that is dearer than a place of this cost; None: there is none."""
        ...

    def stay(self, item: Item, ran_us: Time) -> int:
        """The cost of letting a task run on."""
        ...


class Rates(msgspec.Struct, frozen=True):
    """Prices of the Quincy policy.

    They are those of a second of waiting (omega), of a gigabyte through one rack's switch (psi) and through the core
    switch (xi), and of a second of work that is done. A task with input reads `input_gb`.
    """

    wait: int = UNIT // 2
    rack: int = UNIT
    core: int = 2 * UNIT
    input_gb: float = 1.0
    ran: int = UNIT


class QuincyCosts:
    """Moving input costs by distance, waiting by time; running work is worth its time (Quincy, section 4).

    A task has arcs to the machines and the racks that hold its input, of their exact or worst cost, and to all machines
    together at the worst in the cluster. A task without input has the last alone, for nothing.
    """

    alike = True

    def __init__(self, cluster: Cluster, rates: Rates) -> None:
        self.machines = RankedMachines(cluster)
        self._racks = racks_of(cluster)
        self._rates = rates
        self._moved = {NODE: 0, RACK: round(rates.rack * rates.input_gb), ANY: round(rates.core * rates.input_gb)}
        self._in_rack: dict[int, dict[int, list[int]]] = {}

    def _by_rack(self, constraints: int) -> dict[int, list[int]]:
        """Machines that satisfy constraints, by rack."""
        machines_of = self._in_rack.get(constraints)
        if machines_of is None:
            machines_of = self._in_rack[constraints] = {}
            for machine in positions(self.machines.matches[constraints]):
                machines_of.setdefault(self._racks[machine], []).append(machine)

        return machines_of

    def request_mbps(self, task: Task, holders: Sequence[int]) -> int:
        return 0

    def entries(self, task: Task, holders: Sequence[int]) -> tuple[tuple[Place, int], ...]:
        needs = task.constraints

        if not holders:
            return (((ANYWHERE, needs), 0),)

        racks = {self._racks[machine] for machine in holders}
        by_rack = self._by_rack(needs)
        arcs: list[tuple[Place, int]] = [
            ((MACHINE, machine), 0) for machine in sorted(holders) if self.machines.matches[needs] >> machine & 1
        ]

        worst_cost = {rack: self._worst(machines, holders, rack in racks) for rack, machines in by_rack.items()}
        arcs += [((IN_RACK, needs, rack), worst_cost[rack]) for rack in sorted(racks) if rack in worst_cost]

        return (*arcs, ((ANYWHERE, needs), max(worst_cost.values())))

    def _worst(self, machines: Sequence[int], holders: Sequence[int], has_holder: bool) -> int:
        """The cost of the dearest machine of a rack."""
        # A rack without the input moves it through the core; one with it moves it inside, unless every machine has it.
        if not has_holder:
            return self._moved[ANY]
        return self._moved[NODE if all(machine in holders for machine in machines) else RACK]

    def below(self, place: Place, room: Room) -> Iterable[tuple[Place, int, int]]:
        """Arcs from all machines to racks, and from racks to machines, at no further cost."""
        # All machines lead to racks first, so that a flow has one arc per rack and not one per machine.
        kind = place[0]
        needs = int(place[1])
        racks = self._racks
        machines = self.machines.among(needs, room.open)

        if kind == ANYWHERE:
            free: dict[int, int] = {}
            for machine in machines:
                free[racks[machine]] = free.get(racks[machine], 0) + room.free[machine]
            for rack, count in free.items():
                yield (IN_RACK, needs, rack), count, 0
        else:
            for machine in machines:
                if racks[machine] == place[2]:
                    yield (MACHINE, machine), room.free[machine], 0

    def unscheduled(self, waited_us: Time) -> int:
        """A price by time; at first a little, so that no task waits for nothing."""
        return 1 + self._rates.wait * waited_us // SECOND

    def patience_us(self, cost: int) -> Time | None:
        return -(-cost * SECOND // self._rates.wait) if self._rates.wait else None

    def stay(self, item: Item, ran_us: Time) -> int:
        """The cost of moving its input, less the work done, which would be lost."""
        holders = item.holders

        is_in_rack = any(self._racks[item.machine] == self._racks[machine] for machine in holders)
        level = NODE if not holders or item.machine in holders else RACK if is_in_rack else ANY

        return self._moved[level] - INERTIA - self._rates.ran * ran_us // SECOND


UNSCHEDULED = 1_000_000 * UNIT
"""Firmament's cost of a task that waits, where waiting is never worth while."""


class LoadSpreading:
    """Each task costs least on the machine with the fewest tasks (Firmament, section 3.3).

    All may go anywhere; the next slot of a machine costs as much more as it has tasks.
    """

    alike = False

    def __init__(self, cluster: Cluster) -> None:
        self.machines = RankedMachines(cluster)

    def request_mbps(self, task: Task, holders: Sequence[int]) -> int:
        return 0

    def entries(self, task: Task, holders: Sequence[int]) -> tuple[tuple[Place, int], ...]:
        """One arc, to all machines."""
        return (((ANYWHERE, task.constraints), 0),)

    def below(self, place: Place, room: Room) -> Iterable[tuple[Place, int, int]]:
        """An arc for each free slot."""
        for machine in self.machines.among(int(place[1]), room.open):
            tasks = room.tasks[machine]
            # Each slot has an arc of its own: the next task there costs one more than the one before.
            for launched in range(room.free[machine]):
                yield (MACHINE, machine), 1, (tasks + launched) * UNIT

    def unscheduled(self, waited_us: Time) -> int:
        """A price above that of any machine, higher for tasks that have waited longer."""
        return UNSCHEDULED + waited_us // 1000

    def patience_us(self, cost: int) -> Time | None:
        """The time is None: no task waits where there is room."""
        return None

    def stay(self, item: Item, ran_us: Time) -> int:
        """The cost of no move, less the work done."""
        return -INERTIA - UNIT * ran_us // SECOND


class NetworkAware:
    """Each task costs least on the machine with the most network bandwidth left (Firmament, section 3.3).

    A task with input is taken to read it in its estimated duration, from elsewhere, wherever it runs. Tasks that ask
    for as much share an aggregator.
    """

    alike = False

    def __init__(self, cluster: Cluster, input_gb: float, machine_mbps: int) -> None:
        self._waits = LoadSpreading(cluster)
        self.machines = self._waits.machines
        self._input_gb = input_gb
        self._machine_mbps = machine_mbps

    def request_mbps(self, task: Task, holders: Sequence[int]) -> int:
        """The bandwidth in steps of a hundred, at most all of a machine: more could never run."""
        if not holders:
            return 0
        mbps = self._input_gb * MEGABITS_PER_GB * SECOND / max(task.estimate_us, 1)

        return min(-(-round(mbps) // 100) * 100, self._machine_mbps)

    def entries(self, task: Task, holders: Sequence[int]) -> tuple[tuple[Place, int], ...]:
        """One arc, to the aggregator of tasks that ask for as much bandwidth."""
        return (((ANYWHERE, task.constraints, self.request_mbps(task, holders)), 0),)

    def below(self, place: Place, room: Room) -> Iterable[tuple[Place, int, int]]:
        """Arcs to machines with the bandwidth; the cost is the bandwidth asked for and used already."""
        request_mbps = int(place[2])

        for machine in self.machines.among(int(place[1]), room.open):
            spare = self._machine_mbps - room.used_mbps[machine]
            slot_count = min(room.free[machine], spare // request_mbps) if request_mbps else room.free[machine]

            # Bandwidth that one task takes makes the next one dearer, so each has an arc of its own.
            for launched in range(slot_count):
                yield (MACHINE, machine), 1, room.used_mbps[machine] + request_mbps * (launched + 1)

    def unscheduled(self, waited_us: Time) -> int:
        return self._waits.unscheduled(waited_us)

    def patience_us(self, cost: int) -> Time | None:
        return self._waits.patience_us(cost)

    def stay(self, item: Item, ran_us: Time) -> int:
        return self._waits.stay(item, ran_us)
