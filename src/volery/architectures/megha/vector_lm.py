"""Megha's Local Master where tasks ask for several resources: the truth about amounts, validation, repartition, state.

A repartition moves no machine: it splits a logical node with just what the task asks for off a machine, into a
partition of the GM that asks (arXiv 2103.08413, section IV-B4). The logical node is full from the start, so its record
is all that there is of it, until its task ends and what it had goes back.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple

from volery.architectures.megha.local_master import HEARTBEAT, NEWS, NOTICES, Answering, CompletionNotice, Updates
from volery.architectures.megha.messages import Ask, Request, Withdraw
from volery.architectures.megha.vector_layout import VectorLayout
from volery.architectures.megha.vector_messages import Ended, Refusal, Repartition, State, StateUpdate
from volery.core.component import sent_to
from volery.core.events import Counted, Drain, TimerFired
from volery.core.model import Address, Task, TaskId, Time
from volery.policies.match import positions, vector_bytes
from volery.roles.node import Completed, Kill, Launch


class Told:
    """What one GM does not know yet.

    Attributes:
        lacks: per partition of this LM, the machines of which it may believe something else, once all messages that
            are under way have arrived.
        changed: the same, of what it has itself caused since the others were last considered.
        ended: its tasks that have ended in this instant.
        request: the last request heard from it.
        update: the last update sent to it.
    """

    __slots__ = ("address", "changed", "ended", "lacks", "number", "request", "update")

    def __init__(self, number: int, partition_count: int) -> None:
        self.number = number
        self.address = f"gm/{number}"
        self.lacks = [0] * partition_count
        self.changed = [0] * partition_count
        self.ended: list[TaskId] = []
        self.request = 0
        self.update = 0


class Active(NamedTuple):
    """An active task.

    Args:
        partition, position: of the machine that it runs on.
        took: what it asked for, packed.
        owner: what its GM has been told.
        guest: the partition that its logical node was split off for; -1: it runs on the machine itself.
    """

    partition: int
    position: int
    took: int
    owner: Told
    guest: int


class VectorLocalMaster(Answering):
    """Validates placements against the exact amounts, and tells every GM what it cannot know.

    Args:
        lm: its number.
        layout: of the cluster.
        heartbeat_us: period of the updates; none is sent that says nothing.
        updates: deltas, or the state of the whole cluster in each update, as in the first Megha.
        completion_notice: "twice": what a GM's own tasks have freed is told again in its next update.
    """

    __slots__ = (
        "_active",
        "_armed",
        "_completion_twice",
        "_first",
        "_free",
        "_gms",
        "_guards",
        "_heartbeat_us",
        "_held",
        "_launches",
        "_layout",
        "_packing",
        "_partitions",
        "_snapshots",
        "_telling",
        "_told_whole",
    )  # fmt: skip

    def __init__(
        self,
        lm: int,
        layout: VectorLayout,
        *,
        heartbeat_us: Time,
        updates: Updates,
        completion_notice: CompletionNotice,
    ) -> None:
        self._completion_twice = completion_notice == "twice"
        super().__init__()
        self._layout = layout
        self._partitions = layout.partitions_of_lm(lm)
        self._first = self._partitions.start
        self._heartbeat_us = heartbeat_us
        self._snapshots = updates == "snapshots"
        self._packing = layout.ladders.packing
        self._guards = self._packing.guards
        self._free = [list(layout.whole_index[partition].free) for partition in self._partitions]
        self._gms = {told.address: told for told in (Told(gm, layout.gm_count) for gm in range(layout.gm_count))}
        self._active: dict[TaskId, Active] = {}
        self._told_whole: dict[int, bytes] = {}
        self._held: dict[tuple[int, int], int] = {}
        self._telling: list[Told] = []
        self._launches = 0
        self._armed = False

    def on_request(self, message: Request, source: Address, now: Time) -> None:
        """Validate each placement on a machine as it is, and launch it; refuse the others with the state."""
        self._validate(message, self._gms[source], -1, now)

    def on_repartition(self, message: Repartition, source: Address, now: Time) -> None:
        """Split a logical node off for each task for which the machine has enough, and launch it there."""
        owner = self._gms[source]
        self._validate(message, owner, self._first + owner.number, now)

    def _validate(self, message: Request | Repartition, owner: Told, guest: int, now: Time) -> None:
        if message.number <= owner.request:
            return
        owner.request = message.number
        partition = message.partition
        here = partition - self._first
        free, nodes, packing, guards = self._free[here], self._layout.nodes[partition], self._packing, self._guards
        launch, number, refused, changed, held = self._launch, self._launches, [], 0, self._held
        for task, position in zip(message.tasks, message.positions, strict=True):
            took = packing[task.request]
            left = free[position] - took
            if left & guards != guards or (held and (here, position) in held):
                refused.append(task.id)
                owner.lacks[here] |= 1 << position
                continue
            free[position] = packing.settled(left)
            changed |= 1 << position
            self._active[task.id] = Active(partition, position, took, owner, guest)
            number += 1
            launch(nodes[position], number, task)
        if changed:
            self._has_changed(here, changed, owner)
        if guest >= 0 and number > self._launches:
            self._port.observe(Counted("repartitions", number - self._launches))
        self._launches = number
        if refused:
            self._tell_ended(owner)
            self._consider()
            self._port.send(owner.address, Refusal(tuple(refused), self._update(owner)))
        if not self._armed:
            self._arm(now)

    def _give(self, here: int, position: int, packed: int) -> None:
        """So much more is free on a machine, or less where it is negative."""
        self._free[here][position] = self._packing.settled(self._free[here][position] + packed)

    def _launch(self, node: Address, number: int, task: Task) -> None:
        self._port.send(node, Launch(number, task))

    def _has_changed(self, here: int, machines: int, owner: Told) -> None:
        owner.changed[here] |= machines
        self._told_whole.pop(here, None)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Give back what the task took; its GM hears of all that ended in this instant at once."""
        active = self._active.pop(message.task, None)
        if active is None:
            return
        owner, here = active.owner, active.partition - self._first
        self._give(here, active.position, active.took)
        if self._held:
            self._hold(here, active.position)
        self._has_changed(here, 1 << active.position, owner)
        if self._completion_twice:
            owner.lacks[here] |= 1 << active.position
        self._note_ended(owner, message.task, now)

    def _note_ended(self, owner: Told, task: TaskId, now: Time) -> None:
        if not owner.ended:
            self._telling.append(owner)
            self._port.set_timer(NOTICES, now)
            if not self._armed:
                self._arm(now)
        owner.ended.append(task)
        self._tell_askers_soon(now)

    def _tell_askers(self) -> None:
        self._counting = False
        self._consider()
        for address in list(self._askers):
            told = self._gms[address]
            if self._has_room_for_news(told):
                del self._askers[address]
                self._port.send(address, self._update(told))

    def _has_room_for_news(self, told: Told) -> bool:
        """Whether anything is free on a machine of which the GM may believe something else."""
        return any(
            free[position] != self._guards
            for free, lacks in zip(self._free, told.lacks, strict=True)
            for position in positions(lacks)
        )

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what still runs; what it took is freed, and its GM told, when the node reports the end."""
        for task in message.tasks:
            active = self._active.get(task)
            if active is not None:
                self._port.send(self._layout.nodes[active.partition][active.position], Kill(task, self._attempt(task)))

    def _attempt(self, task: TaskId) -> int:
        return 0

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Keep back what is free on a drained machine, and what comes free there; what runs there goes on."""
        for here, partition in enumerate(self._partitions):
            if message.node not in self._layout.nodes[partition]:
                continue
            position = self._layout.nodes[partition].index(message.node)
            if message.drained:
                self._held.setdefault((here, position), 0)
                self._hold(here, position)
            else:
                self._give(here, position, self._held.pop((here, position), 0))
                self._nobody_knows(here, position)
        if not self._armed:
            self._arm(now)
        self._tell_askers_soon(now)

    def _hold(self, here: int, position: int) -> None:
        """Keep back what is free on a machine, if it is drained."""
        if (here, position) in self._held:
            self._held[here, position] += self._free[here][position] - self._guards
            self._free[here][position] = self._guards
            self._nobody_knows(here, position)

    def _nobody_knows(self, here: int, position: int) -> None:
        self._told_whole.pop(here, None)
        for told in self._gms.values():
            told.lacks[here] |= 1 << position

    def _arm(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period."""
        self._armed = True
        self._port.set_timer(HEARTBEAT, (now // self._heartbeat_us + 1) * self._heartbeat_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """End of an instant with completions: tell their owners. Heartbeat: tell every GM what it lacks."""
        if event.key == NOTICES:
            for owner in self._telling:
                if owner.ended:
                    self._tell_ended(owner)
            self._telling.clear()
            return
        if event.key == NEWS:
            self._tell_askers()
            return
        self._armed = False
        self._consider()
        for told in self._gms.values():
            if any(told.lacks):
                self._port.send(told.address, self._update(told))

    def _tell_ended(self, owner: Told) -> None:
        """A state contains all that has ended: its owner must not count that twice, so it is told first."""
        if owner.ended:
            self._port.send(owner.address, Ended(tuple(owner.ended), owner.request))
            owner.ended = []

    def _consider(self) -> None:
        """Every GM lacks what the others have caused."""
        gms = list(self._gms.values())
        for here in range(len(self._free)):
            causes = [told for told in gms if told.changed[here]]
            if not causes:
                continue
            for told in gms:
                for cause in causes:
                    if cause is not told:
                        told.lacks[here] |= cause.changed[here]
            for cause in causes:
                cause.changed[here] = 0

    def _update(self, told: Told) -> StateUpdate:
        """What the GM lacks, or everything; from now on it has been told."""
        states, entries = [], 0
        for here, lacks in enumerate(told.lacks):
            if self._snapshots:
                entries += len(self._free[here])
                states.append(State(self._first + here, b"", self._whole(here)))
            elif lacks:
                entries += lacks.bit_count()
                free = self._free[here]
                states.append(
                    State(self._first + here, vector_bytes(lacks), self._bytes([free[k] for k in positions(lacks)]))
                )
            told.lacks[here] = 0
        self._port.observe(Counted("update_entries", entries))
        told.update += 1
        return StateUpdate(told.update, told.request, tuple(states), entries)

    def _whole(self, here: int) -> bytes:
        if here not in self._told_whole:
            self._told_whole[here] = self._bytes(self._free[here])
        return self._told_whole[here]

    def _bytes(self, free: list[int]) -> bytes:
        width = self._layout.state_bytes
        return b"".join([amounts.to_bytes(width, "little") for amounts in free])

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Request: on_request,
        Repartition: on_repartition,
        Withdraw: on_withdraw,
        Ask: Answering.on_ask,
        Completed: on_completed,
        Drain: on_drain,
        TimerFired: on_timer,
    }

    def check(self) -> None:
        """What is free and what active tasks took is what machines have; a logical node is in its GM's partition."""
        whole = [list(self._layout.whole_index[partition].free) for partition in self._partitions]
        for active in self._active.values():
            whole[active.partition - self._first][active.position] -= active.took
            assert active.guest in (-1, self._first + active.owner.number), "a logical node of a stranger"
            assert active.guest != active.partition, "a logical node in the partition that it was taken from"
        for here, position, packed in self._set_aside():
            whole[here][position] -= packed
        whole = [[self._packing.settled(free) for free in machines] for machines in whole]
        assert whole == self._free, "amounts without a task, or tasks that share an amount"

    def _set_aside(self) -> Iterable[tuple[int, int, int]]:
        """What is neither free nor taken by an active task: place among this LM's partitions, position, packed."""
        for (here, position), packed in self._held.items():
            yield here, position, packed

    sends = sent_to("node", Launch, Kill) | sent_to("gm", Ended, Refusal, StateUpdate)
