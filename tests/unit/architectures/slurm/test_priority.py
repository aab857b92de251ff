"""Priorities of the design `slurm`: factors by hand, and the Fair Tree."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.architectures.slurm.runs import MINUTE, RigidJob, simulated, starts, trace

from volery.architectures import configure, lookup
from volery.architectures.slurm.jobs import QueuedJob, SlurmPartition
from volery.architectures.slurm.nodes import JobNeed
from volery.architectures.slurm.parameters import SlurmConfig, seconds
from volery.architectures.slurm.priority import ClusterSize, FairTree, Priorities
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster, Job, Task
from volery.policies.fairness.shares import parse_shares_text

HOUR = 60 * MINUTE
SIZE = ClusterSize(10, 40)


def pending(node_count: int, cores: int, limit_s: int = HOUR, job_factor: int = 1, user: str = "") -> QueuedJob:
    partition = SlurmPartition("p", 1, job_factor=job_factor)
    need = JobNeed(cores, node_count, 0, (), 0, False, cores)
    tasks = tuple(Task(k, 0) for k in range(cores))
    return QueuedJob(Job(0, cores, tasks, user=user, limit_us=limit_s * SECOND), 1, partition, need, [tasks], 0, 0)


@pytest.mark.parametrize(
    ("parameters", "age_s", "expected"),
    [
        ({"PriorityWeightAge": 1000, "PriorityMaxAge": "1-0"}, 6 * HOUR, 250),
        ({"PriorityWeightAge": 1000, "PriorityMaxAge": "1-0"}, 48 * HOUR, 1000),
        ({"PriorityWeightAge": 1000}, 0, 1),
        ({"PriorityWeightJobSize": 1000}, 0, 225),
        ({"PriorityWeightJobSize": 1000, "PriorityFavorSmall": True}, 0, 775),
        ({"PriorityWeightJobSize": 100_000, "PriorityFlags": "SMALL_RELATIVE_TO_TIME"}, 0, 416),
        ({"PriorityWeightPartition": 300}, 0, 100),
        ({"PriorityWeightQOS": 500}, 0, 250),
        ({"PriorityWeightAge": 100, "PriorityMaxAge": "0:10:00", "PriorityWeightPartition": 300}, 60, 110),
    ],
)
def test_a_priority_is_the_sum_of_weighted_factors(parameters: dict[str, object], age_s: int, expected: int) -> None:
    """A job on 2 of 10 nodes with 10 of 40 cores for an hour, of a partition with 1 of 3, and a QOS with 2 of 4."""
    config = configure(lookup("slurm"), {"PriorityType": "priority/multifactor", **parameters})
    assert isinstance(config, SlurmConfig)
    priorities = Priorities(config, SIZE, 3, qos_factors={"ann": 0.5})
    assert priorities.priority(pending(2, 10, user="ann"), age_s) == expected


def test_large_jobs_go_first_by_size_and_small_ones_where_they_are_favoured() -> None:
    jobs = [RigidJob(0, 4, 20, MINUTE), RigidJob(1, 1, 20, MINUTE), RigidJob(2, 4, 20, MINUTE)]
    by_size = {"PriorityType": "priority/multifactor", "PriorityWeightJobSize": 1000}
    assert starts(*jobs, **by_size) == [0, 40, 20]
    assert starts(*jobs, **by_size, PriorityFavorSmall=True) == [0, 20, 40]


def test_points_of_the_submitter_are_added() -> None:
    jobs = trace(
        RigidJob(0, 4, 50, MINUTE), RigidJob(1, 4, 9, MINUTE), RigidJob(2, 4, 8, MINUTE), RigidJob(3, 4, 7, MINUTE)
    )
    jobs = msgspec.structs.replace(jobs, priority=array("q", [0, 0, 30, 0]))
    for kind in ("priority/basic", "priority/multifactor"):
        records = simulated(jobs, Cluster.uniform(4), PriorityType=kind)
        assert [records.start_us[4 * job] // SECOND for job in range(4)] == [0, 58, 50, 67]


def test_a_size_relative_to_a_time_below_a_minute_counts_by_the_whole_minute() -> None:
    """As Slurm rounds MaxTime up: the smaller job goes first with PriorityFavorSmall."""
    jobs = [RigidJob(0, 4, 50), RigidJob(1, 4, 9), RigidJob(2, 1, 9)]
    factors = {"PriorityType": "priority/multifactor", "PriorityWeightJobSize": 1000, "PriorityFavorSmall": True}
    partition = "all/Nodes:ALL/MaxTime:0:30/OverSubscribe:FORCE:1"
    assert starts(*jobs, PriorityFlags="SMALL_RELATIVE_TO_TIME", PartitionName=partition, **factors) == [0, 59, 50]


def test_priorities_are_computed_again_at_intervals() -> None:
    """The partition puts the second first, until the age of the first has outgrown that, at the next computation."""
    partitions = "low/Nodes:ALL/PriorityJobFactor:1+high/Nodes:ALL/PriorityJobFactor:2"
    weights = {"PriorityWeightAge": 1000, "PriorityWeightPartition": 100, "PriorityMaxAge": "10"}
    common = {"PriorityType": "priority/multifactor", "PartitionName": partitions, **weights}
    jobs = [RigidJob(0, 4, 110, 2 * MINUTE), RigidJob(1, 4, 9, MINUTE), RigidJob(50, 4, 8, MINUTE, "", "high")]
    assert starts(*jobs, **common) == [0, 118, 110]
    assert starts(*jobs, PriorityCalcPeriod="1", **common) == [0, 110, 119]


def test_users_are_ranked_by_what_their_accounts_and_they_have_used() -> None:
    tree = FairTree(parse_shares_text("physics:3(ann:1+bob:1)+biology:1(cid:1)", "accounts"))
    assert [tree.factor(user) for user in ("ann", "bob", "cid", "eve")] == [1, 1, 1, 0], "nobody has used anything"
    tree.charge("ann", 100)
    tree.charge("cid", 100)
    tree.rank()
    # Physics has used half, of three quarters; biology half, of one. In physics, bob has used nothing.
    assert [tree.factor(user) for user in ("bob", "ann", "cid")] == [1, 2 / 3, 1 / 3]
    tree.charge("bob", 2000)
    tree.rank()
    assert [tree.factor(user) for user in ("cid", "ann", "bob")] == [1, 2 / 3, 1 / 3]
    tree.decay(0.5)
    tree.rank()
    assert [tree.factor(user) for user in ("cid", "ann", "bob")] == [1, 2 / 3, 1 / 3], "decay changes no rank"


def test_accounts_that_are_tied_are_merged() -> None:
    tree = FairTree(parse_shares_text("a:1(ann:1+bob:1)+b:1(cid:1+dan:1)", "accounts"))
    for user, used in (("ann", 30), ("bob", 10), ("cid", 30), ("dan", 10)):
        tree.charge(user, used)
    tree.rank()
    assert [tree.factor(user) for user in ("bob", "dan", "ann", "cid")] == [1, 1, 0.5, 0.5]


def test_a_user_who_has_used_less_goes_first() -> None:
    fair = {"PriorityType": "priority/multifactor", "PriorityWeightFairshare": 1000, "PriorityCalcPeriod": "1"}
    jobs = [
        RigidJob(0, 4, 70, 2 * MINUTE, "ann"),
        RigidJob(1, 4, 10, MINUTE, "ann"),
        RigidJob(2, 4, 10, MINUTE, "bob"),
    ]
    assert starts(*jobs) == [0, 70, 80]
    assert starts(*jobs, accounts="ann:1+bob:1", **fair) == [0, 80, 70]


@pytest.mark.parametrize(
    ("text", "expected"),
    [("5", 300), ("5:30", 330), ("1:00:00", 3600), ("7-0", 7 * 86400), ("1-02:03", 93780), ("UNLIMITED", 0)],
)
def test_times_are_those_of_slurm(text: str, expected: int) -> None:
    assert seconds(text, "place") == expected


@pytest.mark.parametrize(
    ("parameters", "place", "problem"),
    [
        ({"PriorityMaxAge": "soon"}, "slurm:PriorityMaxAge", "is no time; write minutes"),
        ({"PriorityCalcPeriod": "0"}, "slurm:PriorityCalcPeriod", "no time between two computations"),
        ({"PriorityWeightFairshare": 5}, "slurm:PriorityWeightFairshare", "give accounts"),
        ({"PriorityWeightQOS": 5}, "slurm:PriorityWeightQOS", "give qos"),
        ({"PartitionName": "a/PriorityTier:2"}, "slurm:PartitionName/a", "it has no nodes"),
        ({"PartitionName": "a/Nodes:2-9"}, "slurm:PartitionName/a", "no nodes of the cluster's 4"),
        ({"PartitionName": "a/Nodes:1+a/Nodes:2"}, "slurm:PartitionName", "'a' stands twice"),
        ({"PartitionName": "/Nodes:1"}, "slurm:PartitionName", "has no name"),
        ({"PartitionName": "a/Nodes:1/Nodes:2"}, "slurm:PartitionName", "a: Nodes stands twice"),
        ({"PartitionName": "a/Nodes:1/MaxTime:0"}, "slurm:PartitionName/a", "in which no job can run; write a longer"),
        ({"PartitionName": "a/Nodes:1/Default:maybe"}, "slurm:PartitionName/a", "Default is 'maybe'"),
        ({"PartitionName": "a/Nodes:1/OverSubscribe:FOO"}, "slurm:PartitionName/a", "known are EXCLUSIVE, FORCE, NO"),
        ({"PartitionName": "a/Node:1"}, "slurm:PartitionName", "did you mean 'Nodes'"),
        ({"PartitionName": "a/Nodes:1/PriorityTier:-3"}, "slurm:PartitionName/a", "whole number from 0"),
        ({"PartitionName": "a/Nodes:1/PreemptMode:SUSPEND"}, "slurm:PartitionName/a", "REQUEUE"),
        ({"PreemptType": "preempt/qos"}, "slurm:PreemptType", "give REQUEUE or CANCEL"),
        ({"qos": "a/Preempt:b"}, "slurm:qos", "no QOS 'b' to preempt"),
        ({"reservations": "r/Nodes:1/StartTime:5"}, "slurm:reservations/r", "it has no Duration"),
        ({"Weight": "0-4:2"}, "slurm:Weight", "no nodes of the cluster's 4"),
        ({"Weight": "0-3:-2"}, "slurm:Weight", "whole number from 0"),
    ],
)
def test_what_cannot_be_is_refused_with_place_and_remedy(
    parameters: dict[str, object], place: str, problem: str
) -> None:
    with pytest.raises(InputError) as error:
        starts(
            RigidJob(0, 1, 1), PriorityType="priority/multifactor", **{"PreemptMode": "OFF", "qos": "", **parameters}
        )
    assert error.value.place == place
    assert problem in error.value.problem


def test_cores_of_a_slot_cluster_are_its_slots() -> None:
    by_size = {"PriorityType": "priority/multifactor", "PriorityWeightJobSize": 1000}
    jobs = [
        RigidJob(0, 2, 20, MINUTE, task_count=8),
        RigidJob(1, 2, 20, MINUTE),
        RigidJob(2, 2, 20, MINUTE, task_count=8),
    ]
    assert starts(*jobs, cluster=Cluster.uniform(2, slots=4), **by_size)[2] == 20
