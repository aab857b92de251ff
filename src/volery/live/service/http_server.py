"""Connections to the API: bounded in number, in all and per address, and closed when no request comes over them.

A client that sends half a request's head, or no more than the beginning of a TLS handshake, holds a connection for
`HEAD_S` at most. A body may pause for `BODY_S`, and has to come at `BODY_BYTES_PER_S` on average. At the bound the
oldest connection that waits for a head makes room, or else the oldest that waits for a body, so that neither kind keeps
others out. Where all are at work, one more gets one of a few spare places: it is answered 503 with the reason, and
`/healthz` as ever.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import resource
import socket
import ssl
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from itertools import chain
from typing import Any, Final

import msgspec
import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from volery.live.service.requests import HEAD_BYTES_MAX, refusal

HEAD_S: Final = 10.0
"""Longest time from the beginning of a connection, or from the last answer, to the end of the next request's head."""
BODY_S: Final = 30.0
"""Longest time between two pieces of a body; a body of any size has it to begin with."""
BODY_BYTES_PER_S: Final = 4_096
"""Bytes of a body that give it another second, up to `BODY_S` from now."""
SWEEP_S: Final = 0.5
AGAIN_S: Final = 0.1
"""Time between two attempts to accept, where the process has no file descriptor left."""
TELL_S: Final = 60.0
"""Shortest time between two lines of the log about a refused address."""
FILES_KEPT: Final = 128
"""File descriptors that connections leave for everything else."""
SPARE_MAX: Final = 32
"""Connections beyond the bound, out of those descriptors, that are told that there is no room."""
SPARE_S: Final = 10.0
"""Longest life of such a connection."""
BACKLOG: Final = 1_024

log = logging.getLogger(__name__)


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Connections that may be open at a time: in all, and from one address."""

    total: int = 2_000
    per_address: int = 500

    def held(self) -> ConnectionLimits:
        """The same, or as many as the limit of open files (RLIMIT_NOFILE) leaves room for."""
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        room = self.total if soft == resource.RLIM_INFINITY else max(1, soft - FILES_KEPT)
        return ConnectionLimits(min(self.total, room), min(self.per_address, room))


class Connection:
    """A connection that was accepted.

    Args:
        address: address of its other end.
        abort: closes it at once.

    Attributes:
        refusal: the reason why nothing but `/healthz` is answered over it; empty: all requests are.
    """

    __slots__ = ("abort", "address", "refusal")

    def __init__(self, address: str, abort: Callable[[], object]) -> None:
        self.address = address
        self.abort = abort
        self.refusal = ""


class Connections:
    """All connections, and which of them wait for a request's head or for the rest of its body."""

    def __init__(self, bounds: ConnectionLimits, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._bounds = bounds
        self._clock_s = clock_s
        self._open: set[Connection] = set()
        self._count_of: Counter[str] = Counter()
        self._awaiting_head: dict[Connection, float] = {}
        self._awaiting_body: dict[Connection, float] = {}
        self._spare: dict[Connection, float] = {}
        self._logged_s: dict[str, float] = {}

    def accept(self, connection: Connection) -> bool:
        """Take a connection in; where there are too many, in the place of the oldest that waits for its client.

        Returns:
            True if there was room, or room could be made. Otherwise it has a spare place, and its refusal.
        """
        address = connection.address

        is_of_address = self._count_of[address] >= self._bounds.per_address
        if is_of_address:
            oldest = next(
                (idle_connection for idle_connection in self._idle() if idle_connection.address == address),
                None,
            )
        elif len(self._open) >= self._bounds.total:
            oldest = next(self._idle(), None)
        else:
            oldest = connection

        # All are at work: none of them may be ended for this one.
        if oldest is None:
            self._refuse(connection, is_of_address)
            return False

        if oldest is not connection:
            self._end(oldest)

        self._open.add(connection)
        self._count_of[address] += 1
        self.wait(connection)
        return True

    def _idle(self) -> Iterator[Connection]:
        """Those that wait for a head, then those that wait for a body, the oldest first."""
        return chain(self._awaiting_head, self._awaiting_body)

    def wait(self, connection: Connection) -> None:
        if connection in self._open:
            self.whole(connection)
            self._awaiting_head[connection] = self._clock_s() + HEAD_S

    def came(self, connection: Connection) -> None:
        """A head is complete: expect its body."""
        self._awaiting_head.pop(connection, None)
        if connection in self._open:
            self._awaiting_body[connection] = self._clock_s() + BODY_S

    def received(self, connection: Connection, byte_count: int) -> None:
        """A piece of a body has come."""
        until_s = self._awaiting_body.get(connection)
        if until_s is not None:
            self._awaiting_body[connection] = min(until_s + byte_count / BODY_BYTES_PER_S, self._clock_s() + BODY_S)

    def whole(self, connection: Connection) -> None:
        """A body is complete: nothing is expected until the answer."""
        self._awaiting_head.pop(connection, None)
        self._awaiting_body.pop(connection, None)

    def gone(self, connection: Connection) -> None:
        self.whole(connection)
        self._spare.pop(connection, None)
        if connection in self._open:
            self._open.remove(connection)
            self._count_of[connection.address] -= 1
            if not self._count_of[connection.address]:
                del self._count_of[connection.address]

    def sweep(self) -> None:
        """Close those whose head or body is overdue."""
        now_s = self._clock_s()
        deadlines = self._awaiting_head, self._awaiting_body, self._spare
        overdue = [item for awaited_items in deadlines for item, until_s in awaited_items.items() if until_s <= now_s]
        for connection in overdue:
            self._end(connection)

    def end_unfinished(self) -> None:
        for connection in (*self._idle(), *self._spare):
            self._end(connection)

    def _end(self, connection: Connection) -> None:
        self.gone(connection)
        connection.abort()

    def _refuse(self, connection: Connection, is_of_address: bool) -> None:
        """Give a connection a spare place: the oldest of its address ends, or else the oldest of all."""
        address, now_s = connection.address, self._clock_s()
        if is_of_address:
            count_text = f"{self._count_of[address]:,} connections of {address}"
            key = "api_connections_per_address"
        else:
            count_text = f"{len(self._open):,} connections"
            key = "api_connections"

        problem = f"{count_text} are open, as many as {key} of the federation's file permits"
        connection.refusal = f"{problem}; close some, or ask again later"

        if len(self._spare) >= SPARE_MAX:
            self._end(next((spare for spare in self._spare if spare.address == address), next(iter(self._spare))))

        self._spare[connection] = now_s + SPARE_S

        self._logged_s = {spare: at_s for spare, at_s in self._logged_s.items() if now_s - at_s < TELL_S}
        if address not in self._logged_s:
            self._logged_s[address] = now_s
            log.warning("requests of %s are refused: %s", address, problem)


def refusing(app: Any, problem: str) -> Any:
    """An application that answers `/healthz` as another does, and everything else with 503 and a problem."""

    async def answer(scope: Any, receive: Any, send: Any) -> None:
        async def send_last(message: Any) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], (b"connection", b"close")]
            await send(message)

        if (scope["method"], scope["path"]) == ("GET", "/healthz"):
            await app(scope, receive, send_last)
            return

        # Whoever is still sending a body when the connection is closed does not get to read the answer.
        while (await receive()).get("more_body"):
            pass

        await refusal("connections", problem, 503)(scope, receive, send_last)

    return answer


class BoundedHttpProtocol(HttpToolsProtocol):
    """HTTP with a limit on what comes before a body, in bytes and in time."""

    connection: Connection
    bounded: Connections
    _head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        """Take over the transport, which alone closes the connection from now on."""
        self.connection.abort = transport.abort
        super().connection_made(transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.bounded.gone(self.connection)
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        self._count(url)
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        self._count(name + value)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self.bounded.came(self.connection)
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.bounded.received(self.connection, len(body))
        super().on_body(body)

    def on_message_complete(self) -> None:
        self.bounded.whole(self.connection)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Go on with the next request; a rest of the last request's body is no reason to keep the connection."""
        super().on_response_complete()
        if self.cycle.response_complete:
            self.bounded.wait(self.connection)

    def _count(self, piece: bytes) -> None:
        self._head_bytes += len(piece)
        if self._head_bytes > HEAD_BYTES_MAX:
            raise ValueError("the head of a request is too long")


class Listener:
    """Accepts connections; to uvicorn it is a server of asyncio.

    Args:
        listening: the socket; it is closed with the listener.
        context: context of TLS; None: without.
    """

    def __init__(self, listening: socket.socket, context: ssl.SSLContext | None, bounds: ConnectionLimits) -> None:
        self._socket = listening
        self._context = context
        self._connections = Connections(bounds)
        self._tasks: set[asyncio.Task[None]] = set()

    def open(self, make: Callable[[], BoundedHttpProtocol]) -> None:
        self._socket.setblocking(False)
        self._begin(self._accept(make))
        self._begin(self._sweep())

    def close(self) -> None:
        """Accept nothing more, and wait for no request that is not complete."""
        for task in self._tasks:
            task.cancel()
        self._connections.end_unfinished()

    async def wait_closed(self) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)

    def _begin(self, work: Any) -> asyncio.Task[None]:
        task: asyncio.Task[None] = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(SWEEP_S)
            self._connections.sweep()

    async def _accept(self, make: Callable[[], BoundedHttpProtocol]) -> None:
        loop = asyncio.get_running_loop()
        while True:
            try:
                client_socket, peer = await loop.sock_accept(self._socket)
            except OSError as error:
                log.error("no connection can be accepted: %s", error.strerror)
                await asyncio.sleep(AGAIN_S)
                continue

            connection = Connection(str(peer[0]), client_socket.close)
            self._connections.accept(connection)
            serve_task = self._begin(self._serve(client_socket, connection, make))

            # One that is cancelled before its first step runs none
            serve_task.add_done_callback(partial(_close_unserved, client_socket))
            connection.abort = serve_task.cancel

    async def _serve(
        self, client_socket: socket.socket, connection: Connection, make: Callable[[], BoundedHttpProtocol]
    ) -> None:
        """Shake hands, and leave the rest to the protocol."""
        protocol = make()
        protocol.connection, protocol.bounded = connection, self._connections
        if connection.refusal:
            protocol.app = refusing(protocol.app, connection.refusal)

        timeout_s = HEAD_S if self._context is not None else None
        try:
            client_socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            await asyncio.get_running_loop().connect_accepted_socket(
                lambda: protocol, client_socket, ssl=self._context, ssl_handshake_timeout=timeout_s
            )
        except BaseException as error:
            self._connections.gone(connection)
            if protocol.transport is not None:  # given up after it was open, before this task went on
                protocol.transport.abort()
                protocol.connections.discard(protocol)  # uvloop does not call `connection_lost` of such a one
            else:
                client_socket.close()

            if not isinstance(error, OSError | ssl.SSLError | asyncio.CancelledError):
                raise

            return


def _close_unserved(client_socket: socket.socket, serving: asyncio.Task[None]) -> None:
    if serving.cancelled():
        client_socket.close()


class HttpServer(uvicorn.Server):
    """Leaves signals to the program that it runs in, and accepting to the listener."""

    def __init__(self, config: uvicorn.Config, listening: socket.socket, bounds: ConnectionLimits) -> None:
        super().__init__(config)
        config.load()
        self._listener = Listener(listening, config.ssl, bounds)

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        assert sockets is None, "the listener has its own"
        await self.lifespan.startup()
        self.servers = [self._listener]  # type: ignore[list-item] # it closes as one of asyncio does
        self._listener.open(
            lambda: BoundedHttpProtocol(
                config=self.config, server_state=self.server_state, app_state=self.lifespan.state
            )
        )
        self.started = True
