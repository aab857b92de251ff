"""Sentences on how runs were loaded and measured: how the load was set, which estimates were told, which jobs count."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from volery.metrics import RunSummary
from volery.report.units import duration

LOAD_BY: Final = {
    "arrivals": "Load is set by the distances between arrivals: jobs and machines are the same at every load.",
    "machines": "Load is set by the number of machines: the first of the cluster, each with its constraints; jobs stay.",
}


def measured_notes(runs: Sequence[RunSummary]) -> Iterator[str]:
    """What a reader must know of load, estimates and measurement windows; nothing where all is as the trace says."""
    for load_by in dict.fromkeys(run.load_by for run in runs if run.load_by):
        sizes = [run.workers for run in runs if run.load_by == load_by]
        counted = f" {min(sizes):,} to {max(sizes):,} machines." if load_by == "machines" else ""
        yield LOAD_BY[load_by] + counted
    for estimates in dict.fromkeys(run.estimates for run in runs if run.estimates != "mean"):
        yield f"Schedulers are told estimates of durations by the model {estimates}."
    for begin_s, end_s in sorted({(run.window.begin_s, run.window.end_s) for run in runs if run.window})[:1]:
        windows = [run.window for run in runs if run.window]
        several = len({(one.begin_s, one.end_s) for one in windows}) > 1
        bounds = f"{duration(begin_s)} to {duration(end_s)}" + (" in the first of several windows" if several else "")
        jobs = sorted({one.jobs for one in windows})
        share = f"{jobs[0]:,}" + (f" to {jobs[-1]:,}" if len(jobs) > 1 else "")
        yield (
            f"Only jobs that were submitted from {bounds} count ({share} jobs), and utilisation is over that time; "
            "costs and counters are of the whole run."
        )
