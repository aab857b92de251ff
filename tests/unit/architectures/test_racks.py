"""Racks of gangs: each design that heeds them keeps a gang in one where that is required, or preferred and possible."""

from __future__ import annotations

from array import array
from typing import Any

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.gangs import with_gangs
from volery.core.model import NEVER, PREFERS_RACK, REQUIRES_RACK, SECOND, Cluster
from volery.core.records import Records
from volery.core.resources import DEVICE_MILLI
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.metrics.gangs import gang_summary
from volery.sim import Network, Options, simulate

PROMPT = {"Epilog": True, "interactive": True}
DESIGNS: list[tuple[str, dict[str, Any]]] = [
    ("pipeline", {}),
    ("pipeline", {"T3": "conservative"}),
    ("pipeline", {"T3": "easy"}),
    ("slurm", PROMPT),
    ("omega", {}),
    ("monolithic", {}),
]
RACKS = (0, 1) * 4
"""Neighbouring machines are in different racks."""
CLUSTER = msgspec.structs.replace(Cluster.uniform(len(RACKS)), racks=RACKS)


def played(name: str, parameters: dict[str, Any], trace: Trace, cluster: Cluster) -> Records:
    entry = lookup(name)
    deployment = entry.build(cluster, configure(entry, parameters), Streams(0))
    return simulate(deployment, trace, cluster, network=Network(0), options=Options(check=True))


def racks_of_job(records: Records, job: int) -> set[int]:
    first = records.trace.first
    return {RACKS[machine] for machine in records.worker[first[job] : first[job + 1]]}


@pytest.mark.parametrize(("name", "parameters"), DESIGNS)
@pytest.mark.parametrize("nodes", [0, 3])
def test_a_gang_waits_for_the_rack_that_it_requires_and_not_for_the_one_that_it_prefers(
    name: str, parameters: dict[str, Any], nodes: int
) -> None:
    """Two jobs leave one machine free in each rack, on which a third finds room for two tasks."""
    jobs = [[20 * SECOND] * 3, [20 * SECOND] * 3, [SECOND] * 2]
    plain = trace_of("racks", [0, SECOND, 5 * SECOND], jobs)
    for wish in (PREFERS_RACK, REQUIRES_RACK):
        trace = with_gangs(plain, [nodes, nodes, min(nodes, 2)], [wish] * 3)
        records = played(name, parameters, trace, CLUSTER)
        assert NEVER not in records.finish_us
        assert [len(racks_of_job(records, job)) for job in range(3)] == [1, 1, 2 if wish == PREFERS_RACK else 1]
        has_waited = records.start_us[trace.first[2]] >= 20 * SECOND
        assert has_waited == (wish == REQUIRES_RACK)

        summary = gang_summary(records, CLUSTER)
        assert summary is not None
        assert summary.machines_mean == pytest.approx(8 / 3)
        assert summary.racks_mean == pytest.approx(4 / 3 if wish == PREFERS_RACK else 1)
        assert summary.one_rack == pytest.approx(2 / 3 if wish == PREFERS_RACK else 1)


@pytest.mark.parametrize(("name", "parameters"), DESIGNS)
def test_members_in_a_rack_ask_for_whole_devices_and_for_shares_of_one(name: str, parameters: dict[str, Any]) -> None:
    """A rack has four machines of two devices: eight tasks of 600 thousandths, each on a device of its own."""
    resources = ("cpu_milli", DEVICE_MILLI)
    capacities = ((8000, 2000),) * len(RACKS)
    cluster = msgspec.structs.replace(CLUSTER, resources=resources, capacities=capacities)
    sizes, places = (8, 4, 8, 2), (0, 1, 2, 0)
    plain = trace_of("devices", [SECOND * job for job in range(4)], [[3 * SECOND] * size for size in sizes])
    request = array("H", [place for place, size in zip(places, sizes, strict=True) for _ in range(size)])
    requests = ((1000, 600), (1000, 2000), (1000, 500))
    plain = msgspec.structs.replace(plain, resources=resources, requests=requests, request=request)
    records = played(name, parameters, with_gangs(plain, [0] * 4, [REQUIRES_RACK] * 4), cluster)
    assert NEVER not in records.finish_us
    assert [len(racks_of_job(records, job)) for job in range(4)] == [1] * 4
    assert sorted(records.worker[:8]) == sorted([machine for machine in set(records.worker[:8]) for _ in range(2)])


def test_measures_of_racks_are_of_clusters_with_racks() -> None:
    trace = with_gangs(trace_of("plain", [0, 0], [[SECOND] * 2, [SECOND]]), [2, 0])
    summary = gang_summary(played("pipeline", {}, trace, Cluster.uniform(4)), Cluster.uniform(4))
    assert summary is not None
    assert (summary.machines_mean, summary.racks_mean, summary.one_rack) == (2, None, None)


@pytest.mark.parametrize("name", ["mesos", "tetrisched", "alsched"])
def test_designs_that_start_gangs_and_heed_no_racks_refuse_those_that_require_one(name: str) -> None:
    plain = trace_of("racks", [0], [[SECOND] * 2])
    with pytest.raises(InputError, match="job 0 is a gang that requires one rack, which this design does not heed"):
        played(name, {}, with_gangs(plain, [0], [REQUIRES_RACK]), CLUSTER)
    assert NEVER not in played(name, {}, with_gangs(plain, [0], [PREFERS_RACK]), CLUSTER).finish_us
