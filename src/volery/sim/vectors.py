"""Machines of the lab that offer amounts of several resources instead of slots."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.devices import DEVICE_SPLITS, Devices, device_place
from volery.core.events import Event, TaskFinished
from volery.core.model import Address, Amounts, Cluster, Task, Time
from volery.core.resources import Packing
from volery.sim.execution import BrokenRule, Door, LabPort

UNCOUNTED = 1 << 62
"""Idle slots of a machine on which nobody counts slots."""


class VectorPort(LabPort):
    """A port whose machine has amounts free; all but those is checked and recorded by the class that follows in line.

    Attributes:
        free: what the machine has free, packed.
        packing, resources: of the cluster.
        device_place: of the resource that counts devices; -1: none does.
        devices: of the machine, where there are any.
    """

    __slots__ = ("_ended", "devices", "free")
    device_place: int
    packing: Packing
    resources: tuple[str, ...]

    def __init__(self, address: Address, door: Door) -> None:
        super().__init__(address, door)
        self.free = self.packing.guards
        self.devices: Devices | None = None
        self._ended = self.finished
        self.finished = self._release

    def stand_on(self, machine: int, cluster: Cluster) -> None:
        """Take the place of a machine, which makes launches possible."""
        super().stand_on(machine, cluster)
        self.idle = UNCOUNTED
        self.free = self.packing.free(cluster.capacities[machine])
        if self.device_place >= 0:
            self.devices = Devices(cluster.capacities[machine][self.device_place])

    def at_rest(self, slots: Sequence[int]) -> bool:  # noqa: ARG002 - nobody counts slots here
        """Whether nothing runs here: launches and ends count here, too, from where nobody runs out."""
        return self.machine < 0 or self.idle == UNCOUNTED

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Take what the task asks for until its true duration has passed."""
        super().launch(task, attempt, waited_us, note)
        guards = self.packing.guards
        left = self.free - self.packing[task.request]
        if left & guards != guards:
            asked, free = self._named(task.request), self._named(self.packing.amounts(self.free))
            raise BrokenRule(
                f"task {task.id} (job {task.job}, attempt {attempt}) on {self.address} at {self.kernel.now} us: asks "
                f"for {asked} where {free} are free"
            )
        self.free = left
        if self.devices is not None and not self.devices.take(task.id, task.request[self.device_place]):
            counters = self.kernel.records.counters
            counters[DEVICE_SPLITS] = counters.get(DEVICE_SPLITS, 0) + 1

    def _release(self, owner: object, event: TaskFinished, source: Address, now: Time) -> None:
        self.free += self.packing[event.task.request]
        if self.devices is not None:
            self.devices.give_back(event.task.id)
        self._ended(owner, event, source, now)

    def deliver(self, event: Event, _: None, now: Time) -> None:
        """Hand one of the driver's own events over; the end of a killed task is among them."""
        if type(event) is TaskFinished:
            self.free += self.packing[event.task.request]
            if self.devices is not None:
                self.devices.give_back(event.task.id)
        super().deliver(event, _, now)

    def _named(self, amounts: Amounts) -> str:
        return ", ".join(f"{amount} {name}" for name, amount in zip(self.resources, amounts, strict=True))


def vector_port_class(slot_port: type[LabPort], cluster: Cluster) -> type[LabPort]:
    """The ports of one role in a run with capacities: a class of its own, so that runs with slots pay nothing for it.

    Args:
        slot_port: what would be the ports of this role on a cluster of slots.
        cluster: with capacities.
    """
    content = {
        "__slots__": (),
        "packing": Packing(len(cluster.resources)),
        "resources": cluster.resources,
        "device_place": device_place(cluster.resources),
    }
    return type("VectorRolePort", (VectorPort, slot_port), content)
