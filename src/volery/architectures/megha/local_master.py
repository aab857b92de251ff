"""Megha's Local Master: the truth about one cluster, validation, launches and updates.

What is free, units or amounts, is the business of its `Allocations`. How attempts are started and ended at nodes, and
which nodes may be used, is that of its `NodeControl`: `Alone` where nothing may crash, else one of a pair (`recovery`).
Which users may have what is decided by its `Preemptions`, where users have shares (`shares`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Sequence
from typing import ClassVar, Final, Literal, Protocol, TypeVar

from volery.architectures.megha.allocations import Allocations, AttemptTable, ClusterState, GmSyncState, Start
from volery.architectures.megha.attachments import NodeControl, PairControl, Preemptions
from volery.architectures.megha.messages import (
    AttemptsLost,
    Holdings,
    Preempt,
    PreemptionDone,
    PreemptionRequest,
    PreemptionVote,
    Refusal,
    Request,
    ResyncReply,
    ResyncRequest,
    StateUpdate,
    TasksEnded,
    UpdateRequest,
    Withdraw,
)
from volery.architectures.megha.partitions import Layout
from volery.core.component import Component, Sends, UnknownMessageError, sent_to, unknown
from volery.core.events import Drain, Event, Fact, Moved, TimerFired
from volery.core.model import Address, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Completed, Kill, Launch
from volery.roles.recovery.election import ELECTION, MOVES_AND_DRAINS, pair_sends
from volery.roles.recovery.leases import Fence, Forget, Result, Run, RunningAttempt, StaleEpoch

Updates = Literal["deltas", "snapshots"]
CompletionNotice = Literal["once", "twice"]

HEARTBEAT: Final = "heartbeat"
NOTICES: Final = "notices"
NEWS: Final = "news"
NEWS_US: Final[Time] = 2_000
"""A GM that has asked is sent news of room this old: its last GM has taken it again by then, if it has tasks."""
ALWAYS: Final = frozenset({Request, Withdraw, UpdateRequest, Drain, TimerFired})
Part = TypeVar("Part")


class NodeHost(Protocol):
    """A Local Master as its control of nodes calls it."""

    attempts: AttemptTable

    def recount(self, node: Address) -> bool:
        """Count anew what is free on a node; find out whether that may be news for GMs."""

    def set_heartbeat(self, now: Time) -> None:
        """Set the heartbeat to the next multiple of its period, where it is not set."""

    def schedule_news(self, now: Time) -> None:
        """Look soon whether there is room for GMs that have asked."""


class Alone:
    """Control of nodes by the only master of a cluster, which never crashes.

    Args:
        host: The Local Master.
    """

    takes: ClassVar[frozenset[type]] = frozenset({Completed})
    sends: ClassVar[Sends] = sent_to("node", Launch, Kill)
    opened = True

    def __init__(self, host: NodeHost) -> None:
        self._host = host
        self._launches = 0
        self.drained: set[Address] = set()

    def bind(self, port: Port) -> None:
        self._port = port

    def start(self, now: Time) -> None: ...
    def note_requested(self, tasks: Sequence[Task], gm: Address, term: int) -> None: ...

    def accepts(self, gm: Address, epoch: int, term: int) -> bool:
        return True

    def answers(self, gm: Address) -> bool:
        return True

    def is_usable(self, node: Address) -> bool:
        return node not in self.drained

    def is_reachable(self, node: Address) -> bool:
        return True

    def launch(self, starts: Sequence[Start]) -> None:
        number, send = self._launches, self._port.send
        for task, attempt, node in starts:
            number += 1
            send(node, Launch(number, task, attempt.attempt))
        self._launches = number

    def evict(self, node: Address, attempt: RunningAttempt) -> None:
        self._port.send(node, Kill(attempt.task, attempt.attempt))

    def withdraw(self, tasks: tuple[TaskId, ...], gm: Address, now: Time) -> None:
        attempts = self._host.attempts
        for task in tasks:
            attempt = attempts.by_task.get(task)
            if attempt is not None:
                self._port.send(attempts.node_of(attempt), Kill(task, attempt.attempt))

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        (self.drained.add if message.drained else self.drained.discard)(message.node)
        self._host.recount(message.node)
        self._host.set_heartbeat(now)
        self._host.schedule_news(now)

    def takes_timer(self, event: TimerFired, now: Time) -> bool:
        return False

    def check_rest(self) -> None: ...


class LocalMaster(Component):
    """Validates placements against the exact state, and sends every GM the news that it cannot know.

    Args:
        partitions: Partitions that it is in charge of.
        heartbeat_us: Period of the updates; none is sent without news.
        allocations, preemptions, control, pair: Makers of its parts. There is a control of nodes or one of a pair.

    Attributes:
        gms: Synchronisation states of the Global Masters.
        attempts: Attempts that run in the cluster.
    """

    def __init__(
        self,
        layout: Layout,
        partitions: range,
        *,
        heartbeat_us: Time,
        allocations: Callable[[ClusterState], Allocations],
        preemptions: Callable[[LocalMaster, Allocations], Preemptions] | None = None,
        pair: Callable[[LocalMaster, Allocations, Preemptions | None], PairControl] | None = None,
    ) -> None:
        self.layout = layout
        self.partitions = partitions
        self.gms = self._new_gms()
        nodes = dict.fromkeys(node for at in partitions for node in layout.nodes[at]) if pair is not None else ()
        self.attempts = AttemptTable(layout, nodes)
        self._heartbeat_us = heartbeat_us
        self._gms_to_update: dict[Address, None] = {}
        self._gms_to_notify: list[GmSyncState] = []
        self._is_news_scheduled = False
        self._is_heartbeat_set = False
        self.allocations = allocations(self)
        self.preemptions = None if preemptions is None else preemptions(self, self.allocations)
        self.pair = None if pair is None else pair(self, self.allocations, self.preemptions)
        self.nodes: NodeControl = Alone(self) if self.pair is None else self.pair

    def _new_gms(self) -> dict[Address, GmSyncState]:
        states = [GmSyncState(gm, len(self.layout.size)) for gm in range(self.layout.gm_count)]
        return {state.address: state for state in states}

    def bind(self, port: Port) -> None:
        """Give the control of nodes the port, too."""
        super().bind(port)
        self.nodes.bind(port)

    def start(self, now: Time) -> None:
        """A restarted one of a pair asks who leads."""
        self.nodes.start(now)

    def takes(self) -> Collection[type]:
        """Return the types of events that its parts know of."""
        preemptions = self.preemptions
        return ALWAYS | self.nodes.takes | (frozenset() if preemptions is None else preemptions.takes)

    def emits(self) -> Sends:
        """Return the messages that its parts send."""
        preemptions = self.preemptions
        own = self.allocations.sends | self.nodes.sends
        return own if preemptions is None else own | preemptions.sends

    # State, as parts see it.

    @property
    def drained(self) -> Container[Address]:
        """Nodes on which nothing is placed by order."""
        return self.nodes.drained

    def is_usable(self, node: Address) -> bool:
        """Find out whether tasks may be placed on a node."""
        return self.nodes.is_usable(node)

    def send(self, to: Address, message: Message) -> None:
        """Send a message of a part."""
        self._port.send(to, message)

    def observe(self, fact: Fact) -> None:
        """Report a fact of a part."""
        self._port.observe(fact)

    # Placements.

    def on_request(self, message: Request, source: Address, now: Time) -> None:
        """Validate each placement and launch it; answer the invalid ones with the news that the GM lacks."""
        gm, nodes = self.gms[source], self.nodes
        nodes.note_requested(message.tasks, source, message.term)

        # A repeated request, or one to a leader of before, or of a GM that has lost its jobs, has no effect, and is not
        # answered: the first was answered, and the others are void for the GM as well.
        if message.number <= gm.request or not nodes.accepts(source, message.epoch, message.term):
            return
        gm.request = message.number

        starts, refused = self.allocations.allot_requested(message, gm)
        self.attempts.list_by_node(starts)
        if self.preemptions is not None:
            for _, attempt, _ in starts:
                self.preemptions.started(attempt)
        nodes.launch(starts)

        if refused:
            self._port.send(gm.address, self.allocations.refusal(gm, tuple(refused)))
        if not self._is_heartbeat_set:
            self.set_heartbeat(now)

    def launch(self, task: Task, attempt: RunningAttempt, *, is_lent: bool) -> None:
        """Launch an attempt that fits; `is_lent` counts a logical node as a repartition."""
        self.adopt(attempt, is_lent=is_lent)
        self.nodes.launch(((task, attempt, self.attempts.node_of(attempt)),))

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

    def recount(self, node: Address) -> bool:
        """Count anew what is free on a node; find out whether that may be news for GMs."""
        return self.allocations.recount(node)

    def on_withdraw(self, message: Withdraw, source: Address, now: Time) -> None:
        """Kill what still runs; when the node reports the end, what it took is freed, and its GM is sent the end."""
        if self.preemptions is not None:
            # A task that still waits for its victims runs nowhere: no node can report its end.
            self.preemptions.withdraw(message.tasks, now)
        self.nodes.withdraw(message.tasks, source, now)

    def on_drain(self, message: Drain, source: Address, now: Time) -> None:
        """Place nothing on a node, or again."""
        self.nodes.on_drain(message, source, now)

    # Ends.

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Free what the task had; its GM is sent all ends of this instant in one message."""
        if self.pair is not None:
            raise UnknownMessageError(unknown(self, message, source, now))  # a guarded node sends results
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
        """Send a GM the ends of its tasks when the instant is over."""
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
        if self.nodes.answers(source):
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
        self._is_news_scheduled = False
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

    def send_news_soon(self) -> None:
        """Send news at once: a heartbeat, and answers to the GMs that have asked."""
        # At once, but after this handler, so that one update contains all that it changes.
        self.schedule_news(-NEWS_US)
        if not self._is_heartbeat_set and self.nodes.opened:
            self._is_heartbeat_set = True
            self._port.set_timer(HEARTBEAT, 0)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send owners the ends of an instant; with a heartbeat, send every GM the news that it lacks."""
        if self.nodes.takes_timer(event, now):
            return
        if event.key == NOTICES:
            for gm in self._gms_to_notify:
                self.send_ends(gm)
            self._gms_to_notify.clear()
        elif event.key == NEWS:
            self._send_news()
        else:
            self._is_heartbeat_set = False
            self.allocations.consider()
            for gm in self.gms.values():
                news = self.allocations.news(gm)
                if news is not None:
                    self._port.send(gm.address, news)
            if self.preemptions is not None:
                self.preemptions.send_outcomes()

    def drop_timer(self, event: TimerFired) -> None:
        """Take a timer while another master leads, or nodes have not reported: the first report contains everything."""
        if event.key == NEWS:
            self._is_news_scheduled = False
        elif event.key == NOTICES:
            for gm in self._gms_to_notify:
                gm.ended = []
            self._gms_to_notify.clear()
        else:
            self._is_heartbeat_set = False

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

    # Messages for what is attached; without it they are unknown.

    def _attached(self, part: Part | None, event: Event, source: Address, now: Time) -> Part:
        if part is None:
            raise UnknownMessageError(unknown(self, event, source, now))
        return part

    def on_preempt(self, message: Preempt, source: Address, now: Time) -> None:
        """Validate a preemption, and ask the GM that is to lose."""
        self._attached(self.preemptions, message, source, now).on_preempt(message, source, now)

    def on_preemption_vote(self, message: PreemptionVote, source: Address, now: Time) -> None:
        """Take the answer of the GM whose tasks are to be ended."""
        self._attached(self.preemptions, message, source, now).on_preemption_vote(message, source, now)

    def on_election(self, event: Event, source: Address, now: Time) -> None:
        """Take an event of the election, or of a node's lease."""
        self._attached(self.pair, event, source, now).on_election(event, source, now)

    def on_stale_epoch(self, message: StaleEpoch, source: Address, now: Time) -> None:
        """Note that a later epoch is known, or a later term of a GM."""
        self._attached(self.pair, message, source, now).on_stale_epoch(message, source, now)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """Keep the result of an attempt."""
        self._attached(self.pair, message, source, now).on_result(message, source, now)

    def on_forget(self, message: Forget, source: Address, now: Time) -> None:
        """Drop results of a job that is done."""
        self._attached(self.pair, message, source, now).on_forget(message, source, now)

    def on_resync_request(self, message: ResyncRequest, source: Address, now: Time) -> None:
        """Report everything to a GM that knows nothing."""
        self._attached(self.pair, message, source, now).on_resync_request(message, source, now)

    def on_moved(self, message: Moved, source: Address, now: Time) -> None:
        """Note that jobs were moved between GMs."""
        self._attached(self.pair, message, source, now).on_moved(message, source, now)

    def check(self) -> None:
        if self.nodes.opened:
            self.allocations.check()
            if self.preemptions is not None:
                self.preemptions.check()

    def check_rest(self) -> None:
        self.nodes.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **dict.fromkeys((*ELECTION, *MOVES_AND_DRAINS), on_election),
        Request: on_request,
        Preempt: on_preempt,
        PreemptionVote: on_preemption_vote,
        Withdraw: on_withdraw,
        UpdateRequest: on_update_request,
        Completed: on_completed,
        Result: on_result,
        Forget: on_forget,
        ResyncRequest: on_resync_request,
        Moved: on_moved,
        StaleEpoch: on_stale_epoch,
        Drain: on_drain,
        TimerFired: on_timer,
    }
    sends = (  # with all that may be attached; `emits` has what is
        Alone.sends
        | sent_to("gm", TasksEnded, StateUpdate, Refusal)
        | sent_to("gm", Holdings, PreemptionRequest, PreemptionDone, AttemptsLost, ResyncReply)
        | sent_to("node", Run, Forget, Fence)
        | pair_sends("lm", "gm")
    )
