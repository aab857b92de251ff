"""How well the lab predicts a federation over NATS, as JSON: `python -m benchmarks.calibration_nats`.

Masters, nodes and the loader are processes of their own, beside the server. Calibration runs the same processes under
other work, each timing itself, its frames and its socket (`volery.live.trials.frames`); the lab then has a host per
process, frames that draw their delays from those that were measured, and as many cores as the machine. Calibration and
load take turns. A task's start is what its node reports, by the wall clock. The verdict is the median of the rounds'
ratios, each of a round's work in the lab to the same work live: something else that disturbs one round moves one
ratio. See `calibration.py` for the measures, the bars and real time.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import multiprocessing
import os
import statistics
import tempfile
import time
from array import array
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from benchmarks.calibration import MEAN_BAR, NODES, P99_BAR, Lived, Times, allocation_us, p99, realtime
from benchmarks.live import nats_process

from volery import metrics, sim
from volery.cli.federation import choose
from volery.core.costs import Frames, HostCosts
from volery.core.model import NEVER, SECOND, Address, Message, Time
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.cluster.federation import API_HOST, Federation, read_federation
from volery.live.hosts.host import Host
from volery.live.loop import run_loop
from volery.live.node.executor import TaskReport
from volery.live.running import Front, running
from volery.live.trials.frames import FramingHost, Noted, model_of, noted
from volery.live.trials.load import Loader, as_lived
from volery.workload import load_trace

LOADS = {
    "50 %, jobs of 10, one in 13 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.2,jobs=400",
    "80 %, jobs of 10, one in 8.3 ms": "poisson:load=0.8,workers=300,fanout=10,mean=0.2,jobs=600",
}
PACES = ("poisson:load=0.5,workers=300,fanout=geometric:10,mean=0.2,jobs=400",
         "poisson:load=0.7,workers=300,fanout=geometric:10,mean=0.1,jobs=800")  # fmt: skip
HOSTS = {
    "megha": {"gm": ["gm/*"], "lm": ["lm/*"], "node": ["node/*"]},
    "pigeon": {"distributor": ["distributor/*"], "master": ["master/*"], "node": ["node/*"]},
}
BEATS = {"megha": "lm", "pigeon": "master"}
"""The host whose timers are of periods: the lab has one clock, live each host has its own."""
SIZES = {"megha": "gms = 2\nlms = 3", "pigeon": "distributors = 2\ngroups = 3\nreserved = 10"}
REST_US = SECOND
SETTLE_S = 0.5
"""Reports come after answers."""
LIMIT_S = 60


class Measured(NamedTuple):
    """What a run over NATS has shown.

    Args:
        records: starts and ends as nodes have told them.
        noted: by host, what hosts that time themselves have noted.
        broker_us: what the server has used of the processor per frame.
        origin_us: by host, when its clock showed 0, by that of the machine.
    """

    records: Records
    noted: dict[str, Noted]
    broker_us: float
    origin_us: dict[str, Time]


class Server(NamedTuple):
    """The broker."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """What it has used of the processor so far."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def origin_us(host: Host) -> Time:
    """When a host's clock showed 0, by that of the machine."""
    return time.monotonic_ns() // 1000 - host.now()


class Hearing(Loader):
    """A loader that hears when tasks start and end, by their nodes' clocks."""

    def start(self, now: Time) -> None:
        """The first job arrives when all hosts have come to rest: what they do at their beginning is no load."""
        self._offset = time.time_ns() // 1000 - now
        super().start(now + REST_US)

    def on_heard(self, message: Message, source: Address, now: Time) -> None:  # noqa: ARG002 - as any handler
        """Note a start or an end."""
        if isinstance(message, TaskReport):
            column = self._records.start_us if message.state == "running" else self._records.finish_us
            column[message.task] = message.at_unix_us - self._offset


def hosted(config: Path, name: str, make_host: type[Host], orders: Connection) -> None:
    """A process: one host, until it is told to stop; it says then what it has noted."""
    federation = read_federation(config, choose)

    async def work() -> None:
        async with running(federation, name, make_host=make_host) as at_work:
            gc.collect()
            gc.freeze()
            orders.send("ready")
            await asyncio.to_thread(orders.recv)
            host = at_work.host
            orders.send((noted(host) if isinstance(host, FramingHost) else None, origin_us(host)))

    run_loop(work())


@contextmanager
def process_of(target: Any, *arguments: Any) -> Iterator[Connection]:
    """A process with a line to it."""
    ours, theirs = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, theirs))
    child.start()
    try:
        yield ours
    finally:
        child.join(LIMIT_S)
        child.kill()


def run(architecture: str, server: Server, trace: Trace, make_host: type[Host] = Host) -> tuple[Federation, Measured]:
    """Load a federation over NATS."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder) / "federation.toml"
        config.write_text(_content(architecture, server.url))
        federation = read_federation(config, choose)
        lines = {name: stack.enter_context(process_of(hosted, config, name, make_host)) for name in HOSTS[architecture]}
        found: list[Measured] = []
        run_loop(_loaded(federation, trace, lines, server, make_host, found))
        return federation, found[0]


async def _loaded(
    federation: Federation, trace: Trace, lines: dict[str, Connection], server: Server, make_host: type[Host],
    found: list[Measured],
) -> None:  # fmt: skip
    records = Records(trace)
    loaders: list[Hearing] = []

    def front(_: Federation, deployment: Any, __: Any) -> Front:
        loaders.append(Hearing(trace, records, deployment.entry_for, None))
        return Front(loaders[0])

    async with running(federation, API_HOST, front, make_host=make_host) as at_work, asyncio.timeout(LIMIT_S):
        await asyncio.sleep(REST_US / SECOND / 2)
        used_s = server.cpu_s()
        await loaders[0].complete.wait()
        used_s = server.cpu_s() - used_s
        while min(records.finish_us) == NEVER:
            await asyncio.sleep(SETTLE_S)
        found_noted, clocks = {}, {API_HOST: origin_us(at_work.host)}
        if isinstance(at_work.host, FramingHost):
            found_noted[API_HOST] = noted(at_work.host)
    for name, line in lines.items():
        assert line.recv() == "ready"
        line.send("stop")
        told, clocks[name] = line.recv()
        if told is not None:
            found_noted[name] = told
    frames = sum(one.published for one in found_noted.values())
    found.append(Measured(records, found_noted, used_s * SECOND / max(1, frames), clocks))


def by_clock(work: Trace, ahead_us: Time) -> Trace:
    """The work by the clock of a host that began so much earlier: where beats decide, their phase does."""
    return msgspec.structs.replace(work, arrival_us=array("q", [at + ahead_us for at in work.arrival_us]))


def _content(architecture: str, url: str) -> str:
    hosts = "\n".join(f"{name} = {json.dumps(patterns)}" for name, patterns in HOSTS[architecture].items())
    return (
        f'architecture = "{architecture}"\nbroker = "{url}"\napi = "127.0.0.1:0"\nexecutor = "sleep"\n'
        f"[parameters]\n{SIZES[architecture]}\n[[machines]]\ncount = {NODES}\n[hosts]\n{hosts}\n"
    )


def predicted(lived: Lived, costs: dict[str, HostCosts], frames: Frames, seed: int) -> Times:
    """What the lab makes of it."""
    options = sim.Options(hosts=costs, frames=frames)
    return allocation_us(sim.simulate(lived.plan.build(), lived.work, lived.plan.cluster, options=options, seed=seed))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", default=["megha", "pigeon"], metavar="ARCH")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    with realtime() as alone, nats_process() as (url, pid):
        print(json.dumps({"cpus": os.cpu_count(), "realtime": alone}), flush=True)
        for architecture in given.architectures:
            measure(architecture, Server(url, pid), given.rounds)


def measure(architecture: str, server: Server, rounds: int) -> None:
    """All loads of one design."""
    shown: list[Measured] = []
    lived: dict[str, list[Lived]] = {name: [] for name in LOADS}
    for number in range(rounds):
        for spec, (name, load) in zip(PACES, LOADS.items(), strict=True):
            shown.append(run(architecture, server, load_trace(spec, seed=1 + number), FramingHost)[1])
            trace = load_trace(load, seed=100 + number)
            federation, came = run(architecture, server, trace)
            plan, took = federation.plan, np.array(came.records.start_us)
            arrived = np.repeat(np.array(came.records.trace.arrival_us), np.diff(np.array(trace.first)))
            span_us = max(came.records.answered_us) - came.records.trace.arrival_us[0]
            used = metrics.mean_utilisation(came.records, plan.cluster)
            rate = trace.task_count * SECOND / span_us
            ahead_us = came.origin_us[API_HOST] - came.origin_us[BEATS[architecture]]
            lived[name].append(Lived(plan, took - arrived, by_clock(as_lived(came.records), ahead_us), used, rate))
    costs, frames = model_of([one.noted for one in shown], statistics.median(one.broker_us for one in shown))
    for name, found in lived.items():
        came_us = [one.allocation_us for one in found]
        lab_us = [predicted(one, costs, frames, seed) for seed, one in enumerate(found)]
        line: dict[str, Any] = {"architecture": architecture, "load": name, "rounds": rounds}
        line["hop_us"] = round(statistics.fmean(frames.delays_us))
        line["broker_us"] = round(frames.broker_us)
        line["utilisation"] = round(statistics.median(one.utilisation for one in found), 3)
        line["holds"] = True
        for kind, bar, of in (("mean", MEAN_BAR, np.mean), ("p50", MEAN_BAR, np.median), ("p99", P99_BAR, p99)):
            ratios = [float(of(lab)) / float(of(came)) for lab, came in zip(lab_us, came_us, strict=True)]
            line[f"live_{kind}_us_rounds"] = [round(float(of(one))) for one in came_us]
            line[f"{kind}_ratio_rounds"] = [round(ratio, 3) for ratio in ratios]
            line[f"{kind}_ratio_pooled"] = round(
                float(of(np.concatenate(lab_us))) / float(of(np.concatenate(came_us))), 3
            )
            line[f"{kind}_ratio"] = round(statistics.median(ratios), 3)
            line[f"{kind}_holds"] = abs(statistics.median(ratios) - 1) <= bar
            line["holds"] &= line[f"{kind}_holds"]
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
