"""A lean client of NATS: publish, subscribe, TLS, and coming back, without a task, a queue or a copy per message.

Protocol: https://docs.nats.io/reference/reference-protocols/nats-protocol (INFO, CONNECT, PUB, SUB, MSG, PING, PONG,
-ERR). All that is published in one turn of the event loop leaves in one write, and what has come is handed over where
it is read. What is published while the server is away is lost, as what the server itself loses is: whoever needs more
keeps it and sends it again (`delivery`). Why not the usual client: docs/decisions/0026.
"""

from __future__ import annotations

import asyncio
import json
import logging
import ssl
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, cast
from urllib.parse import urlsplit

import msgspec

import volery
from volery.core.errors import InputError
from volery.live.clock import ended_within, in_background

PORT: Final = 4222
CONNECT_S: Final = 2.0
AGAIN_S: Final = 0.1
AGAIN_MAX_S: Final = 1.0
PING_S: Final = 5.0
"""Silence of a server after which it is asked; after twice as long it is given up."""
PENDING_BYTES_MAX: Final = 256 << 20
"""Bytes that wait for a server that does not read; further ones are lost, and an error is logged."""
LINE_BYTES_MAX: Final = 1 << 16

OnMessage = Callable[[str, bytes], None]
"""Takes a subject and a payload."""

log = logging.getLogger(__name__)


class NatsError(Exception):
    """The server refuses; the message is its own."""


class _ServerFeatures(msgspec.Struct, frozen=True):
    max_payload: int = 1 << 20
    tls_required: bool = False
    tls_available: bool = False


class _Wire(asyncio.Protocol):
    """One connection, from its first byte to its last; TLS comes after the server's first line."""

    def __init__(self, client: NatsClient) -> None:
        self._client = client
        self._unread = b""
        loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.about: asyncio.Future[_ServerFeatures] = loop.create_future()
        self.ready: asyncio.Future[None] = loop.create_future()
        self.lost: asyncio.Future[Exception | None] = loop.create_future()
        self.pongs: list[asyncio.Future[None]] = []
        self.is_quiet = True

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # those of uvloop derive from nothing

    def connection_lost(self, exc: Exception | None) -> None:
        problem = exc or ConnectionResetError("the server has hung up")
        futures: list[asyncio.Future[Any]] = [self.about, self.ready, *self.pongs]
        for future in futures:
            if not future.done():
                future.set_exception(problem)
                future.exception()  # marks it as retrieved: nobody may wait for it
        if not self.lost.done():
            self.lost.set_result(exc)

    def data_received(self, content: bytes) -> None:
        self.is_quiet = False
        self._client.read(self, content)

    def take(self, content: bytes) -> None:
        """Hand over the complete lines and messages, and keep the rest."""
        if self._unread:
            content = self._unread + content

        at = 0
        while (end := content.find(b"\r\n", at)) >= 0:
            if content.startswith(b"MSG ", at):
                words = content[at + 4 : end].split()
                begin = end + 2
                size = int(words[-1])
                if begin + size + 2 > len(content):
                    break
                at = begin + size + 2
                self._client.deliver(words[0], words[1], content[begin : begin + size])
            else:
                line = content[at:end]
                at = end + 2
                self._on_line(line)

        self._unread = content[at:]

        # Not a server of this protocol, or a hostile one: it would fill the memory.
        if len(self._unread) > LINE_BYTES_MAX and not self._unread.startswith(b"MSG ") and self.transport is not None:
            self.transport.abort()

    def _on_line(self, line: bytes) -> None:
        word, _, arguments = line.partition(b" ")
        match word.upper():
            case b"PING":
                self.write(b"PONG\r\n")
            case b"PONG":
                if not self.ready.done():
                    self.ready.set_result(None)
                elif self.pongs and not (future := self.pongs.pop(0)).done():
                    future.set_result(None)
            case b"INFO":
                self._on_about(arguments)
            case b"-ERR":
                problem = arguments.decode(errors="replace").strip("' ")
                if not self.ready.done():
                    self.ready.set_exception(NatsError(problem))
                else:
                    self._client.on_trouble(problem)

    def _on_about(self, arguments: bytes) -> None:
        if not self.about.done():
            try:
                self.about.set_result(msgspec.json.decode(arguments, type=_ServerFeatures))
            except msgspec.MsgspecError as error:
                self.about.set_exception(NatsError(f"what answers is no NATS server: {error}"))

    def write(self, words: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(words)

    def pong(self) -> asyncio.Future[None]:
        """A future that is set when the server has read all that was written before."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        if self.lost.done():  # nobody would ever answer
            future.set_exception(ConnectionResetError("the server has hung up"))
            future.exception()
            return future
        self.pongs.append(future)
        self.write(b"PING\r\n")
        return future


class NatsClient:
    """A connection to one server that comes back by itself.

    Args:
        url: nats://HOST:PORT, or tls://HOST:PORT.
        name: name that the server shows.
        on_trouble: is called, with words, when the server refuses something, and when it is lost.
        tls: certificates; None: those of the system, where the server wants TLS.
        login: user and pass, or auth_token.

    Attributes:
        payload_max: largest payload, bytes.

    Raises:
        InputError: the URL names no valid host or port.
    """

    def __init__(
        self,
        url: str,
        name: str,
        on_trouble: Callable[[str], None],
        tls: ssl.SSLContext | None = None,
        login: dict[str, str] | None = None,
    ) -> None:
        try:
            parts = urlsplit(url if "://" in url else f"nats://{url}")
            self._host = parts.hostname or "127.0.0.1"
            self._port = PORT if parts.port is None else parts.port
        except ValueError as error:
            raise InputError("broker", f"{url!r} is no address ({error}); give nats://HOST:PORT") from None

        self._wants_tls = parts.scheme == "tls" or tls is not None
        self._tls = tls
        self._login = login or {}
        self._name = name
        self.on_trouble = on_trouble
        self.payload_max = 1 << 20
        self._subscriptions: dict[bytes, tuple[str, OnMessage]] = {}
        self._outgoing_parts: list[bytes] = []
        self._wire: _Wire | None = None
        self._stay_task: asyncio.Task[None] | None = None
        self._is_full = False
        self._subjects: dict[bytes, str] = {}

    async def open(self) -> None:
        """Connect.

        Raises:
            OSError: nothing answers, or it hangs up.
            ssl.SSLError: one side does not trust the other.
            NatsError: the server refuses this client, or is none.
        """
        self._wire = await self._connect()
        self._stay_task = in_background(self._stay(), f"{self._name}: the connection to the broker")

    async def _connect(self) -> _Wire:
        wire = _Wire(self)
        try:
            await ended_within(self._connected(wire), CONNECT_S)
        except BaseException:
            if wire.transport is not None:
                wire.transport.abort()
            raise
        return wire

    async def _connected(self, wire: _Wire) -> None:
        await asyncio.get_running_loop().create_connection(lambda: wire, self._host, self._port)
        await self._shake_hands(wire)

    async def _shake_hands(self, wire: _Wire) -> None:
        loop = asyncio.get_running_loop()
        about = await wire.about
        self.payload_max = about.max_payload

        is_secure = self._wants_tls or about.tls_required

        if is_secure:
            if not (about.tls_required or about.tls_available):
                raise ssl.SSLError("the broker offers no TLS")
            context = self._tls or ssl.create_default_context()
            assert wire.transport is not None, "it has sent its first line"
            wire.transport = await loop.start_tls(wire.transport, wire, context, server_hostname=self._host)

        options = {
            "verbose": False,
            "pedantic": False,
            "echo": False,
            "tls_required": is_secure,
            "lang": "python",
            "version": volery.__version__,
            "protocol": 1,
            "name": self._name,
            **self._login,
        }

        wire.write(f"CONNECT {json.dumps(options)}\r\nPING\r\n".encode())
        try:
            await wire.ready
            # Subscriptions belong to the connection: the server has forgotten those of the last one.
            for sid, (subject, _) in self._subscriptions.items():
                wire.write(b"SUB %s %s\r\n" % (subject.encode(), sid))
            await wire.pong()
        except OSError as error:
            if is_secure and not isinstance(error, ssl.SSLError):  # the reason is lost where the server is quick
                raise ssl.SSLError(str(error)) from None
            raise

    async def _stay(self) -> None:
        """Watch the connection, and make another one when it is lost, for ever."""
        while True:
            wire = self._wire
            assert wire is not None, "there was a connection"
            await self._watch(wire)

            self.on_trouble("the connection is lost")
            wait_s = AGAIN_S

            while self._wire is wire:
                await asyncio.sleep(wait_s)
                wait_s = min(2 * wait_s, AGAIN_MAX_S)
                try:
                    self._wire = await self._connect()
                except Exception as error:  # whatever it is, there is another try
                    log.info("%s: the broker is not back: %s", self._name, error or type(error).__name__)

            log.warning("%s: the broker is back", self._name)

    async def _watch(self, wire: _Wire) -> None:
        while not wire.lost.done():
            wire.is_quiet = True
            await asyncio.wait((wire.lost,), timeout=PING_S)
            # Anything that came shows that the server is there: only a silent one is asked.
            if wire.is_quiet and not wire.lost.done():
                pong = wire.pong()
                await asyncio.wait((wire.lost, pong), timeout=PING_S, return_when=asyncio.FIRST_COMPLETED)
                if not pong.done() and wire.transport is not None:
                    wire.transport.abort()
                    return

    @property
    def connected(self) -> bool:
        return self._wire is not None and not self._wire.lost.done()

    def subscribe(self, subject: str, on_message: OnMessage) -> None:
        """Receive what is published under a subject, which may have wildcards, from now on or from `open`."""
        sid = str(len(self._subscriptions) + 1).encode()
        self._subscriptions[sid] = (subject, on_message)
        if self._wire is not None:
            self._wire.write(b"SUB %s %s\r\n" % (subject.encode(), sid))

    def read(self, wire: _Wire, content: bytes) -> None:
        """Take what has come in."""
        wire.take(content)

    def deliver(self, subject: bytes, sid: bytes, payload: bytes) -> None:
        name = self._subjects.get(subject)
        if name is None:
            name = self._subjects[subject] = subject.decode()
        self._subscriptions[sid][1](name, payload)

    def publish(self, subject: bytes, *parts: bytes) -> None:
        """Send a message at the end of this turn of the loop; its parts are put together."""
        outgoing = self._outgoing_parts
        if not outgoing:
            asyncio.get_running_loop().call_soon(self._write)
        outgoing.append(b"PUB %s %d\r\n" % (subject, sum(map(len, parts))))
        outgoing += parts
        outgoing.append(b"\r\n")

    def _write(self) -> None:
        outgoing, self._outgoing_parts = self._outgoing_parts, []
        wire = self._wire
        if not outgoing or wire is None or wire.transport is None or wire.lost.done():
            return

        is_full = wire.transport.get_write_buffer_size() > PENDING_BYTES_MAX
        if is_full and not self._is_full:
            self.on_trouble("the broker does not read; what is sent to it is lost")

        self._is_full = is_full
        if not is_full:
            wire.write(b"".join(outgoing))

    async def flush(self) -> None:
        """Wait until the server has read all that was published and subscribed.

        Raises:
            OSError: it hung up before.
        """
        self._write()
        if self._wire is not None:
            await self._wire.pong()

    async def close(self) -> None:
        """Send what was published, and disconnect."""
        if self._stay_task is not None:
            self._stay_task.cancel()

        wire, lost = self._wire, None
        if wire is not None and not wire.lost.done():
            lost = wire.lost
            with suppress(OSError):
                await ended_within(self.flush(), CONNECT_S)

        self._wire = None
        if wire is not None and wire.transport is not None:
            wire.transport.close()

        if lost is not None:
            await asyncio.wait((lost,), timeout=CONNECT_S)
