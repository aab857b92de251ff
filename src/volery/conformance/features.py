"""Checks of features of a workload: those that a design uses change a run, others do not, and distance costs time."""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from random import Random
from typing import Any

import msgspec

from volery.conformance.cases import MACHINES, Case, mixed_cases
from volery.conformance.outcomes import demand_sound
from volery.conformance.verdict import check, demand, run
from volery.core.component import Architecture
from volery.core.features import (
    CONSTRAINTS,
    DEADLINES,
    FEATURES,
    LOCALITY,
    PRIORITIES,
    USERS,
    alternatives,
    features_of,
    used_features,
)
from volery.core.locality import with_replicas
from volery.core.model import NEVER, SECOND
from volery.core.streams import Streams
from volery.core.trace import longs
from volery.sim import Options

RACKS = 5
REPLICAS = 3
AS_NEAR = (1000, 1000)
FARTHER = (1500, 2300)
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    USERS: {"user": ()},
    PRIORITIES: {"priority": longs()},
    DEADLINES: {"deadline_us": longs()},
    LOCALITY: {"replica_first": longs(), "replicas": array("i")},
}
"""The columns of a trace without a feature, by the feature."""


def rich_cases(seed: int, far_permille: tuple[int, int]) -> list[Case]:
    """Jobs of several users with priorities and deadlines, whose tasks have input that lies somewhere, or nowhere."""
    cases = []
    for case in mixed_cases(seed):
        stream = Streams(seed).of(f"conformance/rich/{case.name}")
        trace = case.trace

        replicas = [stream.sample(range(MACHINES), REPLICAS * (stream.random() < 0.8)) for _ in range(trace.task_count)]
        trace = with_replicas(trace, replicas, far_permille)
        trace = msgspec.structs.replace(
            trace,
            priority=array("q", [stream.randrange(3) for _ in range(trace.job_count)]),
            deadline_us=array("q", [_deadline_us(at, stream) for at in trace.arrival_us]),
        )

        racks = tuple(machine % RACKS for machine in range(MACHINES))
        cases.append(Case(f"{case.name}, rich", seed, trace, msgspec.structs.replace(case.cluster, racks=racks)))
    return cases


def _deadline_us(arrival_us: int, stream: Random) -> int:
    """The deadline of some jobs: a design may treat jobs with one otherwise, not only the earlier one first."""
    return arrival_us + stream.randrange(1, 60 * SECOND) if stream.random() < 0.7 else NEVER


@check
def check_features_are_declared(architecture: Architecture) -> None:
    """Features that a design uses are declared by known names, constraints among them: every design keeps these."""
    for feature, condition in architecture.features.items():
        demand(feature in FEATURES, f"uses {feature!r}, which is not one of {', '.join(FEATURES)}")
        fields = architecture.defaults.__struct_fields__
        is_parameter = all(not parameter or parameter in fields for parameter, _ in alternatives(condition))
        demand(is_parameter, f"uses {feature} when {condition}, but there is no such parameter")

    demand(
        architecture.features.get(CONSTRAINTS) == "",
        "does not declare the features that it uses; constraints at least, always",
    )


@check
def check_ignored_features_change_nothing(architecture: Architecture) -> None:
    """A workload runs alike with and without a feature that a design ignores, and not alike if it always uses it."""
    used = used_features(architecture, architecture.defaults)
    changed = dict.fromkeys(WITHOUT, False)

    for case in rich_cases(12, AS_NEAR):
        digest = run(architecture, case).digest()
        for feature, columns in WITHOUT.items():
            demand(feature in features_of(case.trace), f"case {case.name!r} has no {feature}")
            without_feature = msgspec.structs.replace(case, trace=msgspec.structs.replace(case.trace, **columns))
            changed[feature] |= run(architecture, without_feature).digest() != digest

    for feature, differs in changed.items():
        demand(feature in used or not differs, f"declares that it ignores {feature}; without them a run changes")
        is_always_used = (
            architecture.features.get(feature) == ""
        )  # by a parameter it may be no more than a rule for ties
        demand(differs or not is_always_used, f"declares that it uses {feature}; without them no run changes")


@check
def check_locality(architecture: Architecture) -> None:
    """Wherever a task runs, it lasts as long as the distance from its input makes it, and all other rules hold."""
    for case in rich_cases(13, FARTHER):
        for options in (Options(check=True), Options(check=True, tie_shuffle=13), Options(copy_messages=True)):
            demand_sound(case, run(architecture, case, options=options), architecture)
