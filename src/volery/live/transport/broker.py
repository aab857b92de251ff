"""The NATS transport: hosts in processes of their own, on one machine or many, and a broker between them.

Subjects: `volery.FEDERATION.to.RECEIVER.SENDER` for frames, `volery.FEDERATION.hello.SENDER` for presence. Core NATS
delivers at most once and keeps the order per sender and subject. A frame larger than the broker's limit travels in
pieces; each piece begins with a byte that marks it as the first, the last, or both.
"""

from __future__ import annotations

import asyncio
import logging
import os
import re
import ssl
from collections.abc import Callable, Collection, Iterator
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.live.clock import ended_within, is_set_within
from volery.live.config.tls import BrokerAccess
from volery.live.messages import HostName
from volery.live.transport.nats import NatsClient, NatsError
from volery.live.transport.transport import KnownIncarnation, OnFrame, OnLater

FIRST: Final = 1
LAST: Final = 2
WHOLE: Final = bytes([FIRST | LAST])
HELLO_S: Final = 0.5
"""Time between two hellos of a host that waits for others: one that came too late answers then."""
OPEN_S: Final = 6.0
FLUSH_AGAIN_S: Final = 0.1
DOUBT_S: Final = 1.0
CLAIM_S: Final = 0.25
"""Time for which a host that starts waits for another process with its name to answer."""
CLAIM_FIRST_S: Final = 2.0
"""Longest wait of a host for all peers in its first incarnation: one of them may have met a later one.

The host of the API always does: one of them may keep the mark of a newer store of jobs."""
CLAIM_AGAIN_S: Final = 5.0
"""The wait where a peer has met a later incarnation: that process may run and be slow to answer."""
INCARNATION_MAX: Final = 1 << 22
"""Latest incarnation that a peer may name: messages are numbered from it, 2^40 in each, in 64 bits."""
NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
FRAME_BYTES_MAX: Final = 1 << 30
"""Largest frame: one that a sender begins and never ends must not fill the memory."""

log = logging.getLogger(__name__)


class _Hello(msgspec.Struct, frozen=True, array_like=True):
    """The message of a host that connects.

    Args:
        configuration: digest that hosts of one federation share.
        wants_answer: true if others are to send a hello, too.
        nonce: distinguishes two processes that use one name.
        incarnation: incarnation of the sender, once it has begun; 0 before.
        holds: true if the sender has claimed its name.
        incarnations: by host, the latest incarnation that the sender has met.
        mark: mark of the sender, see `Transport.announce`; empty: it has none.
        marks: marks by host: the one that the sender keeps of it.
        layout: digest of the hosts and their components; empty: an earlier version, which sends none.
    """

    configuration: str
    wants_answer: bool
    nonce: bytes
    incarnation: int = 0
    holds: bool = False
    incarnations: dict[HostName, int] = {}
    mark: bytes = b""
    marks: dict[HostName, bytes] = {}
    layout: str = ""


def pieces(frame: bytes, payload_max: int) -> Iterator[bytes]:
    """Cut a frame into payloads that the broker takes."""
    size = payload_max - 1
    for at in range(0, max(1, len(frame)), size):
        mark = (FIRST if at == 0 else 0) | (LAST if at + size >= len(frame) else 0)
        yield bytes([mark]) + frame[at : at + size]


class FrameAssembly:
    """Puts the pieces of one sender together; a frame that lacks its beginning, or has no end, is dropped."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._bytes = 0

    def add(self, payload: bytes) -> bytes | None:
        """The frame that this piece completes, if it does."""
        if not payload:
            return None

        mark = payload[0]
        part = payload[1:]
        if mark & FIRST:
            if mark & LAST:
                return part
            self._parts, self._bytes = [part], len(part)
        elif self._parts:
            self._parts.append(part)
            self._bytes += len(part)
            if self._bytes > FRAME_BYTES_MAX:
                self._parts = []

        if mark & LAST and self._parts:
            frame = b"".join(self._parts)
            self._parts = []
            return frame

        return None


class BrokerTransport:
    """The connection of one host to the broker.

    Args:
        broker: URL, for example nats://127.0.0.1:4222, or that with certificates and a login.
        federation: name; frames of other federations on the same broker are ignored.
        configuration: digest; hosts that were started with another one are refused.
        on_trouble: is called, with words, when the connection is lost or another host does not fit.
        layout: digest of the hosts and their components; hosts that were started with another one are refused, too.

    Attributes:
        make_client: makes the connection; a measurement takes one that measures itself.

    Raises:
        InputError: a federation's name that cannot be part of a subject.
    """

    def __init__(
        self,
        broker: str | BrokerAccess,
        federation: str,
        configuration: str,
        on_trouble: Callable[[str], None] | None = None,
        layout: str = "",
    ) -> None:
        _demand_name("federation", federation)
        self._layout = layout
        self._access = broker if isinstance(broker, BrokerAccess) else BrokerAccess(broker)
        self._url = self._access.url
        self._federation = federation
        self._configuration = configuration
        self._on_trouble = on_trouble or log.error
        self.make_client: type[NatsClient] = NatsClient
        self._nonce = os.urandom(8)
        self._client: NatsClient | None = None
        self._name = ""
        self._incarnation = self._met_incarnation = 0
        self._holds = False
        self._known_incarnation: KnownIncarnation = _no_incarnation
        self._on_later: OnLater | None = None
        self._doubted_at = -DOUBT_S
        self._met: set[HostName] = set()
        self._mark = b""
        self._marks: dict[HostName, bytes] = {}
        self.kept_marks: dict[HostName, bytes] = {}
        self._misfit = ""
        self._change = asyncio.Event()
        self._assemblies: dict[HostName, FrameAssembly] = {}
        self._subjects: dict[HostName, bytes] = {}

    async def claim(
        self, name: HostName, incarnation: int = 0, peers: Collection[HostName] = (), patient: bool = False
    ) -> int:
        """Connect under a name that no other process uses; see `Transport`.

        Raises:
            InputError: nothing answers at the broker's address, another process uses the name, or the name cannot be
                part of a subject.
        """
        if self._client is None:
            await self.connect(name)

        loop = asyncio.get_running_loop()
        began, greeted_at_s = loop.time(), -HELLO_S
        while not self._misfit and (now := loop.time()) < (until := began + self._claim_s(incarnation, peers, patient)):
            if now >= greeted_at_s + HELLO_S:
                greeted_at_s = now
                self._greet(wants_answer=True)
            self._change.clear()
            await is_set_within(self._change, min(until, greeted_at_s + HELLO_S) - now)

        if self._misfit:
            await self.close()
            raise InputError(f"host {name}", self._misfit)

        self._holds = True
        return incarnation if self._met_incarnation < incarnation else self._met_incarnation + 1

    def _claim_s(self, incarnation: int, peers: Collection[HostName], patient: bool) -> float:
        """The time to wait for answers to a claim, in seconds."""
        if 0 < incarnation <= self._met_incarnation:
            return CLAIM_AGAIN_S
        return CLAIM_FIRST_S if (incarnation == 1 or patient) and not self._met.issuperset(peers) else CLAIM_S

    def measure(self, kind: type[NatsClient]) -> None:
        """Use a client that also measures itself, from now on: its methods are added to a connection that is open."""
        self.make_client = kind
        if self._client is not None:
            self._client.__class__ = kind

    async def connect(self, name: HostName) -> None:
        """Connect, and receive what other hosts send when they start.

        Raises:
            InputError: nothing answers at the broker's address, or the name cannot be part of a subject.
        """
        _demand_name("host", name)
        self._name = name
        try:
            client = self.make_client(
                self._url, f"volery {self._federation} {name}", self._trouble, **self._access.options(name)
            )
            client.subscribe(self._subject("hello", "*"), self._greeted)
            await ended_within(client.open(), OPEN_S)
        except (OSError, NatsError) as error:
            raise InputError(f"broker {self._url}", _why_not(error)) from None

        self._client = client

    async def open(self, name: HostName, on_frame: OnFrame, known_incarnation: KnownIncarnation | None = None) -> None:
        """Receive frames, under a name that is claimed first where it is not yet.

        Raises:
            InputError: as `claim`.
        """
        if not self._holds:
            await self.claim(name)
        assert self._client is not None
        self._on_frame = on_frame
        self._known_incarnation = known_incarnation or self._known_incarnation
        self._client.subscribe(self._subject("to", name, "*"), self._receive)
        try:
            await ended_within(self._subscribed(self._client), OPEN_S)
        except OSError as error:
            raise InputError(f"broker {self._url}", _why_not(error)) from None

    async def _subscribed(self, client: NatsClient) -> None:
        """Wait until the broker has read the subscriptions; a connection that is lost meanwhile comes back."""
        while True:
            try:
                await client.flush()
            except OSError:
                await asyncio.sleep(FLUSH_AGAIN_S)
            else:
                return

    async def meet(self, peers: Collection[HostName], limit_s: float) -> frozenset[HostName]:
        """Send hellos until all these hosts have answered, for at most so long; see `Transport`.

        Raises:
            InputError: one of them was started with another configuration, or uses this host's name.
        """
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        greeted_at_s = -HELLO_S
        while absent_hosts := frozenset(peers) - self._met:
            if self._misfit:
                break

            now = loop.time()
            if now >= until:
                return absent_hosts

            if now >= greeted_at_s + HELLO_S:
                greeted_at_s = now
                self._greet(wants_answer=True)

            self._change.clear()
            await is_set_within(self._change, min(until, greeted_at_s + HELLO_S) - now)

        if self._misfit:
            raise InputError(f"host {self._name}", self._misfit)

        return absent_hosts

    def send(self, to: HostName, frame: bytes) -> None:
        """Publish a frame; it is lost where the broker is away."""
        client = self._client

        assert client is not None
        subject = self._subjects.get(to)
        if subject is None:
            subject = self._subjects[to] = self._subject("to", to, self._name).encode()

        if len(frame) < client.payload_max:
            client.publish(subject, WHOLE, frame)
        else:
            for payload in pieces(frame, client.payload_max):
                client.publish(subject, payload)

    def begun(self, incarnation: int, on_later: OnLater) -> None:
        """Announce this incarnation to an earlier one that still runs: the broker lets nobody else announce it."""
        self._incarnation, self._on_later = incarnation, on_later
        self._greet(wants_answer=False)

    def announce(self, mark: bytes) -> None:
        """See `Transport`: every host receives hellos."""
        self._mark = mark
        self._greet(wants_answer=False)

    def doubt(self) -> None:
        """Ask, at most once a second."""
        now = asyncio.get_running_loop().time()
        if now >= self._doubted_at + DOUBT_S:
            self._doubted_at = now
            self._greet(wants_answer=True)

    async def close(self) -> None:
        """Publish what is queued, and disconnect."""
        if self._client is not None:
            client, self._client = self._client, None
            await client.close()

    def _subject(self, *parts: str) -> str:
        return ".".join(("volery", self._federation, *parts))

    def _greet(self, wants_answer: bool, asker: HostName = "") -> None:
        incarnations = {asker: self._known_incarnation(asker)} if asker else {}
        marks = {asker: self._marks[asker]} if asker in self._marks else {}

        hello = _Hello(
            self._configuration,
            wants_answer,
            self._nonce,
            self._incarnation,
            self._holds,
            incarnations,
            self._mark,
            marks,
            self._layout,
        )

        if self._client is not None:
            self._client.publish(self._subject("hello", self._name).encode(), msgspec.msgpack.encode(hello))

    def _receive(self, subject: str, payload: bytes) -> None:
        sender = subject.rpartition(".")[2]
        assembly = self._assemblies.get(sender)
        if assembly is None:
            assembly = self._assemblies[sender] = FrameAssembly()
        frame = assembly.add(payload)
        if frame is not None:
            self._on_frame(sender, frame)

    def _greeted(self, subject: str, payload: bytes) -> None:
        sender = subject.rpartition(".")[2]
        try:
            hello = msgspec.msgpack.decode(payload, type=_Hello)
        except msgspec.MsgspecError as error:
            self._on_trouble(f"host {self._name}: what {sender} says is no hello of this version: {error}")
            return

        if sender == self._name:
            self._receive_own(hello)
        elif difference := self._difference(hello):
            # One that has no name yet is refused by those that have: it must not keep a host away that belongs here.
            self._refuse(f"host {sender} {difference}; start all hosts with the same file", is_final=hello.holds)
        else:
            self._met.add(sender)
            if hello.mark:
                self._marks[sender] = hello.mark
            if (mark := hello.marks.get(self._name)) and not self._mark:  # else it is of this incarnation
                self.kept_marks[sender] = mark
            if not self._holds:  # a host that runs is never ended, or renumbered, by what another host sends
                self._remember(sender, hello.incarnations.get(self._name, 0))

        self._change.set()
        if hello.wants_answer:
            self._greet(wants_answer=False, asker=sender)

    def _remember(self, sender: HostName, incarnation: int) -> None:
        if incarnation < INCARNATION_MAX:
            self._met_incarnation = max(self._met_incarnation, incarnation)
        else:
            log.error("host %s: what host %s has met is no incarnation: %d", self._name, sender, incarnation)

    def _receive_own(self, hello: _Hello) -> None:
        """Handle the hello of another process with this host's name: an earlier incarnation, a later one, a mistake."""
        if self._incarnation and hello.incarnation > self._incarnation:
            assert self._on_later is not None
            self._on_later(hello.incarnation)
        # Of two that claim a name at once the one with the smaller nonce keeps it.
        elif not self._holds and (hello.holds or hello.incarnation or hello.nonce < self._nonce):
            self._refuse(f"another process uses the name {self._name}; every host runs once")
        elif self._incarnation and hello.incarnation == self._incarnation:
            self._on_trouble(f"another process uses the name {self._name}, too; stop one of them, every host runs once")

    def _difference(self, hello: _Hello) -> str:
        """Words for what differs in the file of the sender; empty where it fits."""
        if hello.configuration != self._configuration:
            return "runs another configuration"
        return "has other [hosts] in its file" if hello.layout not in ("", self._layout) and self._layout else ""

    def _refuse(self, misfit: str, *, is_final: bool = True) -> None:
        if is_final:
            self._misfit = misfit
        if self._holds:  # else it is raised, and logged once
            self._on_trouble(misfit)

    def _trouble(self, problem: str) -> None:
        self._on_trouble(f"host {self._name}: broker {self._url}: {problem}")


def _no_incarnation(_: HostName) -> int:
    return 0


def _why_not(error: Exception) -> str:
    """Why there is no connection, and what to do."""
    if isinstance(error, ssl.SSLError):
        return f"the broker and this host do not trust each other ({error}); see broker_tls"
    problem = str(error) or type(error).__name__
    if "authorization" in problem.lower():
        return f"the broker refuses this host ({problem}); see broker_login and broker_tls"
    return f"no NATS server answers ({problem}); start one, for example: nats-server"


def _demand_name(kind: str, name: str) -> None:
    if not NAME.fullmatch(name):
        raise InputError(f"{kind} {name!r}", "a name has letters, digits, - and _ only, because it is part of subjects")
