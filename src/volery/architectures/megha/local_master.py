"""Megha's Local Master: the truth about one cluster, validation, launches and updates."""

from __future__ import annotations

from typing import Final, Literal

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import Ask, Change, Inconsistency, Notice, Request, Update, Withdraw
from volery.core.component import Component, sent_to
from volery.core.events import Counted, Drain, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.policies.match import vector_bytes
from volery.roles.node import Completed, Kill, Launch

Updates = Literal["deltas", "snapshots"]
CompletionNotice = Literal["once", "twice"]

HEARTBEAT: Final = "heartbeat"
NOTICES: Final = "notices"
NEWS: Final = "news"
NEWS_US: Final[Time] = 2_000
"""A GM that has asked is told of room that is this old: whoever had it before, and has tasks, has taken it by then."""


class Told:
    """What one GM has been told, and what it is about to be told; units are bits, per partition.

    Attributes:
        busy: the units that it takes for busy, once all messages under way have arrived.
        repeat: completions of its own that the next update mentions again (completion notice "twice").
        finished: its tasks that have finished in this instant.
        request: the last request heard from it.
        update: the last update sent to it.
    """

    __slots__ = ("address", "busy", "finished", "repeat", "request", "update")

    def __init__(self, address: Address, partition_count: int) -> None:
        self.address = address
        self.busy = [0] * partition_count
        self.repeat = [0] * partition_count
        self.finished: list[TaskId] = []
        self.request = 0
        self.update = 0


class Answering(Component):
    """A base of Local Masters that GMs ask for news.

    Attributes:
        _askers: who has asked and was not answered.
        _counting: whether the timer runs after which they are answered, if there is news.
    """

    __slots__ = ("_askers", "_counting")

    def __init__(self) -> None:
        self._askers: dict[Address, None] = {}
        self._counting = False

    def on_ask(self, message: Ask, source: Address, now: Time) -> None:
        """A GM has tasks that wait: tell it of room that it does not know of, as soon as there is some."""
        self._askers[source] = None
        self._tell_askers_soon(now)

    def _tell_askers_soon(self, now: Time) -> None:
        """Something is free, or may be: look whether it still is when its owner has had time to take it."""
        if self._askers and not self._counting:
            self._counting = True
            self._port.set_timer(NEWS, now + NEWS_US)


class LocalMaster(Answering):
    """Validates placements against the exact state and tells every GM what it cannot know.

    Per GM it keeps what that GM has been told. The difference from the truth is the next delta, so that a unit which
    was taken and freed between two updates is never mentioned, and the last state of every unit wins. With completion
    notice "once" a GM's own completions count as told (section 4.4); with "twice" they are repeated in the next
    update, the cause of inconsistencies that section 4.4 describes.

    Args:
        lm: its number.
        layout: of the cluster.
        heartbeat_us: period of the updates; none is sent that says nothing.
        updates: deltas, or the full state in each update as in the first Megha.
        completion_notice: see above.
    """

    __slots__ = (
        "_armed", "_busy", "_closed", "_completion_twice", "_gms", "_heartbeat_us", "_launches", "_layout", "_owned",
        "_partitions", "_snapshots", "_telling",
    )  # fmt: skip

    def __init__(
        self,
        lm: int,
        layout: Layout,
        *,
        heartbeat_us: Time,
        updates: Updates,
        completion_notice: CompletionNotice,
    ) -> None:
        super().__init__()
        self._layout = layout
        self._partitions = layout.partitions_of_lm(lm)
        self._heartbeat_us = heartbeat_us
        self._snapshots = updates == "snapshots"
        self._completion_twice = completion_notice == "twice"
        self._busy = [0] * len(layout.size)
        self._closed: dict[int, int] = {}
        self._gms = {gm: Told(gm, len(layout.size)) for gm in (f"gm/{n}" for n in range(layout.gm_count))}
        self._owned: dict[TaskId, tuple[int, int, Told]] = {}
        self._telling: list[Told] = []
        self._launches = 0
        self._armed = False

    def on_request(self, message: Request, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks."""
        gm = self._gms[source]
        if message.number <= gm.request:
            return
        gm.request = message.number
        partition = message.partition
        bits, nodes, owned = self._layout.bits, self._layout.nodes[partition], self._owned
        send, number, busy, wanted = self._port.send, self._launches, self._busy[partition], 0
        refused = []
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
        self._launches = number
        if refused:
            self._port.send(source, Inconsistency(tuple(refused), self._update(gm, self._news(gm))))
        if not self._armed:
            self._arm(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free the unit; the GM that owns the task hears of all that finished in this instant at once."""
        owned = self._owned.pop(message.task, None)
        if owned is None:
            return
        partition, bit, gm = owned
        if not (self._closed and self._closed.get(partition, 0) & bit):
            self._busy[partition] ^= bit
        gm.busy[partition] ^= bit
        if self._completion_twice:
            gm.repeat[partition] |= bit
        if not gm.finished:
            self._telling.append(gm)
            self._port.set_timer(NOTICES, now)
            if not self._armed:
                self._arm(now)
            if self._askers:
                self._tell_askers_soon(now)
        gm.finished.append(message.task)

    def _tell_askers(self) -> None:
        self._counting = False
        for address in list(self._askers):
            gm = self._gms[address]
            if any(gm.busy[partition] & ~self._busy[partition] for partition in self._partitions):
                del self._askers[address]
                self._port.send(address, self._update(gm, self._news(gm)))

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what still runs; its unit is freed, and its GM told, when the node reports the end."""
        for task in message.tasks:
            owned = self._owned.get(task)
            if owned is not None:
                partition, bit, _ = owned
                self._port.send(self._layout.nodes[partition][bit.bit_length() - 1], Kill(task))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Units of a drained node count as taken from now on; what runs there goes on."""
        for partition in self._partitions:
            nodes, bits = self._layout.nodes[partition], self._layout.bits
            mask = sum(bit for node, bit in zip(nodes, bits, strict=False) if node == message.node)
            closed = self._closed.pop(partition, 0) & ~mask
            if message.drained:
                closed |= mask
                self._busy[partition] |= mask
            else:
                used = sum(bit for at, bit, _ in self._owned.values() if at == partition)
                self._busy[partition] = self._busy[partition] & ~mask | used & mask
            if closed:
                self._closed[partition] = closed
        if not self._armed:
            self._arm(now)
        self._tell_askers_soon(now)

    def _arm(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period."""
        self._armed = True
        self._port.set_timer(HEARTBEAT, (now // self._heartbeat_us + 1) * self._heartbeat_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """End of an instant with completions: tell their owners. Heartbeat: tell every GM the news that it lacks."""
        if event.key == NOTICES:
            for gm in self._telling:
                self._port.send(gm.address, Notice(tuple(gm.finished)))
                gm.finished.clear()
            self._telling.clear()
            return
        if event.key == NEWS:
            self._tell_askers()
            return
        self._armed = False
        for gm in self._gms.values():
            news = self._news(gm)
            if news:
                self._port.send(gm.address, self._update(gm, news))

    def _news(self, gm: Told) -> tuple[Change, ...]:
        """What the GM lacks; from now on it has been told."""
        busy, told, repeat, layout = self._busy, gm.busy, gm.repeat, self._layout
        changes, entry_count = [], 0
        stale = [p for p in self._partitions if told[p] != busy[p] or repeat[p]]
        for partition in self._partitions if stale and self._snapshots else stale:
            taken = busy[partition] & ~told[partition]
            freed = (told[partition] | repeat[partition]) & ~busy[partition]
            if self._snapshots:
                freed, taken = layout.whole(partition) & ~busy[partition], 0
            if taken or freed or self._snapshots:
                changes.append(Change(partition, vector_bytes(freed), vector_bytes(taken)))
                entry_count += layout.size[partition] if self._snapshots else (freed | taken).bit_count()
            told[partition], repeat[partition] = busy[partition], 0
        if entry_count:
            self._port.observe(Counted("update_entries", entry_count))
        return tuple(changes)

    def _update(self, gm: Told, news: tuple[Change, ...]) -> Update:
        gm.update += 1
        return Update(gm.update, self._snapshots, news)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Request: on_request,
        Withdraw: on_withdraw,
        Ask: Answering.on_ask,
        Completed: on_completed,
        Drain: on_drain,
        TimerFired: on_timer,
    }

    def check(self) -> None:
        """A unit is busy exactly when a task owns it or its node is drained."""
        busy = [0] * len(self._busy)
        for partition, bit, _ in self._owned.values():
            busy[partition] ^= bit
        for partition, mask in self._closed.items():
            busy[partition] |= mask
        assert busy == self._busy, "units without a task, or tasks that share a unit"

    sends = sent_to("node", Launch, Kill) | sent_to("gm", Inconsistency, Notice, Update)
