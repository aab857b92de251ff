"""Reliable delivery, in one place: what a component sends arrives once and in order, while neither end crashes.

Roles    `Linked` stands around a component: messages leave it as numbered frames and come back out of frames.
Flow     Frame > Acknowledgement (or a frame the other way, which acknowledges too); after a restart Greeting >
         Acknowledgement first.
Session  Each end of a link counts its sessions: an incarnation opens a new one, and so does `LinkPort.renew`. A frame
         names the sessions of both ends; one that was meant for an earlier session is refused, whenever it arrives.
         That is the fence of all messages on links. When the other end has begun a new session, what was
         sent to the old one is forgotten and the component receives `Renewed` before anything else from there.
Retries  A retry sends the first frames again, fewer with each try, and waits twice as long as the one before. How long
         the first waits follows the time that acknowledgements take, measured on frames that were not sent twice (Karn
         and Partridge, SIGCOMM 1987): a peer that is slow because it is busy is not made busier.
Cost     Two timers in one per peer (what is not acknowledged, what is not yet answered); none per message. Components
         that are not wrapped pay nothing.
Sure     Where the driver promises that what is sent arrives (`Port.is_reliable`), frames have no number, nobody
         acknowledges them and none is kept: what is left of a link are its sessions, which no driver can promise
         (decision 0026).

The submitter is not linked: it stands beside its entry, and resubmits to a new incarnation.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, field
from functools import reduce
from operator import or_
from typing import Any, Final

import msgspec

from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment, UnknownMessageError
from volery.core.events import Event, PeerBack, TimerFired
from volery.core.model import SUBMITTER, Address, Message, Time
from volery.core.port import ForwardingPort, Port

RENEWALS: Final = 1 << 20
"""Sessions that one incarnation can open."""
WINDOW: Final = 64
"""Frames that are sent again at once; the others follow as those are acknowledged."""
RETRY_US: Final[Time] = 50_000
"""Shortest time without an acknowledgement before frames are sent again."""
RETRY_MAX_US: Final[Time] = 10_000_000
"""Longest such time."""
GREETING_US: Final[Time] = 1_000_000
"""Shortest time without an answer before a greeting that has surely arrived is sent again: its peer crashed."""
ACKNOWLEDGE_US: Final[Time] = 5_000
"""Longest time for which an acknowledgement waits for a frame to ride on."""


class Frame(Message, frozen=True):
    """A numbered message; `session` is the sender's, `to_session` the receiver's.

    It acknowledges all frames up to `last_received`. Number 0: the driver has promised that it arrives, and in order.
    """

    session: int
    to_session: int
    number: int
    last_received: int
    payload: bytes


class PatientFrame(Frame, frozen=True):
    """One with a message for which nobody waits."""

    coalescable = True


class Acknowledgement(Message, frozen=True):
    """All frames up to `last_received` have come."""

    session: int
    to_session: int
    last_received: int


class Greeting(Message, frozen=True):
    """A new incarnation asks which session its peer is in."""

    session: int


class Renewed(Message, frozen=True):
    """Link > its own component: the peer has begun anew, and what it had been sent and not acknowledged is void."""

    peer: Address


LINK_MESSAGES: Final[frozenset[type[Message]]] = frozenset({Frame, PatientFrame, Acknowledgement, Greeting})


Accepts = Callable[[Message, Address], bool]


@dataclass(slots=True)
class _End:
    """One end of the link to a peer.

    Attributes:
        session: Session of this end.
        peer_session: Session of the peer; None until a new incarnation has received it.
        retry_us: Time until frames without acknowledgement are sent again.
        frames: Numbered frames without acknowledgement, with the time of the first sending.
        last_resent: Number of the last frame that was sent more than once.
        unnumbered_payloads: Payloads that wait for the session of the peer.
        last_sent: Number of the last frame sent.
        last_received: Number up to which all frames have come.
        early_payloads: Payloads of frames that came before their turn, by number.
        owes_acknowledgement: Whether the peer has sent what no frame has acknowledged yet.
        sent_at: Time of the last sending of frames that had to be sent.
        timer_at: Time of the timer; 0 when there is none.
    """

    session: int
    peer_session: int | None
    retry_us: Time
    frames: deque[tuple[int, Time, bytes]] = field(default_factory=deque)
    last_resent: int = 0
    unnumbered_payloads: list[bytes] = field(default_factory=list)
    last_sent: int = 0
    last_received: int = 0
    early_payloads: dict[int, bytes] = field(default_factory=dict)
    owes_acknowledgement: bool = False
    sent_at: Time = 0
    timer_at: Time = 0

    def reset(self) -> None:
        """Begin another session of either end: what was sent in the one before is void, in both directions."""
        self.last_sent = self.last_received = self.last_resent = 0
        self.frames.clear()
        self.early_payloads.clear()


class Linked(Component):
    """Stands around a component and its port.

    Args:
        incarnation: Number of restarts; 0: it was built with its deployment, as its peers were, as far as it knows.
        decode: Decoder of what travels on the links.
        accepts: Whether the component takes a message of a peer; one that it does not is void (the fence of leaders).
    """

    __slots__ = ("_accepts", "_decode", "_ends", "_incarnation", "_retry_us", "_sure", "inner", "now")

    def __init__(
        self,
        inner: Component,
        incarnation: int,
        decode: msgspec.msgpack.Decoder[Any],
        accepts: Accepts | None = None,
    ) -> None:
        self.inner = inner
        self.now: Time = 0
        self._incarnation = incarnation
        self._decode = decode.decode
        self._accepts = accepts
        self._ends: dict[Address, _End] = {}

    def bind(self, port: Port) -> None:
        """Put the links between the component and its port."""
        self._port = port
        self._sure = port.is_reliable
        self._retry_us = GREETING_US if self._sure else RETRY_US
        self.inner.bind(LinkPort(self, port))

    def takes(self) -> Collection[type]:
        return LINK_MESSAGES.union(self.inner.takes())

    def start(self, now: Time) -> None:
        self.now = now
        self.inner.start(now)

    def check(self) -> None:
        self.inner.check()

    def check_rest(self) -> None:
        """Nothing is left to be acknowledged."""
        for peer, end in self._ends.items():
            is_rest = not end.frames and not end.unnumbered_payloads
            assert is_rest, f"{self._port.address} > {peer} was not acknowledged"
        self.inner.check_rest()

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take frames apart; hand everything else on."""
        self.now = now
        match event:
            case Frame(number=0):
                self._on_sure_frame(event, source)
            case Frame():
                self._on_frame(event, source)
            case Acknowledgement():
                if self._meet(source, event.session, event.to_session):
                    end = self._ends[source]
                    if event.to_session == end.session:
                        self._acknowledged(end, event.last_received, source)
            case Greeting():
                if self._meet(source, event.session, None):
                    self._answer(self._ends[source], source)
            case TimerFired(key=("link", str(peer))):
                self._on_timer(peer)
            case _:
                if isinstance(event, PeerBack) and event.peer in self._ends:
                    self._hasten(event.peer)
                self.inner.handle(event, source, now)

    def _end(self, peer: Address) -> _End:
        end = self._ends.get(peer)
        if end is None:
            peer_session = None if self._incarnation else 0
            end = self._ends[peer] = _End(self._incarnation * RENEWALS, peer_session, self._retry_us)
        return end

    def _meet(self, peer: Address, session: int, to_session: int | None) -> bool:
        """Note the session of a peer; False when its message is out of date.

        A new incarnation accepts only what is addressed to it: all else may be as old as the network is slow.
        """
        end = self._end(peer)
        if end.peer_session is None:
            if to_session != end.session:
                self._port.send(peer, Acknowledgement(end.session, session, 0))
                return False
            end.peer_session = session
            for payload in end.unnumbered_payloads:
                self._send_frame(end, peer, payload)
            end.unnumbered_payloads.clear()
            return True

        # What was sent to the earlier session is void; the component is informed before anything else from there.
        if session > end.peer_session:
            end.peer_session = session
            end.reset()
            end.retry_us = self._retry_us
            if Renewed in self.inner.takes():
                self.inner.handle(Renewed(peer), peer, self.now)
        return session == end.peer_session

    def send(self, peer: Address, message: Message) -> None:
        """Send a frame, or ask first for the session of the peer."""
        end = self._end(peer)
        payload = msgspec.msgpack.encode(message)
        if end.peer_session is None:
            if not end.unnumbered_payloads:
                self.greet(peer)
            end.unnumbered_payloads.append(payload)
        elif self._sure and message.coalescable:
            self._port.send(peer, PatientFrame(end.session, end.peer_session, 0, 0, payload))
        else:
            self._send_frame(end, peer, payload)

    def greet(self, peer: Address) -> None:
        """Ask for the peer's session, and make this one known."""
        end = self._end(peer)
        self._port.send(peer, Greeting(end.session))
        end.sent_at = self.now
        self._set_timer(end, peer)

    def renew(self, peer: Address) -> None:
        """Open a new session: frames that were meant for the old one are refused from now on.

        What was sent and not acknowledged is void, in both directions.
        """
        end = self._end(peer)
        end.session += 1
        end.reset()

    def _send_frame(self, end: _End, peer: Address, payload: bytes) -> None:
        assert end.peer_session is not None, "a frame without an addressee"
        if self._sure:
            self._port.send(peer, Frame(end.session, end.peer_session, 0, 0, payload))
            return

        end.last_sent += 1
        if not end.frames:
            end.sent_at = self.now
        end.frames.append((end.last_sent, self.now, payload))
        if len(end.frames) <= WINDOW:
            end.owes_acknowledgement = False
            self._port.send(peer, Frame(end.session, end.peer_session, end.last_sent, end.last_received, payload))
        self._set_timer(end, peer)

    def _on_sure_frame(self, frame: Frame, peer: Address) -> None:
        if self._meet(peer, frame.session, frame.to_session) and frame.to_session == self._ends[peer].session:
            self._hand_on(frame.payload, peer)

    def _hand_on(self, payload: bytes, peer: Address) -> None:
        try:
            message = self._decode(payload)
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise UnknownMessageError(f"{self._port.address} cannot read a message of {peer}: {error}") from None
        if self._accepts is None or self._accepts(message, peer):
            self.inner.handle(message, peer, self.now)

    def _on_frame(self, frame: Frame, peer: Address) -> None:
        if not self._meet(peer, frame.session, frame.to_session):
            return
        end = self._ends[peer]
        self._owe(end, peer)
        if frame.to_session != end.session:
            return

        self._acknowledged(end, frame.last_received, peer)
        if frame.number > end.last_received:
            end.early_payloads[frame.number] = frame.payload

        # A component that ends a session while it handles a message receives nothing more of that session.
        session = end.session
        while end.session == session and (payload := end.early_payloads.pop(end.last_received + 1, None)) is not None:
            end.last_received += 1
            self._hand_on(payload, peer)

    def _acknowledged(self, end: _End, last_received: int, peer: Address) -> None:
        frames = end.frames
        count = len(frames)
        number = 0
        while frames and frames[0][0] <= last_received:
            number, sent_at, _ = frames.popleft()
        if not number:
            return

        # Karn: the acknowledgement of a frame that was sent twice does not say which of the two took how long.
        if number > end.last_resent:
            end.retry_us = min(max(RETRY_US, 2 * (self.now - sent_at)), RETRY_MAX_US)
        end.sent_at = self.now

        # Some come into the window.
        if count > WINDOW and end.peer_session is not None:
            for number, _, payload in list(frames)[max(0, WINDOW - count + len(frames)) : WINDOW]:
                self._port.send(peer, Frame(end.session, end.peer_session, number, end.last_received, payload))

    def _answer(self, end: _End, peer: Address) -> None:
        """Send the session of this end: at once where no frame will carry it."""
        if self._sure and end.peer_session is not None:
            self._port.send(peer, Acknowledgement(end.session, end.peer_session, 0))
        else:
            self._owe(end, peer)

    def _owe(self, end: _End, peer: Address) -> None:
        if not end.owes_acknowledgement:
            end.owes_acknowledgement = True
            self._set_timer(end, peer)

    def _set_timer(self, end: _End, peer: Address) -> None:
        """The one timer of a peer, for the earlier of its two duties."""
        due_at = self.now + ACKNOWLEDGE_US if end.owes_acknowledgement else 0
        if end.frames or end.peer_session is None:
            retry_at = max(end.sent_at + end.retry_us, self.now)
            due_at = min(due_at, retry_at) if due_at else retry_at
        if due_at and (not end.timer_at or due_at < end.timer_at):
            end.timer_at = due_at
            self._port.set_timer(("link", peer), due_at)

    def _on_timer(self, peer: Address) -> None:
        end = self._ends[peer]
        end.timer_at = 0
        if end.owes_acknowledgement and end.peer_session is not None:
            end.owes_acknowledgement = False
            self._port.send(peer, Acknowledgement(end.session, end.peer_session, end.last_received))

        # A retry sends fewer frames and waits longer with each try: a busy peer is not made busier.
        if (end.frames or end.peer_session is None) and self.now >= end.sent_at + end.retry_us:
            self._send_again(end, peer, max(1, WINDOW * RETRY_US // end.retry_us))
            end.retry_us = min(2 * end.retry_us, RETRY_MAX_US)
        self._set_timer(end, peer)

    def _send_again(self, end: _End, peer: Address, count: int) -> None:
        end.sent_at = self.now
        if end.peer_session is None:
            self._port.send(peer, Greeting(end.session))
            return
        for number, _, payload in list(end.frames)[:count]:
            end.last_resent = max(end.last_resent, number)
            self._port.send(peer, Frame(end.session, end.peer_session, number, end.last_received, payload))

    def _hasten(self, peer: Address) -> None:
        """The peer can be reached again: try at once."""
        end = self._ends[peer]
        end.retry_us = self._retry_us
        if end.frames or end.peer_session is None:
            self._send_again(end, peer, WINDOW)
            self._set_timer(end, peer)


class LinkPort(ForwardingPort):
    """The port of a linked component: it sends over links, and answers the submitter directly."""

    __slots__ = ("_linked",)

    def __init__(self, linked: Linked, port: Port) -> None:
        super().__init__(port)
        self._linked = linked

    def send(self, to: Address, message: Message) -> None:
        if to == SUBMITTER:
            self.inner.send(to, message)
        else:
            self._linked.send(to, message)

    def renew(self, peer: Address) -> None:
        """Open a new session with a peer, see `Linked.renew`."""
        self._linked.renew(peer)


class Linking:
    """Wraps the components of one deployment.

    Args:
        messages: Messages that travel on its links.
    """

    def __init__(self, messages: Iterable[type[Message]]) -> None:
        kinds = sorted(set(messages) - LINK_MESSAGES, key=lambda kind: kind.__name__)
        self._decoder: msgspec.msgpack.Decoder[Any] = msgspec.msgpack.Decoder(reduce(or_, kinds))

    def around(self, component: Component, incarnation: int = 0, accepts: Accepts | None = None) -> Linked:
        """One component, linked; see `Linked`."""
        return Linked(component, incarnation, self._decoder, accepts)


def linked(deployment: Deployment, messages: Iterable[type[Message]]) -> Deployment:
    """A deployment that bears loss, duplication, delay and partitions: its components are the same, and linked.

    For designs of which no component may crash; others link each component that they rebuild (`Linking`).
    """
    assert deployment.capability(CrashRecovery) is None, "a component that is rebuilt has to be linked, too"
    around = Linking(messages).around
    components = {address: around(component) for address, component in deployment.components.items()}
    return msgspec.structs.replace(deployment, components=components)
