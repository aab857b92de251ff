"""`volery watch`: a kept run as a page that plays it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from volery.cli.options import AsJson, Folder
from volery.cli.output import print_json
from volery.cli.timeline import RunName, RunSeed, kept_runs
from volery.core.errors import InputError

NAME = "watch.html"


def watch(
    folder: Folder,
    run: RunName = None,
    seed: RunSeed = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE.html", help=f"The page; DIR/{NAME}.", show_default=False),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page that plays a kept run, at any speed, and print its path."""
    from volery.report.explore.watch import watch_page
    from volery.report.page import write_page

    path = folder / NAME if output is None else output
    if path.suffix != ".html":
        raise InputError(str(path), "a page's name must end in .html")
    results, chosen = kept_runs(folder, run, seed)
    write_page(path, watch_page(results, chosen[0]))
    if as_json:
        print_json({"page": str(path), "label": chosen[0].label, "seed": chosen[0].seed})
    else:
        typer.echo(str(path))
