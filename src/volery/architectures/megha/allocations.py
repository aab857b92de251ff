"""The truth about one cluster, of its Local Master: what is free, and what of it each Global Master has been sent.

Per GM the difference from the truth is the next delta, so that a unit which was taken and freed between two updates is
never mentioned, and the last state of every unit wins. With completion notice "once" a GM's own completions count as
sent (section 4.4); with "twice" they are repeated in the next update, the cause of inconsistencies that section 4.4
describes. Where tasks ask for amounts, a unit is a machine (`amounts`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import repeat
from typing import Protocol

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import (
    UNIT_MASK,
    UNIT_SHIFT,
    Change,
    Refusal,
    Request,
    StateUpdate,
    place_of,
)
from volery.architectures.megha.partitions import Layout
from volery.core.events import Counted, Fact
from volery.core.model import Address, Task, TaskId
from volery.policies.match import positions, vector_bytes
from volery.roles.recovery.leadership import seated
from volery.roles.recovery.leases import RunningAttempt

Start = tuple[Task, RunningAttempt, Address]
"""A task, its attempt and the node that is to run it."""


class GmSyncState:
    """Synchronisation state of one GM: what it has been sent, and is about to be sent.

    Where units are slots, `busy` and `repeat` say what it knows of them; where they are machines with amounts,
    `lacks` and `changed` do.

    Attributes:
        number, address: Number and address of the GM.
        request: Number of the last request received from it.
        update: Number of the last update sent to it.
        ended: Tasks of the GM that have ended in this instant.
        busy: Slots per partition that it takes for busy once all messages under way have arrived.
        repeat: Slots per partition of its own completions that the next update mentions again (completion notice
            "twice").
        lacks: Machines per partition of this LM of which it may have another state once all messages under way have
            arrived.
        changed: Machines with changes that it has caused itself since the others were last considered.
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


class AttemptTable:
    """Attempts that run on the machines of a cluster: the one record of what is taken there, and by whom.

    Args:
        layout: The cluster, whose units name the nodes of attempts.
        nodes: Machines for which attempts are also listed by node; empty: such lists are made when they are needed.

    Attributes:
        by_task: Attempts by task.
    """

    __slots__ = ("_by_node", "_nodes", "by_task")

    def __init__(self, layout: Layout, nodes: Iterable[Address] = ()) -> None:
        self.by_task: dict[TaskId, RunningAttempt] = {}
        self._nodes = layout.nodes
        self._by_node: dict[Address, dict[TaskId, RunningAttempt]] = {node: {} for node in nodes}

    def __iter__(self) -> Iterator[RunningAttempt]:
        """Iterate over all attempts, node by node where they are listed so."""
        if self._by_node:
            return (attempt for attempts in self._by_node.values() for attempt in attempts.values())
        return iter(self.by_task.values())

    def node_of(self, attempt: RunningAttempt) -> Address:
        """Return the node that runs an attempt."""
        partition, position = place_of(attempt.unit)
        return self._nodes[partition][position]

    def at(self, node: Address) -> Collection[RunningAttempt]:
        """Return the attempts at a node."""
        if self._by_node:
            return self._by_node[node].values()
        return [attempt for attempt in self.by_task.values() if self.node_of(attempt) == node]

    def find(self, reported: RunningAttempt, node: Address) -> RunningAttempt | None:
        """Return an attempt as it stands here, whose job may have another owner; None: this node does not run it."""
        attempt = self.by_task.get(reported.task)
        if attempt is None or attempt.attempt != reported.attempt or self.node_of(attempt) != node:
            return None
        return attempt

    def put(self, attempt: RunningAttempt) -> None:
        """Add an attempt, or replace the one at the same task."""
        self.by_task[attempt.task] = attempt
        if self._by_node:
            self._by_node[self.node_of(attempt)][attempt.task] = attempt

    def list_by_node(self, starts: Sequence[Start]) -> None:
        """List attempts by node that were added by task."""
        if self._by_node:
            for _, attempt, node in starts:
                self._by_node[node][attempt.task] = attempt

    def remove(self, attempt: RunningAttempt) -> None:
        """Remove an attempt that has ended."""
        del self.by_task[attempt.task]
        if self._by_node:
            del self._by_node[self.node_of(attempt)][attempt.task]

    def clear(self) -> None:
        """Remove all attempts from the table."""
        self.by_task.clear()
        for attempts in self._by_node.values():
            attempts.clear()


class ClusterState(Protocol):
    """State of a Local Master that its allocations depend on.

    Attributes:
        gms: Global Masters by address.
        attempts: Attempts that run in the cluster.
        drained: Nodes on which nothing is placed by order.
    """

    gms: dict[Address, GmSyncState]
    attempts: AttemptTable
    drained: dict[Address, None]

    def is_usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""

    def observe(self, fact: Fact) -> None:
        """Report a fact to the driver."""

    def send_before_state(self, gm: GmSyncState) -> None:
        """Send a GM what it must not count twice: ends and holdings that the next state contains."""


class Allocations(Protocol):
    """Units of a cluster: which are taken, and what each GM knows of it."""

    def allot_requested(self, request: Request, gm: GmSyncState) -> tuple[list[Start], list[TaskId]]:
        """Take room for the tasks of a request and add attempts by task; return these, and the tasks without room."""

    def allot(self, attempt: RunningAttempt, *, is_lent: bool) -> None:
        """Take what an attempt asked for; where that makes a logical node, `is_lent` counts it as a repartition."""

    def free(self, attempt: RunningAttempt) -> None:
        """Free what an attempt had, if its node is usable."""

    def credit(self, attempt: RunningAttempt) -> GmSyncState:
        """Take it that the owner receives the end of an attempt in this instant; return the owner's record."""

    def end(self, attempt: RunningAttempt) -> GmSyncState:
        """Free what an attempt had, and credit its owner with it; return the owner's record."""

    def give_back(self, attempt: RunningAttempt) -> None:
        """Free what an attempt had that has never run; its owner lacks that."""

    def clear(self) -> None:
        """Take it that nothing is allocated, and nothing is free."""

    def skip(self, gm: GmSyncState) -> None:
        """Send the GM nothing before it asks for a report; then it is sent everything."""

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        """Return the attempts that the node has a place for."""

    def recount(self, node: Address) -> bool:
        """Count anew what is free on a node of the cluster; find out whether that may be news for GMs."""

    def consider(self) -> None:
        """Take it that every GM lacks what the others have caused."""

    def has_news(self, gm: GmSyncState) -> bool:
        """Find out whether anything is free of which the GM may have another state."""

    def refusal(self, gm: GmSyncState, tasks: tuple[TaskId, ...]) -> Refusal:
        """Make the answer to invalid placements, with the news that the GM lacks."""

    def news(self, gm: GmSyncState) -> StateUpdate | None:
        """Make an update with the news that the GM lacks, if it lacks any; from now on it has them."""

    def delta(self, gm: GmSyncState) -> StateUpdate:
        """Make an update with the news that the GM lacks, even if there are none."""

    def whole(self, gm: GmSyncState) -> StateUpdate:
        """Make an update with the state of the whole cluster."""

    def check(self) -> None:
        """Raise AssertionError where what is free and what is allotted is not the whole."""

    def check_rest(self) -> None:
        """Raise AssertionError where something is allocated, or a GM has not been sent that."""


class SlotAllocations:
    """Slots are bits, per partition.

    Args:
        cluster: State of the Local Master.
        partitions: Partitions of the Local Master.
    """

    def __init__(self, cluster: ClusterState, layout: Layout, partitions: range, config: MeghaConfig) -> None:
        self._cluster = cluster
        self._gms = cluster.gms
        self._layout = layout
        self._bits = layout.bits
        self._partitions = partitions
        self._snapshots = config.updates == "snapshots"
        self._twice = config.completion_notice == "twice"
        self._ends_wait = config.completion_notice == "with-updates"
        self._busy = [0] * len(layout.size)
        self._closed = [0] * len(layout.size)

    @cached_property
    def _masks(self) -> dict[Address, tuple[int, int]]:
        """Partition and slots of each node; nobody asks before a node is drained or something may crash."""
        masks: dict[Address, tuple[int, int]] = {}
        for partition in self._partitions:
            for position, node in enumerate(self._layout.nodes[partition]):
                masks[node] = (partition, masks.get(node, (partition, 0))[1] | 1 << position)
        return masks

    def allot_requested(self, request: Request, gm: GmSyncState) -> tuple[list[Start], list[TaskId]]:
        partition, owner, term = request.partition, gm.address, request.term
        bits, nodes, first_unit = self._layout.bits, self._layout.nodes[partition], partition << UNIT_SHIFT
        busy, requested, by_task = self._busy[partition], 0, self._cluster.attempts.by_task
        starts: list[Start] = []
        refused: list[TaskId] = []

        # One loop without calls: this and `SlotView.place` are the hottest code of the design.
        numbers, accounts = request.attempts or repeat(0), request.users or repeat(0)
        for task, position, number, account in zip(request.tasks, request.positions, numbers, accounts, strict=False):
            bit = bits[position]
            requested |= bit
            if busy & bit:
                refused.append(task.id)
                continue
            busy |= bit
            by_task[task.id] = attempt = RunningAttempt(
                task.id, task.job, number, owner, first_unit | position, task.request, account, term
            )
            starts.append((task, attempt, nodes[position]))

        # The GM has taken off its view what it requests, valid or not: a slot that is free after all is news for it.
        self._busy[partition] = busy
        gm.busy[partition] |= requested
        return starts, refused

    def allot(self, attempt: RunningAttempt, *, is_lent: bool) -> None:
        partition, position = place_of(attempt.unit)
        bit = self._layout.bits[position]
        self._busy[partition] |= bit
        self._cluster.gms[attempt.owner].busy[partition] |= bit

    def free(self, attempt: RunningAttempt) -> None:
        partition, position = place_of(attempt.unit)
        self._busy[partition] &= ~self._layout.bits[position] | self._closed[partition]

    def credit(self, attempt: RunningAttempt) -> GmSyncState:
        partition, position = place_of(attempt.unit)
        gm, bit = self._cluster.gms[attempt.owner], self._layout.bits[position]
        gm.busy[partition] &= ~bit
        if self._twice:
            gm.repeat[partition] |= bit
        return gm

    def end(self, attempt: RunningAttempt) -> GmSyncState:
        # As `free` and `credit`, in one call: once per task.
        unit, gm = attempt.unit, self._gms[attempt.owner]
        partition, bit = unit >> UNIT_SHIFT, self._bits[unit & UNIT_MASK]
        gm.busy[partition] ^= bit
        if not self._closed[partition] & bit:
            self._busy[partition] ^= bit
        if self._twice:
            gm.repeat[partition] |= bit
        return gm

    def give_back(self, attempt: RunningAttempt) -> None:
        self.free(attempt)

    def clear(self) -> None:
        for partition, mask in self._masks.values():
            self._busy[partition] |= mask
            self._closed[partition] |= mask

    def skip(self, gm: GmSyncState) -> None:
        # Nothing differs from what it was sent, so nothing is sent.
        gm.busy[:] = self._busy

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        partition, mask = self._masks[node]
        return seated(running, [partition << UNIT_SHIFT | position for position in positions(mask)])

    def recount(self, node: Address) -> bool:
        if node not in self._masks:
            return False
        partition, mask = self._masks[node]

        # What a node that is not usable has free is taken until it is usable again; what runs there goes on.
        if not self._cluster.is_usable(node):
            self._busy[partition] |= mask
            self._closed[partition] |= mask
            return False
        self._closed[partition] &= ~mask
        for attempt in self._cluster.attempts.at(node):
            mask &= ~self._layout.bits[place_of(attempt.unit)[1]]
        self._busy[partition] &= ~mask
        return True

    # News for Global Masters.

    def consider(self) -> None: ...

    def has_news(self, gm: GmSyncState) -> bool:
        return any(gm.busy[partition] & ~self._busy[partition] for partition in self._partitions)

    def refusal(self, gm: GmSyncState, tasks: tuple[TaskId, ...]) -> Refusal:
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
        if self._ends_wait:
            self._cluster.send_before_state(gm)
        gm.update += 1
        return StateUpdate(gm.update, changes=changes, is_snapshot=self._snapshots)

    def _changes(self, gm: GmSyncState) -> tuple[Change, ...]:
        busy, seen, repeat, layout = self._busy, gm.busy, gm.repeat, self._layout
        changes, entry_count = [], 0
        stale = [p for p in self._partitions if seen[p] != busy[p] or repeat[p]]
        for partition in self._partitions if stale and self._snapshots else stale:
            # The difference between the truth and what the GM has been sent, both ways.
            taken = busy[partition] & ~seen[partition]
            freed = (seen[partition] | repeat[partition]) & ~busy[partition]
            if self._snapshots:
                # The first Megha sends all that is free, and what is not free is taken.
                freed, taken = layout.whole(partition) & ~busy[partition], 0
            if taken or freed or self._snapshots:
                changes.append(Change(partition, vector_bytes(freed), vector_bytes(taken)))
                entry_count += layout.size[partition] if self._snapshots else (freed | taken).bit_count()
            seen[partition], repeat[partition] = busy[partition], 0
        if entry_count:
            self._cluster.observe(Counted("update_entries", entry_count))
        return tuple(changes)

    def check(self) -> None:
        """A slot is busy when an attempt has it or its node is not usable, and only then."""
        expected = [0] * len(self._busy)
        for attempt in self._cluster.attempts:
            partition, position = place_of(attempt.unit)
            bit = self._layout.bits[position]
            assert not expected[partition] & bit, "two tasks share a unit"
            expected[partition] |= bit
        for node, (partition, mask) in self._masks.items():
            if not self._cluster.is_usable(node):
                expected[partition] |= mask
        assert expected == self._busy, "units without a task, or tasks without a unit"

    def check_rest(self) -> None:
        assert not any(self._busy), "units are taken"
        assert all(not any(gm.busy) for gm in self._cluster.gms.values()), "a GM has not been told"
