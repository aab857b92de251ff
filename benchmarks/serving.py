"""Speed and memory of a federation in one process, as its users meet it: `python benchmarks/serving.py [CASE ...]`.

Everything that costs is on: bearer tokens, the database of jobs with its commits to the disk before a submission is
answered, the journal (each turn reaches the operating system before its effects leave), reports of every task, reasons
(`why = true`). `volery up` runs on one processor and this program, the client, on another: what the server costs is its
own CPU time, all of its threads. No-op tasks in jobs of 10, or of 1 where it is idle. On a machine that others use,
`--real-time` keeps their processes, though not their disk traffic, out of the latencies.

    throughput   one job per request, on connections that are kept; ends are heard of by one stream of events
    bulk         the same with many jobs per request
    idle         one job at a time, from the first byte of the request to the event that tells its end; beside it what
                 a commit of one page takes on this disk by itself
    pending      how much a federation takes in that does not start; memory, the time that answers take, and a restart

Each figure is printed as a line of JSON. `--source DIR` serves the package of another source tree, and may be repeated:
before and after are then measured in one run.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import httptools
import msgspec

SIZE: Final = 10
TICKS_PER_S: Final = os.sysconf("SC_CLK_TCK")
FEDERATION: Final = """
architecture = "megha"
api = "127.0.0.1:0"
executor = "{executor}"
[parameters]
gms = 1
lms = 2
why = true
[[machines]]
count = {machines}
slots = {slots}
"""


class Told(msgspec.Struct):
    """What the client reads of a job's status."""

    id: int
    state: str
    tasks: int = 0


_told: Final = msgspec.json.Decoder(Told).decode
_told_many: Final = msgspec.json.Decoder(list[Told]).decode


class Connection(asyncio.Protocol):
    """A connection that is kept, with one request under way at a time.

    Args:
        authority: HOST:PORT.
        token: of the user.
    """

    def __init__(self, authority: str, token: str) -> None:
        self._head = f"host: {authority}\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n"
        self._answer: asyncio.Future[tuple[int, bytes]] | None = None
        self._parser = httptools.HttpResponseParser(self)
        self._body = bytearray()
        self._hear: Callable[[bytes], None] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """The connection stands."""
        self._transport: Any = transport

    def data_received(self, piece: bytes) -> None:
        """Something has arrived."""
        self._parser.feed_data(piece)

    def on_body(self, piece: bytes) -> None:
        """A piece of an answer, or of a stream."""
        if self._hear is not None:
            self._hear(piece)
        else:
            self._body += piece

    def on_message_complete(self) -> None:
        """An answer is complete."""
        body, self._body = bytes(self._body), bytearray()
        status, self._parser = self._parser.get_status_code(), httptools.HttpResponseParser(self)
        if self._answer is not None and not self._answer.done():
            self._answer.set_result((status, body))

    def ask(self, method: str, path: str, body: bytes = b"") -> asyncio.Future[tuple[int, bytes]]:
        """Status and content of the answer."""
        head = f"{method} {path} HTTP/1.1\r\n{self._head}content-length: {len(body)}\r\n\r\n"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(head.encode() + body)
        return self._answer

    def follow(self, path: str, hear: Callable[[bytes], None]) -> None:
        """Have every piece of a stream handed over."""
        self._hear = hear
        self._transport.write(f"GET {path} HTTP/1.1\r\n{self._head}\r\n".encode())

    def close(self) -> None:
        """Hang up."""
        self._transport.close()


class Ends:
    """The jobs that have ended, as a stream of events tells of them."""

    def __init__(self) -> None:
        self.ended: dict[int, float] = {}
        self._rest = b""
        self._changed = asyncio.Event()

    def hear(self, piece: bytes) -> None:
        """Take a piece of the stream in."""
        *events, self._rest = (self._rest + piece).split(b"\n\n")
        now = time.perf_counter()
        for event in events:
            if b"event: job\n" in event:
                told = _told(event[event.index(b"data: ") + 6 :])
                if told.state not in ("pending", "running"):
                    assert told.state == "done", f"job {told.id} is {told.state}"
                    self.ended[told.id] = now
        self._changed.set()

    async def of(self, job: int) -> float:
        """When a job's end was heard of, in seconds."""
        await self.until(lambda: job in self.ended)
        return self.ended[job]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait for something to hold."""
        while not holds():
            self._changed.clear()
            await self._changed.wait()


class Server(NamedTuple):
    """A federation at work."""

    serving: subprocess.Popen[bytes]
    url: str
    token: str

    def cpu_s(self) -> float:
        """CPU seconds so far, of all its threads."""
        fields = Path(f"/proc/{self.serving.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_S

    def memory_mb(self) -> dict[str, int]:
        """Resident now, and at most so far."""
        lines = Path(f"/proc/{self.serving.pid}/status").read_text().splitlines()
        found = {line.split(":")[0]: int(line.split()[1]) for line in lines if line.startswith(("VmRSS", "VmHWM"))}
        return {"rss_mb": found["VmRSS"] // 1024, "peak_mb": found["VmHWM"] // 1024}

    async def connect(self) -> Connection:
        """A connection to its API."""
        authority = urlsplit(self.url).netloc
        host, _, port = authority.rpartition(":")
        loop = asyncio.get_running_loop()
        _, made = await loop.create_connection(lambda: Connection(authority, self.token), host, int(port))
        return made

    @asynccontextmanager
    async def connections(self, count: int) -> AsyncIterator[tuple[list[Connection], Ends]]:
        """Some connections, and the ends of jobs from now on, by one more."""
        made = [await self.connect() for _ in range(count + 1)]
        ends = Ends()
        made[0].follow("/events", ends.hear)
        await asyncio.sleep(0.2)
        yield made[1:], ends
        for one in made:
            one.close()


@contextmanager
def federation(
    folder: Path, source: str, executor: str = "instant", machines: int = 300, slots: int = 1
) -> Iterator[Server]:
    """A federation at work on the first processor; its folder may have been used before."""
    config = folder / "federation.toml"
    config.write_text(FEDERATION.format(executor=executor, machines=machines, slots=slots))
    volery = [sys.executable, "-m", "volery.cli.main"]
    environment = os.environ | ({"PYTHONPATH": source} if source else {})
    made = subprocess.run(
        [*volery, "token", "add", "bench", "-o", str(folder / "federation"), "--json"],
        stdout=subprocess.PIPE,
        check=True,
        env=environment,
    )
    words = [*volery, "up", str(config), "--json"]
    if hasattr(os, "sched_setaffinity"):
        words = ["taskset", "-c", "0", *words]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=environment) as serving:
        try:
            assert serving.stdout is not None
            lines = []
            for line in serving.stdout:
                lines.append(line)
                if line.rstrip() == b"}":
                    break
            yield Server(serving, json.loads(b"".join(lines))["api"], json.loads(made.stdout)["token"])
        finally:
            serving.send_signal(signal.SIGTERM)
            serving.wait(60)


def described(size: int, **words: Any) -> bytes:
    """A job as JSON."""
    return json.dumps({"command": ["true"], "tasks": size} | words).encode()


async def load(server: Server, jobs: int, connections: int, under_way: int, per_request: int) -> dict[str, Any]:
    """Keep so many jobs under way until so many are done."""
    one = described(SIZE)
    body = one if per_request == 1 else b"[" + b",".join([one] * per_request) + b"]"
    path = "/jobs" if per_request == 1 else "/jobs/many"
    async with server.connections(connections) as (made, ends):
        submitted = 0

        def is_room() -> bool:
            return submitted - len(ends.ended) + per_request <= max(under_way, per_request)

        async def submit(connection: Connection, limit: int) -> None:
            nonlocal submitted
            while submitted < limit:
                await ends.until(is_room)
                submitted += per_request
                status, answer = await connection.ask("POST", path, body)
                assert status == 201, answer

        async def run(limit: int) -> None:
            await asyncio.gather(*(submit(connection, limit) for connection in made))
            await ends.until(lambda: len(ends.ended) >= submitted)

        await run(max(jobs // 10, under_way))
        before, began, cpu_s, own_s = len(ends.ended), time.perf_counter(), server.cpu_s(), time.process_time()
        await run(before + jobs)
        seconds, cpu_s = time.perf_counter() - began, server.cpu_s() - cpu_s
        tasks = (len(ends.ended) - before) * SIZE
    return {
        "jobs": tasks // SIZE,
        "jobs_per_request": per_request,
        "tasks_per_s": round(tasks / seconds),
        "tasks_per_cpu_s": round(tasks / cpu_s),
        "server_cpu_share": round(cpu_s / seconds, 2),
        "client_cpu_share": round((time.process_time() - own_s) / seconds, 2),
    }


async def idle(server: Server, jobs: int, pause_s: float = 0.001) -> dict[str, Any]:
    """One job of one task at a time."""
    body, took, answered = described(1), [], []
    async with server.connections(1) as ((connection,), ends):
        for _ in range(jobs):
            began = time.perf_counter()
            status, answer = await connection.ask("POST", "/jobs", body)
            assert status == 201, answer
            answered.append(time.perf_counter() - began)
            took.append(await ends.of(json.loads(answer)["id"]) - began)
            await asyncio.sleep(pause_s)
    return {"jobs": jobs, **quantiles("end", took), **quantiles("accepted", answered)}


def quantiles(name: str, took_s: Sequence[float]) -> dict[str, float]:
    """p50, p99 and the worst, in milliseconds."""
    ordered = sorted(took_s)
    at = {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100], "max": ordered[-1]}
    return {f"{name}_{which}_ms": round(1000 * value, 2) for which, value in at.items()}


def disk(folder: Path, count: int = 300) -> dict[str, float]:
    """What it takes by itself to have one page on the disk."""
    took, page = [], bytes(4096)
    with (folder / "page").open("wb", 0) as file:
        for _ in range(count):
            began = time.perf_counter()
            file.write(page)
            os.fdatasync(file.fileno())
            took.append(time.perf_counter() - began)
    return quantiles("fsync", took)


async def pend(server: Server, tasks: int, size: int) -> dict[str, Any]:
    """Submit what does not start, in jobs of this size, and then ask for things."""
    jobs, seconds, cpu_s = tasks // size, time.perf_counter(), server.cpu_s()
    body = described(size, estimate_s=86400)
    made = [await server.connect() for _ in range(20 if size < 1000 else 2)]
    left = iter(range(jobs))
    slowest = 0.0

    async def submit(connection: Connection) -> None:
        nonlocal slowest
        for _ in left:
            began = time.perf_counter()
            status, answer = await connection.ask("POST", "/jobs", body)
            slowest = max(slowest, time.perf_counter() - began)
            assert status == 201, answer

    await asyncio.gather(*(submit(connection) for connection in made))
    found: dict[str, Any] = {
        "tasks": jobs * size,
        "jobs": jobs,
        "submitted_in_s": round(time.perf_counter() - seconds, 1),
        "cpu_s": round(server.cpu_s() - cpu_s, 1),
        "slowest_submission_ms": round(1000 * slowest),
    }
    for one in made:
        one.close()
    return found


async def quiet(server: Server) -> dict[str, Any]:
    """Wait until the server has nothing left that keeps it busy."""
    began, cpu_s = time.perf_counter(), server.cpu_s()
    while True:
        await asyncio.sleep(0.5)
        if (now_s := server.cpu_s()) - cpu_s < 0.05:
            return {"quiet_after_s": round(time.perf_counter() - began, 1), "cpu_s": round(now_s, 1)}
        cpu_s = now_s


async def questions(server: Server, jobs: int, body: bytes) -> dict[str, Any]:
    """How long answers take, one at a time."""
    connection = await server.connect()
    found: dict[str, Any] = server.memory_mb()
    took: dict[str, list[float]] = {}
    for turn in range(200):
        job = turn * 7919 % jobs
        for name, method, path, content in (
            ("list", "GET", "/jobs?limit=100", b""),
            ("list_by_state", "GET", "/jobs?limit=100&state=pending", b""),
            ("job", "GET", f"/jobs/{job}", b""),
            ("tasks", "GET", f"/jobs/{job}/tasks?limit=100", b""),
            ("why", "GET", f"/jobs/{job}/why", b""),
            ("users", "GET", "/users", b""),
            ("nodes", "GET", "/nodes", b""),
            ("plan", "POST", "/plan", body),
            ("submit", "POST", "/jobs", described(SIZE, estimate_s=86400)),
        ):
            began = time.perf_counter()
            status, answer = await connection.ask(method, path, content)
            took.setdefault(name, []).append(time.perf_counter() - began)
            assert status in (200, 201), answer
    connection.close()
    for name, times in took.items():
        found |= {key: value for key, value in quantiles(name, times).items() if "p50" not in key}
    everything = [one for times in took.values() for one in times]
    return found | quantiles("api", everything)


def run(coroutine: Any) -> Any:
    """On uvloop, where it is installed."""
    try:
        from uvloop import new_event_loop
    except ImportError:
        return asyncio.run(coroutine)
    with asyncio.Runner(loop_factory=new_event_loop) as runner:
        return runner.run(coroutine)


def measure_throughput(source: str, given: argparse.Namespace, per_request: int) -> Iterator[dict[str, Any]]:
    """One job per request, or several."""
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, federation(Path(folder), source) as server:
        connections = given.connections if per_request == 1 else 4  # each idles, and is closed when it idles for long
        yield run(load(server, given.jobs, connections, given.under_way, per_request)) | server.memory_mb()


def measure_idle(source: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """One at a time, and the disk by itself."""
    with tempfile.TemporaryDirectory(dir=given.folder) as folder, federation(Path(folder), source) as server:
        yield disk(Path(folder)) | run(idle(server, max(100, given.jobs // 10)))


def measure_pending(source: str, given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Few large jobs, and many small ones: while schedulers still take them in, at rest, and after a restart."""
    for size in (10_000, SIZE):
        jobs, body, kind = given.tasks // size, described(size, estimate_s=86400), f"jobs of {size}"
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            where = Path(folder)
            with federation(where, source, "sleep", machines=30) as server:
                yield {"name": f"submitted, {kind}"} | run(pend(server, given.tasks, size))
                yield {"name": f"taken in, {kind}"} | run(questions(server, jobs, body))
                yield {"name": f"pending, {kind}"} | run(quiet(server)) | run(questions(server, jobs, body))
            began = time.perf_counter()
            with federation(where, source, "sleep", machines=30) as server:
                seconds = round(time.perf_counter() - began, 1)
                yield {"name": f"restart, {kind}", "answers_after_s": seconds} | run(questions(server, jobs, body))
                yield {"name": f"restarted, {kind}"} | run(quiet(server)) | run(questions(server, jobs, body))


CASES: Final = ("throughput", "bulk", "idle", "pending")


def main() -> None:
    """Measure the named cases, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", help=", ".join(CASES))
    parser.add_argument("--source", action="append", help="a src folder; by default the package that is installed")
    parser.add_argument("--jobs", type=int, default=5_000, help="jobs of 10 tasks; idle takes a tenth")
    parser.add_argument("--tasks", type=int, default=1_000_000, help="that are pending")
    parser.add_argument("--connections", type=int, default=20)
    parser.add_argument("--under-way", type=int, default=400, help="jobs that have not ended")
    parser.add_argument("--per-request", type=int, default=100, help="jobs, in bulk")
    parser.add_argument(
        "--real-time", action="store_true", help="before all other programs of this machine, which takes root; be brief"
    )
    parser.add_argument("--folder", default=None, help="on the disk that is meant; by default that of temporary files")
    given = parser.parse_args()
    if unknown := set(given.cases) - set(CASES):
        parser.error(f"there is no {', '.join(sorted(unknown))}; known are: {', '.join(CASES)}")
    if given.real_time:
        os.sched_setscheduler(0, os.SCHED_RR, os.sched_param(10))  # children inherit it
    if hasattr(os, "sched_setaffinity") and (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, range(1, os.cpu_count() or 1))
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}))
    for case in given.cases or CASES:
        for source in given.source or [""]:
            for figures in {
                "throughput": lambda source: measure_throughput(source, given, 1),
                "bulk": lambda source: measure_throughput(source, given, given.per_request),
                "idle": lambda source: measure_idle(source, given),
                "pending": lambda source: measure_pending(source, given),
            }[case](source):
                load_1 = round(os.getloadavg()[0], 1)
                print(json.dumps({"name": case, "source": source} | figures | {"load_average": load_1}), flush=True)


if __name__ == "__main__":
    main()
