"""`volery load`: a trace replayed against a federation, and where its tasks' allocation time went."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from volery.cli.options import AsJson, Columns, NodeSlots, Scheduler, Workload, option
from volery.cli.output import live_extra, print_json, print_omissions, print_table
from volery.core.errors import InputError
from volery.lab.progress import OneLine

if TYPE_CHECKING:
    from volery.cli.generator import LoadReport
    from volery.live.load import LoadProgress

Work = Literal["sleep", "spin"]
PARTS = ("total", "framework_queueing", "processing", "worker_queueing", "communication")


def load(
    trace: Workload,
    speedup: Annotated[float, typer.Option(metavar="X", help="Divide arrivals and durations by this.")] = 1.0,
    executor: Annotated[Work, typer.Option(help="Tasks sleep, or use a processor.")] = "sleep",
    jobs: Annotated[int | None, option("Only the first N jobs.", form="N")] = None,
    columns: Columns = None,
    seed: Annotated[int, typer.Option(help="Of synthetic work and of the schedulers.")] = 0,
    api: Annotated[str | None, option("Load this running federation instead of one of our own.", form="URL")] = None,
    architecture: Scheduler = "megha",
    clusters: Annotated[int, typer.Option(min=1, help="Clusters: Megha's Local Masters, Pigeon's groups.")] = 3,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 300,
    slots: NodeSlots = 1,
    gms: Annotated[int, typer.Option(min=1, help="Megha's Global Masters, Pigeon's distributors.")] = 2,
    folder: Annotated[Path | None, option("Keep the journal here.", "-o", "--folder")] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace against a live federation, and see where its tasks' allocation time went."""
    from volery import workload

    with live_extra():
        from volery.cli.generator import federation_of, kept_in, load_here, load_there, report_of
        from volery.live.load import sped_up
        from volery.workload.limits import cut_at_limits

    if not speedup > 0:
        raise InputError("--speedup", f"expected a number above 0, not {speedup:g}")

    original, reading = workload.load_workload(trace, seed=seed, job_count=jobs, columns=columns, has_gangs=False)
    print_omissions(reading.left_out if reading else None, as_json=as_json)

    work = sped_up(cut_at_limits(original), speedup)

    with OneLine(as_json, when_moved=True) as line:
        watch = load_watcher(line, work.job_count)
        if api is not None:
            loaded = load_there(api, work, executor, watch)
            federation = None
        else:
            with kept_in(folder) as place:
                federation = federation_of(architecture, nodes, slots, clusters, gms, place, seed)
                loaded = load_here(federation, work, executor, watch)

    report = report_of(loaded, federation, work, executor, speedup)
    if folder is None:  # the journal lay in a temporary folder, which is gone
        report.journal = ""

    if as_json:
        print_json(report)
    else:
        _print_report(report)


def load_watcher(line: OneLine, jobs: int) -> Callable[[LoadProgress], None]:
    """A watcher that draws the progress of a load."""

    def watch(progress: LoadProgress) -> None:
        state = f"{progress.submitted:,} of {jobs:,} jobs submitted, {progress.finished:,} tasks finished"
        line.moved("load", progress.done, jobs, state)

    return watch


def _print_report(report: LoadReport) -> None:
    rows = {f"  {part.replace('_', ' ')}": report.allocation_s[part] for part in PARTS}
    rows = {"allocation time": rows.pop("  total")} | rows
    rows |= {"job response time": report.jrt_s, "submitted late by": report.late_s}
    heads = ("mean", "p50", "p90", "p99", "max")

    cells = (
        (name, *(f"{1000 * getattr(distribution, head):,.3f}" for head in heads)) for name, distribution in rows.items()
    )
    title = f"{report.trace} on {report.architecture or 'the federation'}"
    print_table(("milliseconds", *heads), cells, title=title, right=heads)

    rate = f"{report.tasks_per_s:,.1f} tasks/s over {report.span_s:,.2f} s"
    typer.echo(f"{report.finished:,} of {report.tasks:,} tasks finished, {report.failed:,} failed; {rate}")

    if report.journal:
        typer.echo(f"journal: {report.journal}")
