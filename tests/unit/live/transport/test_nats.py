"""The client of the broker against made-up servers: cut bytes, silence, garbage, and no TLS where it is wanted."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from volery.core.errors import InputError
from volery.live.transport import broker, nats
from volery.live.transport.broker import BrokerTransport
from volery.live.transport.nats import NatsClient, NatsError

LIMIT_S = 10
ABOUT = b'INFO {"max_payload": 64}\r\n'
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    """A server's URL."""
    ended: list[asyncio.Task[None] | None] = []

    async def met(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended.append(asyncio.current_task())
        try:
            await serve(reader, writer)
        except ConnectionError:
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(met, "127.0.0.1", 0)
    async with server, asyncio.timeout(LIMIT_S):
        yield f"nats://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        for task in ended:
            assert task is not None
            task.cancel()
        await asyncio.gather(*(task for task in ended if task is not None), return_exceptions=True)


async def shake_hands(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(ABOUT)
    while not (await reader.readline()).startswith(b"PING"):
        pass
    writer.write(b"PONG\r\n")


async def answer_pings(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, said: list[bytes]) -> None:
    while line := await reader.readline():
        said.append(line)
        if line == b"PING\r\n":
            writer.write(b"PONG\r\n")


def test_messages_are_whole_wherever_the_bytes_are_cut() -> None:
    messages = [(b"f.a", b""), (b"f.b", b"\r\nMSG f.x 1 3\r\nPING\r\n"), (b"f.a", b"x" * 5_000)]
    stream = b"".join(b"MSG %s 1 %d\r\n%s\r\n" % (to, len(body), body) for to, body in messages)
    said: list[bytes] = []

    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await shake_hands(reader, writer)
            for size in (1, 2, 7, 1_000, len(stream)):
                step = [stream[at : at + size] for at in range(0, len(stream), size)]
                for part in step if size > 7 else [*step[:120], b"".join(step[120:])]:
                    writer.write(part)
                    await writer.drain()
                    await asyncio.sleep(0)
                writer.write(b"PING\r\n")
            await answer_pings(reader, writer, said)

        heard: list[tuple[str, bytes]] = []
        async with serving(serve) as url:
            client = NatsClient(url, "test", lambda trouble: None)
            client.subscribe("f.*", lambda subject, payload: heard.append((subject, payload)))
            await client.open()
            assert client.payload_max == 64
            while len(heard) < 5 * len(messages):
                await asyncio.sleep(0.01)
            client.publish(b"f.c", b"one ", b"two")
            client.publish(b"f.d", b"")
            await client.flush()
            await client.close()
        assert heard == 5 * [(to.decode(), body) for to, body in messages]

    asyncio.run(scenario())
    text = b"".join(said)
    assert b"SUB f.* 1\r\n" in text
    assert text.count(b"PONG\r\n") == 5
    assert b"PUB f.c 7\r\none two\r\nPUB f.d 0\r\n\r\n" in text


def test_a_server_that_falls_silent_is_left_and_another_connection_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nats, "PING_S", 0.05)
    troubles: list[str] = []

    async def scenario() -> None:
        met = 0
        subscribed = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal met
            met += 1
            await shake_hands(reader, writer)
            said: list[bytes] = []
            if met == 1:
                await reader.readuntil(b"PING\r\n")
                writer.write(b"PONG\r\n")
                await reader.read()
            elif met == 2:
                return
            await reader.readuntil(b"SUB f.* 1\r\n")
            subscribed.set()
            await answer_pings(reader, writer, said)

        async with serving(serve) as url:
            client = NatsClient(url, "test", troubles.append)
            client.subscribe("f.*", lambda subject, payload: None)
            await client.open()
            await subscribed.wait()
            await client.close()
        assert met >= 3

    asyncio.run(scenario())
    assert troubles == ["the connection is lost"]


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", OSError),
        (b"INFO {\r\n", NatsError),
        (b"INFO []\r\n", NatsError),
        (ABOUT + b"-ERR 'Authorization Violation'\r\n", NatsError),
        (b"x" * 100_000, OSError),
        (b"", OSError),
    ],
)
def test_what_is_no_server_that_lets_one_in_is_said(said: bytes, expected: type[Exception]) -> None:
    async def scenario() -> None:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(said)
            await writer.drain()
            if b"ERR" in said:
                await reader.readuntil(b"PING\r\n")

        async with serving(serve) as url:
            with pytest.raises(expected):
                await NatsClient(url, "test", lambda trouble: None).open()

    asyncio.run(scenario())


def test_where_certificates_are_given_nothing_is_said_in_the_clear() -> None:
    async def scenario() -> None:
        heard = b""

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            nonlocal heard
            writer.write(ABOUT)
            heard = await reader.read()

        async with serving(serve) as url:
            context = ssl.create_default_context()
            client = NatsClient(url, "test", lambda trouble: None, context, {"user": "a", "pass": "secret"})
            with pytest.raises(ssl.SSLError, match="offers no TLS"):
                await client.open()
            await asyncio.sleep(0.05)
        assert heard == b""

    asyncio.run(scenario())


@pytest.mark.parametrize("url", ["[]", "nats://h:99999", "nats://h:x"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(InputError, match="is no address"):
        NatsClient(url, "test", lambda trouble: None)


async def shake_hands_then_say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await shake_hands(reader, writer)
    while not (await reader.readline()).startswith(b"PING"):
        pass
    writer.write(b"PONG\r\n")  # it has the subscriptions of the handshake
    await reader.read()


def test_a_broker_that_falls_silent_while_a_host_opens_is_named_within_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "OPEN_S", 0.3)

    async def scenario() -> None:
        async with serving(shake_hands_then_say_nothing) as url:
            transport = BrokerTransport(url, "f", "c", lambda trouble: None)
            await transport.claim("gm", 1)
            with pytest.raises(InputError, match=r"no NATS server answers \(not within 0\.3 s\)"):
                await transport.open("gm", lambda sender, frame: None)
            await transport.close()

    asyncio.run(scenario())


def test_nobody_waits_for_an_answer_of_a_server_that_has_hung_up_before_the_question() -> None:
    async def scenario() -> None:
        async def hang_up(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await shake_hands(reader, writer)
            while not (await reader.readline()).startswith(b"PING"):
                pass
            writer.write(b"PONG\r\n")
            await writer.drain()

        lost = asyncio.Event()
        async with serving(hang_up) as url:
            client = NatsClient(url, "test", lambda trouble: lost.set())
            await client.open()
            await lost.wait()
            with pytest.raises(OSError, match="hung up"):
                await client.flush()
            await client.close()

    asyncio.run(scenario())
