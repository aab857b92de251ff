"""How well the lab with calibrated costs predicts a live federation, as JSON: `python benchmarks/calibration.py`.

Each round measures costs on this machine, loads a live federation to half of its slots, measures again, and plays the
same work (submitted when it was, each task as long as it took) in the lab with those costs. Compared are the mean and
the median allocation time. What a machine does beside moves a single round; the verdict is over the median of the
rounds. The bar, 20 %, is what the project promises.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from volery import metrics, sim
from volery.cli.calibrate import paces, timed_load
from volery.cli.loading import federation_of, load_here
from volery.core.costs import HostCosts
from volery.core.model import SECOND
from volery.core.records import Records
from volery.live.cluster.building import Plan
from volery.live.trials.calibrate import host_costs
from volery.live.trials.load import as_lived
from volery.metrics.allocation import allocation_parts
from volery.workload import load_trace

NODES = 300
BAR = 0.2
CLUSTERS, GMS = 3, 2
LOADS = {
    "jobs of 10, a job in 6.7 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.1,jobs=450",
    "jobs of 10, a job in 2 ms": "poisson:load=0.5,workers=300,fanout=10,mean=0.03,jobs=1000",
    "jobs of 30 on average": "poisson:load=0.5,workers=300,fanout=geometric:30,mean=0.1,jobs=200",
}


def allocation_us(records: Records) -> tuple[float, float]:
    """Mean and median allocation time."""
    total = dict(allocation_parts(records))["total"]
    return float(total.mean()), float(np.median(total))


class Lived(NamedTuple):
    """A live load."""

    plan: Plan
    records: Records


def live(architecture: str, spec: str) -> Lived:
    """Load a federation."""
    with tempfile.TemporaryDirectory() as folder:
        federation = federation_of(architecture, NODES, 1, CLUSTERS, GMS, Path(folder), 0)
        return Lived(federation.plan, load_here(federation, load_trace(spec, seed=2), "sleep", lambda _: None).records)


def compare(lived: Lived, costs: HostCosts) -> dict[str, float]:
    """A live load and its prediction."""
    plan, records = lived
    lab = sim.simulate(plan.build(), as_lived(records), plan.cluster, options=sim.Options(hosts={"live": costs}))
    (live_mean, live_p50), (lab_mean, lab_p50) = allocation_us(records), allocation_us(lab)
    span_us = max(records.answered_us) - records.trace.arrival_us[0]
    return {
        "utilisation": metrics.mean_utilisation(records, plan.cluster),
        "tasks_per_s": records.trace.task_count * SECOND / span_us,
        "live_mean_us": live_mean, "lab_mean_us": lab_mean, "live_p50_us": live_p50, "lab_p50_us": lab_p50,
        "mean_ratio": lab_mean / live_mean, "p50_ratio": lab_p50 / live_p50,
    }  # fmt: skip


def one_round(architecture: str, number: int) -> dict[str, dict[str, float]]:
    """Costs are measured before and after the loads: the machine may have changed meanwhile."""
    works = [load_trace(spec, seed=1 + number) for spec in paces(NODES)]
    timed = [timed_load(architecture, work, NODES, silent=True) for work in works]
    lived = {name: live(architecture, spec) for name, spec in LOADS.items()}
    timed += [timed_load(architecture, work, NODES, silent=True) for work in works]
    costs = host_costs(timed)
    return {name: compare(load, costs) for name, load in lived.items()}


def main() -> None:
    """Measure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("architectures", nargs="*", default=["megha", "pigeon"], metavar="ARCH")
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": os.cpu_count()}))
    for architecture in given.architectures:
        rounds = [one_round(architecture, number) for number in range(given.rounds)]
        for name in LOADS:
            found = [one[name] for one in rounds]
            line: dict[str, Any] = {"architecture": architecture, "load": name, "rounds": given.rounds}
            line |= {key: round(statistics.median(one[key] for one in found), 3) for key in found[0]}
            line["live_mean_us_range"] = [round(bound(one["live_mean_us"] for one in found)) for bound in (min, max)]
            off = max(abs(line["mean_ratio"] - 1), abs(line["p50_ratio"] - 1))
            line |= {"off": round(off, 3), "bar": BAR, "holds": off <= BAR}
            print(json.dumps(line), flush=True)


if __name__ == "__main__":
    main()
