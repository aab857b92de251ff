"""`--profile stages`: every declared method is met where it has work, and results are those of a run without."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from volery import architectures
from volery.cli.main import main
from volery.core.errors import InputError
from volery.sim.stagetime import StageClock
from volery.study.runs import build, drive, execute, read_inputs
from volery.study.spec import RunSpec
from volery.study.stagetime import kept_stage_times, profile_run, roles

PLANNERS = ("tetrisched", "alsched", "quincy", "firmament")
"""In a crowd of long jobs a plan takes the solver minutes; their own tests run all of their methods."""
SOFT = {"phoenix": {"soft_constraints": tuple(range(21))}}
"""Without soft constraints there is nothing to negotiate."""

DEADLINES = {"jockey": "recurring:4x3,workers=60,tasks=20"}
"""Without deadlines there is nothing to guarantee."""

FEWER = dict.fromkeys(("fuxi", "apollo", "autopilot", "slurm"), "mix:google,load=0.95,workers=60,jobs=25")
"""With preemption each event tries every kind of task that waits, and Slurm plans all: 60 jobs take a minute."""

CRASHES = {"Cycle.lose"}
"""No machine crashes here: of a stage that is on by default, this is the recovery of the pipeline's presets."""


@pytest.fixture(autouse=True)
def wide(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever width the process that runs the tests was given, tables are not cut."""
    monkeypatch.setenv("COLUMNS", "200")


def crowded(name: str, **parameters: object) -> RunSpec:
    """Short and long jobs, constraints, queues."""
    return RunSpec(
        trace=(DEADLINES | FEWER).get(name, "mix:google,load=0.95,workers=60,jobs=60"),
        workers=60,
        architecture=name,
        parameters=SOFT.get(name, {}) | parameters,  # type: ignore[arg-type]  # values of several types
        seed=1,
        constraints="sharma2011",
        cutoff_s=162.0,
    )


@pytest.mark.parametrize("name", [name for name in architectures.REGISTRY if name not in PLANNERS])
def test_every_declared_method_works_in_a_crowded_run(name: str) -> None:
    entry = architectures.lookup(name)
    optional = {found.method for found in entry.stages.values() if found.when}
    times = {time.method: time for time in profile_run(crowded(name)).times}
    assert set(times) == {found.method for found in entry.stages.values()}
    assert [method for method, time in times.items() if not time.calls and method not in optional | CRASHES] == []
    assert all(time.cycles <= time.calls and time.cpu_s >= 0 for time in times.values())
    assert {stage for time in times.values() for stage in time.stages} == set(entry.stages)


@pytest.mark.parametrize(("name", "parameters"), [("megha", {}), ("sparrow", {"reliable": True}), ("phoenix", {})])
def test_measuring_changes_no_result(name: str, parameters: dict[str, object]) -> None:
    run = crowded(name, **parameters)
    inputs = read_inputs(run)
    design = architectures.choose(name, run.parameters)
    deployment = build(run, inputs.cluster, design)
    entry = design.architecture
    clock = StageClock(entry.stages, roles(entry))
    clock.watch(deployment)
    measured = drive(run, inputs, design, deployment).records
    assert any(time.calls for time in clock.times())
    assert measured.digest() == execute(run).summary.digest


@pytest.mark.slow
def test_compare_prints_time_per_stage(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "sparrow", "oracle", "--trace", "syn:4x10", "--workers", "20", "--seeds", "2"]
    with pytest.raises(SystemExit) as left:
        main([*words, "--profile", "stages"])
    text = capsys.readouterr().out
    assert left.value.code == 0
    assert text.count("time per stage") == 2, "the first seed of each"
    assert "Scheduler.on_task_request" in text
    assert "Measuring adds about" in text


@pytest.mark.slow
def test_json_holds_the_times_and_without_the_option_there_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["compare", "oracle", "--trace", "syn:4x10", "--workers", "20", "--json"]
    answers = []
    for more in ([], ["--profile", "stages"]):
        with pytest.raises(SystemExit):
            main([*words, *more])
        answers.append(json.loads(capsys.readouterr().out))
    assert "stage_times" not in answers[0]
    (profile,) = answers[1]["stage_times"]
    launches = next(time for time in profile["times"] if time["method"] == "Scheduler._launch")
    assert (profile["label"], launches["stages"], launches["calls"]) == ("oracle", ["T4"], 40)


@pytest.mark.slow
def test_a_results_folder_keeps_the_times_of_the_runs_that_it_holds(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "kept"
    words = ["compare", "oracle", "sparrow", "--trace", "syn:4x10", "--workers", "20", "-o", str(folder)]
    with pytest.raises(SystemExit) as left:
        main([*words, "--profile", "stages"])
    assert left.value.code == 0
    assert "Time per stage" in (folder / "report.html").read_text()
    with pytest.raises(SystemExit):
        main(["show", str(folder), "--json"])
    shown = json.loads(capsys.readouterr().out.partition("\n{")[2].join(["{", ""]))
    assert [profile["label"] for profile in shown["stage_times"]] == ["oracle", "sparrow"]
    times = [time for profile in shown["stage_times"] for time in profile["times"]]
    assert all(len(time["call_s"]) == 7 * bool(time["calls"]) for time in times)
    stored = folder / "stage_times.json"
    stored.write_bytes(stored.read_bytes().replace(shown["stage_times"][0]["key"].encode(), b"0" * 64))
    assert [profile.label for profile in kept_stage_times(folder)] == ["sparrow"], "another run's times are not told"
    stored.write_text("{")
    with pytest.raises(InputError, match="delete it"):
        kept_stage_times(folder)
