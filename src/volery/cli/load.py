"""`volery load`: a trace replayed against a federation, and where its tasks' allocation time went."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from volery.cli.options import AsJson, Workload
from volery.cli.output import print_json, terminal
from volery.core.errors import InputError

if TYPE_CHECKING:
    from volery.cli.generator import LoadReport
    from volery.live.load import LoadProgress

Work = Literal["sleep", "spin"]
PARTS = ("total", "framework_queueing", "processing", "worker_queueing", "communication")


def load(
    trace: Workload,
    speedup: Annotated[float, typer.Option(metavar="X", help="Divide arrivals and durations by this.")] = 1.0,
    executor: Annotated[Work, typer.Option(help="Tasks sleep, or use a processor.")] = "sleep",
    jobs: Annotated[int | None, typer.Option(metavar="N", help="Only the first N jobs.", show_default=False)] = None,
    seed: Annotated[int, typer.Option(help="Of synthetic work and of the schedulers.")] = 0,
    api: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Load this running federation instead of one of our own.", show_default=False),
    ] = None,
    architecture: Annotated[str, typer.Option("-a", "--architecture", help="Which scheduler.")] = "megha",
    clusters: Annotated[int, typer.Option(min=1, help="Clusters: Megha's Local Masters, Pigeon's groups.")] = 3,
    nodes: Annotated[int, typer.Option(min=1, help="Nodes.")] = 300,
    slots: Annotated[int, typer.Option(min=1, help="Tasks that a node runs at once.")] = 1,
    gms: Annotated[int, typer.Option(min=1, help="Megha's Global Masters, Pigeon's distributors.")] = 2,
    folder: Annotated[
        Path | None, typer.Option("-o", "--folder", help="Keep the journal here.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Replay a trace against a live federation, and see where its tasks' allocation time went."""
    from volery import workload

    needs_live()
    from volery.cli.generator import federation_of, kept_in, load_here, load_there, report_of
    from volery.live.load import sped_up

    if not speedup > 0:
        raise InputError("--speedup", f"expected a number above 0, not {speedup:g}")
    work = sped_up(workload.load_trace(trace, seed=seed, job_count=jobs), speedup)
    with watching(work.job_count, as_json) as watch:
        if api is not None:
            loaded, federation = load_there(api, work, executor, watch), None
        else:
            with kept_in(folder) as place:
                federation = federation_of(architecture, nodes, slots, clusters, gms, place, seed)
                loaded = load_here(federation, work, executor, watch)
    report = report_of(loaded, federation, work, executor, speedup)
    if folder is None:
        report.journal = ""
    if as_json:
        print_json(report)
    else:
        _print_report(report)


def needs_live() -> None:
    """Refuse where the extra is not installed.

    Raises:
        InputError: naming it.
    """
    try:
        import volery.live.api_load  # noqa: F401 - it imports all that the extra brings
    except ImportError as error:
        raise InputError("volery", f"{error.name} is not installed; install 'volery[live]'") from None


@contextmanager
def watching(jobs: int, silent: bool) -> Iterator[Callable[[LoadProgress], None]]:
    """A line on the terminal with the progress of a load; it goes when the load ends."""
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn
    from rich.progress import Progress as Display

    columns = (TextColumn("load"), BarColumn(bar_width=24), TextColumn("{task.fields[state]}"), TimeElapsedColumn())
    hidden = silent or not sys.stderr.isatty()
    display = Display(*columns, console=Console(stderr=True), transient=True, auto_refresh=False, disable=hidden)
    with display:
        line = display.add_task("", total=jobs, state="")

        def watch(progress: LoadProgress) -> None:
            state = f"{progress.submitted:,} of {jobs:,} jobs submitted, {progress.finished:,} tasks finished"
            display.update(line, completed=progress.done, state=state, refresh=True)

        yield watch


def _print_report(report: LoadReport) -> None:
    from rich.table import Table

    table = Table(title=f"{report.trace} on {report.architecture or 'the federation'}", title_justify="left")
    for heading in ("milliseconds", "mean", "p50", "p90", "p99", "max"):
        table.add_column(heading, justify="left" if heading == "milliseconds" else "right")
    rows = {f"  {part.replace('_', ' ')}": report.allocation_s[part] for part in PARTS}
    rows = {"allocation time": rows.pop("  total")} | rows
    rows |= {"job response time": report.jrt_s, "submitted late by": report.late_s}
    for name, found in rows.items():
        figures = (found.mean, found.p50, found.p90, found.p99, found.max)
        table.add_row(name, *(f"{1000 * value:,.3f}" for value in figures))
    terminal().print(table)
    rate = f"{report.tasks_per_s:,.1f} tasks/s over {report.span_s:,.2f} s"
    typer.echo(f"{report.finished:,} of {report.tasks:,} tasks finished, {report.failed:,} failed; {rate}")
    if report.journal:
        typer.echo(f"journal: {report.journal}")
