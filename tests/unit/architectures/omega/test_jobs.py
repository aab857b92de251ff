"""The limits of the workers of elastic jobs."""

from __future__ import annotations

import pytest

from volery.architectures.omega.jobs import NO_END, DecisionTimes, Elasticity, Policy
from volery.core.resources import Packing


@pytest.mark.parametrize(
    ("policy", "most"), [("none", 1), ("relative-size", 7), ("max-parallelism", NO_END), ("global-cap", NO_END)]
)
def test_a_job_of_width_two_with_one_running_task_may_use_further_workers(policy: Policy, most: int) -> None:
    assert Elasticity(2, policy, 0.5, 4).most(1) == most


def test_a_job_without_a_width_is_not_limited() -> None:
    assert Elasticity(0, "none", 0.5, 4).most(10) == NO_END


@pytest.mark.parametrize(("idle", "budget"), [(8, 3), (6, 1), (5, 1), (0, 1)])
def test_the_global_cap_limits_the_share_of_the_cell_in_use_but_not_the_width(idle: int, budget: int) -> None:
    packing = Packing(1)
    free = [packing.free((idle,))]
    assert Elasticity(2, "global-cap", 0.5, 4).budget(1, (), free, (10,), packing) == budget


def test_the_decision_time_of_a_job_grows_with_its_tasks() -> None:
    times = DecisionTimes({"batch": 100, "service": 500, "fill": 0}, {"batch": 5, "service": 50, "fill": 0})
    assert [times.decision_us(workload, 3) for workload in ("batch", "service", "fill")] == [115, 650, 0]
