"""How well the lab predicts a federation over NATS, as JSON: `python -m benchmarks.calibration_nats`.

Masters, nodes and the loader are processes of their own, beside the server. Calibration runs the same processes under
other work, each timing itself, and sends frames to and fro between two further ones; the lab then has a host per
process and that delay between hosts. A task's start is what its node reports, by the wall clock. See `calibration.py`
for the measures, the bars and real time.
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
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from benchmarks.calibration import MEAN_BAR, NODES, P99_BAR, Lived, Times, allocation_us, p99, realtime
from benchmarks.live import nats_server

from volery import metrics, sim
from volery.cli.federation import choose
from volery.core.component import Component
from volery.core.costs import EventCost, HostCosts
from volery.core.events import Submit, TimerFired
from volery.core.model import NEVER, SECOND, SUBMITTER, Address, Job, Message, Task, Time
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.cluster.federation import API_HOST, Federation, read_federation
from volery.live.loop import run_loop
from volery.live.node.executor import TaskReport
from volery.live.running import Front, running
from volery.live.trials.calibrate import COMMIT, TimedHost, host_costs, turns_of
from volery.live.trials.load import Loader, as_lived
from volery.live.wire.broker import BrokerTransport
from volery.live.wire.codec import Codec
from volery.live.wire.tls import BrokerAccess
from volery.workload import load_trace

LOADS = {
    "50 %, jobs of 10, one in 13 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.2,jobs=160",
    "80 %, jobs of 10, one in 8.3 ms": "poisson:load=0.8,workers=300,fanout=10,mean=0.2,jobs=250",
}
PACES = ("poisson:load=0.5,workers=300,fanout=geometric:10,mean=0.2,jobs=160",
         "poisson:load=0.7,workers=300,fanout=geometric:10,mean=0.1,jobs=440")  # fmt: skip
HOSTS = {
    "megha": {"gm": ["gm/*"], "lm": ["lm/*"], "node": ["node/*"]},
    "pigeon": {"distributor": ["distributor/*"], "master": ["master/*"], "node": ["node/*"]},
}
SIZES = {"megha": "gms = 2\nlms = 3", "pigeon": "distributors = 2\ngroups = 3\nreserved = 10"}
SETTLE_S = 0.5
"""Reports come after answers."""
PINGS, PING_EVERY_US = 200, 10_000
PING = Submit(Job(0, 10, tuple(Task(number, 0, 0, SECOND) for number in range(10)), SECOND))
LIMIT_S = 60


class Measured(NamedTuple):
    """What a run over NATS has shown.

    Args:
        records: starts and ends as nodes have told them.
        costs: by host, where hosts have timed themselves.
        submit_us: a turn of the loader's.
    """

    records: Records
    costs: dict[str, HostCosts]
    submit_us: float


class Hearing(Loader):
    """A loader that hears when tasks start and end, by their nodes' clocks."""

    def start(self, now: Time) -> None:
        """The first job arrives a moment later."""
        self._offset = time.time_ns() // 1000 - now
        super().start(now)

    def on_heard(self, message: Message, source: Address, now: Time) -> None:  # noqa: ARG002 - as any handler
        """Note a start or an end."""
        if isinstance(message, TaskReport):
            column = self._records.start_us if message.state == "running" else self._records.finish_us
            column[message.task] = message.at_unix_us - self._offset


def hosted(config: Path, name: str, orders: Connection) -> None:
    """A process: one host, until it is told to stop; it says then what it has cost."""
    federation = read_federation(config, choose)

    async def work() -> None:
        async with running(federation, name, make_host=TimedHost) as at_work:
            orders.send("ready")
            await asyncio.to_thread(orders.recv)
            assert isinstance(at_work.host, TimedHost)
            orders.send(host_costs([at_work.host]))

    gc.collect()
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


def run(architecture: str, url: str, trace: Trace) -> tuple[Federation, Measured]:
    """Load a federation over NATS, all of whose hosts time themselves."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        config = Path(folder) / "federation.toml"
        config.write_text(_content(architecture, url))
        federation = read_federation(config, choose)
        lines = {name: stack.enter_context(process_of(hosted, config, name)) for name in HOSTS[architecture]}
        found: list[Measured] = []
        run_loop(_loaded(federation, trace, lines, found))
        return federation, found[0]


async def _loaded(federation: Federation, trace: Trace, lines: dict[str, Connection], found: list[Measured]) -> None:
    records = Records(trace)
    loaders: list[Hearing] = []

    def front(_: Federation, deployment: Any, __: Any) -> Front:
        loaders.append(Hearing(trace, records, deployment.entry_for, None))
        return Front(loaders[0])

    async with running(federation, API_HOST, front, make_host=TimedHost) as at_work, asyncio.timeout(LIMIT_S):
        await loaders[0].complete.wait()
        while min(records.finish_us) == NEVER:
            await asyncio.sleep(SETTLE_S)
        assert isinstance(at_work.host, TimedHost)
        submits = [
            turn for turn in turns_of(at_work.host) if (SUBMITTER, TimerFired.__name__) in {p.kind for p in turn}
        ]
        submit_us = statistics.fmean(turn[-1].end_us - turn[0].at_us for turn in submits)
    costs = {}
    for name, line in lines.items():
        assert line.recv() == "ready"
        line.send("stop")
        costs[name] = line.recv()
    found.append(Measured(records, costs, submit_us))


def _content(architecture: str, url: str) -> str:
    hosts = "\n".join(f"{name} = {json.dumps(patterns)}" for name, patterns in HOSTS[architecture].items())
    return (
        f'architecture = "{architecture}"\nbroker = "{url}"\napi = "127.0.0.1:0"\nexecutor = "sleep"\n'
        f"[parameters]\n{SIZES[architecture]}\n[[machines]]\ncount = {NODES}\n[hosts]\n{hosts}\n"
    )


class Echo(Component):
    """Sends back what it gets; the first one begins, again and again, and keeps how long that took."""

    def __init__(self, peer: Address, pings: int) -> None:
        self._peer = peer
        self._left = pings
        self._sent_us = 0
        self.took_us: list[Time] = []
        self.done = asyncio.Event()

    def start(self, now: Time) -> None:
        """Wait for the other one."""
        if self._left:
            self._port.set_timer(0, now + SECOND)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:  # noqa: ARG002 - as any handler
        """Begin."""
        self._sent_us = now
        self._port.send(self._peer, PING)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Send it back, or count it."""
        if not self._sent_us:
            self._port.send(source, message)
            return
        self.took_us.append(now - self._sent_us)
        self._left -= 1
        if self._left:
            self._port.set_timer(0, now + PING_EVERY_US)
        else:
            self.done.set()

    receives = {TimerFired: on_timer, Submit: on_submit}  # noqa: RUF012 - the base class reads it once


@asynccontextmanager
async def echo_host(url: str, name: str, pings: int) -> AsyncIterator[tuple[Echo, TimedHost]]:
    """One of two hosts."""
    other = {"first": "second", "second": "first"}[name]
    echo = Echo(f"{other}/0", pings)
    host = TimedHost(
        name, {f"{name}/0": echo}, codec=Codec(frozenset()), transport=BrokerTransport(BrokerAccess(url), "echo", ""),
        where={"first/0": "first", "second/0": "second"},
    )  # fmt: skip
    await host.open()
    host.start()
    yield echo, host
    await host.close()


def echoing(url: str, orders: Connection) -> None:
    """A process with a host that sends everything back."""

    async def work() -> None:
        async with echo_host(url, "second", 0):
            await asyncio.to_thread(orders.recv)

    run_loop(work())


def hop_us(url: str) -> list[float]:
    """What a job takes between two hosts, from the end of the turn that sent it to the turn that handles it.

    It goes to and fro, ten milliseconds apart, as jobs do; half of that, less what the turns took.
    """
    found: list[float] = []

    async def ping(orders: Connection) -> None:
        async with echo_host(url, "first", PINGS) as (echo, host), asyncio.timeout(LIMIT_S):
            await echo.done.wait()
            orders.send("stop")
        turns = [turn for turn in turns_of(host) if turn[-1].kind == COMMIT]
        turn_us = statistics.median(turn[-1].end_us - turn[0].at_us for turn in turns)
        found.extend(max(0.0, took / 2 - turn_us) for took in echo.took_us)

    with process_of(echoing, url) as orders:
        run_loop(ping(orders))
    return found


def joined(costs: list[HostCosts]) -> HostCosts:
    """The mean of what several runs of a host have shown."""
    roles: dict[str, dict[str, EventCost]] = {}
    for role in costs[0].roles:
        events = {event for one in costs for event in one.roles.get(role, {})}
        roles[role] = {
            event: _mean([one.of(role, event) for one in costs if role in one.roles]) for event in sorted(events)
        }
    half = statistics.fmean(one.rest_half_us for one in costs)
    return HostCosts(roles, _mean([one.turn for one in costs]), _mean([one.launch for one in costs]), half)


def _mean(costs: list[EventCost]) -> EventCost:
    fields = EventCost.__struct_fields__
    return EventCost(*(statistics.fmean(getattr(one, field) for one in costs) for field in fields))


def predicted(lived: Lived, costs: dict[str, HostCosts], hops: list[float], submit_us: float) -> Times:
    """What the lab makes of it; on the way to its master a job takes a turn of the loader's and one hop more."""
    least_us, mean_us = float(np.percentile(hops, 5)), statistics.fmean(hops)
    network = sim.Network(delay_us=round(least_us), jitter_us=round(mean_us - least_us))
    options = sim.Options(hosts=costs)
    lab = sim.simulate(lived.plan.build(), lived.work, lived.plan.cluster, network=network, options=options)
    return allocation_us(lab) + round(mean_us + submit_us)


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", default=["megha", "pigeon"], metavar="ARCH")
    parser.add_argument("--rounds", type=int, default=2)
    given = parser.parse_args()
    with realtime() as alone, nats_server() as url:
        print(json.dumps({"cpus": os.cpu_count(), "realtime": alone}), flush=True)
        for architecture in given.architectures:
            measure(architecture, url, given.rounds)


def measure(architecture: str, url: str, rounds: int) -> None:
    """All loads of one design."""
    shown: list[Measured] = []
    lived: dict[str, list[Lived]] = {name: [] for name in LOADS}
    hops: list[float] = []
    for number in range(rounds):
        for spec, (name, load) in zip(PACES, LOADS.items(), strict=True):
            shown.append(run(architecture, url, load_trace(spec, seed=1 + number))[1])
            hops += hop_us(url)
            trace = load_trace(load, seed=100 + number)
            federation, came = run(architecture, url, trace)
            plan, took = federation.plan, np.array(came.records.start_us)
            arrived = np.repeat(np.array(came.records.trace.arrival_us), np.diff(np.array(trace.first)))
            span_us = max(came.records.answered_us) - came.records.trace.arrival_us[0]
            used = metrics.mean_utilisation(came.records, plan.cluster)
            rate = trace.task_count * SECOND / span_us
            lived[name].append(Lived(plan, took - arrived, as_lived(came.records), used, rate))
    costs = {name: joined([one.costs[name] for one in shown]) for name in HOSTS[architecture]}
    submit_us = statistics.fmean(one.submit_us for one in shown)
    for name, found in lived.items():
        came_us = np.concatenate([one.allocation_us for one in found])
        lab_us = np.concatenate([predicted(one, costs, hops, submit_us) for one in found])
        line: dict[str, Any] = {
            "architecture": architecture,
            "load": name,
            "rounds": rounds,
            "hop_us": round(statistics.fmean(hops)),
        }
        line["utilisation"] = round(statistics.median(one.utilisation for one in found), 3)
        for kind, bar, of in (("mean", MEAN_BAR, np.mean), ("p50", MEAN_BAR, np.median), ("p99", P99_BAR, p99)):
            ratio = float(of(lab_us)) / float(of(came_us))
            line |= {f"live_{kind}_us": round(float(of(came_us))), f"{kind}_ratio": round(ratio, 3)}
            line[f"{kind}_holds"] = abs(ratio - 1) <= bar
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
