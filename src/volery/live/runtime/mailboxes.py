"""Mailboxes of the components of a host: inbox and outbox, the ingress filter for other hosts, and the timers."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Collection, Mapping
from typing import Any, Final

from volery.core.component import Component
from volery.core.events import Event, Outcome, TaskFinished
from volery.core.model import COALESCE_US, SECOND, SUBMITTER, Address, Key, Message, Task, Time
from volery.live.clock import Clock, clock_from_now
from volery.live.messages import HostName, TaskReport
from volery.live.node.executor import Recorder
from volery.live.transport.delivery import Parcel

Handle = Callable[[Event, Address, Time], None]
SendFrame = Callable[[HostName, list[Parcel]], None]

REJECTED: Final = "host %s rejected a message from host %s (further rejections are not logged): %s"

log = logging.getLogger(__name__)


class Outbox:
    """Messages that leave a host: one frame per receiving host and turn; coalescable messages join the next frame.

    Messages are `coalescable` where nobody waits for them. They are sent with the next frame for their host, before
    what that frame is for, so that the order of each link holds; if there is none for a while, in a frame of their own.
    """

    def __init__(self) -> None:
        self._outgoing: dict[HostName, list[Parcel]] = {}
        self._coalescing: dict[HostName, list[Parcel]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def put(self, host: HostName, to: Address, source: Address, message: Message) -> None:
        """Take a message; it leaves with the next `release`, or a little later."""
        # A frame for the host leaves with this turn anyhow: even a coalescable message takes it, as the link keeps
        # its order.
        parcels = self._outgoing.get(host)
        if parcels is not None:
            parcels.append((to, source, message))
        elif message.coalescable:
            self._coalescing.setdefault(host, []).append((to, source, message))
        else:
            self._outgoing[host] = parcels = self._coalescing.pop(host, [])
            parcels.append((to, source, message))

    def release(self, send: SendFrame) -> None:
        """Send the messages of a turn that is committed, one frame per host."""
        if self._outgoing:
            frames, self._outgoing = self._outgoing, {}
            for host, parcels in frames.items():
                send(host, parcels)

        if self._coalescing and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_US / SECOND, self.release_all, send)

    def release_all(self, send: SendFrame) -> None:
        """Send the committed messages that wait for company; messages of the next turn stay."""
        self._stop_waiting()
        frames, self._coalescing = self._coalescing, {}
        for host, parcels in frames.items():
            send(host, parcels)

    def drop(self) -> None:
        self._stop_waiting()
        self._outgoing, self._coalescing = {}, {}

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Inbox:
    """Events of one host that wait for its next turn; executors and the API post to it.

    Args:
        host_of: Address of every component elsewhere -> its host.
        recorder: Called for every attempt on this host.

    Attributes:
        events: Mailbox, event and source of each event, in order.
        awake: True if a turn is due already.
    """

    __slots__ = ("_turn", "events", "has_turn", "host_of", "mailboxes", "now", "outbox", "recorder")

    def __init__(
        self,
        host_of: Mapping[Address, HostName] | None = None,
        now: Clock | None = None,
        recorder: Recorder | None = None,
    ) -> None:
        self.host_of = host_of or {}
        self.now: Clock = now or clock_from_now()
        self.recorder = recorder
        self.events: deque[tuple[Mailbox, Any, Address]] = deque()
        self.mailboxes: dict[Address, Mailbox] = {}
        self.outbox = Outbox()
        self.has_turn = True  # as if a turn were coming: events that arrive before the start wait for it
        self._turn: Callable[[], None] = _no_turn

    def start(self, turn: Callable[[], None]) -> None:
        """Let `turn` handle what gathers; it is called once after each time that the inbox is woken."""
        self._turn = turn
        self.has_turn = False

    def wake(self) -> None:
        """Schedule a turn unless one is due."""
        if not self.has_turn:
            self.has_turn = True
            asyncio.get_running_loop().call_soon(self._turn)

    def post(self, to: Address, event: Event, source: Address) -> None:
        """Hand an event to a component, on this host or on another; to another it must be a message.

        Raises:
            KeyError: no host has that address.
        """
        mailbox = self.mailboxes.get(to)
        if mailbox is not None:
            self.events.append((mailbox, event, source))
        else:
            assert isinstance(event, Message), "only messages travel between hosts"
            self.outbox.put(self.host_of[to], to, source, event)
        self.wake()

    def report(self, report: Message, source: Address = "") -> None:
        """Send the submitter a report; a federation without a submitter ignores it."""
        if SUBMITTER in self.mailboxes or SUBMITTER in self.host_of:
            self.post(SUBMITTER, report, source or (report.node if isinstance(report, TaskReport) else SUBMITTER))


def _no_turn() -> None:
    raise AssertionError("a host takes turns once it has started")


class LiveTimer:
    """A timer; it fires only while it is the one of its key, wherever it is on its way."""

    __slots__ = ("handle", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.handle: asyncio.TimerHandle | None = None


class Mailbox:
    """The events of one component on their way to the inbox, and its timers."""

    __slots__ = ("_inbox", "address", "handle", "journalled", "takes", "timers")

    def __init__(self, inbox: Inbox, address: Address, component: Component, journalled: bool) -> None:
        self.address = address
        self.handle: Handle = component.handle
        self.takes = component.takes()
        self.journalled = journalled
        self.timers: dict[Key, LiveTimer] = {}
        self._inbox = inbox

    def ended(self, task: Task, attempt: int, outcome: Outcome) -> None:
        """Note that an attempt has ended; executors call it."""
        inbox = self._inbox
        if inbox.recorder is not None:
            inbox.recorder.ended(self.address, task, attempt, outcome, inbox.now())
        inbox.events.append((self, TaskFinished(task, attempt, outcome), self.address))
        inbox.wake()

    def set_timer(self, key: Key, at: Time, now: Time) -> None:
        self.drop_timer(key)
        timer = self.timers[key] = LiveTimer(key)

        if at <= now:
            self._inbox.events.append((self, timer, self.address))
        else:
            self._arm(timer, at, now)

    def drop_timer(self, key: Key) -> None:
        timer = self.timers.pop(key, None)
        if timer is not None and timer.handle is not None:
            timer.handle.cancel()

    def close(self) -> None:
        for key in list(self.timers):
            self.drop_timer(key)

    def _arm(self, timer: LiveTimer, at: Time, now: Time) -> None:
        # Loops count milliseconds and round to the nearest: a shorter delay would be called early, again and again.
        delay_s = -((now - at) // 1000) / 1000
        timer.handle = asyncio.get_running_loop().call_later(delay_s, self._due, timer, at)

    def _due(self, timer: LiveTimer, at: Time) -> None:
        now = self._inbox.now()
        if now < at:
            self._arm(timer, at, now)  # the loop's clock is coarser than ours
            return
        timer.handle = None
        self._inbox.events.append((self, timer, self.address))
        self._inbox.wake()


class IngressFilter:
    """Admits messages that a component of this host takes, from a component of the sending host; it rejects all others.

    A host with a valid certificate may be faulty or compromised: it may send for its own components alone, and no
    message of it stops this host.

    Args:
        host_of: Address of every component elsewhere -> its host.

    Attributes:
        refused: Count of frames and messages that were rejected.
    """

    def __init__(
        self, name: HostName, mailboxes: Mapping[Address, Mailbox], host_of: Mapping[Address, HostName]
    ) -> None:
        self.refused = 0
        self._name = name
        self._mailboxes = mailboxes
        self._host_of = host_of
        self._logged_hosts: set[HostName] = set()

    def admitted(self, sender: HostName, parcels: Collection[Parcel]) -> list[tuple[Mailbox, Message, Address]]:
        mailboxes, host_of = self._mailboxes, self._host_of

        admitted = [
            (mailbox, message, source)
            for to, source, message in parcels
            if (mailbox := mailboxes.get(to)) is not None
            and type(message) in mailbox.takes
            and host_of.get(source) == sender
        ]

        # A second pass finds the reasons: the first one is hot, and nearly always admits all.
        if len(admitted) < len(parcels):
            for to, source, message in parcels:
                receiver_mailbox = mailboxes.get(to)
                if receiver_mailbox is None:
                    self.refuse(sender, f"{to} is not on this host")
                elif host_of.get(source) != sender:
                    self.refuse(sender, f"{source} is not on that host")
                elif type(message) not in receiver_mailbox.takes:
                    self.refuse(sender, f"{to} takes no {type(message).__name__}")
        return admitted

    def refuse(self, sender: HostName, problem: object) -> None:
        """Count a rejection; log the first of each sender, so that a faulty host does not fill the log."""
        self.refused += 1
        if sender not in self._logged_hosts:
            self._logged_hosts.add(sender)
            log.error(REJECTED, self._name, sender, problem)
