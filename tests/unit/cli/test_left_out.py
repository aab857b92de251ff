"""A run that leaves out work says so first, in the table, in JSON and on the page; `--strict` makes it a failure."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command

from volery.look.text import NOTHING

SWF = """\
1 0 0 30 4 -1 -1 4 60 -1 1 7 -1 -1 -1 -1 -1 -1
2 10 5 90 4 -1 -1 4 -1 -1 5 8 -1 -1 -1 -1 -1 -1
3 30 9 -1 -1 -1 -1 2 -1 -1 5 8 -1 -1 -1 -1 -1 -1
4 40 0 30 1 -1 -1 1 -1 -1 1 8 -1 -1 -1 -1 -1 -1
"""
"""120 core-seconds that finished, 360 of a job that was killed, one that never started, 30 that finished."""
HALF = "Left out of the trace: 2 of 4 jobs (50.0 %), 70.6 % of the machine time: 1 task: ran but did not finish"


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "t.swf"
    path.write_text(SWF)
    return path


def work(trace: Path, cores: int = 4) -> tuple[str | Path, ...]:
    cluster = ("--workers", "1", "--capacity", f"cpu_milli={cores}000")
    return ("compare", "oracle", "--trace", trace, *cluster, "--gangs", "task")


NEVER = "1 of {} jobs ({} %), none of the machine time: never started"


def test_what_ran_is_replayed_and_many_that_never_started_are_told_first(command: Command, trace: Path) -> None:
    ended = command(*work(trace), "--strict")
    assert (ended.status, ended.err) == (3, "")
    assert ended.out.startswith("Left out of the trace: " + NEVER.format(4, "25.0"))
    assert command(*work(trace), "--json").json["runs"][0]["jobs"] == 3


def test_less_than_a_hundredth_of_all_jobs_is_told_below_and_no_failure(command: Command, trace: Path) -> None:
    more = (f"{k} 50 0 30 1 -1 -1 1 -1 -1 1 8 -1 -1 -1 -1 -1 -1\n" for k in range(5, 201))
    trace.write_text(SWF + "".join(more))
    ended = command(*work(trace), "--strict")
    assert (ended.status, ended.err) == (0, "")
    assert ended.out.startswith("Delay and cost")
    assert "Left out of the trace: " + NEVER.format(200, "0.5") in ended.out


def test_only_finished_says_in_the_first_line_how_much_it_leaves_out(command: Command, trace: Path) -> None:
    ended = command(*work(trace), "--only", "finished")
    assert ended.status == 0
    assert ended.out.startswith(HALF)
    assert command(*work(trace), "--only", "finished", "--strict").status == 3


def test_json_the_page_and_the_manifest_hold_it_too(command: Command, trace: Path, tmp_path: Path) -> None:
    folder = tmp_path / "x"
    ended = command(*work(trace), "--only", "finished", "-o", folder, "--strict", "--json")
    assert ended.status == 3
    assert ended.json["warnings"][0].startswith(HALF)
    left = ended.json["runs"][0]["left_out"]
    assert (left["jobs"], left["jobs_left_out"], [one["tasks"] for one in left["reasons"]]) == (4, 2, [1, 1])
    assert HALF in (folder / "report.html").read_text()
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["trace"]["left_out"] == left
    assert command("show", folder).out.startswith(HALF)


def test_a_study_file_asks_for_finished_jobs_alone(command: Command, trace: Path, tmp_path: Path) -> None:
    study = tmp_path / "s.toml"
    study.write_text(
        f'[workload]\ntrace = "{trace}"\nworkers = 1\ncapacity = "cpu_milli=4000"\nonly = "finished"\n'
        '[axes]\narchitectures = ["oracle"]\n'
    )
    ended = command("run", study, "--strict")
    first_line, rest = ended.out.split("\n", 1)
    assert "one task each" in first_line, "rigid jobs, for a design that starts tasks one by one"
    assert (ended.status, rest.startswith(HALF)) == (3, True)
    study.write_text(study.read_text().replace('"finished"', '"well"'))
    ended = command("run", study)
    assert (ended.status, "there is no 'well'" in ended.err) == (2, True)


def test_work_that_no_machine_can_run_stands_in_the_first_line(command: Command, trace: Path) -> None:
    ended = command(*work(trace, cores=1), "--strict")
    assert ended.status == 3
    assert ended.out.splitlines()[1].startswith(
        "Never run: 2 of 3 jobs (66.7 %), 94.1 % of the machine time: no machine can run them"
    )


def test_work_that_never_ran_is_counted_in_resources_of_any_name(command: Command, tmp_path: Path) -> None:
    model = tmp_path / "gold.toml"
    model.write_text('resources = ["gold"]\nclasses = [{ weight = 1, request = [1] }, { weight = 1, request = [9] }]\n')
    ended = command(
        "compare",
        "oracle",
        "--trace",
        "syn:20x8",
        "--workers",
        "60",
        "--requests",
        model,
        "--capacity",
        "gold=4",
        "--json",
    )
    assert (ended.status, ended.err) == (0, "")
    assert ended.json["runs"][0]["never_ran"]["unit"] == "gold-seconds"


def test_jobs_of_many_cores_that_become_one_slot_stand_in_the_first_line(command: Command, trace: Path) -> None:
    ended = command(*work(trace), "--slot-request", "cpu_milli=1000", "--strict")
    assert ended.status == 3
    assert ended.out.splitlines()[1].startswith(
        "Run in one slot each: 2 of 3 jobs (66.7 %), 94.1 % of the machine time: ask for more than one slot"
    )


def test_describe_and_doctor_name_what_is_left_out_by_reason(command: Command, trace: Path) -> None:
    for words in (("trace", "describe", trace), ("trace", "doctor", trace)):
        out = command(*words).out
        assert "left out: never started, so held no machine" in out
        assert "did not finish" not in out
        assert "without a word" not in out
        assert "ran but did not finish" in command(*words, "--only", "finished").out
    described = command("trace", "describe", trace, "--json").json
    assert [one["tasks"] for one in described["left_out"]["reasons"]] == [1]
    assert command("trace", "doctor", trace, "--json").json["left_out"]["tasks"] == 4


@pytest.mark.slow
def test_designs_without_randomness_on_a_file_are_not_given_an_interval(command: Command, trace: Path) -> None:
    words = ("compare", "oracle", "backfill", *work(trace)[2:], "--seeds", "3")
    out = command(*words).out
    assert "Nothing is random here: 3 seeds gave the same run." in out
    assert "a lower" not in out
    assert "bootstrap" not in out
    assert "not random" in out
    found = command(*words, "--json").json
    assert found["not_random"] == ["oracle", "backfill"]
    assert {one["difference"]["low"] for one in found["differences"]} == {None}


def test_one_seed_shows_a_dash_and_no_verdict(command: Command) -> None:
    out = command("compare", "oracle", "megha", "--trace", "syn:20x8", "--workers", "60").out
    assert "no difference shown" not in out
    assert "bootstrap" not in out
    assert "One seed does not tell how much random choices of the schedulers matter" in out
    assert "A dash: no statement: fewer than 30 jobs." in out
    assert "The intervals tell" not in out
    (row,) = [line for line in out.splitlines() if line.startswith("mean delay")]
    assert row.split()[-2:] == [NOTHING, NOTHING]


PART = "".join(
    f"{k} {10 * k} -1 100 4 -1 -1 4 200 {1 << 20 if k < 6 else -1} 1 1 1 -1 -1 -1 -1 -1\n" for k in range(10)
)
"""Ten jobs of four processors, of which six state memory."""


@pytest.mark.parametrize(
    ("words", "status", "first"),
    [
        (("--capacity", "cpu_milli=8000"), 0, "Delay and cost"),
        (("--capacity", "cpu_milli=8000,memory_mb=1000000", "--resources", "cpu_milli"), 0, "Delay and cost"),
        (
            ("--capacity", "cpu_milli=8000,memory_mb=1000000"),
            3,
            "Requests that the trace does not state: 4 of 10 tasks (40.0 %), 40.0 % of the machine time: no request of",
        ),
        (("--machines", "machines.csv"), 0, "Delay and cost"),
    ],
)
def test_a_resource_that_some_jobs_state_loses_no_job(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], status: int, first: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("part.swf").write_text(PART)
    Path("machines.csv").write_text("cpu_milli,colour\n8000,2\n")
    work = ("compare", "backfill", "--trace", "part.swf", "--workers", "1", "--delay-us", "0", *words)
    ended = command(*work, "--strict")
    assert (ended.status, ended.err) == (status, "")
    assert ended.out.replace("\n", " ").startswith(first)
    assert ("Requests of memory_mb do not count" in ended.out) == (status == 0)
    (run,) = command(*work, "--json").json["runs"]
    assert (run["jobs"], run["delay_s"]["mean"]) == (10, 160.0)


def test_a_model_of_requests_replaces_what_jobs_do_not_state(command: Command, tmp_path: Path) -> None:
    trace, model = tmp_path / "part.swf", tmp_path / "m.toml"
    trace.write_text(PART)
    model.write_text('resources = ["cpu_milli"]\nclasses = [{ weight = 1, request = [1000] }]\n')
    ended = command(*work(trace, 8), "--requests", model, "--strict", "--json")
    assert (ended.status, ended.json["runs"][0]["jobs"], ended.json["warnings"]) == (0, 10, [])


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("--resources", "memory"), "resources: 'memory' is no resource of a trace file; did you mean 'memory_mb'?"),
        (("--capacity", "cpu_milli=1,memory=2"), "capacity: 'memory' is no resource of a trace file"),
        (("--capacity", "cpu=8000"), "says nothing of cpu_milli"),
        (("--trace", "syn:20x8", "--resources", "cpu_milli"), "resources: tasks have no requests of a trace file"),
    ],
)
def test_a_resource_that_no_trace_has_is_refused(
    command: Command, trace: Path, words: tuple[str, ...], problem: str
) -> None:
    ended = command(*work(trace), *words)
    assert ended.status == 2
    assert problem in ended.err


def test_waits_that_are_not_heeded_stand_in_the_first_line_of_every_command(command: Command, tmp_path: Path) -> None:
    trace = tmp_path / "w.gwf"
    trace.write_text(
        "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n0,1,0,10,1,1,-1\n0,2,0,10,1,1,1 7\n"
    )
    first = "Waits of the trace that are not heeded: 1 of 2 waits (50.0 %)"
    ended = command(*work(trace), "--strict")
    assert (ended.status, ended.out.startswith(f"{first} in 1 of 1 jobs")) == (3, True)
    for words in (("trace", "describe"), ("trace", "doctor")):
        assert command(*words, trace).out.startswith(first)


def test_what_is_omitted_of_earlier_runs_is_told_as_of_the_trace(command: Command, tmp_path: Path) -> None:
    history = tmp_path / "h.gwf"
    history.write_text(
        "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n0,1,0,10,1,1,-1\n0,2,0,10,1,1,1 7\n"
    )
    slots = ("--workers", "4", "--capacity", "cpu_milli=1000", "--slot-request", "cpu_milli=1000")
    ended = command("compare", "jockey", "--trace", "syn:2x3", *slots, "--history", history, "--strict")
    first = "Waits of the trace of earlier runs that are not heeded: 1 of 2 waits (50.0 %) in 1 of 1 jobs"
    assert (ended.status, ended.out.startswith(first)) == (3, True)
