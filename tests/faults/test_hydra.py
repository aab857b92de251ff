"""What each failure costs Hydra: a failed sub-cluster loses no job, and nothing waits for the policy generator."""

from __future__ import annotations

from tests.faults.test_recovery import LONG_US, crash, run

from volery.core.model import SECOND
from volery.faults.judge import attempts_of
from volery.sim.faults import FaultPlan, Partition

SECOND_HALF = range(6, 12)
"""The machines of the second of two sub-clusters."""


def test_tasks_outlive_the_resource_manager_that_placed_them() -> None:
    """Work-preserving restart: machines go on, and tell the next resource manager what runs."""
    for back_s in (6, 60):
        records, _ = run("hydra", crash("rm/0", back_s=back_s))
        assert not records.killed
        assert not records.lost
        assert max(records.finish_us) < 3 * SECOND + LONG_US


def test_what_waits_in_a_lost_subcluster_is_asked_of_another() -> None:
    """Its resource manager dies as the jobs come, and is away for ten minutes: both run in the other one."""
    records, _ = run("hydra", crash("rm/0", at_s=1, back_s=600))
    assert set(records.worker) <= set(SECOND_HALF)
    assert max(records.answered_us) < 70 * SECOND, "two rounds on half of the machines"


def test_a_subcluster_that_is_back_is_used_again() -> None:
    records, _ = run("hydra", crash("rm/0", at_s=0, back_s=10), tasks=12)
    assert set(records.worker) == set(range(12))


def test_machines_without_a_resource_manager_for_too_long_end_what_runs_and_it_runs_elsewhere() -> None:
    records, _ = run("hydra", crash("rm/0", back_s=600), node_expiry_s=10.0)
    assert len(records.killed) == 6
    moved = [attempts for attempts in attempts_of(records).values() if len(attempts) > 1]
    assert len(moved) == 6
    assert all(14 * SECOND < first[1] <= 16 * SECOND and second[2] in SECOND_HALF for first, second in moved)


def test_scheduling_does_not_wait_for_the_policy_generator() -> None:
    gone, _ = run("hydra", crash("gpg/0", at_s=0, back_s=600))
    there, _ = run("hydra", FaultPlan())
    assert gone.start_us == there.start_us


def test_jobs_of_a_lost_router_are_taken_up_again_and_others_do_not_notice() -> None:
    """Job 0 comes to router/0; the homes are in the store, and what its application master has started runs on."""
    records, _ = run("hydra", crash("router/0", at_s=2, back_s=50))
    assert not records.killed
    assert not records.lost
    assert records.answered_us[1] < 35 * SECOND
    assert 50 * SECOND < records.answered_us[0] < 52 * SECOND


def test_a_machines_tasks_run_elsewhere_when_it_is_given_up_or_as_soon_as_it_is_back() -> None:
    for back_s, soonest_s, latest_s in ((60, 10, 13), (6, 6, 7)):
        records, _ = run("hydra", crash("node/0", back_s=back_s), tasks=5, node_expiry_s=4.0)
        (moved,) = [attempts for attempts in attempts_of(records).values() if len(attempts) > 1]
        (_, end, worker, *_), (start, *_) = moved
        assert (end, worker) == (5 * SECOND, 0)
        assert soonest_s * SECOND <= start <= latest_s * SECOND


def test_a_machine_that_is_cut_off_ends_its_task_before_another_runs_it() -> None:
    cut = FaultPlan(partitions=(Partition(5 * SECOND, 40 * SECOND, ("node/0",)),))
    records, _ = run("hydra", cut, tasks=5, node_expiry_s=4.0)
    (task,) = {task for task, _ in records.killed}
    (_, end, worker, *_), (start, _, other, *_) = attempts_of(records)[task]
    assert worker == 0 != other
    assert 9 * SECOND < end <= 10 * SECOND, "told within a second, and four of expiry"
    assert end < start <= 13 * SECOND
