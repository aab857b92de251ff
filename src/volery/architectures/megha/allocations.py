"""The truth about one cluster, of its Local Master: what is free, and what of it each Global Master has been sent.

Per GM the difference from the truth is the next delta, so that a unit which was taken and freed between two updates is
never mentioned, and the last state of every unit wins. With completion notice "once" a GM's own completions count as
sent (section 4.4); with "twice" they are repeated in the next update, the cause of inconsistencies that section 4.4
describes. Where tasks ask for amounts, a unit is a machine (`amounts`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, ClassVar, Protocol

from volery.architectures.megha.messages import (
    UNIT_SHIFT,
    Change,
    Refusal,
    Request,
    StateUpdate,
    TasksEnded,
    place_of,
)
from volery.architectures.megha.partitions import Layout
from volery.core.component import Sends, sent_to
from volery.core.events import Counted
from volery.core.model import Address, Message, TaskId
from volery.policies.match import positions, vector_bytes
from volery.roles.node import Launch
from volery.roles.recovery.election import seated
from volery.roles.recovery.leases import RunningAttempt

if TYPE_CHECKING:
    from volery.architectures.megha.local_master import LocalMaster


class GmSyncState:
    """Record of the news that one GM has been sent, and is about to be sent.

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

    sends: ClassVar[Sends]

    def join(self, lm: LocalMaster) -> None: ...

    # Where nothing may crash and nobody has a share: no record of attempts, and one loop without calls per task.

    def launch_all(self, message: Request, gm: GmSyncState, number: int, send: Callable[..., None]) -> list[TaskId]:
        """Launch each task that there is room for, by numbers above this one; returns the others."""

    def end(self, task: TaskId) -> GmSyncState | None:
        """Free what a task had; returns its owner if this is the first of its tasks that ends in this instant."""

    def node_of(self, task: TaskId) -> Address:
        """The machine that a task runs on; nowhere: ""."""

    def close(self, node: Address, *, closed: bool) -> None:
        """Take what a drained node has free for taken from now on; what runs there goes on."""

    # Where anything may crash, or users have shares.

    def expect(self, gm: GmSyncState, message: Request) -> None:
        """The GM takes what it requests for taken."""

    def fits(self, active: RunningAttempt, node: Address) -> bool:
        """Find out whether there is room for the attempt."""

    def holds(self, task: TaskId) -> bool:
        """Find out whether something is allocated to the task."""

    def allot(self, active: RunningAttempt, node: Address, *, lends: bool) -> None:
        """The attempt has what it asked for; where that makes a logical node, `lends` counts it as a repartition."""

    def hand_over(self, active: RunningAttempt) -> None:
        """Move what the attempt has to its present owner."""

    def give_back(self, active: RunningAttempt, node: Address) -> None:
        """Free what the attempt had, if its node is usable."""

    def ended(self, active: RunningAttempt) -> GmSyncState:
        """Return the record of the owner, which is sent the end of the attempt in this instant."""

    def clear(self) -> None:
        """Nothing is allocated, nothing is free."""

    def skip(self, gm: GmSyncState) -> None:
        """Send the GM nothing before it joins again; then it is sent everything."""

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """The attempts that the node has a place for."""

    def node_changed(self, node: Address) -> bool:
        """Count anew what is free on a node; find out whether that may be news for GMs."""

    def consider(self) -> None:
        """Every GM lacks what the others have caused."""

    def has_news(self, gm: GmSyncState) -> bool:
        """Find out whether anything is free of which the GM may have another state."""

    def refusal(self, gm: GmSyncState, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        """The answer to invalid placements at these units, with the news that the GM lacks."""

    def news(self, gm: GmSyncState) -> StateUpdate | None:
        """Update with the news that the GM lacks, if it lacks any; from now on it has them."""

    def delta(self, gm: GmSyncState) -> StateUpdate:
        """Update with the news that the GM lacks, even if there are none."""

    def whole(self, gm: GmSyncState) -> StateUpdate:
        """Update with the state of the whole cluster."""

    def check(self) -> None:
        """Raise AssertionError where what is free and what is allotted is not the whole."""

    def check_rest(self) -> None:
        """Raise AssertionError where something is allocated, or a GM has not been sent that."""


class SlotAllocations:
    """Slots are bits, per partition.

    Args:
        snapshots: whether updates carry the full state, as in the first Megha.
        twice: whether a GM's own completions are repeated in the next update.
    """

    sends: ClassVar[Sends] = sent_to("gm", TasksEnded, Refusal, StateUpdate)

    def __init__(self, layout: Layout, partitions: range, *, snapshots: bool, twice: bool) -> None:
        self._layout = layout
        self._partitions = partitions
        self._snapshots = snapshots
        self._twice = twice
        self._busy = [0] * len(layout.size)
        self._owned: dict[TaskId, tuple[int, int, GmSyncState]] = {}
        self._closed: dict[int, int] = {}

    def join(self, lm: LocalMaster) -> None:
        self._lm = lm

    @cached_property
    def _masks(self) -> dict[Address, tuple[int, int]]:
        """Partition and slots of each node; nobody asks before a node is drained or something may crash."""
        masks: dict[Address, tuple[int, int]] = {}
        for partition in self._partitions:
            for position, node in enumerate(self._layout.nodes[partition]):
                masks[node] = (partition, masks.get(node, (partition, 0))[1] | 1 << position)
        return masks

    # Where nothing may crash.

    def launch_all(self, message: Request, gm: GmSyncState, number: int, send: Callable[..., None]) -> list[TaskId]:
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
                owned[task.id] = (partition, bit, gm)
                number += 1
                send(nodes[position], Launch(number, task))
        self._busy[partition] = busy
        gm.busy[partition] |= wanted
        return refused

    def end(self, task: TaskId) -> GmSyncState | None:
        owned = self._owned.pop(task, None)
        if owned is None:
            return None
        partition, bit, gm = owned
        if not (self._closed and self._closed.get(partition, 0) & bit):
            self._busy[partition] ^= bit
        gm.busy[partition] ^= bit
        if self._twice:
            gm.repeat[partition] |= bit
        ended = gm.ended
        ended.append(task)
        return gm if len(ended) == 1 else None

    def node_of(self, task: TaskId) -> Address:
        if task not in self._owned:
            return ""
        partition, bit, _ = self._owned[task]
        return self._layout.nodes[partition][bit.bit_length() - 1]

    def close(self, node: Address, *, closed: bool) -> None:
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

    # Where components may crash.

    def expect(self, gm: GmSyncState, message: Request) -> None:
        for position in message.positions:
            gm.busy[message.partition] |= self._layout.bits[position]

    def fits(self, active: RunningAttempt, node: Address) -> bool:
        partition, position = place_of(active.unit)
        return not self._busy[partition] & self._layout.bits[position]

    def holds(self, task: TaskId) -> bool:
        return task in self._owned

    def allot(self, active: RunningAttempt, node: Address, *, lends: bool) -> None:
        partition, position = place_of(active.unit)
        bit, gm = self._layout.bits[position], self._lm.gms[active.owner]
        self._busy[partition] |= bit
        gm.busy[partition] |= bit
        self._owned[active.task] = (partition, bit, gm)

    def hand_over(self, active: RunningAttempt) -> None:
        partition, bit, _ = self._owned[active.task]
        self._owned[active.task] = partition, bit, self._lm.gms[active.owner]

    def give_back(self, active: RunningAttempt, node: Address) -> None:
        partition, bit, _ = self._owned.pop(active.task)
        if self._lm.recovery.usable(node):
            self._busy[partition] &= ~bit

    def ended(self, active: RunningAttempt) -> GmSyncState:
        """Return the record of the owner, in whose view the end frees the slot."""
        gm, (partition, position) = self._lm.gms[active.owner], place_of(active.unit)
        gm.busy[partition] &= ~(1 << position)
        if self._twice:
            gm.repeat[partition] |= 1 << position
        return gm

    def clear(self) -> None:
        self._owned.clear()
        for partition, mask in self._masks.values():
            self._busy[partition] |= mask

    def skip(self, gm: GmSyncState) -> None:
        gm.busy[:] = self._busy

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        partition, mask = self._masks[node]
        return seated(running, [partition << UNIT_SHIFT | position for position in positions(mask)])

    def node_changed(self, node: Address) -> bool:
        partition, mask = self._masks[node]
        if not self._lm.recovery.usable(node):
            self._busy[partition] |= mask
            return False
        for task in self._lm.there[node]:
            mask &= ~self._owned[task][1]
        self._busy[partition] &= ~mask
        return True

    # News for Global Masters.

    def consider(self) -> None: ...

    def has_news(self, gm: GmSyncState) -> bool:
        return any(gm.busy[partition] & ~self._busy[partition] for partition in self._partitions)

    def refusal(self, gm: GmSyncState, refused: Sequence[int], tasks: tuple[TaskId, ...]) -> Message:
        return Refusal(tasks, self.delta(gm))

    def news(self, gm: GmSyncState) -> StateUpdate | None:
        changes = self._changes(gm)
        return self._update(gm, changes) if changes else None

    def delta(self, gm: GmSyncState) -> StateUpdate:
        return self._update(gm, self._changes(gm))

    def whole(self, gm: GmSyncState) -> StateUpdate:
        changes, busy = [], self._busy
        for partition in self._partitions:
            free = self._layout.whole(partition) & ~busy[partition]
            changes.append(Change(partition, vector_bytes(free), vector_bytes(busy[partition])))
            gm.busy[partition] = busy[partition]
        return self._update(gm, tuple(changes))

    def _update(self, gm: GmSyncState, changes: tuple[Change, ...]) -> StateUpdate:
        gm.update += 1
        return StateUpdate(gm.update, changes=changes, is_snapshot=self._snapshots)

    def _changes(self, gm: GmSyncState) -> tuple[Change, ...]:
        busy, seen, repeat, layout = self._busy, gm.busy, gm.repeat, self._layout
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
        assert not any(self._busy), "units are taken"
        assert all(not any(gm.busy) for gm in self._lm.gms.values()), "a GM has not been told"
