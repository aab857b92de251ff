"""`volery trace from-journal`: what a federation has lived through, as a trace for the lab."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from volery.cli.options import AsJson
from volery.cli.output import print_json, terminal
from volery.cli.trace import trace_app

if TYPE_CHECKING:
    from volery.live.runtime.journal_trace import Period


@trace_app.command("from-journal")
def trace_from_journal(
    place: Annotated[
        Path, typer.Argument(metavar="DIR", help="A journal, or a folder of journals.", show_default=False)
    ],
    output: Annotated[Path, typer.Option("-o", "--output", help="The .tr file to write; .gz compresses it.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")] = False,
    as_json: AsJson = False,
) -> None:
    """Turn a live period into a trace for the lab, and say what its messages and decisions took."""
    from volery.architectures import lookup
    from volery.live.runtime.journal_trace import read_period
    from volery.live.runtime.replay import journals
    from volery.workload import write_tr

    found = place / "journal" if (place / "journal").is_dir() else place
    period = read_period(journals(found), output.name, lookup)
    write_tr(period.trace, output, force=force)
    if as_json:
        content: dict[str, Any] = msgspec.structs.asdict(period)
        trace = content.pop("trace")
        counts = {"jobs": trace.job_count, "tasks": trace.task_count, "digest": trace.digest()}
        print_json({"file": str(output)} | counts | content)
    else:
        _print_period(period, output)


def _print_period(period: Period, output: Path) -> None:
    from rich.table import Table

    console = terminal()
    hops = Table(title="Messages between hosts, from turn to turn (us)", title_justify="left")
    for heading in ("from", "to", "messages", "mean", "p50", "p99"):
        hops.add_column(heading, justify="left" if heading in ("from", "to") else "right")
    for hop in period.hops:
        figures = (f"{hop.count:,}", f"{hop.mean_us:,.1f}", f"{hop.p50_us:,}", f"{hop.p99_us:,}")
        hops.add_row(hop.sender, hop.receiver, *figures)
    if period.hops:
        console.print(hops)
    decisions = Table(title="Handlers, played again here (us)", title_justify="left")
    for heading in ("role", "events", "mean"):
        decisions.add_column(heading, justify="left" if heading == "role" else "right")
    for decision in period.decisions:
        decisions.add_row(decision.role, f"{decision.events:,}", f"{decision.mean_us:,.1f}")
    console.print(decisions)
    trace = period.trace
    typer.echo(f"{output}: {trace.job_count:,} jobs, {trace.task_count:,} tasks, digest {trace.digest()[:16]}")
    if period.cut:
        typer.echo(f"the first files of {', '.join(period.cut)} are no longer kept; jobs of that time are left out")
    for count, what in (
        (period.unfinished_tasks, "tasks that never finished are left out"),
        (period.constrained_tasks, "tasks had placement constraints, which a .tr file does not hold"),
        (period.cancelled_jobs, "jobs were given up; of them the trace holds what has finished"),
    ):
        if count:
            typer.echo(f"note: {count:,} {what}")
    slots = f" --slots {period.slots // period.workers}" if period.slots > period.workers else ""
    typer.echo(f"try:  volery compare {_choice(period)} --trace {output} --workers {period.workers}{slots}")


def _choice(period: Period) -> str:
    """The architecture as `volery compare` takes it, with the parameters that differ from its defaults."""
    from volery.architectures import lookup

    defaults = msgspec.to_builtins(lookup(period.architecture).defaults)
    given = {name: value for name, value in period.parameters.items() if value != defaults.get(name)}
    return period.architecture + "".join(
        f"{',' if number else ':'}{name}={value}" for number, (name, value) in enumerate(given.items())
    )
