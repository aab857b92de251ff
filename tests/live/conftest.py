"""A real NATS server on a free port, for the tests that need one, and a folder for tasks that run as others."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.node.call import demand_workers
from volery.live.node.spawn import Accounts

SERVER_S = 10


class Server:
    """A NATS server that can be killed and started again on its port."""

    def __init__(self, program: str, *words: str) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.url = f"nats://127.0.0.1:{self.port}"
        self._program = program
        self._words = words
        self.start()

    def start(self) -> None:
        words = [self._program, "-a", "127.0.0.1", "-p", str(self.port), *self._words]
        self._running = subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        _await_port(self.port, self._running)

    def kill(self) -> None:
        self._running.kill()
        self._running.wait()


RUN_AS = "nobody" if os.geteuid() == 0 else ""
"""Whom tasks of a whole federation run as."""


def _reaches_interpreter() -> bool:
    """True if that account can run Python calls, which it cannot where this interpreter is in root's home."""
    try:
        demand_workers(Accounts(RUN_AS), ())
    except InputError:
        return False
    return True


CALLS = "true" if _reaches_interpreter() else "false"
"""What a federation's file has for the key `calls` then."""


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One that every account can enter, which pytest's own are not; supervisors that serve it end with the test."""
    made = Path(tempfile.mkdtemp(prefix="volery-"))
    made.chmod(0o755)
    yield made
    for words in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):
            if b"supervisor" in (line := words.read_bytes()) and f"{made}/".encode() in line:
                os.kill(int(words.parent.name), signal.SIGKILL)
    shutil.rmtree(made)


@pytest.fixture(scope="session")
def broker_program() -> str:
    """Where the server is."""
    return _program()


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The URL of a server with its defaults: a payload has at most a megabyte."""
    server = Server(_program())
    yield server.url
    server.kill()


@pytest.fixture
def mortal_broker() -> Iterator[Server]:
    """A server for one test, which may kill it."""
    server = Server(_program())
    yield server
    server.kill()


def program() -> str | None:
    return shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")


def _program() -> str:
    found = program()
    if found is None:
        pytest.skip("nats-server is not installed (Debian package nats-server)")
    return found


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVER_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail("nats-server does not answer")
