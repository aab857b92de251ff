"""Rigid jobs on the command line: started whole, held, or read as one task each; what cannot be is refused."""

from __future__ import annotations

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
        (("backfill", "--gangs", "whole"), "job 1 is a gang of 4 tasks, and the empty cluster holds 3 of them at once"),
        (("oracle", "--gangs", "whole"), "take a design that starts them whole, as pipeline, or give --gangs hold"),
        (("oracle", "--gangs", "hold"), "job 1 is a gang of 4 tasks"),
        (("backfill", "--gangs", "held"), "held"),
    ],
)
def test_what_cannot_be_is_refused(command: Command, trace: Path, words: tuple[str, ...], problem: str) -> None:
    design, *options = words
    ended = command(*work(trace, design, workers=3), *options)
    assert ended.status == 2
    assert problem in " ".join(ended.err.split())
