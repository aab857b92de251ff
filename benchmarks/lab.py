"""Speed and memory of the lab, as JSON: `make bench`, or `python benchmarks/lab.py [NAME ...] [--repeat N]`.

Every case is one `volery compare --json` in a fresh process on one core. Speed is tasks per CPU second of the run
itself (building the components and creating job and task objects included, reading the trace not), the best of N:
other programs on the machine can only slow a run down. Memory is the peak of that process. A bar is what the project
promises. Machines differ by more than a factor of two: `yardstick_s` is what a fixed loop of plain Python costs here,
so that figures of two machines can be compared.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[2] / "shared" / "traces"))
MACHINES = TRACES / "constraints" / "machines_10000x21.csv.gz"


ALIBABA = "alibaba:jobs=4000,load=0.4"
"""320,000 tasks that ask for processors and memory."""
NODE = "cpu_milli=64000,memory_mb=16384"


class Case(NamedTuple):
    """One measurement: the architecture, where it runs, and what is promised of it."""

    name: str
    architecture: str
    trace: str
    workers: int = 10_000
    constrained: bool = True
    capacity: str = ""
    tasks_per_cpu_s_min: float = 0
    cpu_s_max: float = 0
    peak_rss_mb_max: float = 0


CASES = (
    Case("syn_250 megha", "megha", "syn:250x2000", tasks_per_cpu_s_min=170_000),
    Case("syn_250 pigeonc", "pigeonc", "syn:250x2000", tasks_per_cpu_s_min=140_000),
    Case("syn_1000 megha", "megha", "syn:1000x2000", peak_rss_mb_max=180),
    Case("syn_1000 pigeonc", "pigeonc", "syn:1000x2000", peak_rss_mb_max=180),
    Case("GOOG megha", "megha", "GOOG_subtrace.tr.gz", tasks_per_cpu_s_min=32_000, peak_rss_mb_max=130),
    Case("GOOG pigeonc", "pigeonc", "GOOG_subtrace.tr.gz", tasks_per_cpu_s_min=48_000, peak_rss_mb_max=130),
    Case("GOOG pigeon unconstrained", "pigeon", "GOOG_subtrace.tr.gz", constrained=False, cpu_s_max=62 / 15),
    Case("GOOG sparrow unconstrained", "sparrow", "GOOG_subtrace.tr.gz", constrained=False, tasks_per_cpu_s_min=70_000),
    Case("GOOG hawk unconstrained", "hawk", "GOOG_subtrace.tr.gz", constrained=False, tasks_per_cpu_s_min=50_000),
    Case("GOOG eagle unconstrained", "eagle", "GOOG_subtrace.tr.gz", constrained=False, tasks_per_cpu_s_min=40_000),
    Case("GOOG omega unconstrained", "omega", "GOOG_subtrace.tr.gz", constrained=False),
    Case("cell omega", "omega", "cell:span=7200", constrained=False, capacity="cpu_milli=4000,memory_mb=16384"),
    Case("100,000 workers megha", "megha", "syn:250x2000", workers=100_000),
    Case("100,000 workers pigeonc", "pigeonc", "syn:250x2000", workers=100_000),
    Case("5,000 nodes megha-2021", "megha-2021:gms=10,lms=10", ALIBABA + ",workers=5000", 5_000, capacity=NODE),
    Case(
        "50,000 nodes megha-2021",
        "megha-2021:gms=10,lms=10",
        ALIBABA + ",workers=50000",
        50_000,
        capacity=NODE,
        tasks_per_cpu_s_min=25_000,
    ),
)


def command(case: Case, trace: Path | str) -> list[str]:
    """The command line of a case."""
    words = [sys.executable, "-m", "volery.cli.main", "compare", case.architecture, "--json", "--trace", str(trace)]
    words += ["--workers", str(case.workers), "--cutoff", "1129.532"]
    if case.capacity:
        words += ["--capacity", case.capacity]
    if case.constrained:
        words += ["--constraints", "sharma2011"]
        if case.workers <= 10_000 and MACHINES.exists():
            words += ["--machines", str(MACHINES)]
    return words


def measure(case: Case, repeat: int) -> dict[str, Any]:
    """Run a case and compare it with its bars; a missing trace is reported, not an error."""
    trace: Path | str = TRACES / "tr" / case.trace if case.trace.endswith(".tr.gz") else case.trace
    if isinstance(trace, Path) and not trace.exists():
        return {"case": case.name, "skipped": f"{trace} is not here"}
    runs = []
    for _ in range(repeat):
        print(f"{case.name} ...", file=sys.stderr, flush=True)
        finished = subprocess.run(command(case, trace), check=True, capture_output=True, text=True)
        runs.append(json.loads(finished.stdout)["runs"][0])
    best = min(runs, key=lambda run: float(run["cpu_s"]))
    bars = {
        "tasks_per_cpu_s": (case.tasks_per_cpu_s_min, 1),
        "cpu_s": (case.cpu_s_max, -1),
        "peak_rss_mb": (case.peak_rss_mb_max, -1),
    }
    return {
        "case": case.name,
        **{key: best[key] for key in ("tasks", "cpu_s", "tasks_per_cpu_s", "peak_rss_mb", "digest")},
        "all_tasks_per_cpu_s": [round(run["tasks_per_cpu_s"]) for run in runs],
        "bars": {key: bar for key, (bar, _) in bars.items() if bar},
        "held": {key: best[key] * sign >= bar * sign for key, (bar, sign) in bars.items() if bar},
    }


def yardstick() -> float:
    """CPU seconds of a fixed loop of calls, dict look-ups and attribute changes, the best of five."""

    class Counter:
        __slots__ = ("value",)

        def __init__(self) -> None:
            self.value = 0

        def add(self, amount: int) -> None:
            self.value += amount

    best = float("inf")
    for _ in range(5):
        begun, counters = time.process_time(), {str(i): Counter() for i in range(100)}
        names = [str(i * 37 % 100) for i in range(1000)]
        for _ in range(1000):
            for name in names:
                counters[name].add(1)
        best = min(best, time.process_time() - begun)
    return round(best, 4)


def processor() -> str:
    """What the system calls its processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    found = [
        line.partition(":")[2].strip() for line in lines if line.startswith(("model name", "cpu family", "cpu MHz"))
    ]
    return ", ".join(found[:3])


def main() -> None:
    """Measure the cases whose name contains one of the given words, or all."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="measure only cases whose name contains one of these")
    parser.add_argument("--repeat", type=int, default=3, help="runs per case; the best counts")
    arguments = parser.parse_args()
    chosen = [case for case in CASES if not arguments.words or any(word in case.name for word in arguments.words)]
    results = [measure(case, arguments.repeat) for case in chosen]
    machine = {
        "python": platform.python_version(),
        "machine": platform.machine(),
        "system": platform.system(),
        "processor": processor(),
        "yardstick_s": yardstick(),
    }
    print(json.dumps({"machine": machine, "results": results}, indent=2))


if __name__ == "__main__":
    main()
