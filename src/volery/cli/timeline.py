"""`volery timeline`: what ran where and when in one run of a results folder."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from volery.cli.options import AsJson, Folder
from volery.cli.output import print_json
from volery.core.errors import InputError, suggestion

if TYPE_CHECKING:
    from volery.report.folder import KeptTimeline, StoredResults, Timeline

RunName = Annotated[
    str | None, typer.Option("--run", metavar="NAME", help="Label of the run; the first.", show_default=False)
]
RunSeed = Annotated[int | None, typer.Option(metavar="N", help="Seed of the run.", show_default=False)]
SEEDS_LISTED: Final = 10
"""Of those that an error names."""


def timeline(
    folder: Folder,
    run: RunName = None,
    seed: RunSeed = None,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE.svg", help="Draw it.", show_default=False)
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Draw one run as a Gantt chart (a large one as a heat map), or print its columns with --json."""
    from volery.look.text import straight
    from volery.report.folder import read_timeline

    _, chosen = kept_runs(folder, run, seed)
    if output is not None:
        _draw(read_timeline(folder, chosen[0]), output)
    if as_json:
        print_json(_content(read_timeline(folder, chosen[0]), output))
    elif output is not None:
        typer.echo(str(output))
    else:
        for one in chosen:
            what = "task runs" if one.is_small else "heat map"
            typer.echo(f"{straight(one.label)}, seed {one.seed}: {what}, {one.machines:,} machines")
        typer.echo("-o FILE.svg draws the first of these; --json prints its columns.")


def kept_runs(folder: Path, run: str | None, seed: int | None) -> tuple[StoredResults, list[KeptTimeline]]:
    """A results folder, and the runs of this label and seed that have kept what ran where.

    Raises:
        InputError: there are none.
    """
    from volery.look.text import straight
    from volery.report.folder import read_results

    results = read_results(folder)
    known = results.timelines
    if not known:
        raise InputError(str(folder), "no run in it has kept what ran where; run the study again in a new folder")
    chosen = [one for one in known if run in (None, one.label) and seed in (None, one.seed)]
    if not chosen:
        labels = list(dict.fromkeys(straight(one.label) for one in known))
        if run is not None and run not in (one.label for one in known):
            raise InputError("--run", f"there is no run {run!r}{suggestion(run, labels)}")
        seeds = sorted({one.seed for one in known if run in (None, one.label)})
        listed = ", ".join(map(str, seeds[:SEEDS_LISTED])) + (", ..." if len(seeds) > SEEDS_LISTED else "")
        raise InputError("--seed", f"there is no such run; its seeds are {listed}")
    return results, chosen


def _draw(one: Timeline, path: Path) -> None:
    from volery.report.gantt import picture
    from volery.report.page import write_page

    if path.suffix != ".svg":
        raise InputError(str(path), "a picture's name must end in .svg")
    write_page(path, picture(one))


def _content(one: Timeline, output: Path | None) -> dict[str, Any]:
    content: dict[str, Any] = {"label": one.label, "seed": one.seed, "machines": one.machines}
    content |= {"kind": "task runs" if one.is_small else "heat map"}
    content |= {"columns": {name: column.tolist() for name, column in one.columns.items()}}
    content |= {"submit_s": one.submit_s.tolist()}
    return content | ({"picture": str(output)} if output is not None else {})
