"""`volery show` and `volery report`: what a results folder holds."""

from __future__ import annotations

import typer

from volery.cli.options import AsJson, Folder
from volery.cli.output import print_json, print_results


def show(folder: Folder, as_json: AsJson = False) -> None:
    """Print the table of a results folder again."""
    from volery.study import load_results
    from volery.study.stagetime import kept_stage_times

    print_results(load_results(folder), as_json, kept_stage_times(folder))


def report(folder: Folder, as_json: AsJson = False) -> None:
    """Write report.html of a results folder anew, and print its path."""
    from volery.study import write_results_report

    path = write_results_report(folder)
    if as_json:
        print_json({"report": str(path)})
    else:
        typer.echo(str(path))
