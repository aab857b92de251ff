"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any, Final, Literal, cast

import typer

from volery.core.errors import InputError
from volery.setting import DECLARED, option_of

PROCESSES_MAX = 4096
NETWORK: Final = "Network and costs"
OUTPUT: Final = "Output"


def trace_name(name: str) -> str:
    """The name of a trace; standard input, `-`, becomes a file that is removed in the end.

    Raises:
        InputError: standard input is closed or a terminal, or cannot be kept.
    """
    if name != "-":
        return name
    from volery.workload.files import spooled

    return spooled(name)


Folder = Annotated[Path, typer.Argument(metavar="DIR", help="A results folder.", show_default=False)]
KeepIn = Annotated[
    Path | None,
    typer.Option(
        "-o", "--output", metavar="DIR", help="Folder of the results; a study that was stopped there goes on.",
        show_default=False,
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]
Processes = Annotated[
    int,
    typer.Option(
        "-p",
        "--processes",
        metavar="P",
        max=PROCESSES_MAX,
        help="Number of runs at once, each in a process of its own.",
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT",
        help="Dask scheduler on whose cluster runs take place instead.",
        show_default=False,
        rich_help_panel=OUTPUT,
    ),
]
Why = Annotated[
    bool,
    typer.Option("--why", help="Record of why each task was placed, or not, for `volery why`.", rich_help_panel=OUTPUT),
]
Profile = Annotated[
    Literal["stages"] | None,
    typer.Option(
        metavar="stages", help="One more run per architecture and setting, for the time of each stage.",
        show_default=False, rich_help_panel=OUTPUT,
    ),
]  # fmt: skip
Force = Annotated[
    bool, typer.Option("--force", help="Leave to take over a folder that holds another study.", rich_help_panel=OUTPUT)
]


def declared(name: str, *, callback: Callable[[str], str] | None = None, show_default: bool = False) -> Any:
    """The option that sets a field of a setting or a study, as `volery.setting` declares it."""
    one = DECLARED[name]
    return typer.Option(
        option_of(name),
        metavar=one["form"],
        help=one["meaning"],
        rich_help_panel=one["group"] or None,
        callback=callback,
        show_default=show_default,
    )


Architectures = Annotated[
    list[str],
    typer.Argument(
        metavar=DECLARED["architectures"]["form"], help=DECLARED["architectures"]["meaning"], show_default=False
    ),
]
Workload = Annotated[str, declared("trace", callback=trace_name)]
Seeds = Annotated[str, declared("seeds", show_default=True)]
SeedsMax = Annotated[int | None, declared("seeds_max")]
BudgetS = Annotated[float | None, declared("budget_s")]
Baseline = Annotated[str, declared("baseline")]
Only = Annotated[str, declared("only", show_default=True)]
SeedsOfFile = Annotated[
    str | None,
    typer.Option(
        "--seeds",
        metavar="K|auto",
        help="Number of seeds, or auto, in place of the file's.",
        show_default=False,
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Status 3 if more than 1 % of the machine time is left out.", rich_help_panel=OUTPUT),
]
CostFile = Annotated[
    Path | None,
    typer.Option(
        "--costs", metavar="FILE.toml", help="Cost file from `volery calibrate`; other options override it.",
        show_default=False, rich_help_panel=NETWORK,
    ),
]  # fmt: skip


def checked_only(only: str) -> Literal["ran", "finished"]:
    """The value of `--only`.

    Raises:
        InputError: it is neither.
    """
    if only in ("ran", "finished"):
        return cast("Literal['ran', 'finished']", only)
    raise InputError("--only", f"there is no {only!r}; choose ran or finished")


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


def seeds_given(text: str) -> int | str:
    """The value of --seeds: a number, or text that is checked with the rest of the study."""
    try:
        return int(text)
    except ValueError:
        return text


def moment(text: str) -> str | float:
    """Seconds as a number; a percentage stays text, and is checked with the rest of the study."""
    try:
        return float(text)
    except ValueError:
        return text


def measured_window(text: str | None) -> list[str | float] | None:
    """Read FROM:TO.

    Raises:
        InputError: when it is not of that form.
    """
    if text is None:
        return None
    begin, colon, end = text.partition(":")
    if not colon:
        raise InputError("--window", f"{text!r} is not FROM:TO, as 600:3600 or 10%:90%")
    return [moment(begin), moment(end)]
