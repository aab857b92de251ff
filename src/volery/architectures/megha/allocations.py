"""The truth about one cluster, of its Local Master: what is free, and what each Global Master has been told of it.

Per GM the difference from the truth is the next delta, so that a unit which was taken and freed between two updates is
never mentioned, and the last state of every unit wins. With completion notice "once" a GM's own completions count as
told (section 4.4); with "twice" they are repeated in the next update, the cause of inconsistencies that section 4.4
describes. Where tasks ask for amounts, a unit is a machine. A repartition moves no machine: it splits a logical node
with just what the task asks for off it, whose record is all that there is of it (arXiv 2103.08413, section IV-B4).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

from msgspec.structs import replace

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import (
    UNIT_SHIFT,
    Change,
    Inconsistency,
    Refusal,
    Request,
    State,
    StateUpdate,
    Update,
    place_of,
)
from volery.architectures.megha.vector_layout import VectorLayout
from volery.core.events import Counted
from volery.core.model import Address, Message, TaskId
from volery.policies.match import positions, vector_bytes
from volery.roles.node import Launch
from volery.roles.recovery.election import seated
from volery.roles.recovery.leases import Active

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster


class Told:
    """What one GM has been told, and what it is about to be told.

    Attributes:
        number, address: of the GM.
        request: the last request received from it.
        update: the last update sent to it.
        ended: its tasks that have ended in this instant.
        busy: per partition, the slots that it takes for busy once all messages under way have arrived.
        repeat: completions of its own that the next update mentions again (completion notice "twice").
        lacks: per partition of this LM, the machines of which it may have another state, once all messages that are
            under way have arrived.
        changed: the same, of what it has itself caused since the others were last considered.
    """

    __slots__ = ("address", "busy", "changed", "ended", "lacks", "number", "repeat", "request", "update")

    def __init__(self, number: int, partition_count: int) -> None:
        self.number = number
        self.address = f"gm/{number}"
        self.request = self.update = 0
        self.ended: list[TaskId] = []
        self.busy = [0] * partition_count
        self.repeat = [0] * partition_count
        self.lacks = [0] * partition_count
        self.changed = [0] * partition_count


class Allocations(Protocol):
    """Units of a cluster: who has which, and what each GM knows of it."""

    def expect(self, told: Told, message: Request) -> None:
        """The GM takes what it requests for taken."""

    def fits(self, active: Active, node: Address) -> bool:
        """Whether the attempt can have what it asks for."""

    def holds(self, task: TaskId) -> bool:
        """Whether something is allocated to the task."""

    def allot(self, active: Active, node: Address, *, lends: bool) -> None:
        """The attempt has what it asked for; where that makes a logical node, `lends` counts it as a repartition."""

    def hand_over(self, active: Active) -> None:
        """What the attempt has is its present owner's."""

    def give_back(self, active: Active, node: Address) -> None:
        """What the attempt had is free, if its node is usable."""

    def ended(self, active: Active) -> Told:
        """Its owner is to be told of the end of the attempt in this instant."""

    def clear(self) -> None:
        """Nothing is allocated, nothing is free."""

    def skip(self, told: Told) -> None:
        """The GM is told nothing before it joins again, and everything then."""

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """The attempts that the node has a place for."""

    def node_changed(self, node: Address) -> bool:
        """The node is away, drained, back, or another amount is set aside there; whether GMs may have to be told."""

    def consider(self) -> None:
        """Every GM lacks what the others have caused."""

    def has_news(self, told: Told) -> bool:
        """Whether anything is free of which the GM may have another state."""

    def refusal(self, told: Told, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        """The answer to invalid placements at these units, with the news that the GM lacks."""

    def news(self, told: Told) -> Update | StateUpdate | None:
        """What the GM lacks, if it lacks anything; from now on it has been told."""

    def delta(self, told: Told) -> Update | StateUpdate:
        """What the GM lacks, even if that is nothing."""

    def whole(self, told: Told) -> Update | StateUpdate:
        """Everything."""

    def check(self) -> None:
        """Raise AssertionError where what is free and what is allotted is not the whole."""

    def check_rest(self) -> None:
        """Raise AssertionError where something is allocated, or a GM has not been told so."""


class SlotAllocations:
    """Slots are bits, per partition.

    Args:
        layout: of the cluster.
        partitions: of the Local Master.
        snapshots: whether updates carry the full state, as in the first Megha.
        twice: whether a GM's own completions are repeated in the next update.
    """

    def __init__(self, layout: Layout, partitions: range, *, snapshots: bool, twice: bool) -> None:
        self._layout = layout
        self._partitions = partitions
        self._snapshots = snapshots
        self._twice = twice
        self._busy = [0] * len(layout.size)
        self._owned: dict[TaskId, tuple[int, int, Told]] = {}
        self._closed: dict[int, int] = {}

    def join(self, lm: LocalMaster) -> None:
        """Become the allocations of this Local Master."""
        self._lm = lm

    @cached_property
    def _masks(self) -> dict[Address, tuple[int, int]]:
        """Partition and slots of each node; nobody asks before a node is drained or something may crash."""
        masks: dict[Address, tuple[int, int]] = {}
        for partition in self._partitions:
            for position, node in enumerate(self._layout.nodes[partition]):
                masks[node] = (partition, masks.get(node, (partition, 0))[1] | 1 << position)
        return masks

    # Where nothing may crash: no record of attempts but the slot.

    def launch_all(self, message: Request, told: Told, number: int, send: Callable[..., None]) -> list[TaskId]:
        """Launch each task whose slot is free; returns the others."""
        partition = message.partition
        bits, nodes, owned = self._layout.bits, self._layout.nodes[partition], self._owned
        busy, wanted, refused = self._busy[partition], 0, []
        for task, position in zip(message.tasks, message.positions, strict=True):
            bit = bits[position]
            wanted |= bit
            if busy & bit:
                refused.append(task.id)
            else:
                busy |= bit
                owned[task.id] = (partition, bit, told)
                number += 1
                send(nodes[position], Launch(number, task))
        self._busy[partition] = busy
        told.busy[partition] |= wanted
        return refused

    def end(self, task: TaskId) -> Told | None:
        """Free the slot of a task; returns what its owner has been told, nothing where the task has none."""
        owned = self._owned.pop(task, None)
        if owned is None:
            return None
        partition, bit, told = owned
        if not (self._closed and self._closed.get(partition, 0) & bit):
            self._busy[partition] ^= bit
        told.busy[partition] ^= bit
        if self._twice:
            told.repeat[partition] |= bit
        return told

    def node_of(self, task: TaskId) -> Address:
        """The machine that a task runs on; nowhere: ""."""
        if task not in self._owned:
            return ""
        partition, bit, _ = self._owned[task]
        return self._layout.nodes[partition][bit.bit_length() - 1]

    def close(self, node: Address, *, closed: bool) -> None:
        """Slots of a drained node count as taken from now on; what runs there goes on."""
        partition, mask = self._masks.get(node, (0, 0))
        shut = self._closed.pop(partition, 0) & ~mask
        if closed:
            shut |= mask
            self._busy[partition] |= mask
        else:
            used = sum(bit for at, bit, _ in self._owned.values() if at == partition)
            self._busy[partition] = self._busy[partition] & ~mask | used & mask
        if shut:
            self._closed[partition] = shut

    # Where anything may.

    def expect(self, told: Told, message: Request) -> None:
        """The GM takes the slots for busy."""
        for position in message.positions:
            told.busy[message.partition] |= self._layout.bits[position]

    def fits(self, active: Active, node: Address) -> bool:
        """Whether the slot is free."""
        partition, position = place_of(active.unit)
        return not self._busy[partition] & self._layout.bits[position]

    def holds(self, task: TaskId) -> bool:
        """Whether the task has a slot."""
        return task in self._owned

    def allot(self, active: Active, node: Address, *, lends: bool) -> None:
        """The attempt has its slot."""
        partition, position = place_of(active.unit)
        bit, told = self._layout.bits[position], self._lm.gms[active.owner]
        self._busy[partition] |= bit
        told.busy[partition] |= bit
        self._owned[active.task] = (partition, bit, told)

    def hand_over(self, active: Active) -> None:
        """The slot is its present owner's."""
        partition, bit, _ = self._owned[active.task]
        self._owned[active.task] = partition, bit, self._lm.gms[active.owner]

    def give_back(self, active: Active, node: Address) -> None:
        """The slot is free if its node is usable."""
        partition, bit, _ = self._owned.pop(active.task)
        if self._lm.recovery.usable(node):
            self._busy[partition] &= ~bit

    def ended(self, active: Active) -> Told:
        """A notice frees the slot in the owner's view."""
        told, (partition, position) = self._lm.gms[active.owner], place_of(active.unit)
        told.busy[partition] &= ~(1 << position)
        return told

    def clear(self) -> None:
        """Every slot counts as taken."""
        self._owned.clear()
        for partition, mask in self._masks.values():
            self._busy[partition] |= mask

    def skip(self, told: Told) -> None:
        """See `Allocations`."""
        told.busy[:] = self._busy

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """One attempt per slot."""
        partition, mask = self._masks[node]
        return seated(running, [partition << UNIT_SHIFT | position for position in positions(mask)])

    def node_changed(self, node: Address) -> bool:
        """Slots of a node count as taken unless it is usable and they have no task."""
        partition, mask = self._masks[node]
        if not self._lm.recovery.usable(node):
            self._busy[partition] |= mask
            return False
        for task in self._lm.there[node]:
            mask &= ~self._owned[task][1]
        self._busy[partition] &= ~mask
        return True

    # What Global Masters are told.

    def consider(self) -> None:
        """Differences are always those from the truth."""

    def has_news(self, told: Told) -> bool:
        """Whether a slot is free that the GM takes for busy."""
        return any(told.busy[partition] & ~self._busy[partition] for partition in self._partitions)

    def refusal(self, told: Told, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        """See `Allocations`."""
        return Inconsistency(tasks, self.delta(told))

    def news(self, told: Told) -> Update | None:
        """See `Allocations`."""
        changes = self._changes(told)
        return self._update(told, changes) if changes else None

    def delta(self, told: Told) -> Update:
        """See `Allocations`."""
        return self._update(told, self._changes(told))

    def whole(self, told: Told) -> Update:
        """See `Allocations`."""
        changes, busy = [], self._busy
        for partition in self._partitions:
            free = self._layout.whole(partition) & ~busy[partition]
            changes.append(Change(partition, vector_bytes(free), vector_bytes(busy[partition])))
            told.busy[partition] = busy[partition]
        return self._update(told, tuple(changes))

    def _update(self, told: Told, changes: tuple[Change, ...]) -> Update:
        told.update += 1
        return Update(told.update, self._snapshots, changes)

    def _changes(self, told: Told) -> tuple[Change, ...]:
        busy, seen, repeat, layout = self._busy, told.busy, told.repeat, self._layout
        changes, entry_count = [], 0
        stale = [p for p in self._partitions if seen[p] != busy[p] or repeat[p]]
        for partition in self._partitions if stale and self._snapshots else stale:
            taken = busy[partition] & ~seen[partition]
            freed = (seen[partition] | repeat[partition]) & ~busy[partition]
            if self._snapshots:
                freed, taken = layout.whole(partition) & ~busy[partition], 0
            if taken or freed or self._snapshots:
                changes.append(Change(partition, vector_bytes(freed), vector_bytes(taken)))
                entry_count += layout.size[partition] if self._snapshots else (freed | taken).bit_count()
            seen[partition], repeat[partition] = busy[partition], 0
        if entry_count:
            self._lm.observe(Counted("update_entries", entry_count))
        return tuple(changes)

    def check(self) -> None:
        """A slot is busy when a task owns it or its node is not usable, and only then."""
        expected = [0] * len(self._busy)
        for partition, bit, _ in self._owned.values():
            assert not expected[partition] & bit, "two tasks share a unit"
            expected[partition] |= bit
        for node, (partition, mask) in self._masks.items():
            if not self._lm.recovery.usable(node):
                expected[partition] |= mask
        assert expected == self._busy, "units without a task, or tasks without a unit"

    def check_rest(self) -> None:
        """Every slot is free, and every GM has been told so."""
        assert not any(self._busy), "units are taken"
        assert all(not any(told.busy) for told in self._lm.gms.values()), "a GM has not been told"


class Allotment(NamedTuple):
    """What an attempt has.

    Args:
        active: the attempt.
        partition, position: of its machine.
        took: what it asked for, packed.
        owner: what its GM has been told.
        guest: the partition that its logical node was split off for; -1: it runs on the machine itself.
    """

    active: Active
    partition: int
    position: int
    took: int
    owner: Told
    guest: int


class AmountAllocations:
    """Amounts of several resources, packed, per machine. A machine that is not usable has nothing free.

    Args:
        layout: of the cluster.
        partitions: of the Local Master.
        snapshots: whether updates carry the state of the whole cluster, as in the first Megha.
        twice: whether what a GM's own tasks have freed is told again in its next update.
        repartition: whether what a GM places outside of its own partitions runs on a logical node of it.
    """

    __slots__ = (
        "_first", "_guards", "_layout", "_lm", "_partitions", "_repartition", "_seats", "_snapshots",
        "_states", "_twice", "_whole_free", "active", "free", "packing",
    )  # fmt: skip

    def __init__(
        self, layout: VectorLayout, partitions: range, *, snapshots: bool, twice: bool, repartition: bool
    ) -> None:
        self._layout = layout
        self._partitions = partitions
        self._first = partitions.start
        self._snapshots = snapshots
        self._twice = twice
        self._repartition = repartition
        self.packing = layout.ladders.packing
        self._guards = self.packing.guards
        self._whole_free = [layout.whole_index[partition].free for partition in partitions]
        self.free = [list(free) for free in self._whole_free]
        self.active: dict[TaskId, Allotment] = {}
        self._states: dict[int, bytes] = {}
        self._seats: dict[Address, tuple[int, int]] = {}
        for here, partition in enumerate(partitions):
            for position, node in enumerate(layout.nodes[partition]):
                self._seats[node] = (here, position)

    def join(self, lm: LocalMaster) -> None:
        """Become the allocations of this Local Master."""
        self._lm = lm

    def expect(self, told: Told, message: Request) -> None:
        """What a GM requests it is not told of."""

    def fits(self, active: Active, node: Address) -> bool:
        """Whether the machine has enough."""
        here, position = self._seats[node]
        left = self.free[here][position] - self.packing[active.request]
        return left & self._guards == self._guards

    def holds(self, task: TaskId) -> bool:
        """Whether the task has anything, be it nothing."""
        return task in self.active

    def allot(self, active: Active, node: Address, *, lends: bool) -> None:
        """See `Allocations`."""
        allotment = self.active[active.task] = self._allotment_of(active)
        if lends and allotment.guest >= 0:
            self._lm.observe(Counted("repartitions"))
        self._add(node, -allotment.took, allotment.owner)

    def _allotment_of(self, active: Active) -> Allotment:
        partition, position = place_of(active.unit)
        owner = self._lm.gms[active.owner]
        own = self._first + owner.number
        guest = own if self._repartition and partition != own else -1
        return Allotment(active, partition, position, self.packing[active.request], owner, guest)

    def hand_over(self, active: Active) -> None:
        """See `Allocations`."""
        self.active[active.task] = self._allotment_of(active)

    def give_back(self, active: Active, node: Address) -> None:
        """What the attempt had is free, if its node is usable; an owner that will be told of the end knows."""
        allotment = self.active.pop(active.task)
        recovery = self._lm.recovery
        told = not (self._twice or recovery.paired) and recovery.usable(node)
        knows = allotment.owner if told else None
        self._add(node, allotment.took, knows)

    def _add(self, node: Address, packed: int, knows: Told | None) -> None:
        """So much more is free on a machine, or less where it is negative; all GMs but the one that knows lack it."""
        here, position = self._seats[node]
        if self._lm.recovery.usable(node):
            self.free[here][position] = self.packing.settled(self.free[here][position] + packed)
        self._lack(here, position, knows)

    def _lack(self, here: int, position: int, knows: Told | None) -> None:
        self._states.pop(here, None)
        bit = 1 << position
        for told in self._lm.gms.values():
            if told is not knows:
                told.lacks[here] |= bit

    def ended(self, active: Active) -> Told:
        """See `Allocations`."""
        return self._lm.gms[active.owner]

    def clear(self) -> None:
        """No machine has anything free."""
        self.active.clear()
        self._states.clear()
        for here, free in enumerate(self.free):
            self.free[here] = [self._guards] * len(free)

    def skip(self, told: Told) -> None:
        """See `Allocations`."""
        told.lacks = [0] * len(told.lacks)

    def seats(self, node: Address, running: Sequence[Active]) -> list[Active]:
        """As many, in order, as the machine offers amounts for now."""
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
        here, position = self._seats[node]
        free = self._guards
        if self._lm.recovery.usable(node):
            free = self._whole_free[here][position]
            for task in self._lm.there[node]:
                free -= self.active[task].took
            free -= self._lm.shares.reserved(here, position)
        self.free[here][position] = self.packing.settled(free)
        self._lack(here, position, None)
        return True

    def set_aside(self, here: int, position: int, packed: int, owner: Told) -> None:
        """Something is set aside for a task of this owner, who lacks it, too; the others when they are considered."""
        self.free[here][position] = self.packing.settled(self.free[here][position] - packed)
        self.has_changed(here, position, owner)

    def has_changed(self, here: int, position: int, owner: Told) -> None:
        """A GM has caused a change on a machine; the others lack that once they are considered."""
        owner.changed[here] |= 1 << position
        owner.lacks[here] |= 1 << position
        self._states.pop(here, None)

    def room_for(self, wanted: int, given: int, here: int, position: int) -> bool:
        """Whether a machine has so much when so much is given back, both packed."""
        left = self.packing.settled(self.free[here][position] + given) - wanted
        return left & self._guards == self._guards

    # What Global Masters are told.

    def consider(self) -> None:
        """See `Allocations`."""
        gms = list(self._lm.gms.values())
        for here in range(len(self.free)):
            causes = [told for told in gms if told.changed[here]]
            if not causes:
                continue
            for told in gms:
                for cause in causes:
                    if cause is not told:
                        told.lacks[here] |= cause.changed[here]
            for cause in causes:
                cause.changed[here] = 0

    def has_news(self, told: Told) -> bool:
        """Whether anything is free on a machine that the GM lacks."""
        return any(
            free[position] != self._guards
            for free, lacks in zip(self.free, told.lacks, strict=False)
            for position in positions(lacks)
        )

    def refusal(self, told: Told, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        """See `Allocations`."""
        for unit in refused:
            partition, position = place_of(unit)
            told.lacks[partition - self._first] |= 1 << position
        if not self._lm.recovery.paired:
            self.consider()
        return Refusal(tasks, self.delta(told))

    def news(self, told: Told) -> StateUpdate | None:
        """See `Allocations`."""
        return self.delta(told) if any(told.lacks) else None

    def whole(self, told: Told) -> StateUpdate:
        """See `Allocations`."""
        for here, partition in enumerate(self._partitions):
            told.lacks[here] = self._layout.whole(partition)
        return self.delta(told)

    def delta(self, told: Told) -> StateUpdate:
        """What the GM lacks; it contains all that has ended and whose tasks run, which is told first."""
        self._lm.tell_ended(told)
        self._lm.shares.tell_holdings(told)
        states, entries = [], 0
        for here, partition in enumerate(self._partitions):
            lacks, free = told.lacks[here], self.free[here]
            if self._snapshots:
                entries += len(free)
                states.append(State(partition, b"", self._whole(here)))
            elif lacks:
                entries += lacks.bit_count()
                states.append(State(partition, vector_bytes(lacks), self._bytes([free[k] for k in positions(lacks)])))
            told.lacks[here] = 0
        self._lm.observe(Counted("update_entries", entries))
        told.update += 1
        return StateUpdate(told.update, told.request, tuple(states), entries)

    def _whole(self, here: int) -> bytes:
        if here not in self._states:
            self._states[here] = self._bytes(self.free[here])
        return self._states[here]

    def _bytes(self, free: list[int]) -> bytes:
        width = self._layout.state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    def check(self) -> None:
        """What is free and what active tasks took is what machines have; a logical node is in its GM's partition."""
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
        """What is neither free nor taken by an active task."""
        for node, (here, position) in self._seats.items():
            if not self._lm.recovery.usable(node):
                taken = sum(self.active[task].took for task in self._lm.there[node])
                yield here, position, self._whole_free[here][position] - self._guards - taken
            elif reserved := self._lm.shares.reserved(here, position):
                yield here, position, reserved

    def check_rest(self) -> None:
        """Everything is free, and every GM has been told so."""
        assert self.free == [list(free) for free in self._whole_free], "amounts are taken"
        for told in self._lm.gms.values():
            assert not [*filter(None, told.lacks), *told.ended], f"{told.address} has not been told"
