"""Partitions, preemption, whole nodes, reservations and the choice of nodes in the design `slurm`."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.architectures.slurm.runs import MINUTE, RigidJob, simulated, starts, trace

from volery.architectures import configure, lookup
from volery.architectures.slurm.nodes import JobNeed, NodeFacts, Nodes
from volery.core.capabilities import Refusals
from volery.core.events import Submit
from volery.core.model import SECOND, Cluster, Gang
from volery.core.streams import Streams
from volery.core.trace import NO_GANG

BOTH = "low/Nodes:0-3+high/Nodes:0-3/PriorityTier:2"
PREEMPTING = {"PartitionName": BOTH, "PreemptType": "preempt/partition_prio"}


def test_jobs_of_a_higher_tier_go_first_whenever_they_come() -> None:
    jobs = [RigidJob(0, 4, 50, MINUTE), RigidJob(1, 4, 9, MINUTE), RigidJob(2, 4, 8, MINUTE, "", "high")]
    assert starts(*jobs, PartitionName=BOTH) == [0, 58, 50]


def test_partitions_without_common_nodes_do_not_wait_for_each_other() -> None:
    apart = "left/Nodes:0-1+right/Nodes:2-3"
    jobs = [RigidJob(0, 2, 50, MINUTE), RigidJob(1, 2, 50, MINUTE), RigidJob(2, 2, 50, MINUTE, "", "right")]
    assert starts(*jobs, PartitionName=apart, SchedulerType="sched/builtin") == [0, 50, 2]


def test_a_job_that_names_no_partition_goes_to_the_default_one() -> None:
    holder = RigidJob(0, 2, 50, MINUTE, "", "b")
    assert starts(holder, RigidJob(1, 2, 10, MINUTE), PartitionName="a/Nodes:0-1+b/Nodes:2-3") == [0, 1]
    assert starts(holder, RigidJob(1, 2, 10, MINUTE), PartitionName="a/Nodes:0-1+b/Nodes:2-3/Default:YES") == [0, 50]


def test_names_of_partitions_mean_nothing_where_none_is_configured() -> None:
    jobs = trace(RigidJob(0, 1, 50, MINUTE, "", "gpu"), RigidJob(1, 1, 10, MINUTE))
    assert list(simulated(jobs, Cluster.uniform(4)).start_us) == [0, SECOND]
    records = simulated(jobs, Cluster.uniform(4), PartitionName="cpu/Nodes:ALL")
    assert (list(records.unsatisfiable), records.start_us[1]) == ([1, 0], SECOND)


def test_a_gang_of_which_the_first_tasks_have_come_is_judged_whole() -> None:
    cluster = Cluster.uniform(4)
    config = configure(lookup("slurm"), {"PartitionName": "all/Nodes:ALL/MaxNodes:3"})
    refusals = lookup("slurm").build(cluster, config, Streams(0)).capability(Refusals)
    assert refusals is not None
    (submit,) = trace(RigidJob(0, 4, 10, MINUTE)).submission(0)
    assert isinstance(submit, Submit)
    first_chunk = msgspec.structs.replace(submit.job, tasks=submit.job.tasks[:2])
    assert refusals.refuses(first_chunk, first_chunk.tasks[0])
    fitting = msgspec.structs.replace(first_chunk, task_count=3, gang=Gang(3, 1))
    assert not refusals.refuses(fitting, fitting.tasks[0])


def test_what_is_left_of_a_preempted_gang_needs_its_part_of_the_cores() -> None:
    need = JobNeed(4, 2, 2, (2,), 0, False, 8.0).scaled(1)
    assert (need.task_count, need.node_count, need.cores) == (1, 1, 2.0)


def test_a_preempted_job_is_queued_again_and_runs_after_a_while() -> None:
    """It is eligible two minutes and a second after its end, and the main loop runs then."""
    jobs = trace(RigidJob(0, 3, 300, 10 * MINUTE, "", "low"), RigidJob(10.25, 2, 40, MINUTE, "", "high"))
    records = simulated(jobs, Cluster.uniform(4), PreemptMode="REQUEUE", **PREEMPTING)
    assert records.start_us[3] == 10_250_000
    assert {records.start_us[task] for task in range(3)} == {131 * SECOND}
    assert {records.attempt[task] for task in range(3)} == {1}
    assert not any(records.unsatisfiable)


def test_a_preempted_job_may_be_given_up() -> None:
    jobs = trace(RigidJob(0, 3, 300, 10 * MINUTE, "", "low"), RigidJob(10.25, 2, 40, MINUTE, "", "high"))
    records = simulated(jobs, Cluster.uniform(4), PreemptMode="CANCEL", **PREEMPTING)
    assert list(records.unsatisfiable) == [3, 0]
    assert records.start_us[3] == 10_250_000


def test_a_partition_may_spare_its_jobs() -> None:
    spared = "low/Nodes:0-3/PreemptMode:OFF+high/Nodes:0-3/PriorityTier:2"
    jobs = [RigidJob(0, 3, 300, 10 * MINUTE), RigidJob(10.25, 2, 40, MINUTE, "", "high")]
    parameters = {**PREEMPTING, "PartitionName": spared, "PreemptMode": "REQUEUE"}
    assert starts(*jobs, **parameters) == [0, 300]


def test_no_more_jobs_are_preempted_than_the_new_one_needs() -> None:
    """Jobs on few nodes are tried first; once the one on two nodes is found to suffice, the other is spared."""
    jobs = [
        RigidJob(0, 1, 300, 10 * MINUTE, "", "low"),
        RigidJob(1, 2, 300, 10 * MINUTE, "", "low"),
        RigidJob(2, 1, 300, 10 * MINUTE, "", "high"),
        RigidJob(10.25, 2, 40, MINUTE, "", "high"),
    ]
    records = simulated(trace(*jobs), Cluster.uniform(4), PreemptMode="REQUEUE", **PREEMPTING)
    assert set(records.start_us[4:]) == {10_250_000}
    assert [records.attempt[task] for task in range(4)] == [0, 1, 1, 0]


def test_the_youngest_may_be_preempted_first() -> None:
    jobs = [RigidJob(k, 1, 300, 10 * MINUTE, "", "low") for k in range(4)]
    preemptor = RigidJob(10.25, 1, 40, MINUTE, "", "high")
    for parameters, expected in (({}, [1, 0, 0, 0]), ({"preempt_youngest_first": True}, [0, 0, 0, 1])):
        records = simulated(
            trace(*jobs, preemptor), Cluster.uniform(4), PreemptMode="REQUEUE", **PREEMPTING, **parameters
        )
        assert [records.attempt[task] for task in range(4)] == expected


def test_a_qos_preempts_those_that_it_names() -> None:
    qos = "high/Priority:9/Preempt:low/Users:ann+low/Users:bob+normal/Users:cid"
    parameters = {"PreemptType": "preempt/qos", "PreemptMode": "REQUEUE", "qos": qos}
    assert starts(RigidJob(0, 4, 90, 10 * MINUTE, "bob"), RigidJob(5.25, 4, 10, MINUTE, "ann"), **parameters)[1] == 5.25
    assert starts(RigidJob(0, 4, 90, 10 * MINUTE, "cid"), RigidJob(5.25, 4, 10, MINUTE, "ann"), **parameters)[1] == 90


CORES = Cluster.uniform(2, slots=4)


def test_cores_are_shared_and_whole_nodes_are_not() -> None:
    jobs = [RigidJob(0, 1, 50, MINUTE), RigidJob(1, 1, 50, MINUTE), RigidJob(2, 1, 50, MINUTE)]
    assert starts(*jobs, cluster=CORES) == [0, 1, 2]
    assert starts(*jobs, cluster=CORES, SelectType="select/linear") == [0, 1, 50]
    assert starts(*jobs, cluster=CORES, PartitionName="all/Nodes:ALL/OverSubscribe:EXCLUSIVE") == [0, 1, 50]


def test_a_job_waits_for_a_reservation_into_which_its_limit_reaches() -> None:
    kept = {"reservations": "work/Nodes:0-3/StartTime:2/Duration:5"}
    assert starts(RigidJob(10, 1, 30, MINUTE), **kept) == [10]
    assert starts(RigidJob(10, 1, 30, 2 * MINUTE), **kept) == [420]
    assert starts(RigidJob(10, 1, 30, 2 * MINUTE, "ann"), **kept) == [420]
    assert starts(RigidJob(10, 1, 30, 2 * MINUTE, "ann"), reservations=kept["reservations"] + "/Users:ann") == [10]


def test_elements_of_a_preempted_array_come_back_alone() -> None:
    jobs = trace(RigidJob(0, NO_GANG, 300, 10 * MINUTE, "", "low", 4), RigidJob(10.25, 1, 40, MINUTE, "", "high"))
    records = simulated(jobs, Cluster.uniform(4), PreemptMode="REQUEUE", **PREEMPTING)
    assert sorted(records.attempt) == [0, 0, 0, 0, 1]


def shares(
    free: list[int], task_count: int, node_count: int, per_node: int = 0, weights: tuple[int, ...] = ()
) -> list[tuple[int, int]]:
    """The nodes of a job and its tasks there, where nodes have so many of four cores free."""
    table = NodeFacts(Cluster.uniform(len(free), slots=4), weights)
    nodes = Nodes(table, [table.packing.free((cores,)) for cores in free])
    need = JobNeed(task_count, node_count, per_node, (), 0, False, task_count)
    return [(node, tasks) for node, tasks in nodes.choose(need, table.every) or ()]


@pytest.mark.parametrize(
    ("free", "task_count", "node_count", "per_node", "expected"),
    [
        ([4, 4, 4], 1, 1, 1, [(0, 1)]),
        ([4, 1, 4], 1, 1, 1, [(1, 1)]),
        ([4, 0, 2, 2, 0, 4], 1, 1, 1, [(0, 1)]),
        ([4, 0, 2, 0, 4], 2, 1, 2, [(2, 2)]),
        ([4, 4, 0, 4, 4, 4], 2, 2, 1, [(0, 1), (1, 1)]),
        ([4, 4, 0, 4, 4, 4], 3, 3, 1, [(3, 1), (4, 1), (5, 1)]),
        ([4, 0, 4, 4, 0, 4], 4, 4, 1, [(2, 1), (3, 1), (0, 1), (5, 1)]),
        ([1, 3, 0, 0], 4, 0, 0, [(0, 1), (1, 3)]),
        ([4, 4, 4], 5, 2, 3, [(0, 3), (1, 2)]),
        ([1, 4, 4], 6, 2, 3, [(1, 3), (2, 3)]),
        ([1, 1, 1], 2, 2, 0, [(0, 1), (1, 1)]),
        ([1, 0, 1], 3, 0, 0, []),
        ([4, 4], 3, 3, 1, []),
    ],
)
def test_the_tightest_set_of_consecutive_nodes_is_taken(
    free: list[int], task_count: int, node_count: int, per_node: int, expected: list[tuple[int, int]]
) -> None:
    """Of sets that suffice the smallest; else the largest first; one node where one suffices: the tightest."""
    assert shares(free, task_count, node_count, per_node) == expected


def test_nodes_of_low_weight_are_taken_first() -> None:
    assert shares([4, 4, 4, 4], 1, 1, 1, (5, 5, 1, 5)) == [(2, 1)]
    assert shares([4, 4, 4, 4], 3, 3, 1, (5, 5, 1, 5)) == [(2, 1), (0, 1), (1, 1)]
