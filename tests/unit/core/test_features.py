"""What workloads have, what designs heed, and that every registered design says it."""

from __future__ import annotations

from array import array

import msgspec
import pytest

from volery.architectures import configure, lookup, registry
from volery.core.features import CONSTRAINTS, FEATURES, features_of, used_features
from volery.core.locality import with_replicas
from volery.core.model import NEVER, PREFERS_RACK, Preference
from volery.core.trace import NO_GANG
from volery.workload import load_trace


def test_a_plain_workload_has_none_and_a_rich_one_all() -> None:
    plain = load_trace("syn:2x2")
    assert features_of(plain) == ()
    alike = {"user": ("ann", "ann"), "priority": array("q", [3, 3]), "deadline_us": array("q", [NEVER, NEVER])}
    assert features_of(msgspec.structs.replace(plain, **alike)) == (), "what is the same for all is no feature"
    rich = msgspec.structs.replace(
        with_replicas(plain, [(0,), (), (), ()], (1000, 1000)),
        constraints=array("q", [0, 0, 0, 1]),
        resources=("gpus",),
        parent_first=array("q", [0, 0, 1, 1, 1]),
        parents=array("q", [0]),
        user=("ann", "bob"),
        priority=array("q", [0, 1]),
        deadline_us=array("q", [NEVER, 5]),
        limit_us=array("q", [NEVER, 5]),
        preferences=(Preference(1, 0, 200),),
        preference=array("H", [0, 0]),
        gang_nodes=array("i", [NO_GANG, 0]),
        gang_racks=array("b", [0, PREFERS_RACK]),
        partition=("", "long"),
    )
    assert features_of(rich) == FEATURES


@pytest.mark.parametrize(
    ("design", "parameters", "expected"),
    [
        ("oracle", {}, {"constraints", "amounts"}),
        ("backfill", {}, {"constraints", "amounts", "dependencies", "limits", "gangs", "racks"}),
        ("pipeline", {}, {"constraints", "amounts", "dependencies", "gangs", "racks"}),
        ("oracle", {"order": "drf"}, {"constraints", "amounts", "users"}),
        ("megha-2021", {"shares": "a:1+b:1"}, {"constraints", "amounts", "users"}),
        ("pigeon", {}, {"constraints", "gangs"}),
        ("tetrisched", {}, {"constraints", "deadlines", "preferences", "gangs"}),
        ("tetrisched", {"heterogeneity": False}, {"constraints", "deadlines", "gangs"}),
        ("alsched", {"constraints": "none"}, {"constraints", "gangs"}),
        ("jockey", {}, {"constraints", "deadlines", "dependencies", "gangs"}),
        ("hfs", {}, {"constraints", "users", "priorities", "locality"}),
    ],
)
def test_what_is_heeded_depends_on_parameters(design: str, parameters: dict[str, str], expected: set[str]) -> None:
    architecture = lookup(design)
    assert used_features(architecture, configure(architecture, parameters)) == expected


@pytest.mark.parametrize("name", registry())
def test_every_registered_design_declares_what_it_heeds(name: str) -> None:
    assert registry()[name].features.get(CONSTRAINTS) == ""
