"""The tables that some studies have and others lack: means over seeds, and the notes below them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from tests.unit.report.samples import sample_run, spread

from volery.core.limits import LimitSummary
from volery.look.text import NOTHING
from volery.metrics import (
    AllotmentSummary,
    DeadlineSummary,
    DeviceSummary,
    Distribution,
    LocalitySummary,
    ProvisioningSummary,
    RunSummary,
    WorkflowSummary,
    distribution,
)
from volery.report.groups import group_runs
from volery.report.notes import ignorance_lines
from volery.report.sections import NOTES, sections, work
from volery.report.tables import plain

SPENT = Distribution(10, 0.5, 0.4, 0.9, 1.0, 1.5, 2.0)
ELASTIC = ProvisioningSummary(4, 3, 10.0, 5.0, 12.0, 48.0, 40.0, 15.0, 3.5, 3.0, 0.02, 0.15, 0.1, 0.4, 0.05, 0.6)


def rows(title: str, runs: list[RunSummary], baseline: str = "") -> list[list[str]]:
    """The rows of one section; none where it is absent."""
    return next((one.rows for one in sections(group_runs(runs), baseline) if one.title == title), [])


def test_a_study_without_such_features_has_the_work_of_its_schedulers_at_most() -> None:
    bare = msgspec.structs.replace(sample_run(), counters={"inconsistencies": 3.0})
    assert sections(group_runs([bare])) == []
    assert [one.title for one in sections(group_runs(spread(1)))] == ["Work of the schedulers"]


@pytest.mark.parametrize("width", [80, 140])
def test_locality_has_a_table_with_means_over_the_seeds(width: int) -> None:
    found = [LocalitySummary(10, 0.5, 0.25, 0.25, 0.4), LocalitySummary(10, 0.7, 0.15, 0.15, 0.6)]
    runs = [msgspec.structs.replace(sample_run(seed=seed), locality=one) for seed, one in enumerate(found)]
    row = plain(runs, width=width).partition("Locality")[2].splitlines()[3].split()
    assert " ".join(row[-8:]) == "60.0 % 20.0 % 20.0 % 50.0 %"


def test_limits_have_a_table_with_what_they_ended_and_the_bounded_slowdown() -> None:
    bounded = distribution(np.array([1.0, 2.0, 6.0]))
    run = msgspec.structs.replace(sample_run(), limits=LimitSummary(True, 9, 2, 3), bounded_slowdown=bounded)
    assert rows("Limits", [run])[0][1:] == ["9", "2", "3", "3.00", "2.00", "5.92"]
    ignored = msgspec.structs.replace(run, limits=LimitSummary(False, 9, 2, 3), bounded_slowdown=None)
    assert rows("Limits", [ignored])[0][1:] == ["9", "2", "0", NOTHING, NOTHING, NOTHING]


def test_devices_in_pieces_have_a_table() -> None:
    run = msgspec.structs.replace(sample_run(), devices=DeviceSummary(8, 3, 1.5))
    assert rows("Devices", [run])[0][1:] == ["8.00", "3.00", "1.50"]


def test_what_a_design_ignores_is_said_under_the_table() -> None:
    run = sample_run("megha:gms=2")
    assert ignorance_lines(group_runs([run])) == []
    told = msgspec.structs.replace(run, ignores=("users", "locality"), kept_by_driver=("dependencies",))
    line = "megha:gms=2: of this workload it ignores users, locality; leaves dependencies to the driver."
    assert ignorance_lines(group_runs([told])) == [line]
    assert line in plain([told], width=140)
    silent = msgspec.structs.replace(run, declares=False)
    assert ignorance_lines(group_runs([silent])) == ["megha:gms=2: of this workload it does not declare what it heeds."]


def test_deadlines_and_plans_are_means_over_seeds() -> None:
    planned = {"plan_jobs_count": 10.0}
    solved = {"plan_variables_max": 800.0, "plan_rows_max": 90.0, "plan_gap_per_mille_mean": 20.0}
    runs = [
        msgspec.structs.replace(
            sample_run("megha", seed),
            deadlines=DeadlineSummary(4, met, met / 4, SPENT),
            compute_s=SPENT,
            counters=planned | (solved if seed else {}),
        )
        for seed, met in ((0, 1), (1, 3))
    ]
    assert rows("Deadlines", runs) == [["megha", "4.00", "50.0 %", "0.0 %", "500 ms", "900 ms"]]
    assert rows("Plans", runs) == [["megha", "10.0", "500 ms", "900 ms", "2.00 s", "800", "90.0", "2.0 %"]]
    assert rows("Plans", runs[:1]) == [["megha", "10.0", "500 ms", "900 ms", "2.00 s", *[NOTHING] * 3]]


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
    assert rows("Guarantees", runs) == [["jockey", "4.00", "10.0", "150.0 %", "25.0 %", "3.00"]]
    assert rows("Deadlines", runs)[0][3] == "200.0 %"


def elastic(cost: float, seed: int = 0) -> RunSummary:
    return msgspec.structs.replace(sample_run(seed=seed), provisioning=msgspec.structs.replace(ELASTIC, cost=cost))


def test_provisioning_is_a_mean_over_the_seeds() -> None:
    ((label, *cells),) = rows("Provisioning", [elastic(40.0), elastic(56.0, seed=1)])
    assert label == "megha"
    assert cells == ["10.0", "5.00", "12.0", "48.0", "3.00", "3.50", "3.00", "2.0 %", "15.0 %", "5.0 %", "60.0 %"]


@pytest.mark.parametrize("width", [80, 140])
def test_a_section_stands_among_the_tables_with_its_note(width: int) -> None:
    text = plain([elastic(48.0)], width=width)
    assert "48.0" in text.partition("Provisioning")[2]
    assert NOTES["Provisioning"][:40] in text
    assert "Provisioning" not in plain([sample_run()])


def test_counters_are_told_per_task_and_averaged_over_seeds() -> None:
    found = {one.label: one for one in work(group_runs(spread(5)))}
    sparrow = found["sparrow"]
    assert sparrow.probes_per_task == pytest.approx(2.0)
    assert sparrow.stolen_probes_per_task == pytest.approx(0.2)
    assert sparrow.blocked_s_per_task == pytest.approx(3e9 / 1e6 / 500_000)
    assert sparrow.queue_mean == pytest.approx(3.5)
    assert (sparrow.queue, sparrow.queue_max) == ("reservations", 17.0)
    assert found["megha"].queue == "tasks"
    assert found["megha"].probes_per_task is None
    assert found["megha"].cells == ["4.00", NOTHING, NOTHING, "3.50", "17.0", NOTHING]


def test_a_seed_without_a_counter_that_another_has_counts_as_zero() -> None:
    stolen = msgspec.structs.replace(sample_run("hawk", 0), counters={"stolen_probes": 1e6})
    quiet = msgspec.structs.replace(sample_run("hawk", 1), counters={})
    (found,) = work(group_runs([stolen, quiet]))
    assert found.stolen_probes_per_task == pytest.approx(1.0)


def flowing(response: float, makespan: float, length: float, waiting: float, seed: int = 0) -> RunSummary:
    means = [Distribution(3, value, *[9.0] * 5) for value in (response, makespan, length, waiting)]
    summary = WorkflowSummary(3, means[0], means[1], means[2], means[3])
    return msgspec.structs.replace(sample_run(seed=seed), workflows=summary)


@pytest.mark.parametrize("width", [80, 140])
def test_workflows_have_a_table_with_means_over_the_seeds(width: int) -> None:
    runs = [flowing(1.0, 20.0, 1.5, 0.25), flowing(3.0, 40.0, 2.5, 0.75, seed=1)]
    text = plain(runs, width=width)
    row = text.partition("Workflows")[2].splitlines()[3].split()
    assert " ".join(row[1:]) == "2.00 s 30.0 s 2.00 500 ms"
    assert "longest task" not in text
    assert "critical path" in text
    assert "longest task" in plain([sample_run()])
