"""Node table of the job service: the tasks on each node, the nodes that are drained, and those that are lost."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from msgspec.structs import replace

from volery.core.model import Address, TaskId
from volery.live.config.constraints import Fleet
from volery.live.messages import ConfinementReport, PeerReport, TaskReport
from volery.live.runtime.presence import HostRegister
from volery.live.status import HostStatus, NodeStatus


class NodeTable:
    """All nodes of a federation, by what their hosts report.

    Args:
        nodes: address of each node -> number of its machine.
        drained: the nodes that are drained at the start.
        owners_of: node -> the components that get an order when it is drained; see `Draining`.
        register: of all hosts; None: they are not known.

    Attributes:
        machines: address of each node -> number of its machine.
    """

    def __init__(
        self, nodes: Mapping[Address, int], fleet: Fleet, drained: set[Address],
        owners_of: Callable[[Address], tuple[Address, ...]] | None = None, register: HostRegister | None = None,
    ) -> None:  # fmt: skip
        self.machines = nodes
        self.drained = drained
        self._fleet = fleet
        self._owners_of = owners_of
        self.register = register
        self._confined: dict[Address, str] = {}
        self._running: dict[tuple[TaskId, int], Address] = {}
        self._latest: dict[TaskId, int] = {}
        self._lost: set[tuple[Address, Address]] = set()
        self._statuses: list[NodeStatus] = []

    def report(self, event: TaskReport) -> bool:
        """Take in a report of an attempt; true if it has ended."""
        state, key = event.state, (event.task, event.attempt)
        if state == "running":
            self._running[key] = event.node
            before = self._latest.get(event.task)
            if before is not None and before < event.attempt:  # it ended with its host, which may never report it
                self._running.pop((event.task, before), None)
            self._latest[event.task] = event.attempt
            return False
        if self._latest.get(event.task) == event.attempt:
            del self._latest[event.task]
        self._running.pop(key, None)
        return True

    def confined(self, event: ConfinementReport) -> None:
        self._confined.update(dict.fromkeys(event.nodes, event.words))

    def peer(self, event: PeerReport) -> None:
        (self._lost.add if event.lost else self._lost.discard)((event.by, event.peer))

    def forget_lost(self, entries: Collection[Address]) -> None:
        """Forget which components are lost to these; they report it again."""
        self._lost = {pair for pair in self._lost if pair[0] not in entries}

    @property
    def can_drain(self) -> bool:
        """True if nodes can be drained here."""
        return self._owners_of is not None

    def masters(self, node: Address) -> tuple[Address, ...]:
        """The components in charge of a node, where the scheduler names them."""
        return self._owners_of(node) if self._owners_of is not None else ()

    def partitions(self) -> dict[Address, tuple[Address, ...]]:
        """The components in charge of each node."""
        return {} if self._owners_of is None else {node: self.masters(node) for node in self.machines}

    def running_on(self, node: Address, limit: int) -> list[TaskId]:
        return sorted(task for (task, _), where in self._running.items() if where == node)[:limit]

    def lost(self) -> set[Address]:
        """Nodes that do not answer: a component that watches them reports it, or their host is lost."""
        lost = {peer for _, peer in self._lost if peer in self.machines}
        return lost if self.register is None else lost | self.register.lost_nodes

    def absent(self) -> tuple[str, ...]:
        return () if self.register is None else tuple(self.register.absent())

    def hosts(self) -> list[HostStatus]:
        return [] if self.register is None else self.register.statuses()

    def taken(self) -> dict[int, int]:
        """Machine -> how many tasks run there."""
        taken: dict[int, int] = {}
        for node in self._running.values():
            taken[self.machines[node]] = taken.get(self.machines[node], 0) + 1
        return taken

    def drained_machines(self) -> set[int]:
        return {self.machines[node] for node in self.drained if node in self.machines}

    def lost_machines(self) -> set[int]:
        return {self.machines[node] for node in self.lost()}

    def statuses(self) -> list[NodeStatus]:
        """All nodes, in order of their addresses' machines."""
        running, lost = dict[Address, int](), self.lost()
        for node in self._running.values():
            running[node] = running.get(node, 0) + 1
        if len(self._statuses) != len(self.machines):
            self._statuses[:] = self._empty()
        place_of = self.register.place_of if self.register is not None else lambda _: ("", "")
        for place, told in enumerate(self._statuses):
            address = told.address
            now = (
                running.get(address, 0), address in self.drained, self._confined.get(address, ""), address in lost,
                *place_of(address),
            )  # fmt: skip
            if now != (told.running, told.drained, told.held, told.lost, told.host, told.hostname):
                self._statuses[place] = replace(
                    told, running=now[0], drained=now[1], held=now[2], lost=now[3], host=now[4], hostname=now[5]
                )
        return self._statuses[:]

    def _empty(self) -> list[NodeStatus]:
        """All nodes, without tasks."""
        found, cluster = [], self._fleet.cluster
        capacities = cluster.capacities or [()] * len(cluster.slots)
        for address, number in sorted(self.machines.items(), key=lambda item: (item[1], item[0])):
            machine = self._fleet.machines[number]
            words = {name: getattr(machine, name) for name in machine.__struct_fields__ if name != "labels"}
            found.append(
                NodeStatus(
                    address=address, slots=cluster.slots[number], running=0, labels=dict(machine.labels),
                    offers=dict(zip(cluster.resources, capacities[number], strict=True)),
                    **words,
                )
            )  # fmt: skip
        return found
