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
ATTACHED = ("amounts", "shares", "recovery", "reasons")


def test_a_run_on_slots_needs_nothing_that_can_be_attached(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster.uniform(12)
    trace = trace_of("slots", [0, 1000, 2000], [[SECOND] * 9, [SECOND] * 6, [SECOND] * 9])
    parameters = {"gms": "3", "lms": "2"}
    whole = lookup("megha")
    expected = simulate(whole.build(cluster, configure(whole, parameters), Streams(0)), trace, cluster)

    for module in [name for name in sys.modules if name == PACKAGE or name.startswith(f"{PACKAGE}.")]:
        monkeypatch.delitem(sys.modules, module)
    for name in ATTACHED:
        monkeypatch.setitem(sys.modules, f"{PACKAGE}.{name}", None)
    base = importlib.import_module(PACKAGE).MEGHA
    deployment = base.build(cluster, configure(base, parameters), Streams(0))
    records = simulate(deployment, trace, cluster, options=Options(check=True))
    assert records.digest() == expected.digest()
    with pytest.raises(ImportError):
        base.build(cluster, configure(base, {**parameters, "shares": "a:1+b:1"}), Streams(0))
