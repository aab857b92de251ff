"""Vectors of resources as single integers, so that one subtraction shows whether a request fits.

Every resource has a field of `AMOUNT_BITS` bits and a guard bit above it. What a machine has free is kept with all
guards set: after the subtraction of a request a guard is gone exactly where the request was larger, and no field has
borrowed from its neighbour (Lamport, CACM 1975: multiple byte processing with full-word instructions).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

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
        resource_count: how many resources there are.

    Attributes:
        guards: all guard bits: also what a machine without any capacity has free.
        device_count: fields for devices (`volery.core.devices`); 0: no resource counts devices.
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
        """These amounts as one integer, which is not remembered.

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
        """These amounts as what a machine has free."""
        return self.pack(amounts) | self.guards

    def fields(self, packed: int) -> Amounts:
        """All amounts of a packed vector, guarded or not."""
        return tuple([packed >> (k * FIELD_BITS) & AMOUNT_MAX for k in range(self._count)])

    def amounts(self, packed: int) -> Amounts:
        """The amounts of the resources in a packed vector, guarded or not."""
        return self.fields(packed)

    def beyond(self, packed: int, other: int) -> int:
        """Amount by amount, what a request takes beyond another; packed."""
        lacking = zip(self.fields(packed), self.fields(other), strict=True)
        return self.pack([max(0, amount - had) for amount, had in lacking])

    # What follows is more than this only where a resource counts devices: see `volery.core.devices`.

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

    def common(self, one: int, other: int) -> int:  # noqa: ARG002 - the caller has compared with the first
        """The amounts that a machine has free on the same devices at both of two times."""
        return other

    def named(self, free: int, packed: int) -> int:  # noqa: ARG002 - devices are named by free ones
        """A request that fits what a machine has free, with the devices that it takes there."""
        return packed

    def splits(self, request: Amounts) -> bool:  # noqa: ARG002 - devices are named by requests
        """True if a request names devices that `named` could not have given it, whatever is free."""
        return False

    def needed(self, free: int, packed: int, given: Sequence[int]) -> Sequence[int]:  # noqa: ARG002 - with devices they matter
        """The places of those amounts that have to be given back so that a request fits, which it does with all."""
        return range(len(given))

    def awaited(self, whole: int, free: int, packed: int) -> int:  # noqa: ARG002 - devices are chosen by these
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
    offered, asked = ", ".join(cluster.resources), ", ".join(trace.resources)
    if not trace.resources:
        problem = f"its tasks take one slot each where machines offer {offered}; give --requests a model that asks"
    elif not cluster.resources:
        problem = f"its tasks ask for {asked} where machines have slots; give --capacity"
    else:
        problem = f"its tasks ask for {asked} where machines offer {offered}; both must name the same, in one order"
    raise InputError(trace.name, problem)


def check_vectors(name: str, *, vectors: bool, cluster: Cluster) -> None:
    """Refuse a design that uses slots alone on machines with capacities.

    Args:
        name: of the architecture.
        vectors: whether it places requests for several resources.
        cluster: the machines.

    Raises:
        InputError: saying how machines are turned into slots.
    """
    if cluster.resources and not vectors:
        offered = ",".join(f"{resource}=N" for resource in cluster.resources)
        raise InputError(
            name,
            f"places slots only, not requests for several resources; give --slot-request {offered} to make slots of "
            "the machines, or choose a design that places them (volery architectures)",
        )
