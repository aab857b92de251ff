"""Megha's Local Master: the truth about one cluster, validation, launches and updates.

What is allocated, units or amounts, is the business of its `Allocations`; which users may have what, of its `Shares`;
who leads the cluster, and what a leader rebuilds, of its `Recovery`.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import repeat
from typing import Final, Literal

from volery.architectures.megha.allocations import Allocations, GmSyncState, SlotAllocations
from volery.architectures.megha.amounts import AmountAllocations
from volery.architectures.megha.messages import (
    UNIT_SHIFT,
    Preempt,
    PreemptionVote,
    Request,
    ResyncRequest,
    TasksEnded,
    UpdateRequest,
    Withdraw,
)
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.parts import of_part
from volery.architectures.megha.recovery import HEARTBEAT, Alone, Paired, Recovery
from volery.architectures.megha.shares import NoShares, Shares, WeightedShares
from volery.core.component import Component, Sends, UnknownMessageError, unknown
from volery.core.events import Drain, Fact, Moved, TimerFired
from volery.core.model import Address, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Completed, Kill, Launch
from volery.roles.recovery.election import LEADERSHIP, MOVES_AND_DRAINS, Leadership
from volery.roles.recovery.leases import Forget, Result, RunningAttempt, StaleEpoch

Updates = Literal["deltas", "snapshots"]
CompletionNotice = Literal["once", "twice"]

NOTICES: Final = "notices"
NEWS: Final = "news"
NEWS_US: Final[Time] = 2_000
"""A GM that has asked is sent news of room this old: its last GM has taken it again by then, if it has tasks."""
ALWAYS: Final = frozenset({Request, Withdraw, UpdateRequest, Drain, TimerFired})


class LocalMaster(Component):
    """Validates placements against the exact state, and sends every GM the news that it cannot know.

    Args:
        partitions: that it is in charge of.
        heartbeat_us: period of the updates; none is sent without news.
        allocations, shares, recovery: its parts.

    Attributes:
        gms: what each GM has been sent.
        there: per node, the attempts that run there; nothing is kept where nothing may crash and nobody has a share.
    """

    leadership: Leadership
    """Of one of a pair alone."""

    def __init__(
        self,
        layout: Layout,
        partitions: range,
        *,
        heartbeat_us: Time,
        allocations: Allocations,
        shares: Shares,
        recovery: Recovery,
    ) -> None:
        self.layout = layout
        self.partitions = partitions
        self.allocations = allocations
        self.shares = shares
        self.recovery = recovery
        self.gms = {gm.address: gm for gm in self._strangers()}
        recorded = recovery.paired or not isinstance(shares, NoShares)
        self._plain = None if recorded else allocations
        nodes = () if self._plain else dict.fromkeys(node for at in partitions for node in layout.nodes[at])
        self.there: dict[Address, dict[TaskId, RunningAttempt]] = {node: {} for node in nodes}
        self._heartbeat_us = heartbeat_us
        self._askers: dict[Address, None] = {}
        self._counting = False
        self._telling: list[GmSyncState] = []
        self._launches = 0
        self._armed = False
        allocations.join(self)
        shares.join(self)
        recovery.join(self)

    def _strangers(self) -> list[GmSyncState]:
        return [GmSyncState(gm, len(self.layout.size)) for gm in range(self.layout.gm_count)]

    def bind(self, port: Port) -> None:
        """Give the leadership the port, too."""
        super().bind(port)
        self.recovery.bind(port)

    def start(self, now: Time) -> None:
        """A restarted one of a pair asks who leads."""
        self.recovery.start(now)

    def takes(self) -> Collection[type]:
        """Return the types of events that its parts know of."""
        return ALWAYS | self.shares.takes | self.recovery.takes

    def emits(self) -> Sends:
        """Return the messages that its parts send."""
        return self.allocations.sends | self.shares.sends | self.recovery.sends

    def send(self, to: Address, message: Message) -> None:
        """Send a message of a part's."""
        self._port.send(to, message)

    def observe(self, fact: Fact) -> None:
        """Report a fact of a part's."""
        self._port.observe(fact)

    # Placements.

    def on_request(self, message: Request, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks."""
        gm = self.gms[source]
        self.recovery.note_requested(message.tasks, source, message.term)
        if message.number <= gm.request or not self.recovery.heeds(source, message.epoch, message.term):
            return
        gm.request = message.number
        if self._plain is not None:
            refused = self._plain.launch_all(message, gm, self._launches, self._port.send)
            self._launches += len(message.tasks) - len(refused)
            if refused:
                self._port.send(source, self._plain.refusal(gm, (), tuple(refused)))
        else:
            self._launch_each(message, gm, source)
        if not self._armed:
            self._arm(now)

    def _launch_each(self, message: Request, gm: GmSyncState, source: Address) -> None:
        self.allocations.expect(gm, message)
        partition, nodes = message.partition, self.layout.nodes[message.partition]
        refused: list[RunningAttempt] = []
        wanted = zip(message.tasks, message.positions, message.attempts or repeat(0), strict=False)
        for (task, position, attempt), account in zip(wanted, message.users or repeat(0), strict=False):
            unit, node = partition << UNIT_SHIFT | position, nodes[position]
            term = message.term
            active = RunningAttempt(task.id, task.job, attempt, source, unit, task.request, account, term)
            if node not in self.recovery.drained and self.allocations.fits(active, node):
                self.begin(task, active, node)
            else:
                refused.append(active)
        if refused:
            units, tasks = [active.unit for active in refused], tuple([active.task for active in refused])
            self._port.send(gm.address, self.allocations.refusal(gm, units, tasks))

    def begin(self, task: Task, active: RunningAttempt, node: Address, *, lends: bool = True) -> None:
        """Launch an attempt that fits; `lends` counts a logical node as a repartition."""
        self.take_on(active, node, lends=lends)
        self.recovery.run(task, active, node)

    def launch(self, task: Task, active: RunningAttempt, node: Address) -> None:
        """Have a node that has this master alone launch an attempt."""
        self._launches += 1
        self._port.send(node, Launch(self._launches, task, active.attempt))

    def take_on(self, active: RunningAttempt, node: Address, *, lends: bool = True) -> None:
        """Take account of an attempt."""
        self.there[node][active.task] = active
        self.allocations.allot(active, node, lends=lends)
        self.shares.started(active)

    def let_go(self, active: RunningAttempt, node: Address) -> None:
        """The attempt has ended."""
        del self.there[node][active.task]
        if self.shares.is_victim(active.task):
            self.shares.victim_ended(active, node)
        else:
            self.shares.gone(active)
            self.allocations.give_back(active, node)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what still runs; when the node reports the end, what it took is freed, and its GM is sent the end."""
        if self._plain is not None:
            for task in message.tasks:
                node = self._plain.node_of(task)
                if node:
                    self._port.send(node, Kill(task))
            return
        self.shares.withdraw(message.tasks, now)
        self.recovery.withdraw(message.tasks, source, now)

    # Ends.

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the task had; its GM is sent all ends of this instant in one message."""
        if self._plain is not None:
            owner = self._plain.end(message.task)
            if owner is not None:
                self._note_first(owner, now)
            return
        if self.recovery.paired:
            raise UnknownMessageError(unknown(self, message, source, now))  # a guarded node sends results
        known = self.there[source].get(message.task)
        if known is None or known.attempt != message.attempt:
            return
        evicted = message.killed and self.shares.evicted(known, now)
        self.let_go(known, source)
        if not evicted:
            self.note_ended(self.allocations.ended(known), message.task, now)
        self.shares.go_on(source, now)

    def note_ended(self, owner: GmSyncState, task: TaskId, now: Time) -> None:
        """Send a GM, in this instant, the end of a task of its own."""
        if not owner.ended:
            self._note_first(owner, now)
        owner.ended.append(task)

    def _note_first(self, owner: GmSyncState, now: Time) -> None:
        self._telling.append(owner)
        self._port.set_timer(NOTICES, now)
        if not self._armed:
            self._arm(now)
        if self._askers:
            self.tell_askers_soon(now)

    def tell_ended(self, owner: GmSyncState) -> None:
        """Send a GM the ends of its tasks, always before a state, which contains them: it must not count them twice."""
        if owner.ended:
            self._port.send(owner.address, TasksEnded(tuple(owner.ended), owner.request))
            owner.ended = []

    # News.

    def on_update_request(self, message: UpdateRequest, source: Address, now: Time) -> None:
        """Send a GM that has waiting tasks news of room that it lacks, as soon as there is some."""
        if self.recovery.answers(source):
            self._askers[source] = None
            self.tell_askers_soon(now)

    def tell_askers_soon(self, now: Time) -> None:
        """Something is free, or may be: look whether it still is when its owner has had time to take it."""
        if self._askers and not self._counting:
            self._counting = True
            self._port.set_timer(NEWS, now + NEWS_US)

    def _tell_askers(self) -> None:
        self._counting = False
        self.allocations.consider()
        for address in list(self._askers):
            gm = self.gms[address]
            if self.allocations.has_news(gm):
                del self._askers[address]
                self._port.send(address, self.allocations.delta(gm))

    def _arm(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period."""
        self._armed = True
        self._port.set_timer(HEARTBEAT, (now // self._heartbeat_us + 1) * self._heartbeat_us)

    def maybe_arm(self, now: Time) -> None:
        """Set the heartbeat where it is not set."""
        if not self._armed:
            self._arm(now)

    def arm_soon(self) -> None:
        """Send news at once: a heartbeat, and answers to the GMs that have asked."""
        self.tell_askers_soon(-NEWS_US)
        if not self._armed and self.recovery.opened:
            self._armed = True
            self._port.set_timer(HEARTBEAT, 0)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send owners the ends of an instant; with a heartbeat, send every GM the news that it lacks."""
        if self.recovery.takes_timer(event, now):
            return
        if event.key == NOTICES:
            for owner in self._telling:
                self.tell_ended(owner)
            self._telling.clear()
        elif event.key == NEWS:
            self._tell_askers()
        else:
            self._armed = False
            self.allocations.consider()
            for gm in self.gms.values():
                news = self.allocations.news(gm)
                if news is not None:
                    self._port.send(gm.address, news)
            self.shares.tell_heard()

    def sleep(self, event: TimerFired) -> None:
        """Take a timer while another master leads, or nodes have not reported: the first report contains everything."""
        if event.key == NEWS:
            self._counting = False
        elif event.key == NOTICES:
            for owner in self._telling:
                owner.ended = []
            self._telling.clear()
        else:
            self._armed = False

    # Where components may crash.

    def forget_all(self) -> None:
        """Forget all allocations, all that is free and all that GMs have been sent."""
        for known in self.there.values():
            known.clear()
        self._askers.clear()
        self._telling.clear()
        self.gms = {gm.address: gm for gm in self._strangers()}
        self.allocations.clear()
        self.shares.clear()

    def forget_asker(self, gm: Address) -> None:
        """Drop the question of a GM that has asked for news of room."""
        self._askers.pop(gm, None)

    def close(self, node: Address, *, closed: bool) -> None:
        """Take a node that is drained for full, or not any more."""
        if self._plain is not None:
            self._plain.close(node, closed=closed)
        elif node in self.there:
            self.allocations.node_changed(node)

    def check(self) -> None:
        if self.recovery.opened:
            active = [task for known in self.there.values() for task in known]
            assert all(map(self.allocations.holds, active)), "attempts that run and have nothing"
            self.allocations.check()
            self.shares.check()

    def check_rest(self) -> None:
        self.recovery.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **dict.fromkeys((*LEADERSHIP, *MOVES_AND_DRAINS), of_part("leadership", "handle")),
        Request: on_request,
        Preempt: of_part("shares", "on_preempt"),
        PreemptionVote: of_part("shares", "on_preemption_vote"),
        Withdraw: on_withdraw,
        UpdateRequest: on_update_request,
        Completed: on_completed,
        Result: of_part("recovery", "on_result"),
        Forget: of_part("recovery", "on_forget"),
        ResyncRequest: of_part("recovery", "on_resync_request"),
        Moved: of_part("recovery", "on_moved"),
        StaleEpoch: of_part("recovery", "on_stale_epoch"),
        Drain: of_part("recovery", "on_drain"),
        TimerFired: on_timer,
    }
    sends = (
        SlotAllocations.sends | AmountAllocations.sends | WeightedShares.sends | Alone.sends | Paired.sends
    )  # of all parts: `emits` has those of one
