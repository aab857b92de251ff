"""Units for all members of a gang in the view of a Global Master, its own partitions first.

Members that are alike find room wherever there is some, in the shape of their gang; so do unlike members that take a
slot each. Others, see `volery.policies.gangs`. Units are taken in the order of their partitions; `match` is not used.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.view import SlotView
from volery.core.model import Amounts, Gang, Task
from volery.core.resources import Packing
from volery.policies.gangs import MemberDemand, Rooms, assign, spread
from volery.policies.match import positions
from volery.policies.queues import Kind

Unit = tuple[int, int]
"""A partition and a position there."""


class SlotRooms:
    """Room for gangs in a view of slots; `Machine` and free amounts are of one resource."""

    def __init__(self, view: SlotView, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self.order = view.search.orders[view.search.first]
        self.packing = Packing(1)

    def suitable(self, partition: int, kind: Kind, *, is_whole: bool) -> int:
        """Units of a partition with room for a task of a kind, in the view or in the empty cluster."""
        mask, request = kind
        if is_whole:
            return self._layout.matches[partition][mask]
        return self._view.room(partition, mask, request)

    def room(self, unit: Unit, request: Amounts, *, is_whole: bool) -> int:
        """Count of tasks for which a unit has room together."""
        return 1

    def free(self, unit: Unit, *, is_whole: bool) -> int:
        """Free amounts of a unit, packed and guarded."""
        return self.packing.free((1,))

    def take_later(self, members: Sequence[tuple[Task, Unit]]) -> list[tuple[Task, Unit]]:
        """Place members where others may run still; return them with the devices that they are to take."""
        for task, unit in members:
            self._view.take(task, *unit)
        return list(members)


class AmountRooms:
    """Room for gangs in a view of amounts on machines."""

    def __init__(self, view: CapacityView, layout: Layout) -> None:
        self._view = view
        self._layout = layout
        self._whole = view.capacities.whole
        self._ladders = view.capacities.ladders
        self._rooms = Rooms(view.packing)
        self.order = view.search.orders[view.search.first]
        self.packing = view.packing

    def suitable(self, partition: int, kind: Kind, *, is_whole: bool) -> int:
        mask, request = kind
        index = (self._whole if is_whole else self._view.index)[partition]
        return index.fitting(self._ladders[request], self._layout.matches[partition][mask])

    def room(self, unit: Unit, request: Amounts, *, is_whole: bool) -> int:
        return self._rooms[self.free(unit, is_whole=is_whole), self.packing[request]]

    def free(self, unit: Unit, *, is_whole: bool) -> int:
        partition, position = unit
        return (self._whole if is_whole else self._view.index)[partition].free[position]

    def take_later(self, members: Sequence[tuple[Task, Unit]]) -> list[tuple[Task, Unit]]:
        free_of: dict[Unit, int] = {}
        placed = []
        packing = self.packing
        for task, unit in members:
            free = free_of.get(unit, self.free(unit, is_whole=True))
            taken = packing.named(free, packing[task.request])
            free_of[unit] = packing.settled(free - taken)
            # The view has nothing to take it from yet: what runs there is in it.
            named_task = packing.naming(task, taken)
            self._view.placed[task.id] = (named_task, *unit)
            placed.append((named_task, unit))
        return placed


class GangRooms:
    """Search for units of all members of a gang.

    Args:
        rooms: Room in the view.
        layout: The whole cluster.
    """

    def __init__(self, rooms: SlotRooms | AmountRooms, layout: Layout) -> None:
        self._rooms = rooms
        self._machines = layout.machines
        self.take_later = rooms.take_later

    def count(self, kind: Kind, limit: int) -> int:
        """Count of tasks of a kind for which the view has room together, up to a limit or some more."""
        rooms, total = self._rooms, 0
        for partition in rooms.order:
            vector = rooms.suitable(partition, kind, is_whole=False)
            if isinstance(rooms, SlotRooms):
                total += vector.bit_count()
            else:
                total += sum([rooms.room((partition, k), kind[1], is_whole=False) for k in positions(vector)])
            if total >= limit:
                return total
        return total

    def find(
        self, tasks: Sequence[Task], shape: Gang, *, is_whole: bool = False, avoided: Collection[int] = ()
    ) -> list[tuple[Task, Unit]]:
        """Find a unit for each member; nothing: there is no room for all.

        Args:
            is_whole: Whether the cluster is taken for empty; else as it is in the view.
            avoided: Machines that are not to be used.
        """
        members_of: dict[Kind, list[Task]] = {}
        for task in tasks:
            members_of.setdefault((task.constraints, task.request), []).append(task)
        if len(members_of) > 1 and not shape.nodes:
            return self._assigned(members_of, is_whole=is_whole, avoided=avoided)

        # In a shape each machine has room for any of the members.
        mask = 0
        for constraints, _ in members_of:
            mask |= constraints
        request = tuple(map(max, zip(*[asked for _, asked in members_of], strict=True)))
        machines: list[list[Unit]] = []
        found_count = 0
        for machine in self._each_machine((mask, request), len(tasks), is_whole=is_whole, avoided=avoided):
            machines.append(machine)
            found_count += len(machine)
            if found_count >= len(tasks) and not shape.nodes:
                break
        places = spread([(place, len(machine)) for place, machine in enumerate(machines)], len(tasks), shape)
        units = [unit for place, count in places for unit in machines[place][:count]]
        return list(zip(tasks, units, strict=True)) if units else []

    def _each_machine(self, kind: Kind, size: int, *, is_whole: bool, avoided: Collection[int]) -> Iterator[list[Unit]]:
        """The machines with room for tasks of a kind: for each task that it has room for, up to a size, its unit."""
        rooms = self._rooms
        for partition in rooms.order:
            machines = self._machines[partition]
            units: list[Unit] = []
            for position in positions(rooms.suitable(partition, kind, is_whole=is_whole)):
                # The slots of a machine are neighbours in one partition.
                if units and machines[units[0][1]] != machines[position]:
                    yield units
                    units = []
                if machines[position] not in avoided:
                    unit = (partition, position)
                    units += [unit] * min(size, rooms.room(unit, kind[1], is_whole=is_whole))
            if units:
                yield units

    def _assigned(
        self, members_of: dict[Kind, list[Task]], *, is_whole: bool, avoided: Collection[int]
    ) -> list[tuple[Task, Unit]]:
        """Units of unlike members on any machines."""
        rooms = self._rooms
        units: list[Unit] = []
        vectors = dict.fromkeys(members_of, 0)
        for partition in rooms.order:
            machines = self._machines[partition]
            offset = len(units)
            units += [(partition, position) for position in range(len(machines))]
            usable = sum([1 << position for position, machine in enumerate(machines) if machine not in avoided])
            for kind in vectors:
                vectors[kind] |= (rooms.suitable(partition, kind, is_whole=is_whole) & usable) << offset

        free = [rooms.free(unit, is_whole=is_whole) for unit in units]
        demands = [
            MemberDemand(rooms.packing[request], vectors[mask, request], len(members))
            for (mask, request), members in members_of.items()
        ]
        assigned = assign(demands, free, rooms.packing)
        return [
            (task, units[number])
            for members, numbers in zip(members_of.values(), assigned, strict=False)
            for task, number in zip(members, numbers, strict=True)
        ]
