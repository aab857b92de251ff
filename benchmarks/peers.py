"""The same no-op work in Ray and in Dask, as JSON: `python benchmarks/peers.py [ray] [dask] [--tasks N]`.

Beside benchmarks/live.py: tasks per second of real time with everything submitted at once, and the time of one task at
a time, a millisecond apart. Neither is a dependency of Volery; install what is to be measured (`pip install ray`,
`pip install distributed`) into an environment of its own. They do more than we do here (results, object stores, data
locality) and are measured on what they have in common with us: a task that does nothing is placed, run, and known to
have ended.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

CPUS = 2
IDLE_TASKS = 200
PAUSE_S = 0.001

Run = Callable[[int], None]
"""Runs so many no-op tasks at once and returns when all have ended."""


def nothing(_: int) -> None:
    """The work."""


@contextmanager
def ray() -> Iterator[Run]:
    """Ray on this machine."""
    engine: Any = importlib.import_module("ray")
    engine.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False)
    remote = engine.remote(nothing)
    try:
        yield lambda count: engine.get([remote.remote(number) for number in range(count)])
    finally:
        engine.shutdown()


@contextmanager
def dask() -> Iterator[Run]:
    """Dask's scheduler and worker processes on this machine."""
    distributed: Any = importlib.import_module("distributed")
    with (
        distributed.LocalCluster(n_workers=CPUS, threads_per_worker=1, dashboard_address=None) as cluster,
        distributed.Client(cluster) as client,
    ):
        yield lambda count: client.gather(client.map(nothing, range(count), pure=False))


PEERS = {"ray": (ray, "ray"), "dask": (dask, "distributed")}


def measure(name: str, tasks: int) -> dict[str, Any]:
    """Throughput and latency of one of them."""
    start, module = PEERS[name]
    with start() as run:
        run(CPUS * 10)
        began = time.perf_counter()
        run(tasks)
        seconds = time.perf_counter() - began
        took = []
        for _ in range(IDLE_TASKS):
            at = time.perf_counter()
            run(1)
            took.append(time.perf_counter() - at)
            time.sleep(PAUSE_S)
    took.sort()
    return {
        "name": name, "version": importlib.import_module(module).__version__, "tasks": tasks,
        "tasks_per_s": round(tasks / seconds), "task_p50_ms": round(1000 * took[len(took) // 2], 3),
        "task_p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }  # fmt: skip


def main() -> None:
    """Measure those that are named, by default all that are installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="ray, dask; by default all that are installed")
    parser.add_argument("--tasks", type=int, default=2_000)
    given = parser.parse_args()
    names = given.names or [name for name, (_, module) in PEERS.items() if importlib.util.find_spec(module)]
    if not names or set(names) - PEERS.keys():
        parser.error("give ray or dask, and install it: pip install ray distributed")
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": CPUS}))
    for name in names:
        print(json.dumps(measure(name, given.tasks)), flush=True)


if __name__ == "__main__":
    main()
