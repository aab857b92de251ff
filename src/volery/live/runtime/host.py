"""The asyncio driver: any set of components in one process, with one inbox, one turn at a time.

A turn drains the inbox: each event goes through its component's one mailbox, its effects are collected and applied in
order. What stays on the host (messages between its components, timers) joins the inbox at once. What leaves it
(launches, messages to other hosts, answers to the submitter) waits until the turn is in the journal. So no one outside
ever sees an effect of an event that a replay would not have.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import Executor as Pool
from concurrent.futures import Future, ProcessPoolExecutor
from contextlib import suppress
from multiprocessing import get_context
from typing import Any, Final

from volery.core.component import Component, UnknownMessageError, role_of
from volery.core.events import Adopted, Computed, Counted, Event, PeerBack, PeerLost, Preemption, TimerFired
from volery.core.model import SECOND, SUBMITTER, Address, Key, Message, Task, Time
from volery.core.reasons import Decision
from volery.core.records import Facts
from volery.live.clock import Clock, unix_now_us
from volery.live.messages import (
    AGENT,
    DecisionReport,
    HostHeartbeat,
    HostName,
    HostReport,
    PeerReport,
    PreemptionReport,
)
from volery.live.node.executor import Executor, OnEnd
from volery.live.runtime import port as effect_kinds
from volery.live.runtime.failure_detector import FailureDetector, Presence, WatchList, meeting_s
from volery.live.runtime.journal import RAISED, Entry, JournalStall, JournalWriter, Started
from volery.live.runtime.mailboxes import Inbox, IngressFilter, LiveTimer, Mailbox
from volery.live.runtime.port import Effect, LivePort, checksum
from volery.live.transport.delivery import Codec, CodecError, Delivery, LaterIncarnation, Parcel
from volery.live.transport.transport import Transport, absent_peers

EVENTS_PER_TURN: Final = 4096
"""Count of events after which others get the event loop."""
REPORTS: Final[Mapping[type, Callable[[Address, Time, Any], Message]]] = {
    Decision: DecisionReport,
    Preemption: PreemptionReport,
}
"""Facts that are reported to the submitter, and the messages for them."""

WARNINGS: Final = {
    "attempts_unseated": "%s: %d attempts run where the cluster has no place for them any more: ended, to run again",
    "nodes_unconfirmed": "%s: %d restarted nodes get no tasks before the other master of the cluster is back",
}
"""Counters of components that are reported in the log."""


class Superseded(RuntimeError):  # noqa: N818 - it names a state
    """Another process has begun to be this host."""


log = logging.getLogger(__name__)


class Host:
    """Drives the components of one host.

    Args:
        components: Components by address; they have never been started.
        executor: Carries launches out; needed where a node is.
        codec: Codec of the federation's frames; needed with a transport.
        journal: Journal of this host; it is closed with the host.
        watches: Pairs of components that get PeerLost when the other no longer answers.
        presence: Sender of reports to the API's host that this one runs.
        explains: True to report preemptions to the submitter, and decisions of schedulers where they observe them.

    Attributes:
        facts: Facts that the components have reported.
        failed: Exception that has stopped the host, once there is one.
        waits_for: Hosts without which it has not opened yet.
    """

    def __init__(
        self,
        name: HostName,
        components: Mapping[Address, Component],
        inbox: Inbox | None = None,
        *,
        executor: Executor | None = None,
        codec: Codec | None = None,
        transport: Transport | None = None,
        journal: JournalWriter | None = None,
        incarnation: int = 1,
        watches: WatchList | None = None,
        presence: Presence | None = None,
        explains: bool = False,
    ) -> None:
        self.name = name
        self.inbox = inbox = inbox or Inbox()
        self.now: Clock = inbox.now
        self.facts = Facts()
        self.failed: BaseException | None = None
        self._explains = explains
        self._turn_us: Time = 0
        """Time at which the last turn began: the `now` of all its events."""

        self._recorder = inbox.recorder
        self._components = components
        self._executor = executor
        self._codec = codec
        self._transport = transport
        self._host_of = inbox.host_of
        self._journal = journal
        self._incarnation = incarnation
        self._effects: list[Effect] = []
        self._entries: list[Entry] = []
        self._actions: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self._late_events: list[tuple[Mailbox, Event, Address]] = []

        self._outbox = inbox.outbox
        self._delivery: Delivery | None = None
        self._watches = watches
        self._presence = presence
        self._watch: FailureDetector | None = None
        self.waits_for: frozenset[HostName] = frozenset()
        self._beat_timer: asyncio.TimerHandle | None = None
        self._on_new_incarnation: Callable[[HostName, bool], None] | None = None
        self._stall = JournalStall(name, self._release, self.stop)
        self._pool: Pool | None = None
        self._problems: dict[tuple[Address, Key], Any] = {}
        self._stopped = asyncio.Event()
        self._mailboxes = inbox.mailboxes

        for address, component in components.items():
            component.bind(LivePort(address, self._effects))
            is_journalled = role_of(address) not in (SUBMITTER, AGENT)
            self._mailboxes[address] = Mailbox(inbox, address, component, is_journalled)
        self._ingress = IngressFilter(name, self._mailboxes, self._host_of)

    async def open(self, on_new_incarnation: Callable[[HostName, bool], None] | None = None) -> None:
        """Connect to the others and wait for them, within limits; nothing is handled before `start`.

        Args:
            on_new_incarnation: Called per incarnation of another host: its name, and if an earlier one was known.
        """
        self._on_new_incarnation = on_new_incarnation
        self._loop = asyncio.get_running_loop()
        if self._transport is None:
            if self._presence is not None:
                self._presence.start(self._send_aside, shortage=self._shortage)
            return

        assert self._codec is not None
        deliver, take = self._transport.send, self._take
        self._delivery = Delivery(self._incarnation, self._codec, deliver, take, self._take_aside, self._meet)
        await self._transport.open(self.name, self._arrived, self._delivery.known_incarnation)
        self.waits_for = peers = frozenset(self._host_of.values()) - {self.name}
        # The others repeat what this incarnation has missed, into its inbox, and do not give it up while it waits.
        for peer in sorted(peers):
            self._delivery.send(peer, [])
        if self._presence is not None:
            self._presence.start(self._send_aside, self._absent_hosts, self._shortage)
        if self._watches is not None and self._watches.pairs:
            self._watch = FailureDetector(self._watches, self._send_aside)
            self._beat()

        limit_s = meeting_s(self._watches, self._incarnation)
        async for absent in absent_peers(self._transport, peers, limit_s):
            self.waits_for = absent
            if absent:
                log.info("host %s waits for %s, %g s at most", self.name, ", ".join(sorted(absent)), limit_s)

    def start(self, adopted: Iterable[tuple[Address, Adopted]] = ()) -> None:
        """Start the components.

        Args:
            adopted: Attempts of an earlier incarnation that still run, by node.
        """
        self._loop = asyncio.get_running_loop()
        self._turn_us = now = self.now()

        for address, event in adopted:
            self._components[address].handle(event, address, now)
            self._entries.append((address, address, event, checksum(self._effects)))
            self._effects.clear()

        for address, component in self._components.items():
            component.start(now)
            mailbox = self._mailboxes[address]
            if mailbox.journalled:
                self._entries.append((address, address, Started(), checksum(self._effects)))
            self._apply(mailbox, now)

        self.inbox.start(self._turn)
        # The starts are in the journal before anything that they cause leaves the host.
        self._commit(now)
        self.inbox.wake()

        absent, self.waits_for = self.waits_for, frozenset()
        if self._transport is not None:
            self._transport.begun(self._incarnation, self._superseded)
        if self._watch is not None:
            self._watch.watch(now, absent)
        if self._presence is not None:
            self._presence.opened(absent)

    def ended(self, address: Address) -> OnEnd:
        return self._mailboxes[address].ended

    async def run(self) -> None:
        """Wait until the host is closed.

        Raises:
            Exception: whatever a component has raised; the host has stopped then.
        """
        await self._stopped.wait()
        if self.failed is not None:
            raise self.failed

    async def close(self) -> None:
        """End what runs here, hand over what has been sent, and close the journal."""
        if self._presence is not None:
            self._presence.close()
        if self._beat_timer is not None:
            self._beat_timer.cancel()
        if self._executor is not None:
            await self._executor.close()
        if self._delivery is not None:
            # Coalescable messages are committed: they leave before the link is closed.
            self._outbox.release_all(self._send)
            self._delivery.close()
        if self._transport is not None:
            await self._transport.close()
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)

        for mailbox in self._mailboxes.values():
            mailbox.close()
        self._stop()

    def _stop(self) -> None:
        self._outbox.drop()
        self._stall.close()
        if self._journal is not None:
            with suppress(OSError):  # what cannot be written was not promised
                self._journal.close()
            self._journal = None
        self._stopped.set()

    @property
    def refused(self) -> int:
        return self._ingress.refused

    def _absent_hosts(self) -> frozenset[HostName]:
        return self.waits_for

    def _shortage(self) -> str:
        return self._stall.words

    # The ways in.

    def _report(self, component: Address, message: Message) -> None:
        """Report something that is no effect of an event to the submitter, which stores it."""
        if self._explains:
            self.inbox.report(message, component)

    def _arrived(self, sender: HostName, encoded: bytes) -> None:
        assert self._delivery is not None
        if self._stopped.is_set():
            return
        try:
            self._delivery.arrived(sender, encoded)
        except CodecError as error:
            self._ingress.refuse(sender, error)
        except LaterIncarnation as error:
            self._ingress.refuse(sender, f"{error}; restart this host, and it takes the one after that")
            assert self._transport is not None
            # A frame of another host proves nothing: the transport asks under this host's own name.
            self._transport.doubt()

    def _superseded(self, incarnation: int) -> None:
        if not self._stopped.is_set():
            self.stop(
                Superseded(
                    f"incarnation {incarnation} of this host has begun elsewhere; this one is its {self._incarnation}"
                )
            )

    def _take(self, sender: HostName, parcels: Collection[Parcel]) -> None:
        self.inbox.events.extend(self._ingress.admitted(sender, parcels))
        self.inbox.wake()

    def _take_aside(self, sender: HostName, parcels: Iterable[Parcel]) -> None:
        for _, _, message in parcels:
            if self._watch is not None and isinstance(message, HostHeartbeat):
                self._watch.receive(sender, message, self.now())
                if self._watch.news:
                    self.inbox.wake()
            elif self._presence is not None and isinstance(message, HostReport):
                assert self._delivery is not None
                self._presence.receive(sender, message, self._delivery.known_incarnation(sender))

    def _meet(self, peer: HostName, was_known: bool) -> None:
        if self._watch is not None:
            self._watch.met(peer, was_known, self.now())
            self.inbox.wake()
        if was_known:
            log.warning("host %s has restarted", peer)
        if self._on_new_incarnation is not None:
            self._on_new_incarnation(peer, was_known)

    def _beat(self) -> None:
        assert self._watch is not None
        if self._stopped.is_set():
            return
        self._watch.beat(self.now())
        self._beat_timer = self._loop.call_later(self._watch.period_us / SECOND, self._beat)
        if self._watch.news:
            self.inbox.wake()

    def _send(self, peer: HostName, parcels: list[Parcel]) -> None:
        assert self._delivery is not None
        self._delivery.send(peer, parcels)

    def _send_aside(self, peer: HostName, message: Message) -> None:
        assert self._delivery is not None
        self._delivery.aside(peer, [("", "", message)])

    # A turn.

    def _turn(self) -> None:
        self.inbox.has_turn = False
        if self._stopped.is_set() or self._stall.lasts:
            return

        inbox, effects = self.inbox.events, self._effects
        now = self.now()

        # Outages come before events: a lease that ran out while the host was stopped must not be used.
        if self._watch is not None and (self._watch.news or now > self._watch.deadline_us):
            self._handle_news(self._watch, now)
            if self._stopped.is_set() or self._stall.lasts:
                return

        self._turn_us = now
        next_event = inbox.popleft
        journal = self._journal
        entries = self._entries

        for _ in range(EVENTS_PER_TURN):
            if not inbox:
                break
            mailbox, event, source = next_event()
            if type(event) is LiveTimer:
                # The timer was replaced or dropped while it waited in the inbox.
                if mailbox.timers.get(event.key) is not event:
                    continue
                del mailbox.timers[event.key]
                event = TimerFired(event.key)

            try:
                mailbox.handle(event, source, now)
            except BaseException as error:  # whatever it is, it ends the host, unless another host is to blame
                # An event of another host that no handler takes is that host's fault; an event of our own is a defect
                # here.
                if not isinstance(error, UnknownMessageError) or source in self._mailboxes:
                    self._fail(mailbox, event, source, now, error)
                    return
                self._ingress.refuse(self._host_of[source], error)

            if journal is not None and mailbox.journalled:
                if type(event) is Computed:
                    self._problems.pop((mailbox.address, event.key), None)
                entries.append((mailbox.address, source, journal.event(mailbox.address, event), checksum(effects)))

            if effects:
                self._apply(mailbox, now)

        self._commit(now)

    def _handle_news(self, watch: FailureDetector, now: Time) -> None:
        """Handle PeerLost and PeerBack before anything else: a host that was stopped has slept through its leases.

        Components get an outage as of when it was due, so that a timer which they set then may be over.
        """
        watch.look(now)

        news, watch.news = watch.news, []
        # News are handled in a turn of their own, before what has waited: the inbox is put back behind them.
        waiting = list(self.inbox.events)
        self.inbox.events.clear()
        for to, event, at in news:
            mailbox = self._mailboxes[to]
            handled_us = max(self._turn_us, at)
            if SUBMITTER in (to, event.peer):
                self._post_to_submitter(mailbox, event)
                continue

            # A turn has one time: what was handled at an earlier one is committed first.
            if handled_us > self._turn_us:
                self._commit(self._turn_us)
                self._turn_us = handled_us

            try:
                mailbox.handle(event, to, handled_us)
            except BaseException as error:  # whatever it is, it ends the host
                self._fail(mailbox, event, to, handled_us, error)
                return

            self._entries.append((to, to, event, checksum(self._effects)))
            self._apply(mailbox, now)
            self._report(to, PeerReport(to, event.peer, isinstance(event, PeerLost)))
        self._commit(self._turn_us)
        self.inbox.events.extend(waiting)

    def _post_to_submitter(self, mailbox: Mailbox, event: PeerLost | PeerBack) -> None:
        """Hand the news to the submitter alone, which handles it in its next turn: schedulers do nothing about it."""
        if mailbox.address == SUBMITTER and type(event) in self._components[SUBMITTER].receives:
            self.inbox.events.append((mailbox, event, SUBMITTER))
            self._report(SUBMITTER, PeerReport(SUBMITTER, event.peer, isinstance(event, PeerLost)))

    def _apply(self, mailbox: Mailbox, now: Time) -> None:
        """Apply effects: those that stay on this host now, those that leave it after the commit."""
        mailboxes, source = self._mailboxes, mailbox.address

        for effect in self._effects:
            receiver = effect[0]
            if type(receiver) is not str:
                self._request(mailbox, effect, now)
                continue
            receiver_mailbox = mailboxes.get(receiver)
            if receiver_mailbox is None:
                self._outbox.put(self._host_of[receiver], receiver, source, effect[1])
            elif receiver_mailbox.journalled:
                self.inbox.events.append((receiver_mailbox, effect[1], source))
            else:
                # A component without a journal (submitter, agent) must see nothing that a crash could undo: it waits
                # for the commit.
                self._late_events.append((receiver_mailbox, effect[1], source))

        self._effects.clear()

    def _request(self, mailbox: Mailbox, effect: Effect, now: Time) -> None:
        kind = effect[0]
        if kind == effect_kinds.LAUNCH:
            if self._journal is not None:
                self._journal.launched(mailbox.address, effect[1], effect[2])
            self._actions.append((self._launch, (mailbox, *effect[1:])))
        elif kind == effect_kinds.SET_TIMER:
            mailbox.set_timer(effect[1], effect[2], now)
        elif kind == effect_kinds.CANCEL_TIMER:
            mailbox.drop_timer(effect[1])
        elif kind == effect_kinds.OBSERVE:
            self.facts.observe(effect[1])
            if type(effect[1]) is Counted and effect[1].name in WARNINGS:
                log.warning(WARNINGS[effect[1].name], mailbox.address, effect[1].amount)
            if type(effect[1]) in REPORTS:
                report_type = REPORTS[type(effect[1])]
                self._report(mailbox.address, report_type(mailbox.address, unix_now_us(), effect[1]))
        elif kind == effect_kinds.KILL:
            assert self._executor is not None
            self._actions.append((self._executor.kill, effect[1:]))
        else:
            self._actions.append((self._compute, (mailbox, *effect[1:])))

    def _commit(self, now: Time) -> None:
        """Write the turn to the journal, then release its effects; without the one there is no other."""
        if self._entries:
            if self._journal is not None:
                try:
                    self._journal.append(now, self._entries)
                except OSError as error:
                    self._stall.begin(self._journal, error)
            self._entries.clear()
        if not (self._stall.lasts or self._stopped.is_set()):
            self._release()

    def _release(self) -> None:
        """Release the effects of turns that are in the journal."""
        if self._actions:
            actions, self._actions = self._actions, []
            for call, arguments in actions:
                call(*arguments)

        if self._late_events:
            self.inbox.events.extend(self._late_events)
            self._late_events.clear()

        self._outbox.release(self._send)

        # Between two turns no handler runs: the components are in a state that a snapshot can hold.
        if self._journal is not None and self._journal.is_full:
            hosted = {
                address: self._components[address] for address, mailbox in self._mailboxes.items() if mailbox.journalled
            }
            self._journal.rotate(hosted, self._problems)

        if self.inbox.events:
            self.inbox.wake()

    def stop(self, error: Exception) -> None:
        """Handle nothing more, because of an error; `run` raises it."""
        self.failed = error
        log.critical("host %s stops: %s", self.name, error)
        self._stop()

    def _fail(self, mailbox: Mailbox, event: Any, source: Address, now: Time, error: BaseException) -> None:
        """Stop: the state of a component is undefined after an exception. The journal records the failing event."""
        self.failed = error

        log.critical("host %s stops: %s raised %r", self.name, mailbox.address, error)
        if self._journal is not None and mailbox.journalled:
            self._entries.append((mailbox.address, source, self._journal.event(mailbox.address, event), RAISED))

        if self._journal is not None and self._entries:
            self._journal.append(now, self._entries)
        self._stop()

    # What components ask for.

    def _launch(self, mailbox: Mailbox, task: Task, attempt: int, waited_us: Time, note: bytes = b"") -> None:
        assert self._executor is not None, f"{mailbox.address} launches a task on a host without an executor"
        if self._recorder is not None:
            self._recorder.started(mailbox.address, task, attempt, waited_us, self._turn_us, self.now())
        if note:
            self._executor.start(mailbox.address, task, attempt, mailbox.ended, note)
        else:
            self._executor.start(mailbox.address, task, attempt, mailbox.ended)

    def _compute(self, mailbox: Mailbox, key: Key, problem: Any) -> None:
        if self._pool is None:
            self._pool = ProcessPoolExecutor(1, mp_context=get_context("spawn"))
        # A snapshot holds problems, as their answers are not in the journal: a replay solves them again.
        if self._journal is not None:
            self._problems[mailbox.address, key] = problem

        future = self._pool.submit(problem.solve, problem.argument)
        future.add_done_callback(
            lambda completed: self._loop.call_soon_threadsafe(self._computed, mailbox, key, completed)
        )

    def _computed(self, mailbox: Mailbox, key: Key, future: Future[Any]) -> None:
        if future.cancelled() or self._stopped.is_set():
            return
        error = future.exception()
        if error is not None:
            self._fail(mailbox, Computed(key, None), mailbox.address, self.now(), error)
            return
        self.inbox.events.append((mailbox, Computed(key, future.result()), mailbox.address))
        self.inbox.wake()
