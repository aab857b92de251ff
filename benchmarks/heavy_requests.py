"""The worst GET /healthz while one client sends the heaviest requests that the API takes, or refuses.

    python benchmarks/heavy_requests.py [--volery PATH] [--only NAME]

`volery up` runs on one core of its own, with its defaults; the client runs on another one. For each request: its
status, how long its answer took, its size, and the median and the worst answer of /healthz until half a second later.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

LIMIT_S = 120.0


def bodies() -> dict[str, tuple[str, bytes]]:
    """Name of each request -> path and body."""
    empty = b'{"command":"true","tasks":[%s]}' % b",".join([b"{}"] * 1_000_000)
    different = [{"constraints": [f"cores >= {number}"]} for number in range(100_000)]
    kinds = json.dumps({"command": "true", "tasks": different}).encode()
    inputs = json.dumps({"command": "cat", "tasks": [{"stdin": str(number)} for number in range(100_000)]}).encode()
    impossible = b'{"command":"true","tasks":1000000,"constraints":["cores >= 99999"]}'
    return {
        "unknown key of 60 MB": ("/jobs", b'{"' + b"x" * 60_000_000 + b'":1}'),
        "100,000 constraints": ("/jobs", kinds),
        "plan 100,000 constraints": ("/plan", kinds),
        "plan 1,000,000 tasks": ("/plan", empty),
        "plan 100,000 inputs": ("/plan", inputs),
        "forecast 1,000,000 tasks": ("/forecast", empty),
        "forecast 100,000 inputs": ("/forecast", inputs),
        "1,000,000 impossible tasks": ("/jobs", impossible),
        "100,000 inputs": ("/jobs", inputs),
        "1,000,000 tasks": ("/jobs", empty),
    }


@contextlib.contextmanager
def federation(volery: str, core: int) -> Iterator[str]:
    """`volery up` on one core; its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        Path(folder).chmod(0o755)  # of root's federation tasks run as another account
        command = ["taskset", "-c", str(core), volery, "up", "--api", f"127.0.0.1:{port}", "-o", folder, "--json"]
        command += ["--run-as", "nobody", "--no-calls"] if os.getuid() == 0 else []
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as server:
            assert server.stdout is not None
            try:
                if not server.stdout.readline():
                    raise SystemExit(f"{volery} up has ended before it was at work")
                yield f"127.0.0.1:{port}"
            finally:
                server.send_signal(signal.SIGINT)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    server.wait(20)
                server.kill()


def healths(address: str, stop: threading.Event, found: list[float]) -> None:
    """Ask again and again, on a connection of its own each time; what is not answered counts as for ever."""
    while not stop.is_set():
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(f"http://{address}/healthz", timeout=60) as answer:
                answer.read()
        except OSError:
            found.append(math.inf)
        else:
            found.append(time.perf_counter() - began)
        time.sleep(0.005)


def measure(volery: str, core: int, name: str, path: str, body: bytes) -> str:
    """One line of the table."""
    with federation(volery, core) as address:
        stop, found = threading.Event(), list[float]()
        asking = threading.Thread(target=healths, args=(address, stop, found))
        asking.start()
        time.sleep(0.5)
        found.clear()
        request = urllib.request.Request(f"http://{address}{path}", body, {"content-type": "application/json"})
        began = time.perf_counter()
        try:
            with urllib.request.urlopen(request, timeout=LIMIT_S) as answer:  # noqa: S310 - ours
                status, size = str(answer.status), len(answer.read())
        except urllib.error.HTTPError as error:
            status, size = str(error.code), len(error.read())
        except OSError as error:
            status, size = type(error).__name__, 0
        took = time.perf_counter() - began
        time.sleep(0.5)
        stop.set()
        asking.join()
    found.sort()
    return f"{name:30} {status:>8} {took:8.2f} {size:12,} {found[len(found) // 2] * 1e3:10.1f} {found[-1] * 1e3:10.1f}"


def main() -> None:
    """Measure all of them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--volery", default=str(Path(sys.executable).with_name("volery")), help="the program")
    parser.add_argument("--core", type=int, default=1, help="the server's")
    parser.add_argument("--only", default="", help="requests whose name holds this")
    given = parser.parse_args()
    os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {given.core} or {0})
    print(f"{'request':30} {'status':>8} {'s':>8} {'bytes back':>12} {'p50 ms':>10} {'worst ms':>10}")
    for name, (path, body) in bodies().items():
        if given.only in name:
            print(measure(str(Path(given.volery)), given.core, name, path, body), flush=True)


if __name__ == "__main__":
    main()
