"""The main loop and the backfill loop of the design `slurm`, against starts worked out by hand from Slurm 22.05."""

from __future__ import annotations

from tests.unit.architectures.slurm.runs import MINUTE, RigidJob, simulated, starts, trace

from volery.core.model import SECOND, Cluster
from volery.core.trace import NO_GANG

LARGE = RigidJob(0, 3, 100, 2 * MINUTE)
BLOCKED = RigidJob(1, 4, 50, 10 * MINUTE)
"""Needs all four nodes, and so waits for the end of `LARGE`."""


def test_without_backfilling_a_job_that_waits_keeps_all_behind_it() -> None:
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 30, MINUTE), SchedulerType="sched/builtin") == [0, 100, 150]


def test_a_job_that_ends_before_the_reservation_starts_in_the_next_run_of_the_backfill_loop() -> None:
    """It may run until 90 s; the nodes are reserved from 120 s on, when `LARGE` must have ended."""
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 30, MINUTE)) == [0, 100, 30]


def test_a_job_whose_limit_reaches_into_the_reservation_waits_although_it_would_end_in_time() -> None:
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 30, 2 * MINUTE)) == [0, 100, 150]


def test_limits_are_whole_minutes() -> None:
    """61 s are two minutes, too many; 60 s are one."""
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 30, 61)) == [0, 100, 150]


def test_a_job_without_a_limit_is_planned_by_its_estimate() -> None:
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 50)) == [0, 100, 30]
    assert starts(LARGE, BLOCKED, RigidJob(2, 1, 70)) == [0, 100, 150]


def test_the_backfill_loop_has_its_interval() -> None:
    job = RigidJob(2, 1, 30, MINUTE)
    assert starts(LARGE, BLOCKED, job, bf_interval=7) == [0, 100, 7]
    assert starts(LARGE, BLOCKED, RigidJob(2.5, 1, 30, MINUTE), bf_interval=1) == [0, 100, 3], "it wakes up each second"
    assert starts(LARGE, BLOCKED, job, bf_interval=90) == [0, 100, 150], "at 90 s it would end after 120 s"


def test_the_plan_ends_with_its_window() -> None:
    """Ends of `LARGE` beyond the window are of no account: nothing is reserved, and all that fits starts."""
    long = RigidJob(0, 3, 100, 90 * MINUTE)
    late = RigidJob(2, 1, 300, 100 * MINUTE)
    assert starts(long, BLOCKED, late) == [0, 100, 150]
    assert starts(long, BLOCKED, late, bf_window=60) == [0, 330, 30]


def test_times_of_the_plan_are_rounded() -> None:
    """The reservation begins at 120 s, which in steps of 70 s are 70 s; a run from 30 s to 90 s reaches into it."""
    small = RigidJob(2, 1, 30, MINUTE)
    assert starts(LARGE, BLOCKED, small, bf_resolution=1) == [0, 100, 30]
    assert starts(LARGE, BLOCKED, small, bf_resolution=70) == [0, 100, 150]


def test_jobs_behind_the_first_are_planned_too() -> None:
    """The third needs two nodes for long: it is planned behind the second, and the fourth around both."""
    third = RigidJob(2, 2, 40, 30 * MINUTE)
    fourth = RigidJob(3, 1, 30, MINUTE)
    assert starts(LARGE, BLOCKED, third, fourth) == [0, 100, 150, 30]


def test_of_a_user_so_many_jobs_are_tested() -> None:
    wide = RigidJob(0, 2, 200, 10 * MINUTE)
    small = [RigidJob(2 + k, 1, 100, 3 * MINUTE, user) for k, user in enumerate(("ann", "ann", "bob"))]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small)[2:] == [30, 30, 130]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small, bf_max_job_user=1)[2:] == [30, 130, 30]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small, bf_max_job_user_part=1)[2:] == [30, 130, 30]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small, bf_max_job_part=2)[2:] == [30, 60, 130]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small, bf_max_job_test=2)[2:] == [30, 60, 130]


def test_the_loop_starts_so_many_jobs_in_a_run() -> None:
    small = [RigidJob(2, 1, 100, MINUTE * 3), RigidJob(3, 1, 100, 3 * MINUTE)]
    wide = RigidJob(0, 2, 200, 10 * MINUTE)
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small)[2:] == [30, 30]
    assert starts(wide, RigidJob(1, 4, 50, MINUTE), *small, bf_max_job_start=1)[2:] == [30, 60]


def test_elements_of_an_array_start_one_by_one_in_the_main_loop() -> None:
    """An array is not tried at its submission; the loop runs half a second later, and three seconds after that."""
    arrays = [RigidJob(1, NO_GANG, 10, MINUTE, task_count=3), RigidJob(2, NO_GANG, 10, MINUTE, task_count=2)]
    assert starts(*arrays) == [1.5, 1.5, 1.5, 4.5, 11.5]


def test_jobs_are_tried_at_their_submission_unless_that_is_deferred_or_they_come_from_sbatch() -> None:
    jobs = [RigidJob(1.2, 1, 10, MINUTE), RigidJob(2.2, 1, 10, MINUTE)]
    assert starts(*jobs) == [1.2, 2.2]
    assert starts(*jobs, defer=True) == [1.5, 4.5]
    assert starts(*jobs, interactive=False) == [1.5, 4.5]
    assert starts(*jobs, defer=True, batch_sched_delay=0) == [1.5, 2.5]


def test_an_end_runs_the_main_loop_at_once_only_after_an_epilog() -> None:
    """Without one, nodes answer at once that the job has ended, which plans a pass as a submission does."""
    jobs = [RigidJob(0, 4, 10.2, MINUTE), RigidJob(1, 4, 10, MINUTE)]
    builtin = {"SchedulerType": "sched/builtin", "sched_interval": 100}
    assert starts(*jobs, **builtin) == [0, 10.2]
    assert starts(*jobs, Epilog=False, **builtin) == [0, 10.5]
    assert starts(*jobs, Epilog=False, batch_sched_delay=30, **builtin) == [0, 31.5]


def test_a_job_on_other_nodes_takes_the_end_behind_it_into_the_group() -> None:
    """The wide job is planned for 60 s, when `early` must have ended; with a job on another node that must end then,
    too, it is planned for 300 s, the end of `late`, and a job of two minutes starts before it.
    """
    early, late = RigidJob(0, 1, 50, MINUTE, partition="left"), RigidJob(0, 1, 100, 5 * MINUTE, partition="left")
    wide, small = RigidJob(1, 2, 10, 10 * MINUTE, partition="left"), RigidJob(2, 1, 10, 2 * MINUTE, partition="left")
    partitions = "left/Nodes:0-2/Default:YES+right/Nodes:3"
    assert starts(early, late, wide, small, PartitionName=partitions)[3] > 30
    elsewhere = RigidJob(0, 1, 50, MINUTE, partition="right")
    assert starts(early, late, elsewhere, wide, small, PartitionName=partitions)[4] == 30


def test_without_partitions_all_jobs_share_the_nodes_and_with_them_jobs_of_another_never_run() -> None:
    jobs = [RigidJob(0, 2, 50, MINUTE, partition="left"), RigidJob(0, 2, 50, MINUTE, partition="right")]
    assert starts(*jobs) == [0, 0]
    records = simulated(trace(*jobs), Cluster.uniform(4), PartitionName="left/Nodes:ALL")
    assert list(records.unsatisfiable) == [0, 2]


def test_the_main_loop_considers_so_many_jobs_and_at_intervals_all() -> None:
    """The jobs of the closed partition stand before the one that could start."""
    partitions = "high/Nodes:0-1/PriorityTier:2+low/Nodes:2-3"
    holder = RigidJob(0, 2, 500, 20 * MINUTE, "", "high")
    waiting = [RigidJob(1, 2, 10, MINUTE, "", "high")] * 3
    array = RigidJob(2, NO_GANG, 10, MINUTE, "", "low", 1)
    pair = RigidJob(2, NO_GANG, 10, MINUTE, "", "low", 2)
    common = {"PartitionName": partitions, "SchedulerType": "sched/builtin"}
    assert starts(holder, *waiting, array, **common)[4] == 2, "tried at its submission"
    assert starts(holder, *waiting, pair, **common)[4:] == [4.5, 4.5]
    assert starts(holder, *waiting, pair, default_queue_depth=2, **common)[4:] == [60.5, 60.5]
    assert starts(holder, *waiting, pair, default_queue_depth=2, sched_interval=9, **common)[4:] == [9.5, 9.5]
    assert starts(holder, *waiting, pair, default_queue_depth=2, partition_job_depth=1, **common)[4:] == [4.5, 14.5]


def test_a_job_that_no_partition_can_run_is_reported_and_keeps_nobody() -> None:
    partitions = "short/Nodes:0-1/MaxTime:10+rest/Nodes:2-3/MaxNodes:1"
    jobs = trace(
        RigidJob(0, 2, 10, 20 * MINUTE, "", "short"),
        RigidJob(1, 3, 10, MINUTE, "", "short"),
        RigidJob(2, 2, 10, MINUTE, "", "rest"),
        RigidJob(3, 1, 10, MINUTE, "", "absent"),
        RigidJob(4, 2, 10, MINUTE),
    )
    records = simulated(jobs, Cluster.uniform(4), PartitionName=partitions)
    assert list(records.unsatisfiable) == [2, 3, 2, 1, 0]
    assert records.start_us[-1] == 4 * SECOND
