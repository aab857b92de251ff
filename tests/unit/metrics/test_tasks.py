"""Allocation times and their parts, on records built by hand."""

from __future__ import annotations

import pytest
from tests.unit.metrics.test_jobs import MS, records_of

from volery.architectures import lookup
from volery.core.model import NEVER, Cluster
from volery.core.records import PATH_SHIFT, Records
from volery.core.streams import Streams
from volery.metrics import summarise
from volery.metrics.tasks import allocation, locality_summary
from volery.sim import Network, simulate
from volery.workload import load_trace


class TestAllocation:
    def test_the_parts_sum_to_the_allocation_time(self) -> None:
        records = records_of([0], [[(10 * MS, 11 * MS), (3 * MS, 4 * MS)]], [12 * MS])
        records.path[0] = (2 * MS << PATH_SHIFT) + 1 * MS
        records.path[1] = 1 * MS
        records.waited_us[0] = 4 * MS
        parts = allocation(records)
        assert parts.communication.tolist() == [1 * MS, 1 * MS]
        assert parts.processing.tolist() == [2 * MS, 0]
        assert parts.worker_queueing.tolist() == [4 * MS, 0]
        assert parts.framework_queueing.tolist() == [3 * MS, 2 * MS]

    def test_a_causal_chain_older_than_the_task_never_exceeds_its_allocation_time(self) -> None:
        records = records_of([0], [[(700, 900)]], [1000])
        records.path[0] = (600 << PATH_SHIFT) + 500
        records.waited_us[0] = 50
        parts = allocation(records)
        assert (parts.communication[0], parts.processing[0]) == (500, 200)
        assert (parts.worker_queueing[0], parts.framework_queueing[0]) == (0, 0)

    def test_tasks_that_never_started_have_no_parts(self) -> None:
        records = records_of([0], [[(NEVER, NEVER), (500, 600)]], [700])
        records.path[1] = 500
        records.waited_us[1] = 10
        parts = allocation(records)
        assert parts.communication.tolist() == [NEVER, 500]
        assert parts.framework_queueing.tolist() == [NEVER, 0]


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
