"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from volery.core.errors import InputError

Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.", show_default=False)]
KeepIn = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="DIR", help="Keep the results here; a study that was stopped there goes on.",
        show_default=False,
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Processes = Annotated[
    int, typer.Option("-p", "--processes", metavar="P", help="Runs at once, each in a process of its own.")
]
Force = Annotated[bool, typer.Option("--force", help="Take over a folder that holds another study.")]


def whole_numbers(entries: Iterable[str], option: str, form: str) -> dict[str, int]:
    """Read repeated NAME=NUMBER options.

    Raises:
        InputError: when an entry is not of that form.
    """
    found: dict[str, int] = {}
    for entry in entries:
        name, equals, number = entry.rpartition("=")
        if not (name and equals and number.isascii() and number.isdigit()):
            raise InputError(option, f"{entry!r} is not {form}, with a whole number of microseconds")
        if name in found:
            raise InputError(option, f"{name!r} is given twice")
        found[name] = int(number)
    return found
