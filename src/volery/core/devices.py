"""Devices: a share of a GPU lies on one device, and whole numbers take whole devices (docs/decisions/0049).

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
from volery.core.resources import FIELD_BITS, REMEMBERED_MAX, Packing

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
    most = max(capacity[place] for capacity in cluster.capacities)
    if most > DEVICES_MAX * WHOLE:
        problem = f"a machine offers {most} {DEVICE_MILLI}; a machine has {DEVICES_MAX} devices of {WHOLE} at most"
        raise InputError(cluster.name, problem)
    return DevicePacking(len(cluster.resources), place, -(-most // WHOLE))


class DevicePacking(Packing):
    """Amounts as one integer, with a field per device behind the resources.

    Args:
        resource_count: how many resources there are.
        place: of the resource that counts devices in thousandths.
        device_count: of the machine that has most devices.
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
        """These amounts as one integer; the last devices may be left out."""
        if len(amounts) >= self._resource_count:
            amounts = (*amounts, *(0,) * (self._resource_count + self.device_count - len(amounts)))
        return super().pack(amounts)

    def free(self, amounts: Amounts) -> int:
        """These amounts, of an empty machine, as what it has free: what is beyond whole devices is a smaller device."""
        count, rest = divmod(amounts[self._place], WHOLE)
        devices = (*(WHOLE,) * count, rest, *(0,) * self.device_count)[: self.device_count]
        return self.pack((*amounts, *devices)) | self.guards

    def amounts(self, packed: int) -> Amounts:
        """The amounts of the resources; of free devices, the largest request that they can take."""
        return self.fields(packed)[: self._resource_count]

    def totals(self, free: int) -> Amounts:
        """The amounts of the resources; of free devices, what they have free together."""
        fields = self.fields(free)
        found = list(fields[: self._resource_count])
        found[self._place] = sum(fields[self._resource_count :])
        return tuple(found)

    def idle(self, place: int, machines: Iterable[int]) -> int:
        """The free amount, over these machines, of the resource at a place."""
        if place != self._place:
            return super().idle(place, machines)
        return sum(self.totals(free)[place] for free in machines)

    def settled(self, free: int) -> int:
        """The free amounts after devices were taken or given back, with the largest request that fits them."""
        devices = free >> self._first_device
        largest = self._largest.get(devices)
        if largest is None:
            amounts = self._devices(free)
            parts = [amount for amount in amounts if amount < WHOLE]
            largest = (len(amounts) - len(parts)) * WHOLE + max(parts, default=0)
            if len(self._largest) < REMEMBERED_MAX:
                self._largest[devices] = largest
        return free & self._other_fields | (1 << AMOUNT_BITS | largest) << self._shift

    def common(self, one: int, other: int) -> int:
        """The amounts that a machine has free at both of two times."""
        return self.settled(self.pack(tuple(map(min, self.fields(one), self.fields(other)))) | self.guards)

    def named(self, free: int, packed: int) -> int:
        """A request that fits what a machine has free, with the devices that it takes there.

        Whole devices are taken by number, and for what is left of the request the fullest device that has room.

        Raises:
            ValueError: it does not fit.
        """
        asked = packed >> self._shift & AMOUNT_MAX
        if not asked or packed >> self._first_device:
            return packed
        count, share = divmod(asked, WHOLE)
        amounts = self._devices(free)
        whole = [device for device, amount in enumerate(amounts) if amount >= WHOLE][:count]
        rooms = [(amount, device) for device, amount in enumerate(amounts) if amount >= share and device not in whole]
        if len(whole) < count or (share and not rooms):
            raise ValueError(f"{asked} {DEVICE_MILLI} do not fit devices that have {', '.join(map(str, amounts))} free")
        taken = [(device, WHOLE) for device in whole] + ([(min(rooms)[1], share)] if share else [])
        return packed + (sum(part << (device * FIELD_BITS) for device, part in taken) << self._first_device)

    def needed(self, free: int, packed: int, given: Sequence[int]) -> Sequence[int]:
        """The places of those amounts that have to be given back so that a request fits, which it does with all.

        What lies on other devices stays, the last of it first.
        """
        found, room = list(range(len(given))), free + sum(given)
        for place in reversed(range(len(given))):
            if (self.settled(room - given[place]) - packed) & self.guards == self.guards:
                room -= given[place]
                found.remove(place)
        return found

    def awaited(self, whole: int, free: int, packed: int) -> int:
        """A request with the devices of a machine, of those that may hold it, that have most free now."""
        count, share = divmod(packed >> self._shift & AMOUNT_MAX, WHOLE)
        sizes, amounts = self._devices(whole), self._devices(free)
        order = sorted(range(len(sizes)), key=lambda device: (-amounts[device], device))
        chosen = [device for device in order if sizes[device] == WHOLE][:count]
        chosen += [device for device in order if sizes[device] >= share and device not in chosen][: bool(share)]
        alone = sum(sizes[device] << (device * FIELD_BITS) for device in chosen) << self._first_device
        return self.named(alone, packed)

    def naming(self, task: Task, packed: int) -> Task:
        """The task with the devices of a request that `named` has returned, up to the last one that it takes."""
        if not packed >> self._first_device:
            return task
        request = self.fields(packed)
        return replace(task, request=request[: max(place for place, amount in enumerate(request) if amount) + 1])

    def asked(self, request: Amounts) -> Amounts:
        """A request without devices."""
        return request[: self._resource_count]

    def anywhere(self, task: Task) -> Task:
        """The task without devices, as it was submitted."""
        if len(task.request) <= self._resource_count:
            return task
        return replace(task, request=task.request[: self._resource_count])

    def splits(self, request: Amounts) -> bool:
        """True if a request names devices that `named` could not have given it, whatever is free."""
        if len(request) <= self._resource_count:
            return False
        count, share = divmod(request[self._place], WHOLE)
        parts = sorted([part for part in request[self._resource_count :] if part], reverse=True)
        return parts != [WHOLE] * count + [share] * bool(share)

    def _devices(self, free: int) -> list[int]:
        fields = free >> self._first_device
        return [fields >> (device * FIELD_BITS) & AMOUNT_MAX for device in range(self.device_count)]
