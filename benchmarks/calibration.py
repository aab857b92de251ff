"""How well the lab with calibrated costs predicts a live federation, as JSON: `python benchmarks/calibration.py`.

In each round live loads at half and at four fifths of all slots alternate with loads of other work, in which a host
that times itself measures what things cost. Then the lab plays what was lived (submitted when it was, each task as long
as it took) with the costs of every round, and allocation times are compared over all rounds: mean and median are to be
within 15 %, the 99th percentile within 30 %. Near full clusters races decide which tasks wait for how long: runs of one
trace differ among each other, live as in the lab, so that rounds have traces of their own and are compared together.

Where it is allowed to, everything that is measured runs in real time (SCHED_FIFO): what else the machine does is no
cost of the federation. `"realtime": false` in the first line says that it was not: verdicts then take a quiet machine.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import platform
import statistics
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from volery import metrics, sim
from volery.cli.calibrate import timed_load
from volery.cli.generator import federation_of, load_here
from volery.core.costs import HostCosts
from volery.core.model import SECOND
from volery.core.records import Records
from volery.core.trace import Trace
from volery.live.calibration import TimedHost, host_costs
from volery.live.config.plan import FederationPlan
from volery.live.load import as_lived
from volery.metrics.tasks import allocation_parts
from volery.workload import load_trace

NODES = 300
MEAN_BAR, P99_BAR = 0.15, 0.3
CLUSTERS, GMS = 3, 2
LOADS = {
    "50 %, jobs of 10, one in 6.7 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.1,jobs=300",
    "50 %, jobs of 10, one in 2 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.03,jobs=1000",
    "80 %, jobs of 10, one in 1.25 ms": "poisson:load=0.8,workers=300,fanout=10,mean=0.03,jobs=1600",
    "80 %, jobs of 20, one in 8 ms": "poisson:load=0.8,workers=300,fanout=20,mean=0.1,jobs=250",
}
PACES = [
    f"poisson:load=0.5,workers=300,fanout=geometric:10,mean={mean},jobs={jobs}"
    for mean, jobs in (
        (0.02, 1000),
        (0.1, 200),
        (0.5, 40),
    )
]
"""Of calibration."""
PRIORITY = 10
SEED = 100
"""Of the first round's loads; calibration has other work from other seeds."""

Times = npt.NDArray[np.int64]


@contextmanager
def realtime() -> Iterator[bool]:
    """Leave the processor to nobody else, where that is permitted."""
    try:
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(PRIORITY))
    except (AttributeError, OSError):
        yield False
        return
    try:
        yield True
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


class Lived(NamedTuple):
    """A live load: how long each task took to start, and the same work for the lab."""

    plan: FederationPlan
    allocation_us: Times
    work: Trace
    utilisation: float
    tasks_per_s: float


def allocation_us(records: Records) -> Times:
    """Per task."""
    total: Times = dict(allocation_parts(records))["total"]
    return total


def live(architecture: str, spec: str, seed: int) -> Lived:
    """Load a federation."""
    gc.collect()
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(architecture, NODES, 1, CLUSTERS, GMS, Path(folder), 0)
        trace = load_trace(spec, seed=seed)
        with realtime():
            records = load_here(federation, trace, "sleep", lambda _: None).records
    plan = federation.plan
    span_us = max(records.answered_us) - records.trace.arrival_us[0]
    rate = trace.task_count * SECOND / span_us
    return Lived(plan, allocation_us(records), as_lived(records), metrics.mean_utilisation(records, plan.cluster), rate)


def timed(architecture: str, work: Trace) -> TimedHost:
    """A host that has timed itself."""
    with realtime():
        return timed_load(architecture, work, NODES, silent=True)


class Round(NamedTuple):
    """Live loads by name, and what things cost meanwhile."""

    lived: dict[str, Lived]
    costs: HostCosts


def one_round(architecture: str, number: int) -> Round:
    """Loads and calibrations take turns: what a machine takes changes with what else it does."""
    works = [load_trace(spec, seed=1 + number) for spec in PACES]
    hosts, lived = [], {}
    for place, (name, spec) in enumerate(LOADS.items()):
        hosts.append(timed(architecture, works[(place + number) % len(works)]))
        lived[name] = live(architecture, spec, SEED + number)
    return Round(lived, host_costs(hosts))


def predicted(architecture: str, work: Trace, costs: HostCosts) -> Times:
    """What the lab makes of it."""
    plan = federation_of(architecture, NODES, 1, CLUSTERS, GMS, Path(), 0).plan
    return allocation_us(sim.simulate(plan.build(), work, plan.cluster, options=sim.Options(hosts={"live": costs})))


def compare(architecture: str, name: str, rounds: Sequence[Round], lab: Times) -> dict[str, Any]:
    """A live load and its prediction, over all rounds."""
    lived = [one.lived[name] for one in rounds]
    came = np.concatenate([one.allocation_us for one in lived])
    found: dict[str, Any] = {"architecture": architecture, "load": name, "rounds": len(rounds)}
    found["utilisation"] = round(statistics.median(one.utilisation for one in lived), 3)
    found["tasks_per_s"] = round(statistics.median(one.tasks_per_s for one in lived))
    holds = True
    for measure, bar, of in (("mean", MEAN_BAR, np.mean), ("p50", MEAN_BAR, np.median), ("p99", P99_BAR, p99)):
        ratio = float(of(lab)) / float(of(came))
        found |= {f"live_{measure}_us": round(float(of(came))), f"{measure}_ratio": round(ratio, 3)}
        found[f"live_{measure}_us_rounds"] = [round(float(of(one.allocation_us))) for one in lived]
        found[f"{measure}_holds"] = abs(ratio - 1) <= bar
        holds &= found[f"{measure}_holds"]
    return found | {"holds": holds}


def p99(times: Times) -> float:
    """The 99th percentile."""
    return float(np.percentile(times, 99))


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", default=["megha", "pigeon"], metavar="ARCH")
    parser.add_argument("--rounds", type=int, default=4)
    given = parser.parse_args()
    with realtime() as alone:
        header = {"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}
        print(json.dumps(header | {"realtime": alone}), flush=True)
    rounds = {name: [one_round(name, number) for number in range(given.rounds)] for name in given.architectures}
    with ProcessPoolExecutor(os.cpu_count(), mp_context=get_context("spawn")) as pool:
        for architecture, found in rounds.items():
            for name in LOADS:
                asked = [(architecture, one.lived[name].work, other.costs) for one in found for other in found]
                lab = np.concatenate(list(pool.map(predicted, *zip(*asked, strict=True))))
                print(json.dumps(compare(architecture, name, found, lab)), flush=True)


if __name__ == "__main__":
    main()
