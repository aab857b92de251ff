"""The setting of a run, declared once for study files, the command line, Python and the reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Final, Literal, Required, TypedDict, get_args, get_origin

import msgspec

from volery.core.bounds import COUNT_MAX, DELAY_MAX_US, MACHINES_MAX, SECONDS_MAX, TIME_MAX_US
from volery.core.errors import InputError, suggestion

LOAD_MAX: Final = 100.0
"""The largest load that synthetic work may have, too."""
AtLeastOne = Annotated[int, msgspec.Meta(ge=1, le=COUNT_MAX)]
AtLeastZero = Annotated[int, msgspec.Meta(ge=0, le=TIME_MAX_US)]
Machines = Annotated[int, msgspec.Meta(ge=1, le=MACHINES_MAX)]
Delay = Annotated[int, msgspec.Meta(ge=0, le=DELAY_MAX_US)]
Load = Annotated[float, msgspec.Meta(gt=0, le=LOAD_MAX)]
Cutoff = Annotated[float, msgspec.Meta(gt=0, le=SECONDS_MAX)]
ConstraintModel = Literal["none", "sharma2011", "sharma2011-profiles", "sharma2011-profiles-8", "gpu-racks"]
LoadBy = Literal["arrivals", "machines"]
Only = Literal["ran", "finished"]
Durations = Literal["exact", "whole-seconds"]
Arrivals = Literal["exact", "dephased"]
Text = Annotated[str, msgspec.Meta(min_length=1)]
Group = Literal["", "Workload", "Cluster", "Network and costs", "Statistics"]
"""Of options on the command line; the empty one comes first."""


def field(meaning: str, form: str = "", group: Group = "", option: str = "") -> msgspec.Meta:
    """The declaration of a field for people.

    Args:
        meaning: a noun phrase with the unit; the default stands beside it.
        form: Form of the value on the command line; empty: there is no such option.
        group: Group of the option in the help.
        option: its name; empty: that of the field.
    """
    return msgspec.Meta(description=meaning, extra={"form": form, "group": group, "option": option})


class Setting(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All of a run but its architecture and seed."""

    trace: Annotated[
        Text,
        field("Trace file of any known format, or synthetic work as syn:250x2000; -: standard input.", "FILE|SPEC|-"),
    ]
    workers: Annotated[Machines, field("Number of machines.", "N")]
    load: Annotated[
        Load | None,
        field("Load, work offered / (slots x span of arrivals), above 0; without it, that of the trace.", "X"),
    ] = None
    load_by: Annotated[
        LoadBy,
        field(
            "Quantity that sets the load: distances between arrivals, or machines, the first so many of them.",
            "arrivals|machines",
            "Workload",
        ),
    ] = "arrivals"
    slots: Annotated[Machines, field("Tasks that a machine runs at once.", "K")] = 1
    constraints: Annotated[
        ConstraintModel,
        field(
            "Model that draws placement constraints of tasks, and of machines where no file gives them.",
            "sharma2011|sharma2011-profiles|sharma2011-profiles-8|gpu-racks|none",
        ),
    ] = "none"
    machines: Annotated[
        Text | None,
        field("File of machine constraints, and of amounts that machines offer.", "FILE.csv.gz", "Cluster"),
    ] = None
    population: Annotated[
        AtLeastZero | None, field("Seed of drawn machine constraints; without it, each run's own.", "SEED", "Cluster")
    ] = None
    jobs: Annotated[AtLeastOne | None, field("Number of jobs, the first of the trace.", "N", "Workload")] = None
    only: Annotated[
        Only,
        field(
            "Work of a trace file that is replayed: all that held machines, or what finished alone.",
            "ran|finished",
            "Workload",
        ),
    ] = "ran"
    columns: Annotated[
        Text | None,
        field(
            "Map of the columns of a trace file, a TOML file or the name of a shipped map; without it, the file's "
            "beginning shows the format.",
            "FILE.toml|NAME",
            "Workload",
        ),
    ] = None
    durations: Annotated[
        Durations,
        field("Durations as they are, or cut as the published simulators do.", "exact|whole-seconds", "Workload"),
    ] = "exact"
    arrivals: Annotated[
        Arrivals,
        field(
            "Arrivals as they are, or equal ones shifted by 10 ms as the published simulators do.",
            "exact|dephased",
            "Workload",
        ),
    ] = "exact"
    estimates: Annotated[
        str,
        field(
            "Estimates of durations for schedulers: the job's mean, each duration, the trace's requests, or with "
            "errors.",
            "mean|exact|requested|lognormal:S|f:F",
            "Workload",
        ),
    ] = "mean"
    users: Annotated[
        Text | None,
        field("Users to whom jobs are dealt by weight, as q1:10+q2:25+q3:15.", "NAME:WEIGHT+...", "Workload"),
    ] = None
    cutoff_s: Annotated[
        Cutoff | None,
        field(
            "Largest mean task duration of short jobs, s, in tables and for designs; without it, designs take the one "
            "that 90 % of the jobs do not exceed.",
            "S",
            option="--cutoff",
        ),
    ] = None
    delay_us: Annotated[
        Delay,
        field(
            "Delay of a message on any link that has none of its own, us; 500 without it.", "US", "Network and costs"
        ),
    ] = 500
    jitter_us: Annotated[
        Delay, field("Mean of an exponential extra delay of a message, us.", "US", "Network and costs")
    ] = 0
    links: Annotated[
        dict[str, Delay],
        field(
            "Delay of a class of links, sender's role:receiver's role, us; repeatable.",
            "FROM:TO=US",
            "Network and costs",
            "--link",
        ),
    ] = {}
    costs: Annotated[
        dict[str, Delay],
        field("Time of a role to serve a message, us; repeatable.", "ROLE=US", "Network and costs", "--cost"),
    ] = {}
    hosts: Annotated[
        dict[str, dict[str, Any]],
        field(
            "Roles that share one processor, by its name, and their costs: a `HostCosts` as a table.",
            group="Network and costs",
        ),
    ] = {}
    frames: Annotated[
        dict[str, Any] | None,
        field(
            "Costs of frames between these hosts: a `Frames` as a table; without it, `delay_us` and the like.",
            group="Network and costs",
        ),
    ] = None
    crashes: Annotated[
        str,
        field(
            "Components that crash and are restarted: address@time+duration, s, as gm/0@20+5; node/0-9 is ten.",
            "ADDRESS@S+S,...",
            "Network and costs",
        ),
    ] = ""
    requests: Annotated[
        Text,
        field(
            "Model of the resources that tasks ask for; none: those of the trace.",
            "alibaba-like|FILE.toml|none",
            "Workload",
        ),
    ] = "none"
    capacity: Annotated[
        str,
        field(
            "Resources of each machine, as cpu_milli=64000,memory_mb=16384; without it, those of the file, or slots.",
            "NAME=UNITS,...",
            "Cluster",
        ),
    ] = ""
    resources: Annotated[
        str,
        field(
            "Resources of the trace that tasks ask for, as cpu_milli,memory_mb; without it, those that capacity or the "
            "file of machines names.",
            "NAME,...",
            "Workload",
        ),
    ] = ""
    slot_request: Annotated[
        str,
        field(
            "Size of a slot: machines become slots of this size, for designs that know slots alone.",
            "NAME=UNITS,...",
            "Cluster",
        ),
    ] = ""
    racks: Annotated[
        AtLeastOne,
        field("Number of racks of neighbouring machines, for workloads with data locality or tags.", "R", "Cluster"),
    ] = 1
    blocks: Annotated[
        str,
        field(
            "Blocks that tasks read: replicas on machines, and factors of durations in their racks and elsewhere; "
            "without it, tasks have the input of the trace.",
            "replicas=N,rack=X,any=X",
            "Workload",
        ),
    ] = ""
    reference_mhz: Annotated[
        AtLeastZero,
        field(
            "Machine speed at which durations hold, MHz; the file of machines has theirs in speed_mhz; 0: all alike.",
            "MHZ",
            "Cluster",
        ),
    ] = 0
    variability: Annotated[
        str,
        field(
            "Speed of machines over time: each draws a factor from 1 - spread to 1 + spread for every period, s.",
            "period=S,spread=X",
            "Cluster",
        ),
    ] = ""
    outages: Annotated[
        str,
        field(
            "Crashes of groups of neighbouring machines: mean time between those of a group, mean time until "
            "the restart, s.",
            "group=N,every=S,down=S",
            "Cluster",
        ),
    ] = ""
    history: Annotated[
        str,
        field(
            "Trace file or synthetic work of earlier runs, for designs that learn from history, as jockey.",
            "FILE|SPEC",
            "Workload",
        ),
    ] = ""
    warmup: Annotated[
        str | float,
        field(
            "Time before which submitted jobs do not count: seconds, or a share of the submissions' span as 10%.",
            "S|P%",
            "Statistics",
        ),
    ] = 0.0
    window: Annotated[
        list[str | float] | None,
        field("Times, from and to, between which submitted jobs count; each as in warmup.", "FROM:TO", "Statistics"),
    ] = None


class SettingFields(TypedDict, total=False):
    """The fields of `Setting` as keyword arguments of Python's `compare`; a file may be a path."""

    trace: Required[str | Path]
    workers: Required[int]
    load: float | None
    load_by: LoadBy
    slots: int
    constraints: ConstraintModel
    machines: str | Path | None
    population: int | None
    jobs: int | None
    only: Only
    columns: str | Path | None
    durations: Durations
    arrivals: Arrivals
    estimates: str
    users: str | None
    cutoff_s: float | None
    delay_us: int
    jitter_us: int
    links: Mapping[str, int]
    costs: Mapping[str, int]
    hosts: Mapping[str, Any]
    frames: Mapping[str, Any] | None
    crashes: str
    requests: str | Path
    capacity: str
    resources: str
    slot_request: str
    racks: int
    blocks: str
    reference_mhz: int
    variability: str
    outages: str
    history: str | Path
    warmup: str | float
    window: Sequence[str | float] | None


class StudyOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The keys of a study beside its setting; architectures and seeds are axes."""

    name: Annotated[str, field("Name of the study in its report; without it, that of the file.")] = ""
    architectures: Annotated[
        list[str],
        field(
            "Registry names with parameters, as megha:gms=10; the others are compared with the first.",
            "ARCH[:PARAMETER=VALUE,...]",
            option="ARCH",
        ),
    ]
    seeds: Annotated[
        int | list[int] | Literal["auto"],
        field("Number of seeds, 0 to K-1; auto: seeds are added until comparisons are decided.", "K|auto"),
    ] = 1
    seeds_max: Annotated[
        int | None, field("Largest number of seeds that auto adds, 30 without it.", "K", "Statistics")
    ] = None
    budget_s: Annotated[
        float | None,
        field("CPU time of all runs together after which auto begins none, s.", "S", "Statistics"),
    ] = None
    baseline: Annotated[
        str,
        field("Name or label of the architecture that the others are compared with; else the first.", "ARCH",
              "Statistics"),
    ] = ""  # fmt: skip


def declaration(hint: Any) -> dict[str, str]:
    """The meaning, form, group and option of a declared field, from its type."""
    for meta in get_args(hint)[1:] if get_origin(hint) is Annotated else ():
        if isinstance(meta, msgspec.Meta) and meta.extra:
            return {"meaning": meta.description or "", **meta.extra}
    return {}


DECLARED: Final = {
    one.name: declaration(one.type) for struct in (Setting, StudyOptions) for one in msgspec.structs.fields(struct)
}
"""By the name of the field."""


def option_of(name: str) -> str:
    """The option of the command line that sets a field."""
    return DECLARED.get(name, {}).get("option") or f"--{name.replace('_', '-')}"


def checked_value(value: Any, kind: Any, place: str) -> Any:
    """The value as its declared type; an InputError at `place` when it is not one."""
    bare = get_args(kind)[0] if get_origin(kind) is Annotated else kind
    if get_origin(bare) is Literal and isinstance(value, str) and value not in get_args(bare):
        raise InputError(place, f"there is no {value!r}{suggestion(value, get_args(bare))}")
    if isinstance(value, float) and not math.isfinite(value):
        raise InputError(place, f"expected a finite number, not {value}")
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        problem = str(error).partition(" - at ")[0].replace("`", "")
        raise InputError(place, f"{problem[:1].lower()}{problem[1:]}, not {value!r}") from None
