"""Philly's attempts and times: what held GPUs is replayed, for as long as it held them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from volery.core.omissions import CHANGED, LEFT_OUT, Omissions
from volery.core.trace import NO_GANG, Trace
from volery.workload import load_workload
from volery.workload.doctor import examine
from volery.workload.formats.microsoft import NO_START, OTHER_GPUS
from volery.workload.formats.source import PACIFIC, moment
from volery.workload.omissions import ATTEMPTS, NEVER_STARTED, ONE_BY_ONE, STILL_RUNNING
from volery.workload.table import VERSION, TableManifest, TaskRow, batches, table_output

S = 1_000_000
HOUR = 3600 * S
Attempt = tuple[str | None, str | None, int]


def job(submitted: str, *attempts: Attempt, status: str = "Pass", name: str = "a1") -> dict[str, Any]:
    """Attempts of (begin, end, GPUs)."""
    return {
        "jobid": name,
        "submitted_time": submitted,
        "status": status,
        "user": "u",
        "attempts": [
            {"start_time": begin, "end_time": end, "detail": [{"gpus": ["g"] * gpus}] if gpus else []}
            for begin, end, gpus in attempts
        ],
    }


def read(folder: Path, *jobs: dict[str, Any], has_gangs: bool = False) -> tuple[Trace, Omissions]:
    """The jobs of a log; an attempt is one task, unless gangs are read."""
    path = folder / "cluster_job_log"
    path.write_text(json.dumps(jobs))
    trace, reading = load_workload(path, has_gangs=has_gangs)
    assert reading is not None
    assert reading.left_out is not None
    return trace, reading.left_out


def at(time: str) -> str:
    return f"2017-10-09 {time}"


def gpus(trace: Trace) -> list[int]:
    return [trace.requests[k][0] // 1000 for k in trace.request]


def test_a_job_whose_last_attempt_has_no_times_is_replayed_by_its_others(tmp_path: Path) -> None:
    attempts: tuple[Attempt, ...] = ((at("07:00:10"), at("07:00:40"), 2), (None, None, 0))
    trace, found = read(tmp_path, job(at("07:00:00"), *attempts, status="Killed"))
    assert (list(trace.duration_us), gpus(trace)) == ([30 * S], [2])
    assert [(one.reason, one.effect, one.tasks) for one in found.reasons] == [(NEVER_STARTED, LEFT_OUT, 1)]
    assert found.jobs_left_out == 0


def test_the_time_between_attempts_is_no_work_and_each_holds_its_own_gpus(tmp_path: Path) -> None:
    attempts: tuple[Attempt, ...] = (
        (at("07:00:10"), at("07:00:20"), 8),
        (at("09:00:00"), at("09:00:30"), 4),
        (at("09:30:00"), at("09:30:05"), 4),
    )
    trace, found = read(tmp_path, job(at("07:00:00"), *attempts))
    assert (list(trace.duration_us), gpus(trace)) == ([10 * S, 30 * S, 5 * S], [8, 4, 4])
    assert list(trace.parents) == [0, 1], "one after another"
    assert found.machine_time == 8 * 10 + 4 * 35
    assert not found.reasons


def test_a_job_of_several_gpus_is_a_gang_and_its_attempts_are_gangs_that_came_when_the_one_before_ended(
    tmp_path: Path,
) -> None:
    attempts: tuple[Attempt, ...] = (
        (at("07:00:10"), at("07:00:20"), 8),
        (at("09:00:00"), at("09:00:30"), 4),
        (at("09:30:00"), at("09:30:05"), 1),
    )
    other = job(at("07:00:05"), (at("07:00:05"), at("07:01:05"), 2), name="a2")
    single = job(at("07:00:06"), (at("07:00:10"), at("07:00:20"), 1), (at("07:02:00"), at("07:03:00"), 1), name="a3")
    trace, found = read(tmp_path, job(at("07:00:00"), *attempts), other, single, has_gangs=True)

    ends = [0, 5 * S, 6 * S, 20 * S, 2 * HOUR + 30 * S]
    assert list(trace.arrival_us) == ends
    assert list(trace.first) == [0, 8, 10, 12, 16, 17]
    assert list(trace.gang_nodes) == [0, 0, NO_GANG, 0, NO_GANG]
    assert set(gpus(trace)) == {1}
    assert list(trace.duration_us) == [10 * S] * 8 + [60 * S] * 2 + [10 * S, 60 * S] + [30 * S] * 4 + [5 * S]
    assert list(trace.parents) == [10], "attempts of one GPU are tasks, one after another"
    assert [(one.reason, one.effect, one.tasks) for one in found.reasons] == [(ATTEMPTS, CHANGED, 2)]


def test_gangs_of_a_job_whose_attempts_have_no_known_end_are_tasks_one_by_one(tmp_path: Path) -> None:
    rows = [
        TaskRow("a", "0", None, 0, None, None, 5, gpu_milli=2000.0, parents=[], gang_tasks=2),
        TaskRow("a", "1", None, 0, None, None, 5, gpu_milli=2000.0, parents=["0"], gang_tasks=2),
    ]
    path = tmp_path / "t.parquet"
    with table_output(path) as table:
        for batch in batches(rows):
            table.add(batch)
        table.finish(TableManifest(VERSION, "rows", "", "table", "a test"))
    trace, reading = load_workload(path)
    assert (list(trace.gang_nodes), gpus(trace), list(trace.parents)) == ([], [2, 2], [0])
    assert reading is not None
    assert reading.left_out is not None
    assert [one.reason for one in reading.left_out.reasons] == [ONE_BY_ONE]


def test_an_attempt_that_never_started_keeps_the_others_in_order(tmp_path: Path) -> None:
    attempts: tuple[Attempt, ...] = (
        (at("07:00:10"), at("07:00:20"), 1),
        (None, None, 1),
        (at("07:01:00"), at("07:01:05"), 1),
    )
    trace, _ = read(tmp_path, job(at("07:00:00"), *attempts))
    assert (list(trace.duration_us), list(trace.parents)) == ([10 * S, 5 * S], [0])


def test_an_attempt_whose_start_is_not_in_the_log_is_left_out_for_that(tmp_path: Path) -> None:
    """The log has attempts that were placed, so that it held GPUs, for a time that is not known."""
    attempts: tuple[Attempt, ...] = ((at("07:00:10"), at("07:00:20"), 1), (None, at("07:00:30"), 1))
    for last in (attempts[1], (None, None, 1), (None, at("07:00:30"), 0)):
        trace, found = read(tmp_path, job(at("07:00:00"), attempts[0], last, status="Killed"))
        assert list(trace.duration_us) == [10 * S]
        assert [(one.reason, one.effect, one.unmeasured) for one in found.reasons] == [(NO_START, LEFT_OUT, 1)]


def test_a_job_whose_last_attempt_has_no_end_was_still_running(tmp_path: Path) -> None:
    other = job(at("07:00:00"), (at("07:00:00"), at("07:01:00"), 1), name="a2")
    trace, found = read(tmp_path, job(at("07:00:00"), (at("07:00:10"), None, 1)), other)
    assert list(trace.duration_us) == [60 * S]
    assert [(one.reason, one.machine_time) for one in found.reasons] == [(STILL_RUNNING, 50)]


def test_entries_with_one_id_are_jobs_of_their_own(tmp_path: Path) -> None:
    entries = [
        job(at(f"07:0{k}:00"), (at(f"07:0{k}:00"), at(f"07:0{k}:10"), 1), (at(f"07:0{k}:20"), at(f"07:0{k}:50"), 1))
        for k in range(2)
    ]
    trace, found = read(tmp_path, *entries, entries[0])
    assert (list(trace.arrival_us), list(trace.parents)) == ([0, 60 * S], [0, 2])
    assert (found.jobs, found.reasons) == (2, ())
    noticed = examine(tmp_path / "cluster_job_log").noticed
    assert noticed["entries with the id of another job, jobs of their own"] == 1
    assert noticed["entries that repeat another entry, passed over"] == 1


def test_an_attempt_whose_gpus_are_not_in_the_log_has_those_of_the_others_and_is_told(tmp_path: Path) -> None:
    attempts: tuple[Attempt, ...] = ((at("07:00:10"), at("07:00:20"), 2), (at("07:01:00"), at("07:01:05"), 0))
    trace, found = read(tmp_path, job(at("07:00:00"), *attempts))
    assert gpus(trace) == [2, 2]
    assert [(one.reason, one.effect) for one in found.reasons] == [(OTHER_GPUS, CHANGED)]


@pytest.mark.parametrize(
    ("begin", "end", "hours"),
    [
        ("2017-11-05 00:30:00", "2017-11-05 02:30:00", 3),
        ("2017-11-05 01:30:00 PDT", "2017-11-05 01:30:00 PST", 1),
        ("2017-11-05 01:50:00", "2017-11-05 01:20:00", 0.5),
        ("2017-11-04 12:00:00", "2017-11-05 12:00:00", 25),
        ("2018-03-11 00:30:00", "2018-03-11 03:30:00", 2),
        ("2017-10-09 07:00:00", "2017-10-09 09:00:00", 2),
        ("2017-10-09 07:00:00 PST", "2017-10-09 08:00:00 PDT", 0),
        ("2017-10-09 07:00:00-07:00", "2017-10-09T16:00:00Z", 2),
    ],
)
def test_an_attempt_lasts_as_long_as_it_did_when_the_clocks_change(
    tmp_path: Path, begin: str, end: str, hours: float
) -> None:
    trace, _ = read(tmp_path, job(begin, (begin, end, 1)), job(begin, (begin, begin, 1), name="a2"))
    assert list(trace.duration_us)[:1] == [round(hours * HOUR)]


@pytest.mark.parametrize("time", ["2017-10-09 07:00:00 CEST", "yesterday", "2017-13-01 00:00:00"])
def test_a_time_that_is_none_is_refused(time: str) -> None:
    with pytest.raises(ValueError, match=r"is no date with a time"):
        moment(time, PACIFIC)


def test_an_offset_behind_a_time_of_the_table_of_durations_counts(tmp_path: Path) -> None:
    path = tmp_path / "durations.csv"
    rows = ("2017-10-09 07:00:00", "2017-10-09 16:00:00+02:00", "2017-10-09 07:00:00.500 PDT", "2017-10-09T14:00:02Z")
    path.write_text("timestamp,duration,num_gpus,gpu_time,cluster\n" + "".join(f"{row},6,1,6,c\n" for row in rows))
    trace, _ = load_workload(path)
    assert list(trace.arrival_us) == [0, 0, S // 2, 2 * S]
