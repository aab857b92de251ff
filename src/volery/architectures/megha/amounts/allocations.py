"""Allocations of amounts of several resources, by machine; see `Allocations`.

A repartition moves no machine: it splits a logical node with just what the task asks for off it, whose record is all
that there is of it (arXiv 2103.08413, section IV-B4).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import repeat
from typing import Protocol

from msgspec.structs import replace

from volery.architectures.megha.allocations import ClusterState, GmSyncState, Start
from volery.architectures.megha.amounts.view import Capacities
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import (
    UNIT_MASK,
    UNIT_SHIFT,
    PartitionState,
    Refusal,
    Request,
    StateUpdate,
    place_of,
)
from volery.core.events import Counted
from volery.core.model import Address, TaskId
from volery.policies.match import positions, vector_bytes
from volery.roles.recovery.leases import RunningAttempt


class SetAsideAmounts(Protocol):
    """Amounts that are set aside on machines for tasks that will run there."""

    def reserved(self, row: int, position: int) -> int:
        """Return the amount that is set aside on a machine, packed."""


class AmountAllocations:
    """Amounts of several resources, packed, per machine. A machine that is not usable has nothing free.

    Args:
        cluster: State of the Local Master.
        partitions: Partitions of the Local Master.

    Attributes:
        reservations: What is set aside for tasks that preempt others; None: nothing ever is.
    """

    def __init__(self, cluster: ClusterState, capacities: Capacities, partitions: range, config: MeghaConfig) -> None:
        self._cluster = cluster
        self._layout = capacities.layout
        self.reservations: SetAsideAmounts | None = None

        # Another Local Master may take over: then all GMs lack a change from the moment that it is made, because the
        # successor cannot know who has caused it.
        self._can_crash = config.reliable
        self._state_bytes = capacities.state_bytes
        self._partitions = partitions
        self._first = partitions.start
        self._snapshots = config.updates == "snapshots"
        self._twice = config.completion_notice == "twice"
        self._repartition = config.repartition
        self.packing = capacities.ladders.packing
        self._guards = self.packing.guards
        self._whole_free = [capacities.whole[partition].free for partition in partitions]
        self.free_amounts = [list(free) for free in self._whole_free]
        self._closed = [0] * len(partitions)
        self._states: dict[int, bytes] = {}
        self._seats: dict[Address, tuple[int, int]] = {}
        for row, partition in enumerate(partitions):
            for position, node in enumerate(self._layout.nodes[partition]):
                self._seats[node] = (row, position)

    def allot_requested(self, request: Request, gm: GmSyncState) -> tuple[list[Start], list[TaskId]]:
        partition, owner, term, guards = request.partition, gm.address, request.term, self._guards
        row, packing, drained = partition - self._first, self.packing, self._cluster.drained
        free, nodes, first_unit = self.free_amounts[row], self._layout.nodes[partition], partition << UNIT_SHIFT
        closed, by_task = self._closed[row], self._cluster.attempts.by_task
        changed = lacks = 0
        starts: list[Start] = []
        refused: list[TaskId] = []

        numbers, accounts = request.attempts or repeat(0), request.users or repeat(0)
        for task, position, number, account in zip(request.tasks, request.positions, numbers, accounts, strict=False):
            remainder = free[position] - packing[task.request]
            node = nodes[position]

            # A machine that is not usable has nothing free; but what asks for nothing fits there, and may wait on one
            # that is away. On one that is drained it would run for ever after.
            if remainder & guards != guards or (drained and node in drained):
                refused.append(task.id)
                lacks |= 1 << position
                continue
            if not closed >> position & 1:
                free[position] = packing.settled(remainder)
            changed |= 1 << position
            by_task[task.id] = attempt = RunningAttempt(
                task.id, task.job, number, owner, first_unit | position, task.request, account, term
            )
            starts.append((task, attempt, node))

        gm.lacks[row] |= lacks
        self._note_changes(row, changed, gm)
        if starts and self._is_guest(partition, gm):
            self._cluster.observe(Counted("repartitions", len(starts)))
        return starts, refused

    def _is_guest(self, partition: int, owner: GmSyncState) -> bool:
        """Find out whether what a GM places in a partition runs on a logical node that is split off for it."""
        return self._repartition and partition != self._first + owner.number

    def allot(self, attempt: RunningAttempt, *, is_lent: bool) -> None:
        partition, position = place_of(attempt.unit)
        owner = self._cluster.gms[attempt.owner]
        if is_lent and self._is_guest(partition, owner):
            self._cluster.observe(Counted("repartitions"))
        row = partition - self._first
        if not self._closed[row] >> position & 1:
            free = self.free_amounts[row]
            free[position] = self.packing.settled(free[position] - self.packing[attempt.request])
        self._note_changes(row, 1 << position, owner)

    def free(self, attempt: RunningAttempt) -> None:
        """Free what the attempt had; an owner that is sent the end of it lacks no news."""
        unit, owner = attempt.unit, self._cluster.gms[attempt.owner]
        row, position = (unit >> UNIT_SHIFT) - self._first, unit & UNIT_MASK
        bit = 1 << position
        is_closed = self._closed[row] & bit
        if not is_closed:
            free = self.free_amounts[row]
            free[position] = self.packing.settled(free[position] + self.packing[attempt.request])

        # A leader that takes over does not know which ends its predecessor has sent: then the owner lacks it, too.
        if self._twice or self._can_crash or is_closed:
            owner.lacks[row] |= bit
        self._note_changes(row, bit, owner)

    def credit(self, attempt: RunningAttempt) -> GmSyncState:
        return self._cluster.gms[attempt.owner]

    def end(self, attempt: RunningAttempt) -> GmSyncState:
        self.free(attempt)
        return self._cluster.gms[attempt.owner]

    def give_back(self, attempt: RunningAttempt) -> None:
        self.free(attempt)
        partition, position = place_of(attempt.unit)
        self._cluster.gms[attempt.owner].lacks[partition - self._first] |= 1 << position

    def _note_changes(self, row: int, machines: int, cause: GmSyncState) -> None:
        """Note machines with a change that all GMs lack but the one that has caused it."""
        self._states.pop(row, None)
        if not self._can_crash:
            cause.changed[row] |= machines
            return
        for gm in self._cluster.gms.values():
            if gm is not cause:
                gm.lacks[row] |= machines

    def clear(self) -> None:
        self._states.clear()
        for row, free in enumerate(self.free_amounts):
            self.free_amounts[row] = [self._guards] * len(free)
            self._closed[row] = (1 << len(free)) - 1

    def skip(self, gm: GmSyncState) -> None:
        gm.lacks = [0] * len(gm.lacks)

    def seats(self, node: Address, running: Sequence[RunningAttempt]) -> list[RunningAttempt]:
        row, position = self._seats[node]
        unit, remainder = self._partitions[row] << UNIT_SHIFT | position, self._whole_free[row][position]
        seated_attempts = []
        for active in running:
            next_remainder = remainder - self.packing[active.request]
            if next_remainder & self._guards == self._guards:
                remainder = self.packing.settled(next_remainder)
                seated_attempts.append(active if active.unit == unit else replace(active, unit=unit))
        return seated_attempts

    def recount(self, node: Address) -> bool:
        """Count anew what a machine has free; all GMs lack it."""
        if node not in self._seats:
            return False
        row, position = self._seats[node]
        free = self._guards
        self._closed[row] |= 1 << position
        if self._cluster.is_usable(node):
            self._closed[row] ^= 1 << position
            free = self._whole_free[row][position]
            for attempt in self._cluster.attempts.at(node):
                free -= self.packing[attempt.request]
            free -= self._reserved(row, position)
        self.free_amounts[row][position] = self.packing.settled(free)

        self._states.pop(row, None)
        for gm in self._cluster.gms.values():
            gm.lacks[row] |= 1 << position
        return True

    def _reserved(self, row: int, position: int) -> int:
        return 0 if self.reservations is None else self.reservations.reserved(row, position)

    def set_aside(self, row: int, position: int, packed: int, owner: GmSyncState) -> None:
        """Something is set aside for a task of this owner, who lacks it, too; the others when they are considered."""
        self.free_amounts[row][position] = self.packing.settled(self.free_amounts[row][position] - packed)
        self.has_changed(row, position, owner)

    def has_changed(self, row: int, position: int, owner: GmSyncState) -> None:
        """A GM has caused a change on a machine; the others lack that once they are considered."""
        owner.changed[row] |= 1 << position
        owner.lacks[row] |= 1 << position
        self._states.pop(row, None)

    def room_for(self, need: int, returned: int, row: int, position: int) -> bool:
        """Find out whether a machine has so much when so much is given back, both packed."""
        remainder = self.packing.settled(self.free_amounts[row][position] + returned) - need
        return remainder & self._guards == self._guards

    # News for Global Masters.

    def consider(self) -> None:
        # Put off until a message is made: once per message, not once per task and GM.
        gms = list(self._cluster.gms.values())
        for row in range(len(self.free_amounts)):
            causes = [gm for gm in gms if gm.changed[row]]
            if not causes:
                continue
            for gm in gms:
                for cause in causes:
                    if cause is not gm:
                        gm.lacks[row] |= cause.changed[row]
            for cause in causes:
                cause.changed[row] = 0

    def has_news(self, gm: GmSyncState) -> bool:
        return any(
            free[position] != self._guards
            for free, lacks in zip(self.free_amounts, gm.lacks, strict=False)
            for position in positions(lacks)
        )

    def refusal(self, gm: GmSyncState, tasks: tuple[TaskId, ...]) -> Refusal:
        if not self._can_crash:
            self.consider()
        return Refusal(tasks, self.delta(gm))

    def news(self, gm: GmSyncState) -> StateUpdate | None:
        return self.delta(gm) if any(gm.lacks) else None

    def whole(self, gm: GmSyncState) -> StateUpdate:
        for row, partition in enumerate(self._partitions):
            gm.lacks[row] = self._layout.whole(partition)
        return self.delta(gm)

    def delta(self, gm: GmSyncState) -> StateUpdate:
        """Update with the news that the GM lacks; it contains the ends and holdings that are sent before it."""
        # What has ended or begun is in the state; after it, the GM would count it twice.
        self._cluster.send_before_state(gm)
        states, entries = [], 0
        for row, partition in enumerate(self._partitions):
            lacks, free = gm.lacks[row], self.free_amounts[row]
            if self._snapshots:
                entries += len(free)
                states.append(PartitionState(partition, b"", self._whole(row)))
            elif lacks:
                entries += lacks.bit_count()
                states.append(
                    PartitionState(partition, vector_bytes(lacks), self._bytes([free[k] for k in positions(lacks)]))
                )
            gm.lacks[row] = 0
        self._cluster.observe(Counted("update_entries", entries))
        gm.update += 1
        return StateUpdate(gm.update, gm.request, tuple(states), entries)

    def _whole(self, row: int) -> bytes:
        if row not in self._states:
            self._states[row] = self._bytes(self.free_amounts[row])
        return self._states[row]

    def _bytes(self, free: list[int]) -> bytes:
        width = self._state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    def check(self) -> None:
        """Machines have what is free, what attempts took, and what is set aside."""
        expected = [list(free) for free in self._whole_free]
        for attempt in self._cluster.attempts:
            partition, position = place_of(attempt.unit)
            expected[partition - self._first][position] -= self.packing[attempt.request]
        for row, position, packed in self._kept_back():
            expected[row][position] -= packed
        expected = [[self.packing.settled(free) for free in machines] for machines in expected]
        assert expected == self.free_amounts, "amounts without a task, or tasks that share an amount"

    def _kept_back(self) -> Iterable[tuple[int, int, int]]:
        """Amounts that are neither free nor taken by an attempt."""
        for node, (row, position) in self._seats.items():
            if not self._cluster.is_usable(node):
                taken_amount = sum(self.packing[attempt.request] for attempt in self._cluster.attempts.at(node))
                yield row, position, self._whole_free[row][position] - self._guards - taken_amount
            elif reserved := self._reserved(row, position):
                yield row, position, reserved

    def check_rest(self) -> None:
        assert self.free_amounts == [list(free) for free in self._whole_free], "amounts are taken"
        for gm in self._cluster.gms.values():
            assert not [*filter(None, gm.lacks), *gm.ended], f"{gm.address} has not been told"
