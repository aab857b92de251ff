"""Connections over which no request comes keep nobody out, and what is broken off is one line of the log."""

from __future__ import annotations

import contextlib
import logging
import socket
import ssl
import threading
import urllib.request
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.live.certificates import Authority
from tests.live.serving import at_work

from volery.core.errors import InputError
from volery.live.api_calls import BusyError
from volery.live.client import Client
from volery.live.config.tls import ServerTls
from volery.live.service import http_server as listening
from volery.live.service.http_server import BODY_BYTES_PER_S, BODY_S, HEAD_S, Connection, ConnectionLimits, Connections

LIMIT_S = 30
HALF = b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: "


@pytest.fixture
def api(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """HOST:PORT of a federation in which a head has a second, and 20 connections may be open, 10 from one address."""
    monkeypatch.setattr(listening, "HEAD_S", 1.0)
    with at_work(tmp_path, machines=[{"count": 30}], api_connections=20, api_connections_per_address=10) as url:
        yield url.removeprefix("http://")


def opened(api: str, count: int, sender: str = "127.0.0.1", begin: bytes = HALF) -> list[socket.socket]:
    host, _, port = api.partition(":")
    found = []
    for _ in range(count):
        found.append(socket.create_connection((host, int(port)), LIMIT_S, (sender, 0)))
        found[-1].sendall(begin)
    return found


def is_healthy(api: str, sender: str = "127.0.0.1") -> bool:
    (asking,) = opened(api, 1, sender, b"GET /healthz HTTP/1.1\r\nhost: 127.0.0.1\r\nconnection: close\r\n\r\n")
    with asking:
        return asking.recv(1000).startswith(b"HTTP/1.1 200")


def is_closed(connection: socket.socket) -> bool:
    """Wait until the other end has closed it."""
    with contextlib.suppress(ConnectionResetError):
        while connection.recv(1000):
            pass
    return True


def test_half_open_heads_of_one_address_keep_nobody_out(api: str) -> None:
    half = opened(api, 60)
    assert is_healthy(api, "127.0.0.2")
    assert is_healthy(api), "not even others at the same address"
    assert all(map(is_closed, half[:50])), "the oldest made room"
    for one in half:
        one.close()


def test_half_open_heads_of_many_addresses_keep_nobody_out(api: str) -> None:
    half = [one for at in range(2, 12) for one in opened(api, 9, f"127.0.0.{at}")]
    assert is_healthy(api, "127.0.1.1")
    for one in half:
        one.close()


def test_a_head_that_does_not_end_is_given_up(api: str) -> None:
    """However slowly it goes on, and also after an answer over the same connection."""
    silent, trickled, second = opened(api, 3, begin=b"GET /healthz HTTP/1.1\r\n")
    second.sendall(b"host: 127.0.0.1\r\n\r\n")
    assert second.recv(1000).startswith(b"HTTP/1.1 200")
    second.sendall(HALF)
    try:
        for _ in range(LIMIT_S * 20):
            trickled.sendall(b"x")
            trickled.settimeout(0.05)
            try:
                assert trickled.recv(10) == b""
                break
            except TimeoutError:
                continue
    except ConnectionError:
        pass
    assert all(map(is_closed, (silent, second)))
    for one in (silent, trickled, second):
        one.close()


def test_a_body_that_nobody_reads_does_not_hold_its_connection(api: str) -> None:
    head = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: text/plain\r\ncontent-length: 1000\r\n\r\n"
    (refused,) = opened(api, 1, begin=head)
    with refused:
        assert refused.recv(1000).startswith(b"HTTP/1.1 415")
        refused.sendall(b"x")
        while refused.recv(1000):
            pass


def test_a_body_that_is_broken_off_is_one_line_of_the_log(api: str, caplog: pytest.LogCaptureFixture) -> None:
    head = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"
    with caplog.at_level(logging.INFO):
        for one in opened(api, 3, begin=head):
            one.close()
        for _ in range(LIMIT_S * 100):
            told = [record for record in caplog.records if record.levelno >= logging.WARNING]
            if len(told) >= 3:
                break
            assert is_healthy(api)
    assert [record.getMessage() for record in told] == ["POST /jobs of 127.0.0.1 was broken off"] * 3
    assert not any(record.exc_info for record in caplog.records)


STREAM = b"GET /events HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"
JOBS = b"GET /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\n\r\n"


def streams(api: str, count: int, sender: str = "127.0.0.1") -> list[socket.socket]:
    """Connections over which events come, all of them taken by the time when this returns."""
    found = opened(api, count, sender, STREAM)
    for one in found:
        assert one.recv(1000).startswith(b"HTTP/1.1 200")
    return found


def answer(api: str, begin: bytes, sender: str = "127.0.0.1") -> bytes:
    """All that comes over a connection of its own until the other end closes it."""
    (asking,) = opened(api, 1, sender, begin)
    found = b""
    with asking:
        while piece := asking.recv(1 << 16):
            found += piece
    return found


def test_a_client_beyond_the_bound_is_answered_why_there_is_no_room_for_it(api: str) -> None:
    taken = streams(api, 10)
    for begin in (JOBS, STREAM, JOBS.replace(b"GET /jobs", b"HEAD /summary")):
        refused = answer(api, begin).lower()
        assert refused.startswith(b"http/1.1 503")
        assert b"\r\nretry-after: 5\r\n" in refused
    assert b'"connections"' in answer(api, JOBS)
    assert b"10 connections of 127.0.0.1 are open, as many as api_connections_per_address of" in answer(api, JOBS)
    assert is_healthy(api), "which is answered at the bound, too"
    assert is_healthy(api, "127.0.0.2")
    taken.pop().close()
    while not answer(api, JOBS.replace(b"host", b"connection: close\r\nhost")).startswith(b"HTTP/1.1 200"):
        pass  # until the place is free again
    for one in taken:
        one.close()


def test_at_the_bound_of_all_addresses_whoever_comes_is_answered_so(api: str) -> None:
    taken = [*streams(api, 9, "127.0.0.2"), *streams(api, 9, "127.0.0.3"), *streams(api, 2, "127.0.0.4")]
    assert b"20 connections are open, as many as api_connections of" in answer(api, JOBS)
    assert is_healthy(api)
    for one in taken:
        one.close()


def test_a_refused_body_is_read_to_its_end_so_that_the_answer_is(api: str) -> None:
    taken = streams(api, 10)
    size = 3_000_000
    head = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n"
    assert answer(api, head % size + b" " * size).startswith(b"HTTP/1.1 503")
    for one in taken:
        one.close()


def test_spare_places_are_few_and_whoever_holds_them_keeps_nobody_else_out(api: str) -> None:
    taken = streams(api, 10)
    silent = opened(api, listening.SPARE_MAX + 60, begin=b"")
    assert is_healthy(api)
    assert answer(api, JOBS).startswith(b"HTTP/1.1 503")
    assert all(map(is_closed, silent[:50])), "the oldest made room"
    for one in (*taken, *silent):
        one.close()


def test_a_spare_place_is_held_for_a_short_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s, ended = 0.0, list[str]()
    known = Connections(ConnectionLimits(1, 1), lambda: now_s)
    first, late = (Connection(name, partial(ended.append, name)) for name in ("first", "late"))
    assert known.accept(first)
    known.came(first)
    known.whole(first)
    assert not known.accept(late)
    assert "1 connections are open" in late.refusal
    now_s += listening.SPARE_S
    known.sweep()
    assert ended == ["late"]
    known.gone(late)
    known.end_unfinished()
    assert ended == ["late"]


def test_commands_distinguish_a_busy_api_one_that_hangs_up_and_none(api: str, tmp_path: Path) -> None:
    def problem(address: str) -> str:
        with Client(f"http://{address}") as client, pytest.raises(InputError) as refused:
            client.jobs()
        return str(refused.value)

    taken = streams(api, 10)
    with Client(f"http://{api}") as client, pytest.raises(BusyError, match="10 connections of 127"):
        client.jobs()
    for one in taken:
        one.close()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"

        def hang_up() -> None:
            accepted, _ = silent.accept()
            accepted.close()

        hanging_up = threading.Thread(target=hang_up)
        hanging_up.start()
        assert "closed the connection without an answer" in problem(address)
        hanging_up.join()
    assert "no federation answers there" in problem(address)


HALF_BODY = b"POST /jobs HTTP/1.1\r\nhost: 127.0.0.1\r\ncontent-type: application/json\r\ncontent-length: 1000\r\n\r\n{"


def test_bodies_that_never_end_keep_nobody_out(api: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "BODY_S", 1.0)
    half = [one for at in range(2, 12) for one in opened(api, 9, f"127.0.0.{at}", HALF_BODY)]
    assert is_healthy(api, "127.0.1.1")
    assert all(map(is_closed, half)), "bodies of which nothing comes are given up"
    for one in half:
        one.close()


def test_an_api_that_ends_while_bodies_come_logs_no_traceback(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        with at_work(tmp_path, machines=[{"count": 30}]) as url:
            half = opened(url.removeprefix("http://"), 3, begin=HALF_BODY)
            assert is_healthy(url.removeprefix("http://"))
        assert all(map(is_closed, half))
    for one in half:
        one.close()
    assert not [record for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def test_connections_that_made_room_leave_nothing_behind(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Those that were given up while they were being opened left a request that waited for ever."""
    keys: dict[str, Any] = {"api_connections": 60, "api_connections_per_address": 50}
    with caplog.at_level(logging.INFO), at_work(tmp_path, machines=[{"count": 30}], **keys) as url:
        half = opened(url.removeprefix("http://"), 1_000, begin=HALF_BODY)
        assert is_healthy(url.removeprefix("http://"))
        for one in half:
            one.close()
    assert not [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR or record.exc_info]


def test_a_body_may_be_slow_but_has_to_come() -> None:
    now_s, ended = 0.0, list[str]()
    known = Connections(ConnectionLimits(), lambda: now_s)
    slow, trickled = (Connection("a", partial(ended.append, name)) for name in ("slow", "trickled"))
    for one in (slow, trickled):
        assert known.accept(one)
        known.came(one)
    for _ in range(100):
        now_s += BODY_S / 10
        known.received(slow, int(BODY_S / 10 * BODY_BYTES_PER_S))
        known.received(trickled, 1)
        known.sweep()
    assert ended == ["trickled"]
    now_s += BODY_S
    known.sweep()
    assert ended == ["trickled", "slow"]


def test_what_is_refused_is_logged_once_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    now_s, ended = 0.0, list[str]()
    known = Connections(ConnectionLimits(3, 2), lambda: now_s)

    def connection(address: str) -> Connection:
        return Connection(address, lambda: ended.append(address))

    first, second, other = connection("a"), connection("a"), connection("b")
    assert all(map(known.accept, (first, second, other)))
    for one in (first, second, other):
        known.came(one)
        known.whole(one)
    assert not known.accept(connection("a"))
    assert not known.accept(connection("c")), "there are three already"
    assert not known.accept(connection("a"))
    assert len(caplog.records) == 2
    assert [record.getMessage().partition(", as many")[0] for record in caplog.records] == [
        "requests of a are refused: 2 connections of a are open",
        "requests of c are refused: 3 connections are open",
    ]
    known.gone(first)
    known.gone(first)
    waiting = connection("c")
    assert known.accept(waiting)
    assert known.accept(connection("d")), "in the place of c, which waits for a head"
    assert ended == ["c"]
    known.wait(waiting)
    now_s += HEAD_S
    known.sweep()
    assert ended == ["c", "d", "a", "c", "a"], "what is gone is not ended again; those on spare places are"


def test_a_handshake_that_does_not_end_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listening, "HEAD_S", 1.0)
    authority = Authority(tmp_path / "tls")
    authority.sign("api")
    keys: dict[str, Any] = {"tls": ServerTls(certificate=authority.of("api.crt"), key=authority.of("api.key"))}
    with at_work(tmp_path / "f", machines=[{"count": 30}], api_connections_per_address=5, **keys) as url:
        address = url.removeprefix("https://")
        silent = [*opened(address, 10, begin=b""), *opened(address, 10, begin=b"\x16\x03\x01\x02\x00\x01")]
        trusting = ssl.create_default_context(cafile=authority.of("ca.crt"))
        with urllib.request.urlopen(f"{url}/healthz", timeout=LIMIT_S, context=trusting) as answer:
            assert answer.status == 200
        assert all(map(is_closed, silent))
        for one in silent:
            one.close()


def test_connections_leave_files_for_everything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("resource.getrlimit", lambda _: (256, 4096))
    assert ConnectionLimits(2000, 500).held() == ConnectionLimits(128, 128)
