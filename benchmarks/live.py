"""Speed and latency of the live federation, as JSON: `python benchmarks/live.py [NAME ...] [--jobs N]`.

No-op tasks in jobs of 10, journal on (each turn reaches the operating system before its effects leave). Throughput: a
closed loop keeps some jobs under way; tasks per second of real time from the first submission to the last JobDone.
Idle: one job of one task at a time, a millisecond apart, from the submission to JobDone. In one process everything
shares one core; over the broker every role is a process of its own; over HTTP a client in another process submits with
some submissions under way at once and follows the events, to a federation with its database of jobs. A bar is what the
project promises.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from volery.cli.federation import choose
from volery.core.component import Component, Deployment
from volery.core.events import JobAccepted, JobDone, Submit, TimerFired
from volery.core.model import Address, Job, JobId, Message, Task, Time
from volery.live.assembly import running
from volery.live.client import AsyncClient
from volery.live.clock import run_loop
from volery.live.command import Command, encode_payload
from volery.live.config.federation import ALL, API_HOST, Federation, read_federation
from volery.live.messages import TaskReport
from volery.live.runtime.submitter import Frontend, SubmitterSite
from volery.live.service.authentication import TokenFile

SIZE = 10
PAUSE_US = 1_000
RUN_AS = "nobody" if os.geteuid() == 0 else ""
"""Whom real processes run as."""
WARM_UP_JOBS = 200
MEGHA = {"gms": 1, "lms": 2}
PIGEON = {"distributors": 1, "groups": 2, "reserved": 10}


class Case(NamedTuple):
    """One measurement and what is promised of it; over the broker each host is a process."""

    name: str
    architecture: str
    broker: bool = False
    under_way: int = 100
    size: int = SIZE
    reports: bool = False
    durability: str = "flush"
    executor: str = "instant"
    http: bool = False
    reliable: bool = False
    token: bool = False
    jobs_share: float = 1.0
    tasks_per_s_min: float = 0
    p50_ms_max: float = 0
    p99_ms_max: float = 0


CASES = (
    Case("megha", "megha", tasks_per_s_min=30_000),
    Case("pigeon", "pigeon", tasks_per_s_min=30_000),
    Case("megha idle", "megha", under_way=1, size=1, jobs_share=0.2, p50_ms_max=0.3, p99_ms_max=2),
    Case("pigeon idle", "pigeon", under_way=1, size=1, jobs_share=0.2, p50_ms_max=0.3, p99_ms_max=2),
    Case("megha fsync", "megha", durability="fsync", jobs_share=0.5),
    Case("megha with task reports", "megha", reports=True, jobs_share=0.5),
    Case("megha processes", "megha", executor="agent", reports=True, jobs_share=0.05, tasks_per_s_min=800),
    Case("megha http", "megha", http=True, under_way=20, jobs_share=0.1),
    Case("megha http idle", "megha", http=True, under_way=1, size=1, jobs_share=0.02),
    Case("megha http token", "megha", http=True, token=True, under_way=20, jobs_share=0.1),
    Case("megha http token idle", "megha", http=True, token=True, under_way=1, size=1, jobs_share=0.02),
    Case("megha nats", "megha", broker=True, tasks_per_s_min=15_000),
    Case("pigeon nats", "pigeon", broker=True, tasks_per_s_min=15_000),
    Case("megha nats idle", "megha", broker=True, under_way=1, size=1, jobs_share=0.1, p50_ms_max=2),
    Case("megha reliable nats", "megha", broker=True, reliable=True, jobs_share=0.3),
    Case("megha reliable nats idle", "megha", broker=True, reliable=True, under_way=1, size=1, jobs_share=0.05),
    Case(
        "megha reliable processes",
        "megha",
        executor="agent",
        reports=True,
        reliable=True,
        jobs_share=0.05,
        tasks_per_s_min=800,
    ),
    Case("pigeon nats idle", "pigeon", broker=True, under_way=1, size=1, jobs_share=0.1, p50_ms_max=2),
)


class Loader(Component):
    """Keeps jobs under way, and notes how long each took."""

    def __init__(self, case: Case, jobs: int, deployment: Deployment) -> None:
        self._case = case
        self._entry = deployment.entry
        self._payload = encode_payload(Command(("true",))) if case.executor == "agent" else b""
        self._jobs = jobs + WARM_UP_JOBS
        self._submitted = 0
        self._at: dict[JobId, float] = {}
        self._done = 0
        self.took_s: list[float] = []
        self.began = self.ended = 0.0
        self.complete = asyncio.Event()

    def start(self, now: Time) -> None:
        """Begin with the host's first turn."""
        self._port.set_timer("next", now)

    def on_timer(self, _event: TimerFired, _source: Address, _now: Time) -> None:
        """Submit until enough is under way."""
        while len(self._at) < self._case.under_way and self._submitted < self._jobs:
            self._submit()

    def _submit(self) -> None:
        job, size = self._submitted, self._case.size
        self._submitted += 1
        tasks = tuple([Task(job * size + k, job, 0, 0, self._payload) for k in range(size)])
        self._at[job] = time.perf_counter()
        self._port.send(self._entry(job), Submit(Job(job, size, tasks)))

    def on_done(self, message: JobDone, _source: Address, now: Time) -> None:
        """Note it, and submit the next."""
        self.ended = time.perf_counter()
        self.took_s.append(self.ended - self._at.pop(message.job))
        self._done += 1
        if self._done == WARM_UP_JOBS:
            self.began, self.took_s = self.ended, []
        if self._done == self._jobs:
            self.complete.set()
        elif self._case.under_way == 1:
            self._port.set_timer("next", now + PAUSE_US)
        elif self._submitted < self._jobs:
            self._submit()

    def on_heard(self, message: Message, source: Address, now: Time) -> None:
        """What a desk would write down."""

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        TimerFired: on_timer,
        JobDone: on_done,
        JobAccepted: on_heard,
        TaskReport: on_heard,
    }


async def measure(federation: Federation, host: str, case: Case, jobs: int, found: dict[str, Any]) -> None:
    """Run the loop's host here and fill in the figures."""
    loaders: list[Loader] = []

    def front(site: SubmitterSite) -> Frontend:
        loaders.append(Loader(case, jobs, site.deployment))
        return Frontend(loaders[0])

    cpu_s = time.process_time()
    async with running(federation, host, front):
        loader = loaders[0]
        await loader.complete.wait()
    seconds = loader.ended - loader.began
    took = sorted(loader.took_s)
    found |= {
        "tasks_per_s": round(jobs * case.size / seconds),
        "cpu_s_here": round(time.process_time() - cpu_s, 2),
        "job_p50_ms": round(1000 * took[len(took) // 2], 3),
        "job_p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }


async def measure_http(url: str, case: Case, jobs: int, found: dict[str, Any], token: str) -> None:
    """Submit over HTTP and hear of the ends by events, then fill in the figures."""
    took: list[float] = []
    remaining = iter(range(jobs))

    async def submitter(client: AsyncClient) -> None:
        for _ in remaining:
            at = time.perf_counter()
            receipt = await client.submit({"command": "true", "tasks": case.size})
            await client.wait(receipt.id)
            took.append(time.perf_counter() - at)

    async with AsyncClient(url, token) as client:
        began = time.perf_counter()
        await asyncio.gather(*(submitter(client) for _ in range(case.under_way)))
    took.sort()
    found |= {
        "tasks_per_s": round(jobs * case.size / (time.perf_counter() - began)),
        "job_p50_ms": round(1000 * took[len(took) // 2], 3),
        "job_p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }


def _said(serving: subprocess.Popen[bytes]) -> dict[str, Any]:
    """What `volery up --json` says when it is at work."""
    assert serving.stdout is not None
    lines = []
    for line in serving.stdout:
        lines.append(line)
        if line.rstrip() == b"}":
            break
    said: dict[str, Any] = json.loads(b"".join(lines))
    return said


@contextmanager
def nats_server() -> Iterator[str]:
    """The URL of a server on a free port."""
    with nats_process() as (url, _):
        yield url


@contextmanager
def nats_process() -> Iterator[tuple[str, int]]:
    """The URL of a server on a free port, and the number of its process."""
    program = shutil.which("nats-server", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/bin")
    if program is None:
        sys.exit("nats-server is not installed (Debian package nats-server)")
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with subprocess.Popen([program, "-a", "127.0.0.1", "-p", str(port)], stderr=subprocess.DEVNULL) as server:
        try:
            time.sleep(0.5)
            yield f"nats://127.0.0.1:{port}", server.pid
        finally:
            server.terminate()


def run(case: Case, jobs: int, workers: int) -> dict[str, Any]:
    """Measure one case."""
    jobs = int(jobs * case.jobs_share)
    found: dict[str, Any] = {"name": case.name, "jobs": jobs, "tasks_per_job": case.size, "workers": workers}
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        folder.chmod(0o755)
        url = stack.enter_context(nats_server()) if case.broker else ""
        config = folder / "federation.toml"
        config.write_text(_content(case, url, workers))
        federation = read_federation(config, choose)
        for line in _hosts(case).splitlines() if case.broker else ():
            words = [sys.executable, "-m", "volery.cli.main", "serve", line.split()[0], "-c", str(config), "--json"]
            served = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            stack.callback(served.terminate)
        if case.http:
            token = TokenFile(federation.folder).add("bench", "user")[0] if case.token else ""
            words = [sys.executable, "-m", "volery.cli.main", "up", str(config), "--json"]
            serving = stack.enter_context(subprocess.Popen(words, stdout=subprocess.PIPE))
            stack.callback(serving.terminate)
            run_loop(measure_http(_said(serving)["api"], case, jobs, found, token))
        else:
            run_loop(measure(federation, API_HOST if case.broker else ALL, case, jobs, found))
        found["journal_mb"] = round(sum(path.stat().st_size for path in folder.rglob("*.journal")) / 1e6, 1)
    bars = {
        "tasks_per_s_min": (case.tasks_per_s_min, found["tasks_per_s"] >= case.tasks_per_s_min),
        "p50_ms_max": (case.p50_ms_max, found["job_p50_ms"] <= case.p50_ms_max),
        "p99_ms_max": (case.p99_ms_max, found["job_p99_ms"] <= case.p99_ms_max),
    }
    return found | {f"bar_{name}": {"bar": bar, "holds": holds} for name, (bar, holds) in bars.items() if bar}


def _content(case: Case, url: str, workers: int) -> str:
    """The federation's file."""
    sizes = MEGHA if case.architecture == "megha" else PIGEON
    lines = [
        f'architecture = "{case.architecture}"',
        'name = "bench"',
        f'broker = "{url}"',
        'api = "127.0.0.1:0"',
        f'executor = "{case.executor}"',
        f'run_as = "{RUN_AS if case.executor == "agent" else ""}"',
        "calls = false",
        f"reports = {str(case.reports or case.http).lower()}",
        f'durability = "{case.durability}"',
        "[parameters]",
        *(f"{name} = {value}" for name, value in sizes.items()),
        *(["reliable = true"] if case.reliable else []),
        "[[machines]]",
        f"count = {workers}",
        *(["[hosts]", _hosts(case)] if case.broker else []),
    ]
    return "\n".join(lines)


def _hosts(case: Case) -> str:
    if case.architecture == "megha":
        standby = ['"lm/1/standby"', '"lm/0/standby"'] if case.reliable else []
        masters = [", ".join([f'"lm/{lm}"', *standby[lm : lm + 1]]) for lm in range(2)]
        return f'gm = ["gm/*"]\nlm-0 = [{masters[0]}]\nlm-1 = [{masters[1]}]\nnode = ["node/*"]\n'
    return 'distributor = ["distributor/*"]\nmaster-0 = ["master/0"]\nmaster-1 = ["master/1"]\nnode = ["node/*"]\n'


def main() -> None:
    """Measure the named cases, by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="cases; by default all")
    parser.add_argument("--jobs", type=int, default=20_000, help="jobs per case, before its share")
    parser.add_argument("--workers", type=int, default=300)
    given = parser.parse_args()
    unknown = set(given.names) - {case.name for case in CASES}
    if unknown:
        parser.error(f"there is no {', '.join(unknown)}; known are: {', '.join(case.name for case in CASES)}")
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}))
    for case in CASES:
        if not given.names or case.name in given.names:
            print(json.dumps(run(case, given.jobs, given.workers)), flush=True)


if __name__ == "__main__":
    main()
