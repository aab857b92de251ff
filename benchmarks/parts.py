"""CPU seconds of parts that people wait for, one JSON line each: `python benchmarks/parts.py`.

The summary of a million tasks, the comparison of five designs of 10,000 jobs, the help of the command line, and the
reading of published traces where they are beside the checkout.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from array import array
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

import numpy as np
from benchmarks.lab import yardstick

from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.trace import Trace, longs
from volery.metrics import summarise
from volery.statistics.block_bootstrap import jobs_difference
from volery.workload.tr import read_tr

TRACES: Final = Path(__file__).resolve().parents[2] / "shared" / "traces" / "tr"
ROUNDS: Final = 3
JOBS, FANOUT = 1_000, 1_000


def summary() -> None:
    """Summarise a million tasks of a thousand jobs."""
    arrivals = array("q", range(0, JOBS * 1000, 1000))
    first = array("q", range(0, JOBS * FANOUT + 1, FANOUT))
    records = Records(Trace("large", arrivals, first, longs(JOBS * FANOUT, 9), longs(JOBS, 9)))
    np.asarray(records.start_us)[:] = np.repeat(np.asarray(arrivals), FANOUT) + np.arange(JOBS * FANOUT) % 977
    np.asarray(records.finish_us)[:] = np.asarray(records.start_us) + 9
    records.answered_us[:] = array("q", [arrival + 2000 for arrival in arrivals])
    summarise(
        records,
        Cluster.uniform(4),
        architecture="megha",
        parameters={},
        seed=3,
        cutoff_us=5,
        wall_s=0.0,
        cpu_s=0.0,
        peak_rss_mb=0.0,
    )


def comparison() -> None:
    """Compare five designs of ten thousand jobs."""
    random = np.random.default_rng(10)
    designs = [random.lognormal(size=10_000) for _ in range(5)]
    for other in designs[1:]:
        jobs_difference(range(10_000), designs[0], other)


def help_text() -> None:
    """Print the help of the command line, in a process of its own."""
    subprocess.run([sys.executable, "-m", "volery.cli.main", "--help"], capture_output=True, check=True)


def reading(path: Path) -> None:
    """Read a published trace."""
    read_tr(path)


def cpu_s(part: Callable[[], None]) -> float:
    """The least CPU seconds of some rounds, with those of processes that a part has started."""
    times = []
    for _ in range(ROUNDS):
        began = resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + time.process_time()
        part()
        times.append(resource.getrusage(resource.RUSAGE_CHILDREN).ru_utime + time.process_time() - began)
    return min(times)


def main() -> None:
    parts: dict[str, Callable[[], None]] = {
        "summary of 1,000,000 tasks": summary,
        "comparison of 5 designs of 10,000 jobs": comparison,
        "volery --help": help_text,
    }
    for name in ("GOOG_subtrace.tr.gz", "syn_250.0.tr.gz"):
        if (TRACES / name).is_file():
            parts[f"reading {name}"] = partial(reading, TRACES / name)
    for name, part in parts.items():
        print(json.dumps({"part": name, "cpu_s": round(cpu_s(part), 3), "yardstick_s": round(yardstick(), 4)}))


if __name__ == "__main__":
    main()
