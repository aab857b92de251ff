"""A real NATS server on a free port, for the tests that need one."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator

import pytest

SERVER_S = 10


@pytest.fixture(scope="session")
def broker() -> Iterator[str]:
    """The URL of a server with its defaults: a payload has at most a megabyte."""
    program = shutil.which("nats-server") or shutil.which("nats-server", path="/usr/sbin:/usr/local/bin")
    if program is None:
        pytest.skip("nats-server is not installed (Debian package nats-server)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [program, "-a", "127.0.0.1", "-p", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        _await_port(port, server)
        yield f"nats://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait()


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + SERVER_S
    while time.monotonic() < deadline and server.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.02)
    pytest.fail("nats-server does not answer")
