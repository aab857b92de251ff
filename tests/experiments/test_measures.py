"""Metric paths: their values and units; costs of stages, and architectures that draw nothing."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from experiments.experiment import Experiment, read_experiment
from experiments.measures import (
    InputMeasures,
    check_metric,
    constraint_statistics,
    costs_of,
    kept_costs,
    unit,
    value,
)
from experiments.pictures import draw
from experiments.records import content_sha256, make_record
from experiments.reproduction import reproduce
from volery.core.errors import InputError
from volery.core.stages import Stage
from volery.metrics import ConstraintLoad, Distribution, TotalLoad
from volery.report.schema import MethodTime, StageProfile
from volery.study.spec import RunSpec

LOADS = (ConstraintLoad(0, 0.1, 0.2, 0.3, 0.4), ConstraintLoad(5, 0.3, 0.4, 0.5, 0.9))


@pytest.mark.parametrize(
    "path", ["load.p99", "constraint_load.highest.mean", "constraint_load.c5.p95", "conflicts.waiting.mean"]
)
def test_metrics_of_the_input_are_known(path: str) -> None:
    assert check_metric(path, "here")


@pytest.mark.parametrize(
    "path", ["delay_s.p50", "short.delay_s.p99", "counters.anything", "utilisation_mean", "slowdown.p50", "messages"]
)
def test_metrics_of_a_run_are_known(path: str) -> None:
    assert not check_metric(path, "here")


@pytest.mark.parametrize(
    "path",
    [
        "load",
        "load.p98",
        "load.p99.x",
        "conflicts.waiting",
        "delay",
        "delay_s",
        "delay_s.p50.x",
        "digest",
        "short.delay",
    ],
)
def test_what_is_no_metric_is_refused_at_its_place(path: str) -> None:
    with pytest.raises(InputError, match=r"^here: "):
        check_metric(path, "here")


def test_constraints_are_summed_up_statistic_by_statistic() -> None:
    found = constraint_statistics(LOADS)
    assert found["c5"]["p99"] == 0.9
    assert found["highest"] == {"mean": 0.3, "median": 0.4, "p95": 0.5, "p99": 0.9}
    assert found["lowest"]["p99"] == 0.4
    assert found["average"]["mean"] == pytest.approx(0.2)


def test_values_are_found_by_path() -> None:
    measures = InputMeasures(TotalLoad(0.1, 0.2, 0.3, 0.4), constraint_statistics(LOADS))
    assert value(measures, "load.median") == 0.2
    assert value(measures, "constraint_load.c0.mean") == 0.1


def test_a_distribution_of_nothing_has_no_value() -> None:
    empty = Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    measures = InputMeasures(TotalLoad(0, 0, 0, 0), {}, {"waiting": empty})
    assert value(measures, "conflicts.waiting.mean") is None


def test_units_follow_from_names() -> None:
    assert [unit(path) for path in ("delay_s.p50", "short.jrt_s.max", "load.p99", "counters.x", "tasks_per_cpu_s")] == [
        "s",
        "s",
        "%",
        "",
        "",
    ]


def test_the_count_of_a_distribution_has_no_unit() -> None:
    assert [unit(path) for path in ("delay_s.count", "short.jrt_s.count")] == ["", ""]


TEXT = """
title = "stages"
paper = "test"
figure = "Figure 9"
seeds = [0, 1]
unseeded = ["srtf"]
columns = ["stage_cpu_s.all"]
pictures = ["stage_times"]

[quick]
jobs = 3

[network]
delay_us = 0

[[population]]
label = "two"
machines = "machines/two.csv"
machine_count = 2

[[workload]]
label = "flow"
trace = "flow.gwf"
workers = 2
constraints = "none"
durations = "whole-seconds"
estimates = "exact"
reference_mhz = 4000

[architectures]
srtf = "pipeline:T2=srtf,cycle_s=10"
random = "pipeline:T2=random,cycle_s=10"

[[claim]]
id = "all"
section = "V-C"
sentence = "Stages take time."
says = "Stages take time."
published = "yes"
left = { metric = "stage_cpu_s.all", of = ["srtf", "random"] }
relation = ">="
right = 1e-12

[[claim]]
id = "speeds"
section = "V-A"
sentence = ""
quoted = false
says = "On machines of 3.5 GHz four seconds take 4 s and nine 10 s: the jobs end after 4 and 23 s."
published = "13.5 s"
left = { metric = "workflows.makespan_s.mean", of = ["srtf", "random"] }
relation = "within"
right = 13.5
margin = 0.001
tolerance = "the event clock counts microseconds"
"""
HEAD = "WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies\n"
GWF = HEAD + "0,1,0,4,2,2,\n1,2,7,9,1,1,\n1,3,7,9,1,1,2\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "traces").mkdir()
    (tmp_path / "traces" / "flow.gwf").write_text(GWF)
    made = tmp_path / "experiments"
    (made / "machines").mkdir(parents=True)
    (made / "machines" / "two.csv").write_text("cpu_milli,speed_mhz\n4000,4100\n2000,3500\n")
    (made / "stages.toml").write_text(TEXT)
    return made


@pytest.fixture
def experiment(folder: Path) -> Experiment:
    return read_experiment(folder, "stages")


@pytest.mark.slow
def test_stages_are_measured_as_often_as_there_are_seeds_and_kept(experiment: Experiment, tmp_path: Path) -> None:
    """The machines come from a file beside the experiment."""
    found = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces")
    assert [len(runs) for runs in found.planned.runs.values()] == [1, 2]
    assert [len(found.stages[run.key].costs) for runs in found.planned.runs.values() for run in runs] == [2, 1, 1]
    record = make_record(found, quick=False)
    assert [one.verdict for one in record.judgements] == ["reproduced", "reproduced"]
    assert (record.complete, record.runs, len(record.digests)) == (True, 3, 3)
    assert [(fact.of, fact.runs) for fact in record.facts if fact.metric == "stage_cpu_s.all"] == [
        ("srtf", 2),
        ("random", 2),
    ]
    assert [name for name, _ in draw(found)] == ["stage_times.svg"]
    again = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces", only_finished=True)
    assert again.stages == found.stages
    recorded = reproduce(experiment, folder=tmp_path / "new", traces=tmp_path / "traces", recorded=record.table)
    assert (recorded.stages, recorded.complete) == ({}, True)
    assert make_record(recorded, quick=False) == record


@pytest.mark.slow
def test_seeds_that_other_claims_draw_are_not_timed(experiment: Experiment, tmp_path: Path) -> None:
    drawn = {("random", "flow", "two"): (0, 1, 2)}
    found = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces", drawn=drawn)
    assert [len(runs) for runs in found.planned.runs.values()] == [1, 3]
    assert [len(one.costs) for one in found.stages.values()] == [2, 1, 1]
    record = make_record(found, quick=False)
    assert record.complete
    assert record.judgements[0].verdict == "reproduced"


@pytest.mark.slow
def test_stages_are_timed_again_where_the_file_asks_for_more_repetitions(
    experiment: Experiment, tmp_path: Path
) -> None:
    found = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces")
    record = make_record(found, quick=False)
    more = msgspec.structs.replace(experiment, seeds=(0, 1, 2))
    found = reproduce(more, folder=tmp_path / "new", traces=tmp_path / "traces", recorded=record.table)
    assert found.complete
    assert make_record(found, quick=False).judgements[0].verdict == "reproduced"


@pytest.mark.slow
def test_measuring_goes_on_where_it_was_stopped(
    experiment: Experiment, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 2 measures of each, 3 were kept; the last run was being measured when somebody pressed Ctrl-C."""
    measured: list[str] = []

    def profiled(spec: RunSpec, name: str = "") -> StageProfile:
        if name:
            if len(measured) == 3:
                raise KeyboardInterrupt
            measured.append(name)
        return StageProfile(name, 1.0, (0.0, 0.0), [])

    monkeypatch.setattr("experiments.measures.profile_run", profiled)
    assert reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces").interrupted
    before, measured[:] = list(measured), []
    found = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces")
    srtf, *random = [run.key for runs in found.planned.runs.values() for run in runs]
    assert (before, measured) == ([srtf, random[0], srtf], [random[1]])
    assert [len(found.stages[key].costs) for key in (srtf, *random)] == [2, 1, 1]


@pytest.mark.slow
def test_without_its_stage_times_an_experiment_is_not_complete(experiment: Experiment, tmp_path: Path) -> None:
    found = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces")
    run = found.planned.runs["srtf", "flow", "two"][0]
    path = tmp_path / "results" / "runs" / f"{run.key}.stages"
    path.write_bytes(path.read_bytes()[:-9])
    assert kept_costs(path.parent, run.key) is None
    part = reproduce(experiment, folder=tmp_path / "results", traces=tmp_path / "traces", only_finished=True)
    assert not part.complete
    judged = make_record(part, quick=False).judgements[0]
    assert (judged.verdict, judged.why) == ("not decidable", "its stages were not measured")


def test_a_sorted_queue_counts_where_tasks_join_it_and_measuring_is_taken_off() -> None:
    times = [
        MethodTime((Stage.J3,), "Scheduler._enqueue", 10, 1, 3e-5, 3e-5),
        MethodTime((Stage.T2,), "Scheduler._next_task", 10, 1, 2e-5, 2e-5),
        MethodTime((Stage.R1, Stage.R4), "Scheduler._fitting", 10, 1, 1e-5, 1e-5),
        MethodTime((Stage.T7,), "Scheduler._account", 10, 1, 1.0, 1.0),
        MethodTime((Stage.R5,), "Scheduler._select", 100, 1, 1e-5, 1e-5),
    ]
    found = costs_of(StageProfile("p", 1.0, (1e-6, 0.0), times))
    assert found == pytest.approx({"T1": 0.0, "T2": 3e-5, "R4": 0.0, "R5": 0.0, "all": 3e-5})


def test_what_draws_nothing_has_to_be_known_and_its_workload_a_file(folder: Path) -> None:
    path = folder / "stages.toml"
    path.write_text(TEXT.replace('unseeded = ["srtf"]', 'unseeded = ["strf"]'))
    with pytest.raises(InputError, match="no architecture 'strf' here; did you mean 'srtf'"):
        read_experiment(folder, "stages")
    exact = 'estimates = "exact"'
    for old, new in (
        ('trace = "flow.gwf"', 'trace = "syn:2x2"'),
        (exact, 'estimates = "lognormal:1"'),
        (exact, f'{exact}\nusers = "a:1+b:1"'),
        (exact, f'{exact}\nrequests = "alibaba-like"'),
    ):
        path.write_text(TEXT.replace(old, new))
        with pytest.raises(InputError, match="'flow' is drawn anew for every seed"):
            read_experiment(folder, "stages")
    path.write_text(TEXT.replace("stage_cpu_s.all", "stage_cpu_s.T9"))
    with pytest.raises(InputError, match="unknown part 'T9'"):
        read_experiment(folder, "stages")


def test_where_an_experiment_lies_is_no_part_of_what_it_says(experiment: Experiment) -> None:
    assert content_sha256(experiment) == content_sha256(msgspec.structs.replace(experiment, folder="elsewhere"))
