"""The base of Megha is complete: a run on slots needs nothing of what can be attached."""

from __future__ import annotations

import importlib
import sys

import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.model import SECOND, Cluster
from volery.core.streams import Streams
from volery.sim import Options, simulate

PACKAGE = "volery.architectures.megha"
ATTACHED = ("amounts", "shares", "gangs", "recovery", "printed", "hosts", "reasons", "designs", "near", "priorities")


def test_a_run_on_slots_needs_nothing_that_can_be_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.uniform(12)
    trace = trace_of("slots", [0, 1000, 2000], [[SECOND] * 9, [SECOND] * 6, [SECOND] * 9])
    whole = lookup("megha")
    deployed = whole.build(cluster, configure(whole, {"gms": "3", "lms": "2"}), Streams(0))
    expected = simulate(deployed, trace, cluster)

    for module in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        monkeypatch.delitem(sys.modules, module)
    for name in ATTACHED:
        monkeypatch.setitem(sys.modules, f"{PACKAGE}.{name}", None)
    recipe = importlib.import_module(f"{PACKAGE}.assembly").Recipe
    config = importlib.import_module(f"{PACKAGE}.config").MeghaConfig
    deployment = recipe(cluster, config(gms=3, lms=2), Streams(0)).deployment()
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    assert records.digest() == expected.digest()
    with pytest.raises(ImportError):
        recipe(cluster, config(gms=3, lms=2, shares="a:1+b:1"), Streams(0))
