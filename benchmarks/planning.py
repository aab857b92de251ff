"""What a plan of TetriSched costs, as JSON: processor time per cycle, and how it grows.

`python benchmarks/planning.py [--quick]`: 256 machines at a plan-ahead of 96 s against the cycle of 4 s, then one thing
changed at a time: machines, load (which makes jobs wait), plan-ahead. One core, one seed; every cycle of a run counts.
"""

from __future__ import annotations

import argparse
import json
from typing import NamedTuple

from volery.study.runs import execute
from volery.study.spec import RunSpec

CYCLE_S = 4.0


class Case(NamedTuple):
    """One run; `jobs` are as many per machine in every case."""

    workers: int = 256
    load: float = 0.9
    plan_ahead_s: float = 96.0


BASE = Case()
CASES = (
    BASE,
    Case(workers=128),
    Case(workers=512),
    Case(load=0.7),
    Case(load=1.1),
    Case(plan_ahead_s=0.0),
    Case(plan_ahead_s=24.0),
    Case(plan_ahead_s=48.0),
    Case(plan_ahead_s=144.0),
)


def measure(case: Case, jobs_per_256: int) -> dict[str, float]:
    """The figures of one run."""
    jobs = max(20, jobs_per_256 * case.workers // 256)
    run = RunSpec(
        architecture="tetrisched",
        parameters={"plan_ahead_s": case.plan_ahead_s},
        trace=f"gangs:gs-het,load={case.load},jobs={jobs},workers={case.workers}",
        workers=case.workers,
        constraints="gpu-racks",
    )
    summary = execute(run).summary
    spent, counters, deadlines = summary.compute_s, summary.counters, summary.deadlines
    assert spent is not None, "there were plans"
    assert deadlines is not None, "some jobs have deadlines"
    return {
        **case._asdict(),
        "cycles": spent.count,
        "solved": counters.get("plan_variables_count", 0),
        "jobs_mean": counters["plan_jobs_mean"],
        "jobs_max": counters["plan_jobs_max"],
        "variables_max": counters.get("plan_variables_max", 0),
        "rows_max": counters.get("plan_rows_max", 0),
        "cpu_s_mean": round(spent.mean or 0, 3),
        "cpu_s_p50": round(spent.p50 or 0, 3),
        "cpu_s_p90": round(spent.p90 or 0, 3),
        "cpu_s_max": round(spent.max or 0, 3),
        "attainment": deadlines.attainment,
        "keeps_the_cycle_at_p90": (spent.p90 or 0) <= CYCLE_S,
    }


def main() -> None:
    """Print the figures, a line per case."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="the first case alone, with few jobs")
    quick: bool = parser.parse_args().quick
    for case in CASES[:1] if quick else CASES:
        print(json.dumps(measure(case, 60 if quick else 150)), flush=True)


if __name__ == "__main__":
    main()
