"""How well the lab predicts a federation over NATS, as JSON: `python -m benchmarks.calibration_nats`.

Masters, nodes and the loader are processes of their own, beside the server. Calibration runs the same processes under
other work, each timing itself, its frames and its socket (`live.calibration`); the lab then has a host per
process, frames that draw their delays from those that were measured, and as many cores as the machine. Calibration and
load take turns. A task's start is what its node reports, by the wall clock. The verdict is the median of the rounds'
ratios, each of a round's work in the lab to the same work live: something else that disturbs one round moves one
ratio. See `calibration.py` for the measures, the bars and real time.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import tempfile
from array import array
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np
from benchmarks.calibration import MEAN_BAR, NODES, P99_BAR, Lived, Times, allocation_us, p99, realtime
from benchmarks.live import nats_process

from volery import metrics, sim
from volery.architectures import choose
from volery.core.costs import Frames, HostCosts
from volery.core.model import SECOND, Time
from volery.core.trace import Trace
from volery.live.calibration import FramingHost, model_of
from volery.live.config.federation import API_HOST, FederationFile
from volery.live.load import LoadMeasurements, as_lived, load_apart
from volery.live.runtime.host import Host
from volery.workload import load_trace

LOADS = {
    "50 %, jobs of 10, one in 13 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.2,jobs=400",
    "80 %, jobs of 10, one in 8.3 ms": "poisson:load=0.8,workers=300,fanout=10,mean=0.2,jobs=600",
}
PACES = (
    "poisson:load=0.5,workers=300,fanout=geometric:10,mean=0.2,jobs=400",
    "poisson:load=0.7,workers=300,fanout=geometric:10,mean=0.1,jobs=800",
)
HOSTS = {
    "megha": {"gm": ["gm/*"], "lm": ["lm/*"], "node": ["node/*"]},
    "pigeon": {"distributor": ["distributor/*"], "master": ["master/*"], "node": ["node/*"]},
}
BEATS = {"megha": "lm", "pigeon": "master"}
"""The host whose timers are of periods: the lab has one clock, live each host has its own."""
SIZES: dict[str, dict[str, Any]] = {
    "megha": {"gms": 2, "lms": 3},
    "pigeon": {"distributors": 2, "groups": 3, "reserved": 10},
}


class Server(NamedTuple):
    """The broker."""

    url: str
    pid: int

    def cpu_s(self) -> float:
        """What it has used of the processor so far."""
        threads = Path(f"/proc/{self.pid}/task").glob("*/schedstat")
        return sum(int(one.read_text().split()[0]) for one in threads) / 1e9


def run(architecture: str, server: Server, trace: Trace, make_host: type[Host] = Host) -> LoadMeasurements:
    """Load a federation over NATS."""
    file = FederationFile(
        architecture=architecture,
        broker=server.url,
        api="127.0.0.1:0",
        executor="sleep",
        parameters=SIZES[architecture],
        machines=[{"count": NODES}],
        hosts=HOSTS[architecture],
    )
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        return load_apart(file, Path(folder), choose, trace, make_host, server.cpu_s)


def by_clock(work: Trace, ahead_us: Time) -> Trace:
    """The work by the clock of a host that began so much earlier: where beats decide, their phase does."""
    return msgspec.structs.replace(work, arrival_us=array("q", [at + ahead_us for at in work.arrival_us]))


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
    shown: list[LoadMeasurements] = []
    lived: dict[str, list[Lived]] = {name: [] for name in LOADS}
    for number in range(rounds):
        for spec, (name, load) in zip(PACES, LOADS.items(), strict=True):
            shown.append(run(architecture, server, load_trace(spec, seed=1 + number), FramingHost))
            trace = load_trace(load, seed=100 + number)
            came = run(architecture, server, trace)
            plan, took = came.federation.plan, np.array(came.records.start_us)
            arrived = np.repeat(np.array(came.records.trace.arrival_us), np.diff(np.array(trace.first)))
            span_us = max(came.records.answered_us) - came.records.trace.arrival_us[0]
            used = metrics.mean_utilisation(came.records, plan.cluster)
            rate = trace.task_count * SECOND / span_us
            ahead_us = came.origin_us[API_HOST] - came.origin_us[BEATS[architecture]]
            lived[name].append(Lived(plan, took - arrived, by_clock(as_lived(came.records), ahead_us), used, rate))
    costs, frames = model_of([one.notes for one in shown], statistics.median(one.broker_us for one in shown))
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
