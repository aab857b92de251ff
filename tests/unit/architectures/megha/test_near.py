"""Tasks of Megha are placed where their input lies, if a slot is free there (IoT 2023, section 8)."""

from __future__ import annotations

import msgspec
import pytest

from volery.architectures import configure, lookup
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.near import NearView
from volery.core.errors import InputError
from volery.core.locality import Pace
from volery.core.model import Cluster
from volery.core.streams import Streams
from volery.core.trace import Trace
from volery.sim import Options, simulate
from volery.workload import load_trace


def levels(trace: Trace, cluster: Cluster, **given: str) -> list[int]:
    """The distance from its input at which each task ran."""
    megha = lookup("megha")
    config = configure(megha, {"gms": "2", "lms": "2", **given})
    records = simulate(megha.build(cluster, config, Streams(0)), trace, cluster, options=Options(check=True))
    pace = Pace(trace, cluster)
    return [pace.level(task, records.worker[task]) for task in range(trace.task_count)]


def test_on_an_idle_cluster_every_task_runs_on_a_machine_with_its_input() -> None:
    """By accident one in ten does: two replicas on twenty machines."""
    trace = load_trace("hdfs:1x60,gap=100,duration=1,workers=20,racks=4,replicas=2")
    cluster = msgspec.structs.replace(Cluster.uniform(20), racks=tuple(machine // 5 for machine in range(20)))
    assert levels(trace, cluster).count(0) < 20
    assert levels(trace, cluster, near="true") == [0] * 60
    assert levels(trace, cluster, near="true", match="min-constraints") == [0] * 60


def test_a_task_whose_machines_are_busy_waits_for_none_of_them() -> None:
    """Ten tasks with their only input on two machines: two run there, the others elsewhere and at once."""
    trace = load_trace("hdfs:10x1,duration=5,spread=0,workers=12,replicas=2,hot=1,hot_blocks=1,hot_replicas=2")
    cluster = Cluster.uniform(12)
    ran = levels(trace, cluster, near="true")
    assert ran.count(0) == 2
    megha = lookup("megha")
    deployment = megha.build(cluster, configure(megha, {"gms": "2", "lms": "2", "near": "true"}), Streams(0))
    records = simulate(deployment, trace, cluster)
    assert max(records.start_us) < 1_000_000, "nobody waits five seconds for another"


def test_a_machine_with_input_that_lacks_a_constraint_is_not_taken() -> None:
    trace = load_trace("hdfs:1x20,gap=100,duration=1,workers=8,replicas=1")
    constrained = msgspec.structs.replace(trace, constraints=type(trace.first)("q", [1] * 20))
    cluster = Cluster((0, 1) * 4, (1,) * 8)
    megha = lookup("megha")
    deployment = megha.build(cluster, configure(megha, {"gms": "2", "lms": "2", "near": "true"}), Streams(0))
    records = simulate(deployment, constrained, cluster, options=Options(check=True))
    assert all(machine % 2 for machine in records.worker)


def test_where_input_lies_is_forgotten_with_the_tasks() -> None:
    trace = load_trace("hdfs:10x3,gap=1,duration=5,workers=12,replicas=2")
    megha = lookup("megha")
    cluster = Cluster.uniform(12)
    deployment = megha.build(cluster, configure(megha, {"gms": "1", "lms": "2", "near": "true"}), Streams(0))
    simulate(deployment, trace, cluster, options=Options(check=True))
    (master,) = [component for address, component in deployment.components.items() if address.startswith("gm/")]
    assert isinstance(master, GlobalMaster)
    assert isinstance(master.near, NearView)
    assert not master.near._replicas


def test_near_is_refused_where_units_are_machines() -> None:
    megha = lookup("megha-2021")
    with pytest.raises(InputError, match="megha:near: slots are searched near input"):
        megha.build(Cluster.uniform(9), configure(megha, {"gms": "3", "lms": "3", "near": "true"}), Streams(0))
