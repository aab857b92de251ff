"""The wizard: wishes in, expression out; value functions."""

from __future__ import annotations

import pytest
from tests.unit.architectures.tetrisched.drawn import ncks

from volery.architectures.tetrisched.expressions import Max, Min, written
from volery.architectures.tetrisched.machines import ClusterMachines, TimeGrid
from volery.architectures.tetrisched.requests import (
    FLOOR,
    Requests,
    RequestSetting,
    WaitingJob,
    Wishes,
    value_at,
    wizard,
)
from volery.core.model import NEVER, SECOND, Cluster, Job, Preference, Task

MINUTE = 60 * SECOND
GRID = TimeGrid(now_us=0, quantum_us=10 * MINUTE, ahead=2, horizon_us=60 * MINUTE)


def test_eight_gpus_in_one_rack_twice_as_slow_elsewhere_in_half_an_hour() -> None:
    wishes = Wishes(8, 10 * MINUTE, ("gpu.rack0", "gpu.rack1"), 2.0, deadline_us=30 * MINUTE, value=1000.0)
    found = wizard(wishes, GRID)
    assert found is not None
    assert written(found).replace("\n", "").replace("  ", " ") == (
        "max( nCk(gpu.rack0, 8, 1000.0), nCk(gpu.rack0, 8, 1, 1, 1000.0), nCk(gpu.rack0, 8, 2, 1, 1000.0),"
        " nCk(gpu.rack1, 8, 1000.0), nCk(gpu.rack1, 8, 1, 1, 1000.0), nCk(gpu.rack1, 8, 2, 1, 1000.0),"
        " nCk(all, 8, 0, 2, 1000.0), nCk(all, 8, 1, 2, 1000.0))"
    ), "on slow machines it can start no later than in quantum 1"


def test_a_deadline_that_cannot_be_met_leaves_nothing() -> None:
    assert wizard(Wishes(1, 31 * MINUTE, deadline_us=30 * MINUTE), GRID) is None


def test_presets() -> None:
    now = TimeGrid(0, 10 * MINUTE, 0, 60 * MINUTE)
    late = 60 * MINUTE
    assert wizard(Wishes(3, MINUTE, deadline_us=late), now) == ncks("all", 3, 1.0)
    hard = wizard(Wishes(3, MINUTE, ("gpu",), everywhere="", deadline_us=late), now)
    assert hard == ncks("gpu", 3, 1.0), "a hard constraint"
    apart = wizard(Wishes(1, MINUTE, apart=(("rack0", 1), ("rack1", 1)), deadline_us=late), GRID)
    assert isinstance(apart, Max)
    assert len(apart.of) == 3
    assert apart.of[0] == Min((ncks("rack0", 1, 1.0), ncks("rack1", 1, 1.0)))
    storage = wizard(Wishes(4, MINUTE, ("hdfs",), partial=True, everywhere="", deadline_us=late), GRID)
    assert storage is not None
    assert written(storage) == "LnCk(hdfs, 4, 1.0)"


@pytest.mark.parametrize(
    ("end", "expected"), [(0, 1.0), (30 * MINUTE, 0.5), (60 * MINUTE, FLOOR), (600 * MINUTE, FLOOR)]
)
def test_best_effort_is_worth_less_the_later_it_ends_but_never_nothing(end: int, expected: float) -> None:
    assert value_at(Wishes(1, 1), end, 60 * MINUTE) == expected


def test_with_a_deadline_the_value_is_constant_until_then() -> None:
    wishes = Wishes(1, 1, deadline_us=5, value=25.0)
    assert [value_at(wishes, end, 60) for end in (0, 5, 6)] == [25.0, 25.0, 0.0]
    assert wishes.deadline_us != NEVER


def test_late_a_job_loses_its_budget_over_the_grace_and_not_running_it_costs_the_penalty() -> None:
    """The blog's wizard: a budget, sensitivity to delay, a desired time and a penalty for dropping the job."""
    wishes = Wishes(1, 1, deadline_us=100, value=8.0, grace_us=40, penalty=2.0)
    assert [value_at(wishes, end, 60) for end in (100, 110, 130, 140, 900)] == [10.0, 8.0, 4.0, 2.0, 2.0]


@pytest.mark.parametrize(("by_priority", "budgets"), [(False, [1000.0, 1.0]), (True, [4000.0, 4.0])])
def test_a_budget_may_follow_from_the_priority(by_priority: bool, budgets: list[float]) -> None:
    asking = RequestSetting(True, False, None, 1000.0, by_priority=by_priority)
    job = Job(0, 1, (), priority=3)
    assert [asking.budget(job, deadline_us) for deadline_us in (5, NEVER)] == budgets


def test_where_preferences_are_hard_constraints_slower_machines_are_no_alternative() -> None:
    cluster = Cluster((1, 0), (2, 2))
    job = Job(0, 2, (), 10, preference=Preference(1, 0, 200))
    waiting = WaitingJob(job, 0, {0: [Task(0, 0), Task(0, 1)]})
    grid = TimeGrid(0, 1, 0, 1)
    for insists, places in ((False, ["c1", "c0"]), (True, ["c1"])):
        requests = Requests(ClusterMachines(cluster), RequestSetting(True, False, None, 1000.0, insists=insists))
        assert [where for where, _ in requests.make(waiting, grid).branches] == places
