"""`volery verify`: whether the results in a folder come out again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from volery.cli.options import AsJson, Dask, Folder, Processes
from volery.cli.output import print_json, terminal
from volery.cli.progress import LiveProgress

if TYPE_CHECKING:
    from volery.study import Verification

SHOWN_DIGITS = 16


def verify(
    folder: Folder,
    trace: Annotated[
        list[Path] | None,
        typer.Option(
            metavar="PATH",
            help="A trace or machine file that has moved, or a folder that holds it; found by its digest. Repeatable.",
            show_default=False,
        ),
    ] = None,
    processes: Processes = 1,
    dask: Dask = None,
    as_json: AsJson = False,
) -> None:
    """Run everything in a results folder again and compare every number of every file; status 1 where one differs."""
    from volery.study import verify as verify_folder

    with LiveProgress(silent=as_json) as watcher:
        verification = verify_folder(folder, traces=trace or (), processes=processes, dask=dask, watcher=watcher)
    if as_json:
        print_json(
            {
                "agrees": verification.agrees,
                "same_code": verification.same_code,
                "planned": verification.planned,
                "runs": [
                    {"label": run.label, "seed": run.seed, "recorded": run.recorded, "found": run.found}
                    | {"agrees": run.agrees, "same_input": run.same_input}
                    for run in verification.runs
                ],
                "differences": verification.differences,
            }
        )
    else:
        _print_table(verification)
    if not verification.agrees:
        raise typer.Exit(1)


def _print_table(verification: Verification) -> None:
    from rich.table import Table
    from rich.text import Text

    table = Table(title="Digests", title_justify="left")
    for heading in ("run", "recorded", "found now", "verdict"):
        table.add_column(heading, overflow="fold")
    for run in verification.runs:
        verdict = "agrees" if run.agrees else ("DIFFERS" if run.same_input else "DIFFERS: the input is another")
        width = SHOWN_DIGITS if run.agrees else None
        table.add_row(
            Text(f"{run.label}, seed {run.seed}"),
            run.recorded[:width],
            run.found[:width],
            Text(verdict, "green" if run.agrees else "bold red"),
        )
    terminal().print(table)
    wrong = sum(not run.agrees for run in verification.runs)
    typer.echo(
        f"{wrong} of {len(verification.runs)} runs differ."
        if wrong
        else f"All {len(verification.runs)} runs come out as recorded"
        + (", but files of the folder do not:" if verification.differences else ", and so does every number.")
    )
    for difference in verification.differences:
        terminal().print(Text(f"  {difference}", "bold red"), soft_wrap=True)
    if len(verification.runs) < verification.planned:
        typer.echo(f"The study has {verification.planned} runs; the others have not finished yet.")
    if not verification.same_code:
        typer.echo("The code that results depend on is not the code that made them.")
