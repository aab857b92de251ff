"""Rigid jobs on the command line: started whole, held, or read as one task each; what cannot be is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command

PROCESSORS = 4
JOBS = ((0, 100, 2), (10, 50, 4), (20, 50, 1), (30, 10, 3))
"""Submission, run time (s) and processors; times requested are twice the run time."""


def swf(*jobs: tuple[int, int, int]) -> str:
    rows = [
        f"{number} {submit} -1 {run} {size} -1 -1 {size} {2 * run} -1 1 1 -1 -1 -1 -1 -1 -1\n"
        for number, (submit, run, size) in enumerate(jobs, 1)
    ]
    return "; Version: 2.2\n" + "".join(rows)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    path = tmp_path / "rigid.swf"
    path.write_text(swf(*JOBS))
    return path


def work(trace: Path, *designs: str, workers: int = PROCESSORS) -> tuple[str | Path, ...]:
    """A comparison on machines of one processor."""
    cluster = ("--workers", str(workers), "--capacity", "cpu_milli=1000", "--delay-us", "0")
    return ("compare", *designs, "--trace", trace, *cluster)


def test_rigid_jobs_start_whole_on_several_machines(command: Command, trace: Path) -> None:
    ended = command(*work(trace, "backfill"), "--estimates", "requested", "--json")
    (run,) = ended.json["runs"]
    # The second job waits for the first, the fourth for both; the third ends by the time at which the second starts.
    assert run["delay_s"]["mean"] == pytest.approx((0 + 90 + 0 + 120) / 4)
    assert run["gangs"] == {
        "gangs": 3, "ran": 3, "largest": 4, "held": 0, "held_machine_h": 0.0, "held_share": 0.0,
        "machines_mean": 3.0, "racks_mean": None, "one_rack": None,
    }  # fmt: skip
    assert (run["are_gangs_tasks"], run["starts_gangs"]) == (False, True)


def test_a_comparison_with_a_design_without_gangs_reads_tasks_and_says_so_first(command: Command, trace: Path) -> None:
    whole = ("compare", "oracle", "backfill", "--trace", trace, "--workers", "1", "--capacity", "cpu_milli=4000")
    ended = command(*whole)
    assert ended.status == 0
    assert ended.out.startswith("Rigid jobs are read as one task each (as=task): oracle starts tasks one by one.")
    assert not command(*whole, "--gangs", "task").out.startswith("Rigid")
    assert [run["gangs"] for run in command(*whole, "--json").json["runs"]] == [None, None]


def test_members_hold_machines_and_the_report_shows_how_long(command: Command, tmp_path: Path) -> None:
    """On four machines the second job takes two while the first runs: two machines for 90 s."""
    path = tmp_path / "two.swf"
    path.write_text(swf((0, 100, 2), (10, 50, 4)))
    ended = command(*work(path, "oracle"), "--gangs", "hold", "--json")
    (run,) = ended.json["runs"]
    assert run["gangs"]["held"] == 1
    assert run["gangs"]["held_machine_h"] == pytest.approx(2 * 90 / 3600)
    assert run["gangs"]["held_share"] == pytest.approx(2 * 90 / (4 * 150))
    assert run["delay_s"]["max"] == pytest.approx(90)
    assert "Gangs" in command(*work(path, "oracle"), "--gangs", "hold").out


def test_a_deadlock_is_an_error_that_names_who_holds_what(command: Command, tmp_path: Path) -> None:
    """Tasks of four jobs are drawn in any order: none of the jobs gets three of the four machines."""
    path = tmp_path / "three.swf"
    path.write_text(swf((0, 100, 3), (1, 50, 3), (1, 50, 3), (1, 50, 3)))
    ended = command(*work(path, "pipeline:lrms=1,T2=random,cycle_s=3"), "--gangs", "hold")
    assert ended.status == 2
    assert "deadlock" in ended.err
    assert "hold 4 machines and wait for more" in ended.err
    assert "take a design that starts gangs whole" in ended.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (
            ("backfill", "--gangs", "whole"),
            "job 1 (from 0, by time of submission) is a gang of 4 tasks, and the empty cluster holds 3 of them at once",
        ),
        (("oracle", "--gangs", "whole"), "take a design that starts them whole, as pipeline, or give --gangs hold"),
        (("oracle", "--gangs", "hold"), "job 1 (from 0, by time of submission) is a gang of 4 tasks"),
        (("backfill", "--gangs", "held"), "held"),
    ],
)
def test_what_cannot_be_is_refused(command: Command, trace: Path, words: tuple[str, ...], problem: str) -> None:
    design, *options = words
    ended = command(*work(trace, design, workers=3), *options)
    assert ended.status == 2
    assert problem in " ".join(ended.err.split())


PHILLY = "timestamp,duration,num_gpus,gpu_time,cluster\n1970-01-01 00:01:00,60.0,2,120.0,a\n"
LOGGED = [{"jobid": "a", "submitted_time": "1970-01-01 00:01:00", "status": "Pass", "attempts": [{
    "start_time": "1970-01-01 00:01:00", "end_time": "1970-01-01 00:02:00", "detail": [{"gpus": ["g", "h"]}],
}]}]  # fmt: skip
PAI = "j1,worker,2,Terminated,60,120,600,29.3,100,T4\n"
MAP = (
    '[columns]\njob = "j"\nsubmit = "s"\nruntime = {column = "t", unit = "s"}\ntasks = "n"\ndevices = "g"\nrack = "r"\n'
)
OWN = "j,s,t,n,g,r\n1,2024-03-01 09:00,60,2,2,require\n"


@pytest.mark.parametrize("text", [PHILLY, json.dumps(LOGGED), PAI])
def test_jobs_of_gpu_clusters_are_gangs_with_devices_for_designs_that_start_them_whole(
    command: Command, tmp_path: Path, text: str
) -> None:
    """A job of two GPUs runs on two machines of one; as one task it fits none of them."""
    path = tmp_path / "gpus"
    path.write_text(text)
    cluster = ("--trace", path, "--workers", "2", "--racks", "2", "--capacity", "gpu_milli=1000")
    if text == PAI:
        cluster = (*cluster[:-1], "gpu_milli=1000,cpu_milli=8000,memory_mb=65536")
    whole = command("compare", "pipeline", *cluster, "--json").json["runs"][0]
    gangs = whole["gangs"]
    assert (gangs["ran"], gangs["largest"], gangs["machines_mean"]) == (1, 2, 2)
    assert (gangs["racks_mean"], gangs["one_rack"]) == (2, 0)
    tasks = command("compare", "pipeline", "oracle", *cluster)
    assert tasks.out.startswith("Rigid jobs are read as one task each (as=task): oracle starts tasks one by one.")
    held = command("compare", "pipeline", "oracle", *cluster, "--gangs", "hold", "--json").json["runs"]
    assert [run["gangs"]["ran"] for run in held] == [1, 1]


def test_a_gang_of_a_table_requires_one_rack(command: Command, tmp_path: Path) -> None:
    table, columns = tmp_path / "own.csv", tmp_path / "own.toml"
    table.write_text(OWN)
    columns.write_text(MAP)
    work = ("--trace", table, "--columns", columns, "--capacity", "gpu_milli=1000", "--workers", "4")
    for racks, one_rack in (("2", 1), ("1", None)):
        [run] = command("compare", "pipeline", *work, "--racks", racks, "--json").json["runs"]
        assert (run["gangs"]["ran"], run["gangs"]["one_rack"]) == (1, one_rack)

    for design, racks, problem in (
        (
            "pipeline",
            "4",
            "is a gang of 2 tasks in one rack, and no empty rack holds more than 1 of them at once",
        ),
        ("mesos", "2", "job 0 is a gang that requires one rack, which this design does not heed; take pipeline"),
        ("oracle --gangs hold", "2", "job 0 is a gang that requires one rack, which this design does not heed"),
    ):
        refused = command("compare", *design.split(), *work, "--racks", racks)
        assert refused.status == 2
        assert problem in " ".join(refused.err.split())

    table.write_text(OWN.replace("require", "prefer"))
    assert "mesos" in command("compare", "mesos", *work, "--racks", "2").out
    table.write_text(OWN.replace("require", "near"))
    refused = command("compare", "pipeline", *work)
    assert refused.status == 2
    assert "own.csv:2: r gives no rack: 'near' is none of prefer, require" in " ".join(refused.err.split())
