"""Shares of tasks by distance, and delays that count what distance costs."""

from __future__ import annotations

import pytest

from volery.architectures import lookup
from volery.core.model import Cluster
from volery.core.records import Records
from volery.core.streams import Streams
from volery.metrics import locality_summary, summarise
from volery.sim import Network, simulate
from volery.workload import load_trace

CLUSTER = Cluster((0,) * 4, (1,) * 4, racks=(0, 0, 1, 1))


def ran(spec: str) -> Records:
    oracle = lookup("oracle")
    return simulate(
        oracle.build(CLUSTER, oracle.defaults, Streams(0)), load_trace(spec), CLUSTER, network=Network(delay_us=0)
    )


def test_shares_are_of_the_tasks_that_ran() -> None:
    """The oracle fills machines in order: replicas decide alone how near that is."""
    records = ran("hdfs:1x400,gap=100,duration=1,workers=4,racks=2,replicas=1")
    found = locality_summary(records, CLUSTER)
    assert found is not None
    assert found.tasks == 400
    assert found.node + found.rack + found.any == pytest.approx(1)
    assert found.node == found.node_by_job == pytest.approx(0.25, abs=0.07)
    assert found.any == pytest.approx(0.5, abs=0.08)
    assert locality_summary(ran("syn:2x2"), CLUSTER) is None


def test_a_jobs_ideal_is_where_its_input_lies_so_that_distance_counts_as_delay() -> None:
    records = ran("hdfs:1x50,gap=100,duration=10,spread=0,workers=4,racks=2,replicas=1,rack=2,any=3")
    summary = summarise(
        records, CLUSTER, architecture="oracle", parameters={}, seed=0, cutoff_us=None, wall_s=1, cpu_s=1, peak_rss_mb=1
    )
    assert summary.locality is not None
    assert summary.ideal_s.max == 10
    assert summary.delay_s.mean == pytest.approx(10 * summary.locality.rack + 20 * summary.locality.any)
