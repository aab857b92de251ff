"""Megha's Local Master: the truth about one cluster, validation, launches and updates.

What is free, units or amounts, is the business of its `Allocations`. Attached where they are asked for, and else None:
preemptions, where users have shares, reservations for gangs, and the control of its nodes by one of a pair of masters,
where any may crash.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import TYPE_CHECKING, Final

from volery.architectures.megha.allocations import Allocations, AttemptTable, ClusterState, GmSyncState, Start
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.messages import Refusal, Request, StateUpdate, TasksEnded, UpdateRequest, Withdraw
from volery.architectures.megha.partitions import Layout
from volery.core.component import Component, Sends, sent_to
from volery.core.events import Drain, Fact, TimerFired
from volery.core.model import SECOND, Address, Key, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Completed, Kill, Launch
from volery.roles.recovery.leases import RunningAttempt

if TYPE_CHECKING:
    from volery.architectures.megha.gangs.reservations import GangReservations
    from volery.architectures.megha.printed.answers import LaunchAnswers
    from volery.architectures.megha.recovery.pair import Paired
    from volery.architectures.megha.shares.messages import Preempt
    from volery.architectures.megha.shares.preemptions import WeightedShares

HEARTBEAT: Final = "heartbeat"
NOTICES: Final = "notices"
NEWS: Final = "news"
NEWS_US: Final[Time] = 2_000
"""Time for which room is kept from the GMs that have asked: the GM whose task has ended there can take it again."""


class LocalMaster(Component):
    """Validates placements against the exact state, and sends every GM the news that it cannot know.

    Args:
        partitions: Partitions that it is in charge of.
        allocations, preemptions, pair, answers, gangs: Makers of its parts; all but the allocations may be None.

    Attributes:
        gms: Synchronisation states of the Global Masters.
        attempts: Attempts that run in the cluster.
        drained: Nodes on which nothing is placed by order.
        closed: Nodes on which nothing is placed, since they are kept for a gang.
    """

    def __init__(
        self,
        layout: Layout,
        partitions: range,
        config: MeghaConfig,
        allocations: Callable[[ClusterState], Allocations],
        preemptions: Callable[..., WeightedShares] | None = None,
        pair: Callable[[LocalMaster, Allocations, WeightedShares | None], Paired] | None = None,
        answers: Callable[[LocalMaster, Allocations], LaunchAnswers] | None = None,
        gangs: Callable[[LocalMaster, Allocations], GangReservations] | None = None,
    ) -> None:
        self.layout = layout
        self.partitions = partitions
        self.gms = self._new_gms()
        nodes = dict.fromkeys(node for at in partitions for node in layout.nodes[at]) if pair is not None else ()
        self.attempts = AttemptTable(layout, nodes)
        self._heartbeat_us = round(config.heartbeat_s * SECOND)
        self._ends_wait = config.completion_notice == "with-updates"
        self._gms_to_update: dict[Address, None] = {}
        self._gms_to_notify: list[GmSyncState] = []
        self._is_news_scheduled = False
        self._is_heartbeat_set = False
        self.closed: dict[Address, None] = {}
        self.allocations = allocations(self)
        self.gangs = None if gangs is None else gangs(self, self.allocations)
        self.preemptions = None if preemptions is None else preemptions(self, self.allocations)
        self.pair = None if pair is None else pair(self, self.allocations, self.preemptions)
        self.answers = None if answers is None else answers(self, self.allocations)
        self.drained: dict[Address, None] = {} if self.pair is None else self.pair.drained
        self.attached = tuple([part for part in (self.pair, self.preemptions, self.gangs) if part is not None])
        self._launches = 0

    def _new_gms(self) -> dict[Address, GmSyncState]:
        states = [GmSyncState(gm, len(self.layout.size)) for gm in range(self.layout.gm_count)]
        return {state.address: state for state in states}

    def bind(self, port: Port) -> None:
        """Give the control of a pair the port, too."""
        super().bind(port)
        if self.pair is not None:
            self.pair.bind(port)

    def start(self, now: Time) -> None:
        """A restarted one of a pair asks who leads."""
        if self.pair is not None:
            self.pair.start(now)

    def takes(self) -> Collection[type]:
        """Return the types of events that it and its parts handle; a guarded node sends no `Completed`."""
        return frozenset(super().takes()) - (frozenset() if self.pair is None else {Completed})

    def emits(self) -> Sends:
        """Return the messages that it and its parts send; a guarded node is not sent `Launch`."""
        return super().emits() - (frozenset() if self.pair is None else sent_to("node", Launch))

    # What parts ask for.

    def send(self, to: Address, message: Message) -> None:
        """Send a message of a part."""
        self._port.send(to, message)

    def observe(self, fact: Fact) -> None:
        """Report a fact of a part."""
        self._port.observe(fact)

    def set_timer(self, key: Key, at: Time) -> None:
        """Set a timer of a part."""
        self._port.set_timer(key, at)

    def is_usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        if node in self.closed:
            return False
        return node not in self.drained if self.pair is None else self.pair.is_usable(node)

    def is_reachable(self, node: Address) -> bool:
        """Find out whether a node is known to be there, and to obey this master."""
        return self.pair is None or self.pair.is_reachable(node)

    # Placements.

    def accept(self, message: Request | Preempt, tasks: Sequence[Task], source: Address) -> GmSyncState | None:
        """Return the state of the GM whose request is to be answered; None: it has no effect.

        No answer is sent to a repeat: the first was answered. Nor to a request to a leader of before: the GM places
        the tasks again, unless they are in the report of the new one. Nor to one of a GM whose jobs were moved since:
        the other GM places them.
        """
        gm, pair = self.gms[source], self.pair
        if pair is not None:
            pair.note_requested(tasks, source, message.term)
        if message.number <= gm.request or not (pair is None or pair.accepts(source, message.epoch, message.term)):
            return None
        gm.request = message.number
        return gm

    def on_request(self, message: Request, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks.

        The GM has placed them on a view that had aged; with the news it places them elsewhere. Nothing is queued here.
        """
        gm = self.accept(message, message.tasks, source)
        if gm is None:
            return

        starts, refused = self.allocations.allot_requested(message, gm)
        self.attempts.list_by_node(starts)
        if self.preemptions is not None:
            for _, attempt, _ in starts:
                self.preemptions.started(attempt)
        self.launch_all(starts)

        if refused:
            self._port.send(gm.address, self.allocations.refusal(gm, tuple(refused)))
        elif self.answers is not None:
            self.answers.launched(gm)
        if not self._is_heartbeat_set:
            self.set_heartbeat(now)

    def launch_all(self, starts: Sequence[Start]) -> None:
        """Launch attempts that have their units."""
        if self.pair is not None:
            self.pair.launch(starts)
            return
        number, send = self._launches, self._port.send
        for task, attempt, node in starts:
            number += 1
            send(node, Launch(number, task, attempt.attempt))
        self._launches = number

    def launch(self, task: Task, attempt: RunningAttempt, *, is_lent: bool) -> None:
        """Launch an attempt that fits; `is_lent` counts a logical node as a repartition."""
        self.adopt(attempt, is_lent=is_lent)
        self.launch_all(((task, attempt, self.attempts.node_of(attempt)),))

    def evict(self, node: Address, attempt: RunningAttempt) -> None:
        """Have a node end an attempt for another task's sake."""
        if self.pair is not None:
            self.pair.evict(node, attempt)
        else:
            self._port.send(node, Kill(attempt.task, attempt.attempt))

    def recall(self, attempt: RunningAttempt) -> None:
        """End an attempt without a result, where its owner can place the task again."""
        if self.pair is not None and self.pair.opened:
            self.pair.evict(self.attempts.node_of(attempt), attempt)

    def adopt(self, attempt: RunningAttempt, *, is_lent: bool = True) -> None:
        """Take account of an attempt that runs."""
        self.attempts.put(attempt)
        self.allocations.allot(attempt, is_lent=is_lent)
        if self.preemptions is not None:
            self.preemptions.started(attempt)

    def release(self, attempt: RunningAttempt) -> None:
        """Free what an attempt had that has ended, unless it was ended for another task."""
        self.attempts.remove(attempt)
        if self.preemptions is None or not self.preemptions.absorbs(attempt):
            self.allocations.free(attempt)

    def answer(self, gm: GmSyncState) -> None:
        """Answer a request of a GM that was carried out, where that is answered."""
        if self.answers is not None:
            self.answers.launched(gm)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what still runs; when the node reports the end, what it took is freed, and its GM is sent the end."""
        if self.preemptions is not None:
            # A task that still waits for its victims runs nowhere: no node can report its end.
            self.preemptions.withdraw(message.tasks, now)
        if self.gangs is not None:
            for task in message.tasks:
                self.gangs.withdraw(source, task)
        if self.pair is not None:
            self.pair.withdraw(message.tasks, source, now)
            return
        for task in message.tasks:
            attempt = self.attempts.by_task.get(task)
            if attempt is not None:
                self._port.send(self.attempts.node_of(attempt), Kill(task, attempt.attempt))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again."""
        if self.pair is not None:
            self.pair.on_drain(message, source, now)
            return
        self.drained.pop(message.node, None)
        if message.drained:
            self.drained[message.node] = None
        self.allocations.recount(message.node)
        self.set_heartbeat(now)
        self.schedule_news(now)

    # Ends.

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the task had; its GM is sent all ends of this instant in one message."""
        if self.pair is not None:
            self.handle_attached(message, source, now)  # unknown: a guarded node sends results
            return
        preemptions = self.preemptions

        # Nothing is lost or preempted: a task has one attempt, and its end comes once. This runs once per task.
        if preemptions is None:
            attempt = self.attempts.by_task.pop(message.task, None)
            if attempt is not None:
                gm = self.allocations.end(attempt)
                gm.ended.append(message.task)
                if len(gm.ended) == 1:
                    self._schedule_notice(gm, now)
            return

        attempt = self.attempts.by_task.get(message.task)
        if attempt is None or attempt.attempt != message.attempt:
            return
        is_evicted = message.killed and preemptions.evicted(attempt, now)
        self.release(attempt)
        if not is_evicted:
            self.note_end(self.allocations.credit(attempt), message.task, now)
        preemptions.resume(source, now)

    def note_end(self, owner: GmSyncState, task: TaskId, now: Time) -> None:
        """Send a GM, in this instant, the end of a task of its own."""
        owner.ended.append(task)
        if len(owner.ended) == 1:
            self._schedule_notice(owner, now)

    def _schedule_notice(self, owner: GmSyncState, now: Time) -> None:
        """Send a GM the ends of its tasks when the instant is over, or with the next update."""
        if not self._ends_wait:
            self._gms_to_notify.append(owner)
            self._port.set_timer(NOTICES, now)
        if not self._is_heartbeat_set:
            self.set_heartbeat(now)
        if self._gms_to_update:
            self.schedule_news(now)

    def send_ends(self, gm: GmSyncState) -> None:
        """Send a GM the ends of its tasks."""
        if gm.ended:
            self._port.send(gm.address, TasksEnded(tuple(gm.ended), gm.request))
            gm.ended = []

    def send_before_state(self, gm: GmSyncState) -> None:
        """Send a GM the ends and holdings that a state contains: after it, it would count them twice."""
        self.send_ends(gm)
        if self.preemptions is not None:
            self.preemptions.send_holdings(gm)

    # News.

    def on_update_request(self, message: UpdateRequest, source: Address, now: Time) -> None:
        """Send a GM that has waiting tasks news of room that it lacks, as soon as there is some."""
        if self.pair is None or self.pair.answers(source):
            self._gms_to_update[source] = None
            self.schedule_news(now)

    def forget_update_request(self, gm: Address) -> None:
        """Drop the question of a GM that has asked for news of room."""
        self._gms_to_update.pop(gm, None)

    def schedule_news(self, now: Time) -> None:
        """Something is free, or may be: look whether it still is when its owner has had time to take it."""
        if self._gms_to_update and not self._is_news_scheduled:
            self._is_news_scheduled = True
            self._port.set_timer(NEWS, now + NEWS_US)

    def _send_news(self) -> None:
        """Answer the GMs that have asked, as far as there is room that they do not know of."""
        self.allocations.consider()

        # A GM for which there is nothing goes on waiting: a question is answered once, when there is room.
        for address in list(self._gms_to_update):
            gm = self.gms[address]
            if self.allocations.has_news(gm):
                del self._gms_to_update[address]
                self._port.send(address, self.allocations.delta(gm))

    def set_heartbeat(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period, where it is not set."""
        if not self._is_heartbeat_set:
            self._is_heartbeat_set = True
            self._port.set_timer(HEARTBEAT, (now // self._heartbeat_us + 1) * self._heartbeat_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send owners the ends of an instant; with a heartbeat, send every GM the news that it lacks."""
        if self.pair is not None and self.pair.takes_timer(event, now):
            return

        # While another master leads, or nodes have not reported, nothing is sent: the first report contains everything.
        is_open = self.pair is None or self.pair.opened
        if event.key == NOTICES:
            for gm in self._gms_to_notify:
                if is_open:
                    self.send_ends(gm)
                gm.ended = []
            self._gms_to_notify.clear()
        elif event.key == NEWS:
            self._is_news_scheduled = False
            if is_open:
                self._send_news()
        elif event.key == HEARTBEAT or self.gangs is None:
            self._is_heartbeat_set = False
            if is_open:
                self._send_updates()
        else:
            self.gangs.look_after(now)

    def _send_updates(self) -> None:
        if self.pair is not None:
            self.pair.report_to_restarted()
        self.allocations.consider()
        for gm in self.gms.values():
            news = self.allocations.news(gm)
            if news is not None:
                self._port.send(gm.address, news)
            elif self._ends_wait:
                self.send_ends(gm)
        if self.preemptions is not None:
            self.preemptions.send_outcomes()

    # Where it is one of a pair.

    def send_news_soon(self, *, by_heartbeat: bool) -> None:
        """Send news at once, but after this handler, so that one update contains all that it changes."""
        self.schedule_news(-NEWS_US)
        if by_heartbeat and not self._is_heartbeat_set:
            self._is_heartbeat_set = True
            self._port.set_timer(HEARTBEAT, 0)

    def forget_all(self) -> None:
        """Forget all attempts, all that is free and all that GMs have been sent."""
        self.attempts.clear()
        self._gms_to_update.clear()
        self._gms_to_notify.clear()

        # In place: parts refer to this table.
        self.gms.update(self._new_gms())
        self.allocations.clear()
        if self.preemptions is not None:
            self.preemptions.clear()
        if self.gangs is not None:
            self.gangs.clear()

    def check(self) -> None:
        if self.pair is None or self.pair.opened:
            self.allocations.check()
            if self.preemptions is not None:
                self.preemptions.check()

    def check_rest(self) -> None:
        if self.gangs is not None:
            self.gangs.check_rest()
        if self.pair is not None:
            self.pair.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Request: on_request,
        Withdraw: on_withdraw,
        UpdateRequest: on_update_request,
        Completed: on_completed,
        Drain: on_drain,
        TimerFired: on_timer,
    }
    sends = sent_to("node", Launch, Kill) | sent_to("gm", TasksEnded, StateUpdate, Refusal)
