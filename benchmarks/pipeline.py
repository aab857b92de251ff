"""Speed of schedulers assembled from stages, as JSON: `python benchmarks/pipeline.py [NAME ...] [--tasks N]`.

The work is like that of the Parallel Workloads Archive's logs (SWF): one task a job, most of a power of two of
processors, run times over four decades, estimates that users round up to usual limits. It is made here, from a seed.
Speed is tasks per CPU second of the run, building and submitting included, making the trace not; a bar is what the
project promises. Other programs on the machine can only slow a run down.
"""

from __future__ import annotations

import argparse
import json
import math
import resource
import time
from array import array
from typing import NamedTuple

from volery.architectures import configure, lookup
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import simulate
from volery.sim.network import Network

CORES = 16
MACHINES = 1_000
LIMITS_S = (300, 900, 1800, 3600, 7200, 14_400, 28_800, 43_200, 86_400)
"""Run times that users ask for."""
USERS = 40


class Case(NamedTuple):
    """One measurement: a configuration, the load it is under, and what is promised of it."""

    architecture: str
    given: dict[str, str]
    load: float = 0.95
    tasks_per_cpu_s_min: float = 0.0


CASES = {
    "easy": Case("pipeline", {"T3": "easy"}, tasks_per_cpu_s_min=10_000),
    "easy overload": Case("pipeline", {"T3": "easy"}, load=1.2, tasks_per_cpu_s_min=10_000),
    "strict": Case("pipeline", {"T3": "strict"}, load=0.8),
    "fifo best-fit": Case("pipeline", {"T2": "fifo"}, tasks_per_cpu_s_min=20_000),
    "fifo best-fit overload": Case("pipeline", {"T2": "fifo"}, load=1.2, tasks_per_cpu_s_min=20_000),
    "srtf first-fit": Case("pipeline", {"T2": "srtf", "R5": "first-fit"}),
    "random worst-fit": Case("pipeline", {"T2": "random", "R5": "worst-fit"}),
    "drf": Case("pipeline", {"T2": "drf"}),
    "kubernetes": Case("pipeline", {"R5": "kubernetes"}),
    "borg": Case("pipeline", {"R5": "borg", "T2": "bands"}),
}


def swf_like(tasks: int, load: float, seed: int = 0) -> Trace:
    """A trace of so many jobs of one task each that would take this fraction of all processors."""
    stream = Streams(seed).of("swf-like")
    sizes = [1 << int(stream.random() ** 1.5 * (math.log2(CORES) + 1)) for _ in range(tasks)]
    sizes = [min(CORES, size if stream.random() < 0.85 else size + 1) for size in sizes]
    runs_s = [min(86_400.0, math.exp(stream.gauss(6.0, 2.0))) for _ in range(tasks)]
    estimates = [_limit(run * (1 + stream.expovariate(0.5))) for run in runs_s]
    work = sum(size * run for size, run in zip(sizes, runs_s, strict=True))
    span_us = work / (CORES * MACHINES * load) * SECOND
    arrivals = sorted(int(stream.random() * span_us) for _ in range(tasks))
    return Trace(
        "swf-like",
        array("q", arrivals),
        array("q", range(tasks + 1)),
        array("q", [int(run * SECOND) for run in runs_s]),
        array("q", [limit * SECOND for limit in estimates]),
        user=tuple(f"u{int(stream.random() ** 2 * USERS)}" for _ in range(tasks)),
        resources=("cores",),
        requests=tuple((size,) for size in range(CORES + 1)),
        request=array("H", sizes),
    )


def _limit(run_s: float) -> int:
    return next((limit for limit in LIMITS_S if limit >= run_s), LIMITS_S[-1])


def measure(name: str, case: Case, trace: Trace) -> dict[str, object]:
    """Run a case once."""
    cluster = Cluster(
        (0,) * MACHINES, (1,) * MACHINES, "swf-like", resources=("cores",), capacities=((CORES,),) * MACHINES
    )
    entry = lookup(case.architecture)
    began = time.process_time()
    deployment = entry.build(cluster, configure(entry, case.given), Streams(0))
    records = simulate(deployment, trace, cluster, network=Network(delay_us=0))
    spent = time.process_time() - began
    speed = trace.task_count / spent
    waits = [start - at for start, at in zip(records.start_us, trace.arrival_us, strict=True)]
    queue = records.tallies["queued_tasks"]
    return {
        "name": name,
        "tasks": trace.task_count,
        "tasks_per_cpu_s": round(speed),
        "promised": case.tasks_per_cpu_s_min,
        "kept": speed >= case.tasks_per_cpu_s_min,
        "mean_wait_s": round(sum(waits) / len(waits) / SECOND, 1),
        "queue_mean": round(queue.total / queue.count, 1),
        "queue_max": queue.largest,
        "peak_rss_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> None:
    """Measure what is asked for, or everything."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"of {', '.join(CASES)}")
    parser.add_argument("--tasks", type=int, default=1_000_000)
    arguments = parser.parse_args()
    chosen = {name: CASES[name] for name in arguments.names or CASES}
    made: dict[float, Trace] = {}
    for name, case in chosen.items():
        trace = made.setdefault(case.load, swf_like(arguments.tasks, case.load))
        print(json.dumps(measure(name, case, trace)), flush=True)


if __name__ == "__main__":
    main()
