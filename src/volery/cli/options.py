"""Options that several commands share."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Literal, cast

import typer

from volery.core.errors import InputError

PROCESSES_MAX = 4096


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
        "-o", "--output", metavar="DIR", help="Keep the results here; a study that was stopped there goes on.",
        show_default=False,
    ),
]  # fmt: skip
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of tables.")]
Processes = Annotated[
    int,
    typer.Option(
        "-p", "--processes", metavar="P", max=PROCESSES_MAX, help="Runs at once, each in a process of its own."
    ),
]
Dask = Annotated[
    str | None,
    typer.Option(
        metavar="tcp://HOST:PORT", help="Run on the Dask cluster of this scheduler instead.", show_default=False
    ),
]
Why = Annotated[bool, typer.Option("--why", help="Keep why each task was placed, or not, for `volery why`.")]
Profile = Annotated[
    Literal["stages"] | None,
    typer.Option(
        metavar="stages", help="Run once more per architecture and setting, and print the time of each stage.",
        show_default=False,
    ),
]  # fmt: skip
Force = Annotated[bool, typer.Option("--force", help="Take over a folder that holds another study.")]


Architectures = Annotated[
    list[str],
    typer.Argument(
        metavar="ARCH[:PARAMETER=VALUE,...]",
        help="Registry names, see `volery architectures`; the others are compared with the first.",
        show_default=False,
    ),
]
Workload = Annotated[
    str,
    typer.Option(
        metavar="FILE|SPEC|-", help="A trace of any known format, -: from standard input, or work as syn:250x2000.",
        show_default=False, callback=trace_name,
    ),
]  # fmt: skip
Workers = Annotated[int, typer.Option(metavar="N", help="Machines of the cluster.", show_default=False)]
Slots = Annotated[int, typer.Option(metavar="K", help="Tasks that a machine runs at once.")]
Constraints = Annotated[
    str, typer.Option(metavar="sharma2011|gpu-racks|none", help="Draw placement constraints of tasks and machines.")
]
Machines = Annotated[
    str | None,
    typer.Option(
        metavar="FILE.csv.gz", help="Read machine constraints, and amounts that they offer, from here.",
        show_default=False,
    ),
]  # fmt: skip
Requests = Annotated[
    str,
    typer.Option(metavar="alibaba-like|FILE.toml|none", help="Draw what tasks ask for, from classes by weight."),
]
Capacity = Annotated[
    str,
    typer.Option(
        metavar="NAME=UNITS,...", help="What each machine offers, as cpu_milli=64000,memory_mb=16384.",
        show_default=False,
    ),
]  # fmt: skip
SlotRequest = Annotated[
    str,
    typer.Option(
        metavar="NAME=UNITS,...", help="Turn machines into slots of this size, for designs that know slots alone.",
        show_default=False,
    ),
]  # fmt: skip
Racks = Annotated[
    int, typer.Option(metavar="R", help="Racks of neighbouring machines, for work whose input lies somewhere.")
]
ReferenceMhz = Annotated[
    int,
    typer.Option(
        metavar="MHZ", help="Durations hold at this speed; the file of machines has theirs in speed_mhz.",
        show_default=False,
    ),
]  # fmt: skip
History = Annotated[
    str,
    typer.Option(
        metavar="FILE|SPEC", help="Earlier runs, for designs that learn from such, as jockey.", show_default=False
    ),
]
PopulationSeed = Annotated[
    int | None,
    typer.Option(metavar="SEED", help="Seed of drawn machine constraints (else each run's own).", show_default=False),
]
Cutoff = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Jobs whose mean task is at most this long are short: told apart in tables, and handed to designs. "
        "Without it, designs take the mean task that 90 % of the jobs do not exceed.",
        show_default=False,
    ),
]
Seeds = Annotated[int, typer.Option(metavar="K", help="Repeat everything under seeds 0 to K-1.")]
Jobs = Annotated[int | None, typer.Option(metavar="N", help="Only the first N jobs of the trace.", show_default=False)]
Only = Annotated[
    str,
    typer.Option(
        metavar="ran|finished", help="Of a trace file, replay all that held machines, or what finished alone."
    ),
]
Strict = Annotated[
    bool,
    typer.Option("--strict", help="Leave with status 3 if more than 1 % of the machine time is left out."),
]
Durations = Annotated[
    str, typer.Option(metavar="exact|whole-seconds", help="Cut durations as the published simulators do.")
]
Arrivals = Annotated[
    str, typer.Option(metavar="exact|dephased", help="Shift equal arrivals by 10 ms as the published simulators do.")
]
Estimates = Annotated[
    str,
    typer.Option(
        metavar="mean|exact|requested|lognormal:S|f:F",
        help="Estimates that schedulers are told: the job's mean, each duration, the trace's requests, or with errors.",
    ),
]
Load = Annotated[
    float | None,
    typer.Option(
        metavar="X", help="Load: work offered / (slots x span of arrivals), over 0; else the trace's.",
        show_default=False,
    ),
]  # fmt: skip
LoadBy = Annotated[
    str,
    typer.Option(
        metavar="arrivals|machines",
        help="What sets the load: other distances between arrivals, or the first so many of the machines.",
    ),
]
Warmup = Annotated[
    str | None,
    typer.Option(
        metavar="S|P%", help="Jobs that are submitted earlier do not count: seconds, or a share of the submissions.",
        show_default=False,
    ),
]  # fmt: skip
MeasuredWindow = Annotated[
    str | None,
    typer.Option(
        metavar="FROM:TO", help="Only jobs that are submitted within it count; each bound as for --warmup.",
        show_default=False,
    ),
]  # fmt: skip
Baseline = Annotated[
    str,
    typer.Option(
        metavar="ARCH", help="What the others are compared with, by name or label; else the first.",
        show_default=False,
    ),
]  # fmt: skip
Users = Annotated[
    str | None,
    typer.Option(
        metavar="NAME:WEIGHT+...", help="Deal the jobs to users by weight, as q1:10+q2:25+q3:15.", show_default=False
    ),
]
DelayUs = Annotated[
    int | None, typer.Option(metavar="US", help="Delay of a message on any link. (500)", show_default=False)
]
JitterUs = Annotated[int, typer.Option(metavar="US", help="Mean of an exponential extra delay.")]
Links = Annotated[
    list[str] | None,
    typer.Option(
        metavar="FROM:TO=US", help="Delay of one link class, as lm:node=1000; repeatable.", show_default=False
    ),
]
Costs = Annotated[
    list[str] | None,
    typer.Option(metavar="ROLE=US", help="Time that a role takes to serve a message; repeatable.", show_default=False),
]

CostFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE.toml", help="Costs that `volery calibrate` has measured; options beside it are stronger.",
        show_default=False,
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
