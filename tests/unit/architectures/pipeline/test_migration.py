"""Stage T12: running tasks that go on on another machine."""

from __future__ import annotations

import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, job_of, run, seconds, starts, trace_of_rows
from tests.unit.architectures.pipeline.test_preemption import design

from volery.conformance.cases import busy_cases
from volery.conformance.outcomes import demand_all_finished, demand_capacity, demand_constraints
from volery.conformance.verdict import run as conformance_run
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.sim import Options

PLACED = {"progress": "keep", "R5": "worst-fit"}


def test_by_default_tasks_stay() -> None:
    rows = [(0.0, 1, 50.0), (0.1, 1, 50.0)]
    assert not run("pipeline", trace_of_rows(rows), cores_cluster(2, 2), R5="worst-fit").lost


def test_the_least_used_machine_is_emptied_and_progress_is_kept() -> None:
    """One task on each of two machines; at 10 s the first moves, for 2 s it runs nowhere: 10 + 2 + 40 s."""
    rows = [(0.0, 1, 50.0), (0.1, 1, 50.0)]
    given = {**PLACED, "T12": "consolidate/period_s:10/cost_s:2"}
    records = run("pipeline", trace_of_rows(rows), cores_cluster(2, 2), **given)
    assert list(records.worker) == [1, 1]
    assert starts(records) == [12, 0.1]
    assert [seconds(at) for at in records.finish_us] == [52, 50.1]
    assert [(one.worker, one.kept_us) for one in records.lost] == [(0, 10 * SECOND)]


def test_nobody_moves_where_all_does_not_fit() -> None:
    """3 of 4 cores used on each: neither fits onto the other."""
    rows = [(0.0, 3, 50.0), (0.1, 3, 50.0)]
    given = {**PLACED, "T12": "consolidate/period_s:10"}
    assert not run("pipeline", trace_of_rows(rows), cores_cluster(4, 4), **given).lost


def test_a_task_that_ends_soon_stays() -> None:
    rows = [(0.0, 1, 15.0), (0.1, 1, 15.0)]
    given = {**PLACED, "T12": "consolidate/period_s:10/left_s:10"}
    assert not run("pipeline", trace_of_rows(rows), cores_cluster(2, 2), **given).lost


def test_the_fullest_machine_gives_to_the_emptiest() -> None:
    """4 tasks on the first machine of 4 cores (first-fit), none on the second: the two youngest move at 10 s."""
    rows = [(0.1 * k, 1, 50.0) for k in range(4)]
    given = {"progress": "keep", "R5": "first-fit", "T12": "rebalance/period_s:10/cost_s:0/gap:0.25"}
    records = run("pipeline", trace_of_rows(rows), cores_cluster(4, 4), **given)
    assert list(records.worker) == [0, 0, 1, 1]
    assert [seconds(at) for at in records.finish_us] == [50, 50.1, 50.2, 50.3], "moving costs nothing"


def test_a_small_gap_is_left() -> None:
    rows = [(0.1 * k, 1, 50.0) for k in range(4)]
    given = {"progress": "keep", "R5": "first-fit", "T12": "rebalance/period_s:10/gap:1"}
    records = run("pipeline", trace_of_rows(rows), cores_cluster(5, 5), **given)
    assert not records.lost


@pytest.mark.parametrize(
    "given",
    [
        {"T12": "consolidate/period_s:0.1/cost_s:0.01/left_s:0", "R5": "worst-fit"},
        {"T12": "rebalance/period_s:0.05/cost_s:0/left_s:0/gap:0.2", "R5": "first-fit", "lrms": "2"},
        {"T12": "rebalance/period_s:0.05/cost_s:0.02/left_s:0/gap:0.2", "T10": "fairness", "T2": "drf"},
        {"T12": "consolidate/period_s:0.2/left_s:0", "R5": "random-fit", "cycle_cost_us": "300"},
    ],
)
def test_random_work_keeps_all_rules(given: dict[str, str]) -> None:
    moved = 0
    for case in busy_cases(seed=70, vectors=True):
        records = conformance_run(design(progress="keep", **given), case, options=Options(check=True))
        demand_all_finished(case, records)
        demand_capacity(case, records)
        demand_constraints(case, records)
        moved += len(records.lost)
    assert moved > 5


@pytest.mark.parametrize("given", [{"T9": "fixed"}, {"T11": "restart"}, {"T3": "easy"}])
def test_what_does_not_go_together_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(InputError, match="migration cannot be combined with"):
        run("pipeline", job_of([1.0]), Cluster.uniform(2), T12="rebalance", **given)
