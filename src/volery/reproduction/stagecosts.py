"""What stages cost in the runs of an experiment, as claims see it: runs made again with their methods measured.

Times of a machine are no results of a run: they are kept beside it, judged when somebody asks, and never compared.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

import msgspec

from volery.core.stages import Stage
from volery.report.schema import StageProfile
from volery.study.plan import PlannedRun
from volery.study.results import write_json
from volery.study.stagetime import profile_run

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


class Measured(msgspec.Struct):
    """What was measured of a run.

    Args:
        costs: per repetition, CPU seconds by stage, and of these stages together.
        profile: of the last repetition.
    """

    costs: list[dict[str, float]]
    profile: StageProfile


def costs_of(profile: StageProfile) -> dict[str, float]:
    """CPU seconds by stage, less what measuring adds to each call."""
    found = dict.fromkeys(COUNTED, 0.0)
    for time in profile.times:
        net_s = max(0.0, time.cpu_s - time.calls * profile.own_costs_s[0])
        for name, stages in COUNTED.items():
            if not stages.isdisjoint(time.stages):
                found[name] += net_s
    return found | {ALL: sum(found.values())}


def kept_costs(runs: Path, key: str) -> Measured | None:
    """What was measured earlier of the run with this key; None also where it is damaged."""
    try:
        return msgspec.json.decode(_path(runs, key).read_bytes(), type=Measured)
    except (OSError, msgspec.DecodeError):
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
            kept = kept_costs(runs, run.key)
            costs = [] if kept is None else kept.costs
            if len(costs) <= number // len(group):
                profile = profile_run(run.spec, run.key)
                write_json(_path(runs, run.key), Measured([*costs, costs_of(profile)], profile))


def _path(runs: Path, key: str) -> Path:
    return runs / f"{key}.stages"
