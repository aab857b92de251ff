"""Workloads: readers of public trace formats, synthesis, the constraint model, cluster descriptions.

The room turns a file, a spec or a number of workers into the columns that drivers run.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from volery.core.errors import InputError, suggestion
from volery.core.trace import Trace
from volery.workload.clusters import as_slots, counted_resources, load_cluster
from volery.workload.constraints import constrain
from volery.workload.description import TraceDescription, describe, load_curve
from volery.workload.files import bare_name
from volery.workload.hdfs import with_blocks
from volery.workload.load import at_load, check_load_of_spec, cutoff_of, machines_for, offered_load, processors_alone
from volery.workload.models import ask, deal_to_users, parse_estimates, with_estimates
from volery.workload.quirks import apply_quirks, first_jobs, with_exact_estimates
from volery.workload.synthesis import KINDS, is_spec, synthesize
from volery.workload.tr import Reading, begins_like_tr, read_tr, scan_tr, write_tr

if TYPE_CHECKING:
    from volery.workload.omissions import Only

__all__ = [
    "Reading",
    "TraceDescription",
    "as_slots",
    "ask",
    "at_load",
    "check_load_of_spec",
    "constrain",
    "counted_resources",
    "cutoff_of",
    "deal_to_users",
    "describe",
    "load_cluster",
    "load_curve",
    "load_trace",
    "load_workload",
    "machines_for",
    "offered_load",
    "parse_estimates",
    "processors_alone",
    "read_tr",
    "synthesize",
    "with_blocks",
    "with_estimates",
    "with_exact_estimates",
    "write_tr",
]


def load_trace(
    path_or_spec: str | Path,
    *,
    seed: int = 0,
    durations: str = "exact",
    arrivals: str = "exact",
    job_count: int | None = None,
    only: Only = "ran",
) -> Trace:
    """Read a trace file, or make the workload that a spec describes.

    Args:
        path_or_spec: a trace of any known format, or a spec as `syn:250x2000`.
        seed: seed of the random streams of a spec.
        durations: `exact` or `whole-seconds`, see `quirks.apply_quirks`.
        arrivals: `exact` or `dephased`, see `quirks.apply_quirks`.
        job_count: only the first so many rows of the file, or jobs of the spec.
        only: "ran" replays all that held machines, "finished" what finished alone.

    Raises:
        InputError: the file or the spec is wrong.
    """
    return load_workload(
        path_or_spec, seed=seed, durations=durations, arrivals=arrivals, job_count=job_count, only=only
    )[0]


def load_workload(
    path_or_spec: str | Path,
    *,
    seed: int = 0,
    durations: str = "exact",
    arrivals: str = "exact",
    job_count: int | None = None,
    only: Only = "ran",
    resources: tuple[str, ...] | None = None,
    columns: str | None = None,
) -> tuple[Trace, Reading | None]:
    """As `load_trace`, with the facts that the reader found where there was a file to read.

    Args:
        resources: resources of a file that count, as `counted_resources` gives them.
        columns: map of the file's columns, a TOML file or the name of a shipped one; None: its beginning shows its
            format.

    Raises:
        InputError: the file or the spec is wrong.
    """
    if job_count is not None and job_count < 1:
        raise InputError("jobs", f"{job_count} jobs are no workload; give at least 1")

    path = Path(path_or_spec)
    text = str(path_or_spec)

    if columns is not None and is_spec(text) and not path.exists():
        raise InputError("columns", f"a map is for a trace file, and {text!r} is synthetic work; leave it out")
    if is_spec(text) and not path.exists():
        trace = synthesize(text, seed)
        trace = first_jobs(trace, trace.job_count if job_count is None else job_count)
        return apply_quirks(trace, durations, arrivals), None

    # A path may hold a colon, and a drive has one letter: only a word before a colon is taken for a mistyped kind.
    kind, colon, _ = text.partition(":")
    if colon and not path.exists() and kind.isalnum() and len(kind) > 1:
        raise InputError(
            text, f"no such file, and {kind!r} is not a kind of synthetic workload{suggestion(kind, KINDS)}"
        )

    if columns is None and begins_like_tr(path):
        return scan_tr(path, durations, arrivals, job_count)

    # The readers of tables bring 45 MB of libraries, which runs on other work shall not pay for.
    from volery.workload.formats import fitting, format_of
    from volery.workload.formats.own import TR
    from volery.workload.formats.summaries import SUMMARY, rebuilt
    from volery.workload.replay import read_tasks

    form = fitting(path) if columns is None else format_of(path, columns=columns)
    if form is None and not bare_name(path).endswith(".tr"):
        form = format_of(path)  # raises, and names the nearest format

    if form is SUMMARY:
        return apply_quirks(rebuilt(path, job_count), durations, arrivals), None
    if form is not None and form is not TR:
        replayed, passed = read_tasks(path, form, job_count, only, resources)
        trace = apply_quirks(replayed, durations, arrivals)
        return trace, Reading(0.0, passed.unsorted_rows, 0, passed.left_out, passed.unheeded)

    return scan_tr(path, durations, arrivals, job_count)
