"""Machines of the lab that offer amounts of several resources instead of slots."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.devices import DevicePacking, packing_of
from volery.core.events import Event, TaskFinished
from volery.core.model import Address, Amounts, Cluster, Task, TaskId, Time
from volery.core.resources import Packing
from volery.sim.execution import BrokenRule, Door, LabPort

UNCOUNTED = 1 << 62
"""Idle slots of a machine on which nobody counts slots."""


class VectorPort(LabPort):
    """A port whose machine has amounts free; all but those is checked and recorded by the class that follows in line.

    Attributes:
        free: what the machine has free, packed.
        packing, names: of the cluster: its resources, and its devices, where one counts those.
    """

    __slots__ = ("_ended", "free")
    packing: Packing
    names: tuple[str, ...]

    def __init__(self, address: Address, door: Door) -> None:
        super().__init__(address, door)
        self.free = self.packing.guards
        self._ended = self.finished
        self.finished = self._release

    def stand_on(self, machine: int, cluster: Cluster) -> None:
        """Take the place of a machine, which makes launches possible."""
        super().stand_on(machine, cluster)
        self.idle = UNCOUNTED
        self.free = self.packing.free(cluster.capacities[machine])

    def at_rest(self, slots: Sequence[int]) -> bool:  # noqa: ARG002 - nobody counts slots here
        """Whether nothing runs here: launches and ends count here, too, from where nobody runs out."""
        return self.machine < 0 or self.idle == UNCOUNTED

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Take what the task asks for until its true duration has passed."""
        super().launch(task, attempt, waited_us, note)
        guards = self.packing.guards
        left = self.free - self.packing[task.request]
        if left & guards != guards:
            free = self._told(self.packing.fields(self.free))
            raise self._broken(task, attempt, f"asks for {self._told(task.request)} where {free} are free")
        self.free = left

    def _take_back(self, event: TaskFinished) -> None:
        self.free += self.packing[event.task.request]

    def _release(self, owner: object, event: TaskFinished, source: Address, now: Time) -> None:
        self._take_back(event)
        self._ended(owner, event, source, now)

    def deliver(self, event: Event, _: None, now: Time) -> None:
        """Hand one of the driver's own events over; the end of a killed task is among them."""
        if type(event) is TaskFinished:
            self._take_back(event)
        super().deliver(event, _, now)

    def _told(self, amounts: Amounts) -> str:
        return ", ".join(f"{amount} {name}" for name, amount in zip(self.names, amounts, strict=False))

    def _broken(self, task: Task, attempt: int, problem: str) -> BrokenRule:
        place = f"(job {task.job}, attempt {attempt}) on {self.address} at {self.kernel.now} us"
        return BrokenRule(f"task {task.id} {place}: {problem}")


class DevicePort(VectorPort):
    """A port whose machine has devices (`volery.core.devices`); a task that names none is given some.

    Attributes:
        taken: what attempts that run take, packed.
    """

    __slots__ = ("taken",)
    packing: DevicePacking

    def __init__(self, address: Address, door: Door) -> None:
        super().__init__(address, door)
        self.taken: dict[tuple[TaskId, int], int] = {}

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Take the devices that the task names, too: whole ones, and one for a share."""
        packing, before = self.packing, self.free
        if packing.splits(task.request):
            problem = f"takes {self._told(task.request)}; a share lies on one device, and whole numbers on whole ones"
            raise self._broken(task, attempt, problem)
        super().launch(task, attempt, waited_us, note)
        took = self.taken[task.id, attempt] = packing.named(before, packing[task.request])
        self.free = packing.settled(before - took)

    def _take_back(self, event: TaskFinished) -> None:
        self.free = self.packing.settled(self.free + self.taken.pop((event.task.id, event.attempt)))


def vector_port_class(slot_port: type[LabPort], cluster: Cluster) -> type[LabPort]:
    """The ports of one role in a run with capacities: a class of its own, so that runs with slots pay nothing for it.

    Args:
        slot_port: what would be the ports of this role on a cluster of slots.
        cluster: with capacities.
    """
    packing = packing_of(cluster)
    names = (*cluster.resources, *[f"of device {device}" for device in range(packing.device_count)])
    base = DevicePort if packing.device_count else VectorPort
    return type("VectorRolePort", (base, slot_port), {"__slots__": (), "packing": packing, "names": names})
