"""Vectors of resources as single integers, so that one subtraction shows whether a request fits.

Every resource has a field of `AMOUNT_BITS` bits and a guard bit above it. What a machine has free is kept with all
guards set: after the subtraction of a request a guard is gone exactly where the request was larger, and no field has
borrowed from its neighbour (Lamport, CACM 1975: multiple byte processing with full-word instructions).

Devices: a share of a GPU lies on one device, and whole numbers take whole devices (docs/decisions/0049).

Machines offer and tasks request `gpu_milli`, thousandths of devices, as one number. What a machine has *free* of it
is kept per device: fields behind those of the resources. The field of the resource itself then holds the largest
request that the devices can take, which is one number: with `w` devices that are wholly free, and `p` the most that
another device has free, a request fits where it is at most `w * 1000 + p`. So the test of a request against a machine
is the same with devices and without.

A task that was given a machine *names its devices*: its request has one further amount per device. All that is sent
about such a task, and every account of what is taken, counts those, so that all sums agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec.structs import replace

from volery.core.errors import InputError
from volery.core.model import AMOUNT_BITS, AMOUNT_MAX, Amounts, Cluster, Task
from volery.core.trace import Trace

FIELD_BITS: Final = AMOUNT_BITS + 1
SLOT: Final[Amounts] = (1,)


class Packing(dict[Amounts, int]):
    """Amounts -> one integer; looked up once per task, so the amounts that were asked for are remembered.

    Slots are one resource, and a task without amounts takes one of them.

    `left = free - packing[request]` fits where `left & guards == guards`, and is then what stays free.

    Args:
        resource_count: Count of the resources.

    Attributes:
        guards: All guard bits: also what a machine without any capacity has free.
        device_count: Count of fields for devices (`DevicePacking`); 0: no resource counts devices.
    """

    device_count = 0

    def __init__(self, resource_count: int) -> None:
        super().__init__()
        self._count = resource_count
        self.guards = sum(1 << (k * FIELD_BITS + AMOUNT_BITS) for k in range(resource_count))

    def __missing__(self, amounts: Amounts) -> int:
        packed = self.pack(amounts)
        if len(self) < REMEMBERED_MAX:
            self[amounts] = packed
        return packed

    def pack(self, amounts: Sequence[int]) -> int:
        """Pack amounts into one integer, which is not remembered.

        Raises:
            ValueError: there are too few or too many, or one is out of bounds.
        """
        if not amounts and self._count == 1:
            amounts = SLOT

        if len(amounts) != self._count:
            raise ValueError(f"{tuple(amounts)} has {len(amounts)} amounts where there are {self._count} resources")
        if min(amounts) < 0 or max(amounts) > AMOUNT_MAX:
            raise ValueError(f"{tuple(amounts)}: amounts are from 0 to {AMOUNT_MAX}")
        return sum(amount << (k * FIELD_BITS) for k, amount in enumerate(amounts))

    def free(self, amounts: Amounts) -> int:
        """Pack amounts that a machine has free."""
        return self.pack(amounts) | self.guards

    def fields(self, packed: int) -> Amounts:
        """All amounts of a packed vector, guarded or not."""
        return tuple([packed >> (k * FIELD_BITS) & AMOUNT_MAX for k in range(self._count)])

    def amounts(self, packed: int) -> Amounts:
        """The amounts of the resources in a packed vector, guarded or not."""
        return self.fields(packed)

    def beyond(self, packed: int, base: int) -> int:
        """Amount by amount, what a request takes beyond another; packed."""
        pairs = zip(self.fields(packed), self.fields(base), strict=True)
        return self.pack([max(0, amount - base_amount) for amount, base_amount in pairs])

    # What follows is more than this only where a resource counts devices: see `DevicePacking`.

    def totals(self, free: int) -> Amounts:
        """The amounts that a machine has free."""
        return self.amounts(free)

    def idle(self, place: int, machines: Iterable[int]) -> int:
        """The free amount, over these machines, of the resource at a place."""
        shift = place * FIELD_BITS
        return sum([free >> shift & AMOUNT_MAX for free in machines])

    def settled(self, free: int) -> int:
        """The free amounts after requests were subtracted or added, to compare with requests again."""
        return free

    def common(self, earlier: int, later: int) -> int:  # noqa: ARG002 - the caller has compared with the first
        """The amounts that a machine has free on the same devices at both of two times."""
        return later

    def named(self, free: int, packed: int) -> int:  # noqa: ARG002 - devices are named by free ones
        """A request that fits what a machine has free, with the devices that it takes there."""
        return packed

    def splits(self, request: Amounts) -> bool:  # noqa: ARG002 - devices are named by requests
        """True if a request names devices that `named` could not have given it, whatever is free."""
        return False

    def needed(self, free: int, packed: int, returnable: Sequence[int]) -> Sequence[int]:  # noqa: ARG002 - with devices they matter
        """The places of those amounts that have to be given back so that a request fits, which it does with all."""
        return range(len(returnable))

    def awaited(self, capacity: int, free: int, packed: int) -> int:  # noqa: ARG002 - devices are chosen by these
        """A request with the devices of a machine, of those that may hold it, that have most free now."""
        return packed

    def naming(self, task: Task, packed: int) -> Task:  # noqa: ARG002 - nothing to name
        """The task with the devices of a request that `named` has returned."""
        return task

    def asked(self, request: Amounts) -> Amounts:
        """A request without devices."""
        return request

    def anywhere(self, task: Task) -> Task:
        """The task without devices, as it was submitted."""
        return task


REMEMBERED_MAX: Final = 1 << 16
"""Distinct requests that a packing remembers; traces have some thousands."""


def work_resource(names: Sequence[str]) -> int:
    """The place, among these resources, of the one that counts processors; 0 where none does, as where slots do."""
    return next((place for place, name in enumerate(names) if name.startswith(("cpu", "core"))), 0)


def units_per_processor(names: Sequence[str]) -> int:
    """The units that make one processor, of the resource that counts them: 1000 where it counts thousandths."""
    return 1000 if names and names[work_resource(names)].endswith("_milli") else 1


def check_resources(trace: Trace, cluster: Cluster) -> None:
    """Refuse a workload whose tasks ask for other things than the machines offer.

    Raises:
        InputError: naming both.
    """
    if trace.resources == cluster.resources:
        return

    offered, requested = ", ".join(cluster.resources), ", ".join(trace.resources)
    if not trace.resources:
        problem = f"its tasks take one slot each where machines offer {offered}; give --requests a model that asks"
    elif not cluster.resources:
        problem = f"its tasks ask for {requested} where machines have slots; give --capacity"
    else:
        problem = f"its tasks ask for {requested} where machines offer {offered}; both must name the same, in one order"
    raise InputError(trace.name, problem)


def check_vectors(name: str, *, has_vectors: bool, cluster: Cluster) -> None:
    """Refuse a design that uses slots alone on machines with capacities.

    Args:
        has_vectors: True if it places requests for several resources.

    Raises:
        InputError: saying how machines are turned into slots.
    """
    if cluster.resources and not has_vectors:
        offered = ",".join(f"{resource}=N" for resource in cluster.resources)
        raise InputError(
            name,
            f"places slots only, not requests for several resources; give --slot-request {offered} to make slots of "
            "the machines, or choose a design that places them (volery architectures)",
        )


DEVICE_MILLI: Final = "gpu_milli"
"""The resource that counts devices in thousandths."""
WHOLE: Final = 1000
DEVICES_MAX: Final = 64
"""Devices that a machine may have; what is free of a machine takes 5 bytes per device in messages."""


def packing_of(cluster: Cluster) -> Packing:
    """The packing of amounts of a cluster; slots are one resource.

    Raises:
        InputError: a machine has more than `DEVICES_MAX` devices.
    """
    if DEVICE_MILLI not in cluster.resources:
        return Packing(len(cluster.resources) or 1)

    place = cluster.resources.index(DEVICE_MILLI)
    largest_milli = max(capacity[place] for capacity in cluster.capacities)
    if largest_milli > DEVICES_MAX * WHOLE:
        problem = (
            f"a machine offers {largest_milli} {DEVICE_MILLI}; a machine has {DEVICES_MAX} devices of {WHOLE} at most"
        )
        raise InputError(cluster.name, problem)

    return DevicePacking(len(cluster.resources), place, -(-largest_milli // WHOLE))


class DevicePacking(Packing):
    """Amounts as one integer, with a field per device behind the resources.

    Args:
        resource_count: Count of the resources.
        place: Place of the resource that counts devices in thousandths.
        device_count: Count of devices of the machine that has most.
    """

    def __init__(self, resource_count: int, place: int, device_count: int) -> None:
        super().__init__(resource_count + device_count)
        self._resource_count = resource_count
        self._place = place
        self._shift = place * FIELD_BITS
        self._first_device = resource_count * FIELD_BITS
        self.device_count = device_count
        self._other_fields = ~(((1 << FIELD_BITS) - 1) << self._shift)
        self._largest: dict[int, int] = {}

    def pack(self, amounts: Sequence[int]) -> int:
        """Pack amounts into one integer; the last devices may be left out."""
        if len(amounts) >= self._resource_count:
            amounts = (*amounts, *(0,) * (self._resource_count + self.device_count - len(amounts)))
        return super().pack(amounts)

    def free(self, amounts: Amounts) -> int:
        """Pack the free amounts of an empty machine; what is beyond whole devices is a smaller device."""
        count, partial_device = divmod(amounts[self._place], WHOLE)
        devices = (*(WHOLE,) * count, partial_device, *(0,) * self.device_count)[: self.device_count]
        return self.pack((*amounts, *devices)) | self.guards

    def amounts(self, packed: int) -> Amounts:
        """The amounts of the resources; of free devices, the largest request that they can take."""
        return self.fields(packed)[: self._resource_count]

    def totals(self, free: int) -> Amounts:
        """The amounts of the resources; of free devices, what they have free together."""
        fields = self.fields(free)
        totals = list(fields[: self._resource_count])
        totals[self._place] = sum(fields[self._resource_count :])
        return tuple(totals)

    def idle(self, place: int, machines: Iterable[int]) -> int:
        if place != self._place:
            return super().idle(place, machines)
        return sum(self.totals(free)[place] for free in machines)

    def settled(self, free: int) -> int:
        """The free amounts after devices were taken or given back, with the largest request that fits them."""
        # The largest request depends on the devices alone, of which a cluster has few distinct states.
        devices = free >> self._first_device
        largest = self._largest.get(devices)
        if largest is None:
            amounts = self._devices(free)
            partial_amounts = [amount for amount in amounts if amount < WHOLE]
            largest = (len(amounts) - len(partial_amounts)) * WHOLE + max(partial_amounts, default=0)
            if len(self._largest) < REMEMBERED_MAX:
                self._largest[devices] = largest

        return free & self._other_fields | (1 << AMOUNT_BITS | largest) << self._shift

    def common(self, earlier: int, later: int) -> int:
        """The amounts that a machine has free at both of two times."""
        # The largest request is counted again: that of the minima may be below both.
        return self.settled(self.pack(tuple(map(min, self.fields(earlier), self.fields(later)))) | self.guards)

    def named(self, free: int, packed: int) -> int:
        """A request that fits what a machine has free, with the devices that it takes there.

        Whole devices are taken by number, and for what is left of the request the fullest device that has room.

        Raises:
            ValueError: it does not fit.
        """
        # A request that names devices already, or wants none, takes what it names.
        milli_requested = packed >> self._shift & AMOUNT_MAX
        if not milli_requested or packed >> self._first_device:
            return packed

        count, share = divmod(milli_requested, WHOLE)
        amounts = self._devices(free)
        whole_devices = [device for device, amount in enumerate(amounts) if amount >= WHOLE][:count]
        # Best fit for the share: the fullest device that has room, so that whole devices stay whole.
        rooms = [
            (amount, device) for device, amount in enumerate(amounts) if amount >= share and device not in whole_devices
        ]

        if len(whole_devices) < count or (share and not rooms):
            raise ValueError(
                f"{milli_requested} {DEVICE_MILLI} do not fit devices that have {', '.join(map(str, amounts))} free"
            )

        device_parts = [(device, WHOLE) for device in whole_devices] + ([(min(rooms)[1], share)] if share else [])
        return packed + (sum(part << (device * FIELD_BITS) for device, part in device_parts) << self._first_device)

    def needed(self, free: int, packed: int, returnable: Sequence[int]) -> Sequence[int]:
        """The places of those amounts that have to be given back so that a request fits, which it does with all.

        What lies on other devices stays, the last of it first.
        """
        places = list(range(len(returnable)))
        room = free + sum(returnable)

        for place in reversed(range(len(returnable))):
            if (self.settled(room - returnable[place]) - packed) & self.guards == self.guards:
                room -= returnable[place]
                places.remove(place)

        return places

    def awaited(self, capacity: int, free: int, packed: int) -> int:
        count, share = divmod(packed >> self._shift & AMOUNT_MAX, WHOLE)
        sizes, amounts = self._devices(capacity), self._devices(free)

        order = sorted(range(len(sizes)), key=lambda device: (-amounts[device], device))
        devices = [device for device in order if sizes[device] == WHOLE][:count]
        devices += [device for device in order if sizes[device] >= share and device not in devices][: bool(share)]

        # The chosen devices are taken as empty: the request waits until they are.
        chosen_fields = sum(sizes[device] << (device * FIELD_BITS) for device in devices) << self._first_device
        return self.named(chosen_fields, packed)

    def naming(self, task: Task, packed: int) -> Task:
        """The task with the devices of a request that `named` has returned, up to the last one that it takes."""
        if not packed >> self._first_device:
            return task
        request = self.fields(packed)
        return replace(task, request=request[: max(place for place, amount in enumerate(request) if amount) + 1])

    def asked(self, request: Amounts) -> Amounts:
        return request[: self._resource_count]

    def anywhere(self, task: Task) -> Task:
        if len(task.request) <= self._resource_count:
            return task
        return replace(task, request=task.request[: self._resource_count])

    def splits(self, request: Amounts) -> bool:
        if len(request) <= self._resource_count:
            return False
        count, share = divmod(request[self._place], WHOLE)
        parts = sorted([part for part in request[self._resource_count :] if part], reverse=True)
        return parts != [WHOLE] * count + [share] * bool(share)

    def _devices(self, free: int) -> list[int]:
        fields = free >> self._first_device
        return [fields >> (device * FIELD_BITS) & AMOUNT_MAX for device in range(self.device_count)]
