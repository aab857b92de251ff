"""Options that several commands share, and how options are declared."""

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


def option(meaning: str, *names: str, form: str | None = None, **more: Any) -> Any:
    """An option without a default that is worth showing."""
    return typer.Option(*names, metavar=form, help=meaning, show_default=False, **more)


def argument(meaning: str, form: str | None, **more: Any) -> Any:
    """An argument without a default that is worth showing."""
    return typer.Argument(metavar=form, help=meaning, show_default=False, **more)


def declared(name: str, *, meaning: str = "", callback: Callable[[str], str] | None = None, shown: bool = False) -> Any:
    """The option that sets a field of a setting or a study, as `volery.setting` declares it.

    Args:
        meaning: its help in this command; empty: as declared.
        shown: true where help shows the default.
    """
    declaration = DECLARED[name]
    return typer.Option(
        option_of(name),
        metavar=declaration["form"],
        help=meaning or declaration["meaning"],
        rich_help_panel=declaration["group"] or None,
        callback=callback,
        show_default=shown,
    )


def trace_name(name: str) -> str:
    """The name of a trace; standard input, `-`, becomes a file that is removed in the end.

    Raises:
        InputError: standard input is closed or a terminal, or cannot be kept.
    """
    if name != "-":
        return name
    from volery.workload.files import spooled_stdin

    return spooled_stdin()


def journal_folder(place: Path) -> Path:
    """The journals themselves, of a federation's folder."""
    return place / "journal" if (place / "journal").is_dir() else place


AsJson = Annotated[bool, typer.Option("--json", help="JSON instead of tables.")]
Folder = Annotated[Path, argument("A results folder.", "DIR")]
JournalFolder = Annotated[Path, argument("A journal, or a folder of journals.", "DIR", callback=journal_folder)]
KeepIn = Annotated[
    Path | None, option("Folder of the results; a study that was stopped there goes on.", "-o", "--output", form="DIR")
]
Picture = Annotated[Path | None, option("Draw it.", "--output", "-o", form="FILE.svg")]
TrFile = Annotated[Path, typer.Option("-o", "--output", help="The .tr file to write; .gz compresses it.")]
Replace = Annotated[bool, typer.Option("--force", help="Replace the file if it exists.")]
Force = Annotated[
    bool, typer.Option("--force", help="Leave to take over a folder that holds another study.", rich_help_panel=OUTPUT)
]
Port = Annotated[int, typer.Option(min=0, max=65535, help="Where it listens; 0: any free port.")]
RunName = Annotated[str | None, option("Label of the run; the first.", "--run", form="NAME")]
RunSeed = Annotated[int | None, option("Seed of the run.", form="N")]
Scheduler = Annotated[str, typer.Option("-a", "--architecture", help="Which scheduler.")]
NodeSlots = Annotated[int, typer.Option(min=1, help="Tasks that a node runs at once.")]
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
    option("Dask scheduler on whose cluster runs take place instead.", form="tcp://HOST:PORT", rich_help_panel=OUTPUT),
]
Why = Annotated[
    bool,
    typer.Option("--why", help="Record of why each task was placed, or not, for `volery why`.", rich_help_panel=OUTPUT),
]
Profile = Annotated[
    Literal["stages"] | None,
    option(
        "One more run per architecture and setting, for the time of each stage.", form="stages", rich_help_panel=OUTPUT
    ),
]
Strict = Annotated[
    bool,
    typer.Option(
        "--strict",
        help="Status 3 if over 1 % of jobs, tasks, waits or machine time is omitted.",
        rich_help_panel=OUTPUT,
    ),
]
CostFile = Annotated[
    Path | None,
    option(
        "Cost file from `volery calibrate`; other options override it.",
        "--costs",
        form="FILE.toml",
        rich_help_panel=NETWORK,
    ),
]
Architectures = Annotated[list[str], argument(DECLARED["architectures"]["meaning"], DECLARED["architectures"]["form"])]
Workload = Annotated[str, declared("trace", callback=trace_name)]
Seeds = Annotated[str, declared("seeds", shown=True)]
SeedsOfFile = Annotated[str | None, declared("seeds", meaning="Number of seeds, or auto, in place of the file's.")]
SeedsMax = Annotated[int | None, declared("seeds_max")]
BudgetS = Annotated[float | None, declared("budget_s")]
Baseline = Annotated[str, declared("baseline")]
Columns = Annotated[str | None, declared("columns")]
Only = Annotated[str, declared("only", shown=True)]


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
    numbers: dict[str, int] = {}
    for entry in entries:
        name, equals, number = entry.rpartition("=")
        if not (name and equals and number.isascii() and number.isdigit()):
            raise InputError(option, f"{entry!r} is not {form}, with a whole number of microseconds")
        if name in numbers:
            raise InputError(option, f"{name!r} is given twice")
        numbers[name] = int(number)

    return numbers


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
