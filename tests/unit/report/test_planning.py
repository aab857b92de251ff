"""Deadlines and plans in the report, where there are any."""

from __future__ import annotations

import msgspec
from tests.unit.report.samples import sample_run

from volery.metrics import AllotmentSummary, DeadlineSummary, Distribution
from volery.report.groups import group_runs
from volery.report.planning import deadline_rows, guarantee_rows, plan_rows
from volery.report.units import NOTHING

SPENT = Distribution(10, 0.5, 0.4, 0.9, 1.0, 1.5, 2.0)


def test_runs_without_deadlines_or_plans_have_no_rows() -> None:
    groups = group_runs([sample_run("megha", 0)])
    assert (deadline_rows(groups), guarantee_rows(groups), plan_rows(groups)) == ([], [], [])


def test_rows_are_means_over_seeds() -> None:
    plans = {"plan_jobs_count": 10.0}
    solved = {"plan_variables_max": 800.0, "plan_rows_max": 90.0, "plan_gap_per_mille_mean": 20.0}
    runs = [
        msgspec.structs.replace(
            sample_run("megha", seed),
            deadlines=DeadlineSummary(4, met, met / 4, SPENT),
            compute_s=SPENT,
            counters=plans | (solved if seed else {}),
        )
        for seed, met in ((0, 1), (1, 3))
    ]
    assert deadline_rows(group_runs(runs)) == [["megha", "4.00", "50.0 %", "0.0 %", "500 ms", "900 ms"]]
    assert plan_rows(group_runs(runs)) == [["megha", "10.0", "500 ms", "900 ms", "2.00 s", "800", "90.0", "2.0 %"]]
    assert plan_rows(group_runs(runs[:1])) == [["megha", "10.0", "500 ms", "900 ms", "2.00 s", *[NOTHING] * 3]]


def test_guarantees_and_the_latest_job_are_told() -> None:
    late = msgspec.structs.replace(SPENT, max=1.25)
    runs = [
        msgspec.structs.replace(
            sample_run("jockey", seed),
            deadlines=DeadlineSummary(4, 2, 0.5, SPENT, late if seed else SPENT),
            allotments=AllotmentSummary(4, hours, 1.5, 0.25, hours / 4, 3.0),
        )
        for seed, hours in ((0, 8.0), (1, 12.0))
    ]
    assert guarantee_rows(group_runs(runs)) == [["jockey", "4.00", "10.0", "150.0 %", "25.0 %", "3.00"]]
    assert deadline_rows(group_runs(runs))[0][3] == "200.0 %"
