"""Sentences on how runs were loaded and measured: how the load was set, which estimates were told, which jobs count."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from volery.metrics import RunSummary
from volery.report.units import duration

LOAD_BY: Final = {
    "arrivals": "Load is set by the distances between arrivals: jobs and machines are the same at every load.",
    "machines": "Load is set by the number of machines, each with its constraints: jobs are the same at every load.",
}


def measured_notes(runs: Sequence[RunSummary]) -> Iterator[str]:
    """What a reader must know of load, estimates and measurement windows; nothing where all is as the trace says."""
    for load_by in dict.fromkeys(run.load_by for run in runs if run.load_by):
        sizes = [run.workers for run in runs if run.load_by == load_by]
        counted = f" {min(sizes):,} to {max(sizes):,} machines." if load_by == "machines" else ""
        yield LOAD_BY[load_by] + counted
    for estimates in dict.fromkeys(run.estimates for run in runs if run.estimates != "mean"):
        yield f"Schedulers are told estimates of durations by the model {estimates}."
    windows = [run.window for run in runs if run.window is not None]
    if windows:
        begins, ends, jobs = ({getattr(one, name) for one in windows} for name in ("begin_s", "end_s", "jobs"))
        bounds = f"{_range(begins)} to {_range(ends)}"
        yield (
            f"Only jobs that were submitted from {bounds} count ({min(jobs):,}"
            + (f" to {max(jobs):,}" if len(jobs) > 1 else "")
            + " of a run), and utilisation is over that time; costs and counters are of the whole run."
        )


def _range(seconds: Collection[float]) -> str:
    low, high = duration(min(seconds)), duration(max(seconds))
    return low if low == high else f"{low} (up to {high})"
