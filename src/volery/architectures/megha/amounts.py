"""Allocations of amounts of several resources, by machine; see `Allocations`.

A repartition moves no machine: it splits a logical node with just what the task asks for off it, whose record is all
that there is of it (arXiv 2103.08413, section IV-B4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, ClassVar, NamedTuple

from msgspec.structs import replace

from volery.architectures.megha.allocations import GmSyncState
from volery.architectures.megha.messages import (
    UNIT_SHIFT,
    PartitionState,
    Refusal,
    Request,
    StateUpdate,
    TasksEnded,
    place_of,
)
from volery.architectures.megha.partitions import Capacities, Layout
from volery.core.component import Sends, sent_to
from volery.core.events import Counted
from volery.core.model import Address, Message, TaskId
from volery.policies.match import positions, vector_bytes
from volery.roles.node import Launch
from volery.roles.recovery.leases import RunningAttempt

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster


class Allotment(NamedTuple):
    """Amounts that a task has.

    Args:
        partition, position: of its machine.
        took: what it asked for, packed.
        owner: the record of its GM.
        guest: the partition that its logical node was split off for; -1: it runs on the machine itself.
    """

    partition: int
    position: int
    took: int
    owner: GmSyncState
    guest: int


class AmountAllocations:
    """Amounts of several resources, packed, per machine. A machine that is not usable has nothing free.

    Args:
        snapshots: whether updates carry the state of the whole cluster, as in the first Megha.
        twice: whether the next update to a GM repeats what its own tasks have freed.
        repartition: whether what a GM places outside of its own partitions runs on a logical node of it.
    """

    __slots__ = (
        "_first", "_guards", "_layout", "_lm", "_partitions", "_repartition", "_seats", "_snapshots",
        "_state_bytes", "_states", "_twice", "_whole_free", "active", "free", "packing",
    )  # fmt: skip
    sends: ClassVar[Sends] = sent_to("gm", TasksEnded, Refusal, StateUpdate)

    def __init__(
        self,
        layout: Layout,
        capacities: Capacities,
        partitions: range,
        *,
        snapshots: bool,
        twice: bool,
        repartition: bool,
    ) -> None:
        self._layout = layout
        self._state_bytes = capacities.state_bytes
        self._partitions = partitions
        self._first = partitions.start
        self._snapshots = snapshots
        self._twice = twice
        self._repartition = repartition
        self.packing = capacities.ladders.packing
        self._guards = self.packing.guards
        self._whole_free = [capacities.whole[partition].free for partition in partitions]
        self.free = [list(free) for free in self._whole_free]
        self.active: dict[TaskId, Allotment] = {}
        self._states: dict[int, bytes] = {}
        self._seats: dict[Address, tuple[int, int]] = {}
        for here, partition in enumerate(partitions):
            for position, node in enumerate(layout.nodes[partition]):
                self._seats[node] = (here, position)

    def join(self, lm: LocalMaster) -> None:
        self._lm = lm

    # Where nothing may crash and nobody has a share.

    def launch_all(self, message: Request, gm: GmSyncState, number: int, send: Callable[..., None]) -> list[TaskId]:
        partition, packing, guards, first = message.partition, self.packing, self._guards, self._first
        free, nodes, drained = self.free[partition - first], self._layout.nodes[partition], self._lm.recovery.drained
        before, changed, lacks, refused = number, 0, 0, []
        guest = self._guest_of(partition, gm)
        for task, position in zip(message.tasks, message.positions, strict=True):
            took = packing[task.request]
            left = free[position] - took
            if left & guards != guards or (drained and nodes[position] in drained):
                refused.append(task.id)
                lacks |= 1 << position
                continue
            free[position] = packing.settled(left)
            changed |= 1 << position
            self.active[task.id] = Allotment(partition, position, took, gm, guest)
            number += 1
            send(nodes[position], Launch(number, task))
        gm.lacks[partition - first] |= lacks
        gm.changed[partition - first] |= changed
        self._states.pop(partition - first, None)
        if guest >= 0 and changed:
            self._lm.observe(Counted("repartitions", number - before))
        return refused

    def end(self, task: TaskId) -> GmSyncState | None:
        allotment = self.active.pop(task, None)
        if allotment is None:
            return None
        partition, position, took, gm, _ = allotment
        here, drained = partition - self._first, self._lm.recovery.drained
        if drained and self._layout.nodes[partition][position] in drained:
            self._lack(here, position, None)
        else:
            free = self.free[here]
            free[position] = self.packing.settled(free[position] + took)
            gm.changed[here] |= 1 << position
            if self._twice:
                gm.lacks[here] |= 1 << position
            self._states.pop(here, None)
        gm.ended.append(task)
        return gm if len(gm.ended) == 1 else None

    def node_of(self, task: TaskId) -> Address:
        if task not in self.active:
            return ""
        allotment = self.active[task]
        return self._layout.nodes[allotment.partition][allotment.position]

    def close(self, node: Address, *, closed: bool) -> None:
        if node in self._seats:
            self._count_anew(node, [task for task in self.active if self.node_of(task) == node])

    # Where anything may crash, or users have shares.

    def expect(self, gm: GmSyncState, message: Request) -> None:
        """Nothing: a GM is sent no news of what it requests."""

    def fits(self, active: RunningAttempt, node: Address) -> bool:
        here, position = self._seats[node]
        left = self.free[here][position] - self.packing[active.request]
        return left & self._guards == self._guards

    def holds(self, task: TaskId) -> bool:
        return task in self.active

    def allot(self, active: RunningAttempt, node: Address, *, lends: bool) -> None:
        allotment = self.active[active.task] = self._allotment_of(active)
        if lends and allotment.guest >= 0:
            self._lm.observe(Counted("repartitions"))
        self._add(node, -allotment.took, allotment.owner)

    def _allotment_of(self, active: RunningAttempt) -> Allotment:
        partition, position = place_of(active.unit)
        owner = self._lm.gms[active.owner]
        return Allotment(partition, position, self.packing[active.request], owner, self._guest_of(partition, owner))

    def _guest_of(self, partition: int, owner: GmSyncState) -> int:
        own = self._first + owner.number
        return own if self._repartition and partition != own else -1

    def hand_over(self, active: RunningAttempt) -> None:
        self.active[active.task] = self._allotment_of(active)

    def give_back(self, active: RunningAttempt, node: Address) -> None:
        """Free what the attempt had, if its node is usable; an owner that is sent the end lacks no news of it."""
        allotment = self.active.pop(active.task)
        recovery = self._lm.recovery
        is_informed = not (self._twice or recovery.paired) and recovery.usable(node)
        knows = allotment.owner if is_informed else None
        self._add(node, allotment.took, knows)

    def _add(self, node: Address, packed: int, knows: GmSyncState | None) -> None:
        """Add to what is free on a machine, or take off; all GMs but the one that knows lack the news."""
        here, position = self._seats[node]
        if self._lm.recovery.usable(node):
            self.free[here][position] = self.packing.settled(self.free[here][position] + packed)
        self._lack(here, position, knows)

    def _lack(self, here: int, position: int, knows: GmSyncState | None) -> None:
        self._states.pop(here, None)
        bit = 1 << position
        for gm in self._lm.gms.values():
            if gm is not knows:
                gm.lacks[here] |= bit

    def ended(self, active: RunningAttempt) -> GmSyncState:
        return self._lm.gms[active.owner]

    def clear(self) -> None:
        self.active.clear()
        self._states.clear()
        for here, free in enumerate(self.free):
            self.free[here] = [self._guards] * len(free)

    def skip(self, gm: GmSyncState) -> None:
        gm.lacks = [0] * len(gm.lacks)

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        here, position = self._seats[node]
        unit, left, found = self._partitions[here] << UNIT_SHIFT | position, self._whole_free[here][position], []
        for active in running:
            less = left - self.packing[active.request]
            if less & self._guards == self._guards:
                left = self.packing.settled(less)
                found.append(active if active.unit == unit else replace(active, unit=unit))
        return found

    def node_changed(self, node: Address) -> bool:
        """Count anew what the machine has free; all GMs lack it."""
        self._count_anew(node, self._lm.there[node])
        return True

    def _count_anew(self, node: Address, tasks: Iterable[TaskId]) -> None:
        here, position = self._seats[node]
        free = self._guards
        if self._lm.recovery.usable(node):
            free = self._whole_free[here][position]
            for task in tasks:
                free -= self.active[task].took
            free -= self._lm.shares.reserved(here, position)
        self.free[here][position] = self.packing.settled(free)
        self._lack(here, position, None)

    def set_aside(self, here: int, position: int, packed: int, owner: GmSyncState) -> None:
        """Something is set aside for a task of this owner, who lacks it, too; the others when they are considered."""
        self.free[here][position] = self.packing.settled(self.free[here][position] - packed)
        self.has_changed(here, position, owner)

    def has_changed(self, here: int, position: int, owner: GmSyncState) -> None:
        """A GM has caused a change on a machine; the others lack that once they are considered."""
        owner.changed[here] |= 1 << position
        owner.lacks[here] |= 1 << position
        self._states.pop(here, None)

    def room_for(self, wanted: int, given: int, here: int, position: int) -> bool:
        """Find out whether a machine has so much when so much is given back, both packed."""
        left = self.packing.settled(self.free[here][position] + given) - wanted
        return left & self._guards == self._guards

    # News for Global Masters.

    def consider(self) -> None:
        gms = list(self._lm.gms.values())
        for here in range(len(self.free)):
            causes = [gm for gm in gms if gm.changed[here]]
            if not causes:
                continue
            for gm in gms:
                for cause in causes:
                    if cause is not gm:
                        gm.lacks[here] |= cause.changed[here]
            for cause in causes:
                cause.changed[here] = 0

    def has_news(self, gm: GmSyncState) -> bool:
        return any(
            free[position] != self._guards
            for free, lacks in zip(self.free, gm.lacks, strict=False)
            for position in positions(lacks)
        )

    def refusal(self, gm: GmSyncState, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        for unit in refused:
            partition, position = place_of(unit)
            gm.lacks[partition - self._first] |= 1 << position
        if not self._lm.recovery.paired:
            self.consider()
        return Refusal(tasks, self.delta(gm))

    def news(self, gm: GmSyncState) -> StateUpdate | None:
        return self.delta(gm) if any(gm.lacks) else None

    def whole(self, gm: GmSyncState) -> StateUpdate:
        for here, partition in enumerate(self._partitions):
            gm.lacks[here] = self._layout.whole(partition)
        return self.delta(gm)

    def delta(self, gm: GmSyncState) -> StateUpdate:
        """Update with the news that the GM lacks; it contains the ends and holdings that are sent before it."""
        self._lm.tell_ended(gm)
        self._lm.shares.tell_holdings(gm)
        states, entries = [], 0
        for here, partition in enumerate(self._partitions):
            lacks, free = gm.lacks[here], self.free[here]
            if self._snapshots:
                entries += len(free)
                states.append(PartitionState(partition, b"", self._whole(here)))
            elif lacks:
                entries += lacks.bit_count()
                states.append(
                    PartitionState(partition, vector_bytes(lacks), self._bytes([free[k] for k in positions(lacks)]))
                )
            gm.lacks[here] = 0
        self._lm.observe(Counted("update_entries", entries))
        gm.update += 1
        return StateUpdate(gm.update, gm.request, tuple(states), entries)

    def _whole(self, here: int) -> bytes:
        if here not in self._states:
            self._states[here] = self._bytes(self.free[here])
        return self._states[here]

    def _bytes(self, free: list[int]) -> bytes:
        width = self._state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    def check(self) -> None:
        """Machines have what is free and what active tasks took; a logical node is in its GM's partition."""
        whole = [list(free) for free in self._whole_free]
        for allotment in self.active.values():
            whole[allotment.partition - self._first][allotment.position] -= allotment.took
            assert allotment.guest in (-1, self._first + allotment.owner.number), "a logical node of a stranger"
            assert allotment.guest != allotment.partition, "a logical node in the partition that it was taken from"
        for here, position, packed in self._kept_back():
            whole[here][position] -= packed
        whole = [[self.packing.settled(free) for free in machines] for machines in whole]
        assert whole == self.free, "amounts without a task, or tasks that share an amount"

    def _kept_back(self) -> Iterable[tuple[int, int, int]]:
        """Amounts that are neither free nor taken by an active task."""
        for node, (here, position) in self._seats.items():
            if not self._lm.recovery.usable(node):
                taken = sum(one.took for task, one in self.active.items() if self.node_of(task) == node)
                yield here, position, self._whole_free[here][position] - self._guards - taken
            elif reserved := self._lm.shares.reserved(here, position):
                yield here, position, reserved

    def check_rest(self) -> None:
        assert self.free == [list(free) for free in self._whole_free], "amounts are taken"
        for gm in self._lm.gms.values():
            assert not [*filter(None, gm.lacks), *gm.ended], f"{gm.address} has not been told"
