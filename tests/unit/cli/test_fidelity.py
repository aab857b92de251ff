"""`volery fidelity`: the starts of a log against a model of its scheduler, bar by bar; wrong input is refused."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.unit.cli.conftest import Command, Ended

from volery.study.fidelity import WAITED_MIN
from volery.study.runner import compare_spec, run_alone

PROCESSORS = 4
Row = tuple[int, int, int, int]
"""Submission, wait and run time (s), processors."""


def written(path: Path, rows: Sequence[Row]) -> Path:
    lines = [
        f"{number} {submit} {wait} {run} {size} -1 -1 {size} {2 * run} -1 1 1 -1 -1 -1 -1 -1 -1\n"
        for number, (submit, wait, run, size) in enumerate(rows, 1)
    ]
    path.write_text("; Version: 2.2\n" + "".join(lines))
    return path


def in_turn(order: Sequence[int], pause_s: int = 0) -> list[Row]:
    """Jobs that come every 5 s and take all processors for 10 s, in this order, with pauses between."""
    turn = {job: place for place, job in enumerate(order)}
    return [(5 * job, max(0, (10 + pause_s) * turn[job] - 5 * job), 10, PROCESSORS) for job in range(len(order))]


def held(command: Command, trace: Path, *words: str, design: str = "backfill") -> Ended:
    cluster = ("--workers", str(PROCESSORS), "--capacity", "cpu_milli=1000", "--delay-us", "0")
    return command("fidelity", design, "--trace", trace, *cluster, *words)


def test_a_log_that_the_lab_has_made_itself_is_repeated(command: Command, tmp_path: Path) -> None:
    rng = random.Random(3)
    jobs = [(9 * k, 0, rng.randint(5, 60), rng.randint(1, PROCESSORS)) for k in range(160)]
    trace = written(tmp_path / "jobs.swf", jobs)
    setting = {"trace": str(trace), "workers": PROCESSORS, "capacity": "cpu_milli=1000", "delay_us": 0}
    _, execution = run_alone(compare_spec(["backfill"], setting, [0]))
    first = execution.inputs.trace.first
    starts_s = [execution.records.start_us[task] // 1_000_000 for task in first[:-1]]
    waits_s = [start_s - submit for (submit, *_), start_s in zip(jobs, starts_s, strict=True)]
    written(trace, [(submit, wait, run, size) for (submit, _, run, size), wait in zip(jobs, waits_s, strict=True)])

    ended = held(command, trace, "--json")
    assert ended.status == 0
    assert ended.json["shortfalls"] == []
    assert ended.json["waited"] == sum(wait > 1 for wait in waits_s) > WAITED_MIN
    assert ended.json["model"] == {
        "design": "backfill", "tau": pytest.approx(1.0), "median_s": 0.0, "p95_s": 0.0,
        "mean_wait_s": pytest.approx(ended.json["mean_wait_s"]),
    }  # fmt: skip
    assert ended.json["plain_fifo"]["tau"] < 0.95
    fifo = held(command, trace, "--json", design="pipeline:T3=strict").json
    assert fifo["model"] == fifo["plain_fifo"] == ended.json["plain_fifo"]
    assert "worth making: a comparison" in held(command, trace).out


@pytest.mark.parametrize(
    ("rows", "shortfall"),
    [
        (in_turn(range(60)), "too few jobs waited: 59, and less than 100 show no order"),
        (
            in_turn(range(120), pause_s=9),
            "waits are off by more than a factor of 1.5: 297.5 s on average, and",
        ),
    ],
)
def test_each_bar_is_stated_alone_where_it_alone_is_missed(
    command: Command, tmp_path: Path, rows: list[Row], shortfall: str
) -> None:
    ended = held(command, written(tmp_path / "log.swf", rows))
    assert ended.status == 1
    assert [line for line in ended.out.splitlines() if "worth making" in line] != []
    assert ended.out.count("not worth making: ") == 1
    assert f"not worth making: {shortfall}" in ended.out


def test_an_order_that_submission_explains_as_well_says_nothing_for_the_model(command: Command, tmp_path: Path) -> None:
    """Groups of 24 jobs ran last come, first served: the groups are in order, and so are nine pairs in ten."""
    order = [group + place for group in range(0, 240, 24) for place in reversed(range(24))]
    rows = [(job, 300 + 10 * order.index(job) - job, 10, PROCESSORS) for job in range(240)]
    ended = held(command, written(tmp_path / "log.swf", [(0, 0, 300, PROCESSORS), *rows]))
    assert ended.status == 1
    (reason,) = [line for line in ended.out.splitlines() if line.startswith("not worth")]
    assert reason.startswith("not worth making: the order of submission explains as much: tau is 0.8")


def test_only_jobs_that_waited_together_have_an_order(command: Command, tmp_path: Path) -> None:
    """In each hour eight jobs wait and run last come, first served: hours are in order under any rule."""
    rows = []
    for hour_s in range(0, 3600 * 20, 3600):
        rows.append((hour_s, 0, 30, PROCESSORS))
        rows += [(hour_s + job, 30 + 10 * (8 - job) - job, 10, PROCESSORS) for job in range(1, 9)]
    ended = held(command, written(tmp_path / "log.swf", rows), "--json")
    assert ended.status == 1
    assert (ended.json["waited"], ended.json["model"]["tau"]) == (160, pytest.approx(-1.0))


def test_another_order_than_the_recorded_one_is_named(command: Command, tmp_path: Path) -> None:
    rows = [(0, 10 * place, 10, PROCESSORS) for place in reversed(range(120))]
    ended = held(command, written(tmp_path / "log.swf", rows))
    assert ended.status == 1
    assert "not worth making: the order of starts is not explained: tau is -1.00, below 0.8" in ended.out
    assert len(held(command, tmp_path / "log.swf", "--json").json["shortfalls"]) == 2


def test_a_window_leaves_out_what_came_before(command: Command, tmp_path: Path) -> None:
    ended = held(command, written(tmp_path / "log.swf", in_turn(range(130))), "--warmup", "100", "--json")
    assert (ended.status, ended.json["jobs"], ended.json["waited"]) == (0, 110, 110)


TABLE = "job,submitted,took\n1,2024-01-01 00:00:00,10\n2,2024-01-01 00:00:01,10\n"
MAP = '[columns]\njob = "job"\nsubmit = "submitted"\nruntime = { column = "took", unit = "s" }\n'


def test_a_log_without_starts_is_refused(command: Command, tmp_path: Path) -> None:
    (tmp_path / "own.csv").write_text(TABLE)
    (tmp_path / "own.toml").write_text('[source]\nzone = "UTC"\n' + MAP)
    cluster = ("--workers", "1")
    ended = command(
        "fidelity", "backfill", "--trace", tmp_path / "own.csv", "--columns", tmp_path / "own.toml", *cluster
    )
    assert ended.status == 2
    assert "own.csv: states no starts of jobs" in ended.err
    assert "name a log that does, as output of sacct -P or SWF" in ended.err

    ended = command("fidelity", "backfill", "--trace", "syn:5x10", *cluster)
    assert (ended.status, ended.out) == (2, "")
    assert "is synthetic work, which nobody has run; name the log of a cluster" in ended.err


SLOTS = ("--slot-request", "cpu_milli=1000")


@pytest.mark.parametrize(
    ("rows", "design", "words", "problem"),
    [
        ([(0, 0, 9, 1), (20, 1, 9, 1)], "backfill", (), "--trace: no job of 2 waited for more than a second"),
        ([(0, 0, 9, 2), (1, 8, 9, 2)], "sparrow", SLOTS, "take a design that starts them whole, as pipeline"),
        ([(0, 0, 9, 2), (1, 8, 9, 2)], "backfill", ("--load", "0.5"), "--trace: arrivals are not those of the log"),
        ([(0, 0, 9, 1), (1, 8, 9, 9)], "backfill", (), "job 1 "),
        (
            [(0, 0, 9, 1), (1, 8, 9, 9)],
            "backfill",
            ("--gangs", "task"),
            "--workers: 1 of 2 jobs, which ran in the record, never start in the lab; give the machines of the log",
        ),
        ([(0, 0, 9, 1)], "no-such", (), "no-such"),
        ([(0, 0, 9, 1)], "backfill", ("--seeds", "3"), "No such option: --seeds"),
        ([(0, -1, -1, 1)], "backfill", (), "holds no task that can be replayed"),
    ],
)
def test_what_cannot_be_held_against_a_log_is_refused(
    command: Command, tmp_path: Path, rows: list[Row], design: str, words: tuple[str, ...], problem: str
) -> None:
    ended = held(command, written(tmp_path / "log.swf", rows), *words, design=design)
    assert (ended.status, ended.out) == (2, "")
    assert problem in ended.err


def test_an_error_is_json_where_that_was_asked_for(command: Command, tmp_path: Path) -> None:
    ended = held(command, written(tmp_path / "log.swf", [(0, 0, 9, 1)]), "--json")
    assert ended.status == 2
    assert ended.json["error"]["place"] == "--trace"
