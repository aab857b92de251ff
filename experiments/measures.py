"""Metric paths of claims and their values in the measures of a run or of an input; CPU costs of stages.

Costs of stages come from runs made again with their methods measured.
"""

from __future__ import annotations

import types
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, Final, Union, get_args, get_origin

import msgspec

from volery.core.errors import InputError, suggestion
from volery.core.stages import Stage
from volery.integrity import unsealed
from volery.metrics import ConstraintLoad, Distribution, RunSummary, TotalLoad
from volery.metrics.windows import SteadyState
from volery.report.schema import StageProfile
from volery.study.plan import PlannedRun
from volery.study.results import write_json
from volery.study.stagetime import profile_run

LOAD_STATISTICS: Final = ("mean", "median", "p95", "p99")
INPUT_ROOTS: Final = ("load", "constraint_load", "conflicts")
_SHARES: Final = ("settled.load", "settled.idle", "settled.never_waits", "settled.never_delayed")
_CONFLICTS: Final = ("waiting", "collisions")
_OVER_CONSTRAINTS: Final = ("highest", "lowest", "average")
SETTLED: Final = "settled"
"""Measures of a run without its warm-up, see `volery.metrics.windows`."""
_FRACTIONS: Final = frozenset(
    ("attainment", "busyness", "busyness_mad", "useful", "wasted", "fruitless", "conflict_fraction", "wasted_fraction",
     "under_accuracy", "over_accuracy", "under_share", "over_share", "of_oracle", "above_oracle")
)  # fmt: skip
"""Last parts of further metrics from 0 to about 1; tables print them as plain numbers."""
STAGE_COSTS: Final = "stage_cpu_s"
"""Root of their metrics."""
COUNTED: Final[Mapping[str, frozenset[Stage]]] = {
    "T1": frozenset({Stage.T1}),
    "T2": frozenset({Stage.T2, Stage.J3}),
    "R4": frozenset({Stage.R4}),
    "R5": frozenset({Stage.R5}),
}
"""The stages that were measured for SC 2018, section V-C. A queue that is kept sorted is sorted where tasks join it."""
ALL: Final = "all"
WARM_UPS: Final = 4
"""Runs that are made and thrown away before (SC 2018, section V-A3)."""


class InputMeasures(msgspec.Struct, frozen=True):
    """The demand of a workload on its cluster before any scheduler decides.

    Args:
        load: Load of the cluster as a whole, over seconds (slots needed / slots).
        constraint_load: "c0" to "c20": of one constraint; "highest", "lowest", "average": over the constraints,
            statistic by statistic.
        conflicts: "waiting", "collisions": per second (see `volery.metrics.demand`); empty where not asked for.
        loads: load per constraint, for pictures.
    """

    load: TotalLoad
    constraint_load: dict[str, dict[str, float]] = {}
    conflicts: dict[str, Distribution] = {}
    loads: tuple[ConstraintLoad, ...] = ()


def constraint_statistics(loads: Sequence[ConstraintLoad]) -> dict[str, dict[str, float]]:
    """`InputMeasures.constraint_load` from the loads of all constraints."""
    statistics_by_load = {
        f"c{load.constraint}": {name: getattr(load, name) for name in LOAD_STATISTICS} for load in loads
    }
    single = list(statistics_by_load.values())
    for name, over in (("highest", max), ("lowest", min), ("average", _mean)):
        if single:
            statistics_by_load[name] = {
                statistic: over([load[statistic] for load in single]) for statistic in LOAD_STATISTICS
            }
    return statistics_by_load


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def check_metric(path: str, place: str) -> bool:
    """True for a metric of the input, false for one of a run.

    Raises:
        InputError: at `place`, when there is no such metric.
    """
    root, *parts = path.split(".")
    if root == "load":
        _expect(parts, [LOAD_STATISTICS], place, path)
        return True
    if root == "constraint_load":
        over = (*_OVER_CONSTRAINTS, *(f"c{number}" for number in range(64)))
        _expect(parts, [over, LOAD_STATISTICS], place, path)
        return True
    if root == "conflicts":
        _expect(parts, [_CONFLICTS, Distribution.__struct_fields__], place, path)
        return True
    if root == SETTLED:
        _expect(parts, [SteadyState.__struct_fields__], place, path)
        return False
    if root == STAGE_COSTS:
        _expect(parts, [(*COUNTED, ALL)], place, path)
        return False
    _check_run_metric(path, place)
    return False


def _expect(parts: Sequence[str], names_by_part: Sequence[Iterable[str]], place: str, path: str) -> None:
    if len(parts) != len(names_by_part):
        raise InputError(place, f"{path!r} has {len(parts) + 1} parts where {len(names_by_part) + 1} are needed")
    for part, names in zip(parts, names_by_part, strict=True):
        if part not in names:
            raise InputError(place, f"{path!r}: unknown part {part!r}{suggestion(part, names)}")


def _check_run_metric(path: str, place: str) -> None:
    kind: Any = RunSummary
    for part in path.split("."):
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
            continue
        if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
            raise InputError(place, f"{path!r}: nothing stands below {kind.__name__ if kind else kind}")
        fields = _types(kind)
        if part not in fields:
            fields_here = (*fields, *INPUT_ROOTS) if kind is RunSummary else fields
            raise InputError(place, f"{path!r}: unknown part {part!r}{suggestion(part, fields_here)}")
        kind = fields[part]
    if kind not in (int, float):
        raise InputError(place, f"{path!r} is no number; go on to a part of it")


@cache
def _types(kind: type[msgspec.Struct]) -> Mapping[str, Any]:
    """Field -> its type; msgspec compiles the annotations of a class each time that it is asked."""
    return {field.name: _bare(field.type) for field in msgspec.structs.fields(kind)}


def _bare(kind: Any) -> Any:
    if get_origin(kind) in (Union, types.UnionType):
        return next(inner for inner in get_args(kind) if inner is not type(None))
    return kind


def value(measures: Any, path: str) -> float | None:
    """The number at a path; None where the run has no such thing (no long job, for example)."""
    for part in path.split("."):
        # A counter of what never happened is not there.
        measures = measures.get(part, 0.0) if isinstance(measures, Mapping) else getattr(measures, part)
        if measures is None:
            return None
        if isinstance(measures, Distribution) and not measures.count:
            return None
    return float(measures)


def is_share(path: str) -> bool:
    """True for a metric that is a fraction, which is compared by differences."""
    return (
        unit(path) == "%" or path.rpartition(".")[2] in _FRACTIONS or path.startswith(("utilisation.", "user_shares."))
    )


def unit(path: str) -> str:
    """The unit of a metric: "s", "%" for a fraction, or nothing, as for the count of a distribution of seconds."""
    root, _, part = path.partition(".")
    if path.endswith(".count"):
        return ""
    if root in ("load", "constraint_load", "utilisation_mean") or path in _SHARES:
        return "%"
    if root == "locality" and part != "tasks":
        return "%"
    return "s" if any(part.endswith("_s") and not part.endswith("per_cpu_s") for part in path.split(".")) else ""


class StageCosts(msgspec.Struct):
    """The measured CPU costs of the stages of a run.

    Args:
        costs: per repetition, CPU seconds by stage, and of these stages together.
    """

    costs: list[dict[str, float]]
    profile: StageProfile


def costs_of(profile: StageProfile) -> dict[str, float]:
    """CPU seconds by stage, less what measuring adds to each call."""
    costs = dict.fromkeys(COUNTED, 0.0)
    for time in profile.times:
        net_s = max(0.0, time.cpu_s - time.calls * profile.own_costs_s[0])
        for name, stages in COUNTED.items():
            if not stages.isdisjoint(time.stages):
                costs[name] += net_s
    return costs | {ALL: sum(costs.values())}


def kept_costs(runs: Path, key: str) -> StageCosts | None:
    """The stored costs of the run with this key; None also where they are damaged."""
    try:
        return msgspec.json.decode(unsealed(_path(runs, key).read_bytes(), _path(runs, key)), type=StageCosts)
    except (OSError, ValueError):
        return None


def measure_costs(groups: Sequence[Sequence[PlannedRun]], repetitions: int, runs: Path) -> None:
    """Measure runs and keep each measure; those of one architecture form a group, and architectures take turns.

    What was measured before somebody stopped it is not measured again, but everybody warms up anew.

    Args:
        groups: the runs of each architecture, one or as many as repetitions.
        repetitions: measured runs of each architecture.
        runs: the folder where finished runs are kept.
    """
    for group in groups:
        for _ in range(WARM_UPS):
            profile_run(group[0].spec)
    for number in range(repetitions):
        for group in groups:
            run = group[number % len(group)]
            stored = kept_costs(runs, run.key)
            costs = [] if stored is None else stored.costs
            if len(costs) <= number // len(group):
                profile = profile_run(run.spec, run.key)
                write_json(_path(runs, run.key), StageCosts([*costs, costs_of(profile)], profile))


def _path(runs: Path, key: str) -> Path:
    return runs / f"{key}.stages"
