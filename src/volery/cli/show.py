"""`volery show`, `report` and `export`: a results folder as tables, as a page, as files for a paper."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Literal

import typer

from volery.cli.options import AsJson, Baseline, Folder
from volery.cli.output import print_json, print_results
from volery.core.errors import InputError


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


def export(
    folder: Folder,
    csv: Annotated[bool, typer.Option("--csv", help="Tables as CSV.")] = False,
    latex: Annotated[bool, typer.Option("--latex", help="Tables as LaTeX, with booktabs.")] = False,
    pdf: Annotated[bool, typer.Option("--pdf", help="Figures as PDF.")] = False,
    png: Annotated[bool, typer.Option("--png", help="Figures as PNG.")] = False,
    svg: Annotated[bool, typer.Option("--svg", help="Figures as SVG.")] = False,
    into: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="Where to write; else the folder export of the results.",
                     show_default=False),
    ] = None,
    width: Annotated[
        Literal["single", "double"],
        typer.Option(metavar="single|double", help="Width of figures: a column (3.33 in), or a page (7 in)."),
    ] = "single",
    baseline: Baseline = "",
    as_json: AsJson = False,
) -> None:  # fmt: skip
    """Write tables and figures of a results folder for a paper, and print their paths."""
    from volery.report.export import write_export
    from volery.study import load_results

    chosen = {"csv": csv, "latex": latex, "pdf": pdf, "png": png, "svg": svg}
    formats = [name for name, wanted in chosen.items() if wanted]
    if not formats:
        raise InputError("export", "no format is given; add --csv, --latex, --pdf, --png or --svg")
    compared = load_results(folder, baseline) if baseline else None
    written = write_export(folder, into or folder / "export", formats, width, compared)
    if as_json:
        print_json({"files": [str(path) for path in written]})
    else:
        for path in written:
            typer.echo(str(path))
