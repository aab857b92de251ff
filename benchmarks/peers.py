"""The same no-op work in Ray and in Dask, as JSON: `python benchmarks/peers.py [ray] [dask] [--tasks N]`.

Beside benchmarks/federation.py: tasks per second of real time with everything submitted at once, and the time of one
task at a time, a millisecond apart; CPU of all their processes. Neither is a dependency of Volery; install what is to
be measured (`pip install ray`, `pip install distributed`) into an environment of its own. They do more than we do there
(a function is called in a worker process, results, object stores, data locality) and are measured on what they have in
common with us: a task that does nothing is placed, started, and known to have ended.

`--against FILE` reads the lines that benchmarks/federation.py and this program have printed, and says how far apart
they are.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import platform
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

CPUS = 2
IDLE_TASKS = 500
PAUSE_S = 0.001
RATIO_MIN = 10
"""How many times as many launches the project promises."""

Run = Callable[[int], None]
"""Runs so many no-op tasks at once and returns when all have ended."""


def nothing(_: int) -> None:
    """The work."""


@contextmanager
def ray() -> Iterator[Run]:
    """Ray on this machine."""
    engine: Any = importlib.import_module("ray")
    engine.init(num_cpus=CPUS, include_dashboard=False, log_to_driver=False, logging_level="error")
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


def family_cpu_s() -> float:
    """CPU time of this process and of all that it has started and that still runs, so far."""
    ticks: dict[int, int] = {}
    parents: dict[int, int] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            words = path.read_text().rpartition(")")[2].split()
            parents[int(path.parent.name)] = int(words[1])
            ticks[int(path.parent.name)] = int(words[11]) + int(words[12])
    family, fresh = {os.getpid()}, {os.getpid()}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh}
        family |= fresh
    return sum(ticks.get(pid, 0) for pid in family) / os.sysconf("SC_CLK_TCK")


def measure(name: str, tasks: int) -> dict[str, Any]:
    """Throughput and latency of one of them."""
    start, module = PEERS[name]
    with start() as run:
        run(CPUS * 100)
        cpu_s, began = family_cpu_s(), time.perf_counter()
        run(tasks)
        seconds, cpu_s = time.perf_counter() - began, family_cpu_s() - cpu_s
        took = []
        for _ in range(IDLE_TASKS):
            at = time.perf_counter()
            run(1)
            took.append(time.perf_counter() - at)
            time.sleep(PAUSE_S)
    took.sort()
    return {
        "name": name,
        "version": importlib.import_module(module).__version__,
        "tasks": tasks,
        "tasks_per_s": round(tasks / seconds),
        "cpu_us_per_task_in_all": round(cpu_s * 1e6 / tasks, 1),
        "task_p50_ms": round(1000 * took[len(took) // 2], 3),
        "task_p99_ms": round(1000 * took[len(took) * 99 // 100], 3),
    }


def compare(path: Path) -> Iterator[dict[str, Any]]:
    """How far the federation is ahead of each peer; bars are what the project promises."""
    lines = [json.loads(line) for line in path.read_text().splitlines() if line.startswith("{")]
    found = {line["name"]: line for line in lines if "name" in line}
    for name in PEERS:
        if name not in found:
            yield {"name": f"beside {name}", "missing": f"{name} was not measured"}
            continue
        loaded, idle, peer = found["loaded"], found["idle"], found[name]
        launches = loaded["tasks_per_s"] / peer["tasks_per_s"]
        yield {
            "name": f"beside {name}",
            "launches_ratio": round(launches, 1),
            "bar_launches_ratio_min": {"bar": RATIO_MIN, "holds": launches >= RATIO_MIN},
            "cpu_ratio": round(peer["cpu_us_per_task_in_all"] / loaded["cpu_us_per_task_in_all"], 1),
            "idle_p99_ms": {"volery": idle["job_p99_ms"], name: peer["task_p99_ms"]},
            "bar_p99_ahead": {"holds": idle["job_p99_ms"] < peer["task_p99_ms"]},
        }


def main() -> None:
    """Measure those that are named, by default all that are installed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help="ray, dask; by default all that are installed")
    parser.add_argument("--tasks", type=int, default=5_000)
    parser.add_argument("--against", type=Path, metavar="FILE", help="compare what was printed there, measure nothing")
    given = parser.parse_args()
    if given.against is not None:
        for line in compare(given.against):
            print(json.dumps(line))
        return
    names = given.names or [name for name, (_, module) in PEERS.items() if importlib.util.find_spec(module)]
    if not names or set(names) - PEERS.keys():
        parser.error("give ray or dask, and install it: pip install ray distributed")
    print(json.dumps({"python": platform.python_version(), "machine": platform.machine(), "cpus": CPUS}))
    for name in names:
        print(json.dumps(measure(name, given.tasks)), flush=True)


if __name__ == "__main__":
    main()
