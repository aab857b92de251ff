"""Features of a workload beyond tasks and their durations, and those by which an architecture decides.

A comparison names the features that a design ignores. The list is here because study, report and conformance need it,
and each of them may import core alone.
"""

from __future__ import annotations

import re
from typing import Any, Final

from volery.core.component import AMOUNTS, DEPENDENCIES, Architecture, UnusedFeatures
from volery.core.model import NEVER
from volery.core.trace import NO_GANG, Trace

CONSTRAINTS, USERS = "constraints", "users"
PRIORITIES, DEADLINES, LOCALITY, PREFERENCES = "priorities", "deadlines", "locality", "preferences"
LIMITS, GANGS, RACKS, PARTITIONS = "limits", "gangs", "racks", "partitions"
FEATURES: Final = (
    CONSTRAINTS,
    AMOUNTS,
    DEPENDENCIES,
    USERS,
    PRIORITIES,
    DEADLINES,
    LOCALITY,
    PREFERENCES,
    LIMITS,
    GANGS,
    RACKS,
    PARTITIONS,
)


def features_of(trace: Trace) -> tuple[str, ...]:
    """The features that a workload has, in the order of `FEATURES`; a value that all jobs share is none."""
    has_feature = {
        CONSTRAINTS: any(trace.constraints),
        AMOUNTS: bool(trace.resources),
        DEPENDENCIES: bool(trace.parents),
        USERS: len(set(trace.user)) > 1,
        PRIORITIES: len(set(trace.priority)) > 1,
        DEADLINES: any(at != NEVER for at in trace.deadline_us),
        LOCALITY: bool(trace.replicas),
        PREFERENCES: bool(trace.preference),
        LIMITS: any(limit != NEVER for limit in trace.limit_us),
        GANGS: any(nodes != NO_GANG for nodes in trace.gang_nodes),
        RACKS: any(trace.gang_racks),
        PARTITIONS: len(set(trace.partition)) > 1,
    }
    return tuple([feature for feature in FEATURES if has_feature[feature]])


def used_features(architecture: Architecture, config: Any) -> frozenset[str]:
    """The features that a design decides by under this configuration.

    Args:
        architecture: Design that declares them.
        config: Configuration of the design's own type.
    """
    unused_features = architecture.capability(UnusedFeatures)
    features = frozenset(
        feature
        for feature, condition in architecture.features.items()
        if any(_is_met(alternative, config) for alternative in alternatives(condition))
    )
    return features if unused_features is None else features - unused_features.of(config)


def alternatives(condition: str) -> list[tuple[str, tuple[str, ...]]]:
    """The parameters that a declaration names, each with the values that count; no values: any that is set."""
    pairs = [part.partition("=") for part in condition.split(" or ")]
    return [(name, tuple(values.split("|")) if equals else ()) for name, equals, values in pairs]


def _is_met(alternative: tuple[str, tuple[str, ...]], config: Any) -> bool:
    """True if an alternative is met; one without a name always is. `NAME/...` and `NAME:...` count as NAME."""
    name, values = alternative
    if not name:
        return True
    value = getattr(config, name)
    return re.split("[/:]", str(value))[0] in values if values else bool(value)
