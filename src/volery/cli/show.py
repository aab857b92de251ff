"""`volery show` and `volery report`: what a results folder holds."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from volery.cli.options import AsJson, Baseline, Folder
from volery.cli.output import print_json, print_results


def show(folder: Folder, baseline: Baseline = "", as_json: AsJson = False) -> None:
    """Print the table of a results folder again."""
    from volery.study import load_results
    from volery.study.stagetime import kept_stage_times

    print_results(load_results(folder, baseline), as_json, kept_stage_times(folder))


def report(
    folder: Folder,
    pictures: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Write its pictures there, too, as SVG files.", show_default=False),
    ] = None,
    baseline: Baseline = "",
    as_json: AsJson = False,
) -> None:
    """Write report.html of a results folder anew, and print its path."""
    from volery.report.pictures import write_pictures
    from volery.study import write_results_report

    written = []
    if pictures is not None and folder.is_dir() and not os.access(folder, os.W_OK):
        typer.echo(f"{folder} is read-only: report.html stays as it is, and pictures come from the tables", err=True)
    else:
        written = [write_results_report(folder, baseline)]
    drawn = write_pictures(folder, pictures) if pictures is not None else []
    if as_json:
        print_json({"report": str(written[0]) if written else None, "pictures": [str(one) for one in drawn]})
    else:
        for one in (*written, *drawn):
            typer.echo(str(one))
