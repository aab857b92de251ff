"""A federation over NATS as it is meant to be run, measured as JSON: `python -m benchmarks.federation [--quick]`.

Mutual TLS with the broker, permissions of the broker per certificate, `reliable = true` (every host may die), a
process per role: 2 Global Masters, 4 Local Masters with their standbys, 2 node hosts with 5,000 simulated nodes,
and the submitter; journal on (each turn reaches the operating system before its effects leave); no-op tasks. After
the start, in one federation:

- *loaded*: a closed loop keeps 100 jobs of 10 tasks under way; tasks per second of real time, from the first
  submission to the last JobDone;
- *steady*: 1,000 jobs of one task a second, whether answered or not, from the submission to JobDone; how late they
  were submitted is said beside it;
- *idle*: one job of one task at a time, a millisecond apart, from the submission to JobDone;
- *at rest*: nothing is submitted for some seconds; what beats and heartbeats cost, in CPU per second.

Beside the times: what each process takes per task, in microseconds of CPU, how many frames the broker carries per task,
and the most memory that each process had. The submitter of this benchmark is no desk: it keeps no database and serves
no HTTP (benchmarks/live.py measures those).
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from tests.live.certificates import Authority
from tests.live.conftest import program

from volery.cli.federation import choose
from volery.core.component import Component, Deployment
from volery.core.events import JobAccepted, JobDone, Submit, TimerFired
from volery.core.model import SECOND, SUBMITTER, Address, Job, JobId, Message, Task, Time
from volery.live.assembly import running
from volery.live.clock import run_loop
from volery.live.config.federation import API_HOST, Federation, read_federation
from volery.live.runtime.mailboxes import Inbox
from volery.live.runtime.submitter import Frontend, SubmitterSite

NEXT: Final = "next"
REST_S: Final = 4.0
DETECTION_S: Final = 5.0
"""On a machine that others use, ten processes on two cores may be silent for longer than the usual second."""
PROGRAM: Final = [sys.executable, "-m", "volery.cli.main"]


class Phase(NamedTuple):
    """One measurement; bars are what the project promises, 0: nothing."""

    name: str
    jobs: int
    size: int = 1
    under_way: int = 0
    every_us: Time = 0
    pause_us: Time = 0
    tasks_per_s_min: float = 0
    p50_ms_max: float = 0
    p99_ms_max: float = 0


PHASES: Final = (
    Phase("warm up", 300, size=10, under_way=20),
    Phase("loaded", 20_000, size=10, under_way=100, tasks_per_s_min=10_000),
    Phase("steady", 15_000, every_us=1_000, p50_ms_max=4, p99_ms_max=20),
    Phase("idle", 3_000, under_way=1, pause_us=1_000, p50_ms_max=4),
)


class Loader(Component):
    """Submits what a phase asks for, and notes how long each job took."""

    def __init__(self, deployment: Deployment) -> None:
        self._entry = deployment.entry
        self._jobs = 0
        self._tasks = 0
        self._at: dict[JobId, float] = {}
        self._phase = PHASES[0]
        self._left = 0
        self._began_us: Time = 0
        self.took_s: list[float] = []
        self.late_s: list[float] = []
        self.began = self.ended = 0.0
        self.complete = asyncio.Event()

    async def play(self, phase: Phase, inbox: Inbox) -> None:
        """Return when all jobs of a phase are answered."""
        self._phase, self._left, self._began_us = phase, phase.jobs, -1
        self.took_s, self.late_s = [], []
        self.complete.clear()
        self.began = time.perf_counter()
        inbox.post(SUBMITTER, TimerFired(NEXT), SUBMITTER)
        await self.complete.wait()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:  # noqa: ARG002 - it is a handler
        """Submit what is due."""
        phase = self._phase
        if phase.every_us:
            if self._began_us < 0:
                self._began_us, self.began = now, time.perf_counter()
            submitted = phase.jobs - self._left
            while self._left and self._began_us + submitted * phase.every_us <= now:
                at = time.perf_counter()
                self.late_s.append(at - self.began - submitted * phase.every_us / SECOND)
                self._submit(at)
                submitted += 1
            if self._left:
                self._port.set_timer(NEXT, self._began_us + submitted * phase.every_us)
        else:
            while self._left and len(self._at) < phase.under_way:
                self._submit(time.perf_counter())

    def _submit(self, at: float) -> None:
        job, first, size = self._jobs, self._tasks, self._phase.size
        self._left -= 1
        self._jobs += 1
        self._tasks += size
        self._at[job] = at
        tasks = tuple([Task(first + k, job, 0) for k in range(size)])
        self._port.send(self._entry(job), Submit(Job(job, size, tasks)))

    def on_done(self, message: JobDone, source: Address, now: Time) -> None:  # noqa: ARG002 - it is a handler
        """Note it, and submit the next."""
        self.ended = time.perf_counter()
        self.took_s.append(self.ended - self._at.pop(message.job))
        if not self._left:
            if not self._at:
                self.complete.set()
        elif self._phase.pause_us:
            self._port.set_timer(NEXT, now + self._phase.pause_us)
        elif not self._phase.every_us:
            self._submit(self.ended)

    def on_heard(self, message: Message, source: Address, now: Time) -> None:
        """What a desk would write down."""

    receives = {TimerFired: on_timer, JobDone: on_done, JobAccepted: on_heard}  # noqa: RUF012 - replaced by the base


class Setting(NamedTuple):
    """How large the federation is."""

    gms: int = 2
    lms: int = 4
    node_hosts: int = 2
    nodes: int = 5_000
    reliable: bool = True

    def hosts(self) -> dict[str, list[str]]:
        """Addresses by host; a standby stands on another host than the master that it follows."""
        found = {f"gm-{gm}": [f"gm/{gm}"] for gm in range(self.gms)}
        for lm in range(self.lms):
            standby = [f"lm/{(lm + 1) % self.lms}/standby"] if self.reliable else []
            found[f"lm-{lm}"] = [f"lm/{lm}", *standby]
        for host in range(self.node_hosts):
            last = "".join(str(digit) for digit in range(10) if digit % self.node_hosts == host)
            found[f"node-{host}"] = [f"node/*[{last}]"]
        return found

    def content(self, broker: str, tls: Path) -> str:
        """The federation's file."""
        hosts = "\n".join(f"{host} = {json.dumps(patterns)}" for host, patterns in self.hosts().items())
        return (
            f'architecture = "megha"\nname = "bench"\nbroker = "{broker}"\napi = "127.0.0.1:0"\nexecutor = "instant"\n'
            f'broker_tls = {{ ca = "{tls}/ca.crt", certificate = "{tls}/{{host}}.crt", key = "{tls}/{{host}}.key" }}\n'
            f"reports = false\n[parameters]\ngms = {self.gms}\nlms = {self.lms}\n"
            f"reliable = {str(self.reliable).lower()}\ndetection_s = {DETECTION_S}\n"
            f"[[machines]]\ncount = {self.nodes}\n[hosts]\n{hosts}\n"
        )


class Broker(NamedTuple):
    """A server that runs: its URLs, the folder of the certificates, its process."""

    url: str
    monitoring: str
    tls: Path
    pid: int

    def frames(self) -> int:
        """How many it has been sent so far."""
        with urllib.request.urlopen(f"{self.monitoring}/varz") as answer:  # noqa: S310 - our own server
            return int(json.load(answer)["in_msgs"])


@contextmanager
def guarded_broker(folder: Path, hosts: list[str]) -> Iterator[Broker]:
    """A server that lets in these hosts, each as itself."""
    found = program()
    if found is None:
        sys.exit("nats-server is not installed (Debian package nats-server)")
    authority = Authority(folder / "tls")
    for name in ("broker", *hosts):
        authority.sign(name)
    users = ", ".join(
        f'{{ user: "CN={host}", permissions: {{ publish: ["volery.*.to.*.{host}", "volery.*.hello.{host}"], '
        f'subscribe: ["volery.*.to.{host}.*", "volery.*.hello.*"] }} }}'
        for host in hosts
    )
    ports, config = folder / "ports", folder / "nats.conf"
    ports.mkdir()
    config.write_text(
        f'listen: "127.0.0.1:-1"\nhttp: "127.0.0.1:-1"\nports_file_dir: "{ports}"\n'
        f'tls {{ cert_file: "{authority.of("broker.crt")}", key_file: "{authority.of("broker.key")}", '
        f'ca_file: "{authority.of("ca.crt")}", verify_and_map: true }}\nauthorization {{ users: [ {users} ] }}\n'
    )
    with subprocess.Popen([found, "-c", str(config)], stderr=subprocess.DEVNULL) as server:
        try:
            while not (written := [*ports.glob("*.ports")]) or not written[0].read_text():
                time.sleep(0.02)
            ports_of = json.loads(written[0].read_text())
            url = ports_of["nats"][0].replace("nats://", "tls://")
            yield Broker(url, ports_of["monitoring"][0], authority.folder, server.pid)
        finally:
            server.terminate()


def cpu_s(pid: int) -> float:
    """CPU time of a process so far."""
    words = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> int:
    """The most memory that a process had."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))


def figures(phase: Phase, loader: Loader, spent: Mapping[str, float], frames: int) -> dict[str, Any]:
    """What a phase has shown."""
    tasks, took = phase.jobs * phase.size, sorted(loader.took_s)
    found: dict[str, Any] = {
        "name": phase.name,
        "tasks": tasks,
        "tasks_per_s": round(tasks / (loader.ended - loader.began)),
        "cpu_us_per_task": {role: round(seconds * 1e6 / tasks, 1) for role, seconds in spent.items()},
        "cpu_us_per_task_in_all": round(sum(spent.values()) * 1e6 / tasks, 1),
        "frames_per_task": round(frames / tasks, 2),
        "job_p50_ms": round(1000 * took[len(took) // 2], 3),
        "job_p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }
    if loader.late_s:
        found["submitted_late_p99_ms"] = round(1000 * sorted(loader.late_s)[len(took) * 99 // 100], 3)
    bars = {
        "tasks_per_s_min": (phase.tasks_per_s_min, found["tasks_per_s"] >= phase.tasks_per_s_min),
        "p50_ms_max": (phase.p50_ms_max, found["job_p50_ms"] <= phase.p50_ms_max),
        "p99_ms_max": (phase.p99_ms_max, found["job_p99_ms"] <= phase.p99_ms_max),
    }
    return found | {f"bar_{name}": {"bar": bar, "holds": holds} for name, (bar, holds) in bars.items() if bar}


async def measure(
    federation: Federation, phases: list[Phase], broker: Broker, processes: Mapping[str, int], began: float
) -> None:
    """Run the submitter's host here and print the figures of each phase."""
    loaders: list[Loader] = []

    def front(site: SubmitterSite) -> Frontend:
        loaders.append(Loader(site.deployment))
        return Frontend(loaders[0])

    async with running(federation, API_HOST, front) as at_work:
        loader = loaders[0]
        for phase in phases:
            before = {name: cpu_s(pid) for name, pid in processes.items()}
            frames = await asyncio.to_thread(broker.frames)
            await loader.play(phase, at_work.host.inbox)
            spent = {name: cpu_s(pid) - before[name] for name, pid in processes.items()}
            frames = await asyncio.to_thread(broker.frames) - frames
            if phase is phases[0]:
                started = {"name": "start", "until_ready_s": round(loader.ended - began, 1)}
                print(json.dumps(started | {"cpu_s": {name: round(cpu_s(pid), 1) for name, pid in processes.items()}}))
            print(json.dumps(figures(phase, loader, spent, frames)), flush=True)
        before, frames = {name: cpu_s(pid) for name, pid in processes.items()}, await asyncio.to_thread(broker.frames)
        await asyncio.sleep(REST_S)
        spent = {name: round(1000 * (cpu_s(pid) - before[name]) / REST_S, 1) for name, pid in processes.items()}
        frames = await asyncio.to_thread(broker.frames) - frames
        print(json.dumps({"name": "at rest", "cpu_ms_per_s": spent, "frames_per_s": round(frames / REST_S)}))
        print(json.dumps({"name": "memory", "peak_mb": {name: peak_mb(pid) for name, pid in processes.items()}}))


def run(setting: Setting, phases: list[Phase]) -> None:
    """Measure one federation."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        hosts = [*setting.hosts()]
        broker = stack.enter_context(guarded_broker(folder, [*hosts, API_HOST]))
        config = folder / "federation.toml"
        config.write_text(setting.content(broker.url, broker.tls))
        processes, began = {"broker": broker.pid, API_HOST: os.getpid()}, time.perf_counter()
        for host in hosts:
            words = [*(word.replace("{host}", host) for word in PROGRAM), "serve", host, "-c", str(config), "--json"]
            served = stack.enter_context(subprocess.Popen(words, stdout=subprocess.DEVNULL))
            stack.callback(served.terminate)
            processes[host] = served.pid
        run_loop(measure(read_federation(config, choose), phases, broker, processes, began))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the jobs")
    parser.add_argument("--nodes", type=int, default=Setting().nodes)
    parser.add_argument("--plain", action="store_true", help="without reliable = true")
    parser.add_argument("--phases", nargs="*", default=[phase.name for phase in PHASES])
    given = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}))
    share = 10 if given.quick else 1
    wanted = [phase for phase in PHASES if phase is PHASES[0] or phase.name in given.phases]
    phases = [phase if phase is PHASES[0] else phase._replace(jobs=phase.jobs // share) for phase in wanted]
    run(Setting(nodes=given.nodes, reliable=not given.plain), phases)


if __name__ == "__main__":
    main()
