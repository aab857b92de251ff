"""The maps of Slurm: exports of a real Slurm 22.05 (in the folder here), records by the manual, and bad rows.

Right values were taken from the commands that submitted the jobs, and the seconds of their starts and ends.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from volery.core.errors import InputError
from volery.workload import load_workload
from volery.workload.doctor import examine
from volery.workload.formats import fitting, format_of, read_source
from volery.workload.formats.columns.rows import BRIEF
from volery.workload.formats.columns.slurm import array_size, gpu_count, json_number, json_state, json_time, json_tres
from volery.workload.formats.source import Noticed
from volery.workload.table import TaskRow, rows_of

EXPORTS = Path(__file__).parent / "slurm-22.05"
S = 1_000_000
BEGIN = 1_795_855_791
"""2026-11-28 08:49:51 UTC."""
Facts = tuple[Any, ...]
RIGHT: dict[str, Facts] = {
    # submitted, started, ended (s), cores, MiB, GPUs, nodes of a gang, limit (min), account, status
    "plain": (0, 1, 3, 2, 100, 0, None, 5, "chem", "finished"),
    "bars": (0, 1, 2, 1, 100, 0, None, 5, "bio", "finished"),
    "lines": (0, 1, 2, 1, 100, 0, None, 1564, "bio", "finished"),
    "gpu": (0, 1, 4, 2, 200, 4, 2, 10, "chem", "finished"),
    "fails": (0, 1, 2, 1, 50, 0, None, 5, "chem", "failed"),
    "array 1": (0, 1, 21, 1, 100, 0, None, 5, "bio", "finished"),
    "array 2": (0, 21, 41, 1, 100, 0, None, 5, "bio", "finished"),
    "array 3": (0, 41, 62, 1, 100, 0, None, 5, "bio", "finished"),
    "array 4": (0, 62, 82, 1, 100, 0, None, 5, "bio", "finished"),
    "unlimited": (0, 1, 3, 4, 100, 0, None, None, "chem", "finished"),
    "no limit": (0, 1, 3, 1, 100, 0, None, 525_600, "chem", "finished"),
    "component 0": (0, 1, 4, 1, 100, 0, None, 5, "chem", "finished"),
    "component 1": (0, 1, 4, 2, 200, 1, None, 5, "chem", "finished"),
    "requeued": (0, 1, 5, 1, 100, 0, None, 5, "bio", "evicted"),
    "again": (5, 11, 15, 1, 100, 0, None, 5, "bio", "finished"),
    # 4 tasks on 3 nodes: each part has 2 cores, which is counted as changed
    "uneven": (0, 1, 3, 6, 30, 0, 3, 5, "chem", "finished"),
    "slow": (0, 1, 89, 1, 100, 0, None, 1, "bio", "killed"),
    "stopped": (0, 1, 5, 1, 100, 0, None, 5, "bio", "killed"),
    "steps": (0, 1, 3, 2, 100, 0, None, 5, "chem", "finished"),
    "small 0": (0, 1, 2, 1, 50, 0, None, 2, "chem", "finished"),
    "small 1": (0, 1, 3, 1, 50, 0, None, 2, "bio", "finished"),
    "small 2": (0, 2, 5, 1, 50, 0, None, 2, "chem", "finished"),
    "small 3": (0, 2, 3, 1, 50, 0, None, 2, "bio", "finished"),
    "small 4": (0, 2, 4, 1, 50, 0, None, 2, "chem", "finished"),
    "small 5": (0, 2, 5, 1, 50, 0, None, 2, "bio", "finished"),
    "small 6": (0, 2, 3, 1, 50, 0, None, 2, "chem", "finished"),
    "small 7": (1, 2, 4, 1, 50, 0, None, 2, "bio", "finished"),
}
RUNS = (0, 1, None, 1, 100, 0, None, 5, "bio", "running")
NEVER = (0, 5, 5, 1, 100, 0, None, 5, "chem", "killed")


def rows_in(path: Path, noticed: Noticed | None = None) -> list[TaskRow]:
    form = format_of(path)
    return [
        row
        for batch in read_source(path, form, noticed if noticed is not None else Noticed())
        for row in rows_of(batch)
    ]


def facts_of(row: TaskRow) -> Facts:
    times = [None if at is None else at / S - BEGIN for at in (row.submit_us, row.start_us, row.end_us)]
    amounts = (row.cpu_milli or 0) / 1000, row.memory_mb, (row.gpu_milli or 0) / 1000
    limit = None if row.limit_us is None else row.limit_us / 60 / S
    return (*times, *amounts, row.gang_nodes, limit, row.group, row.status)


@pytest.mark.parametrize(
    ("name", "form", "further"),
    [("sacct.txt", "sacct", RUNS), ("sacct.json", "sacct-json", RUNS), ("jobcomp.txt", "jobcomp", NEVER)],
)
def test_exports_of_a_real_slurm_give_what_was_submitted(name: str, form: str, further: Facts) -> None:
    found_format = fitting(EXPORTS / name)
    assert found_format is not None
    assert found_format.name == form
    rows = rows_in(EXPORTS / name)
    assert sorted(map(facts_of, rows), key=repr) == sorted([*RIGHT.values(), further], key=repr)
    assert {row.user for row in rows} == {"root"}
    assert {row.partition for row in rows} == {"cpu", "gpu"}
    assert [row.task for row in rows if row.job == "11"] == ["0", "1"], "attempts of a requeued job"


def test_a_run_of_an_export_leaves_out_what_runs_on_alone() -> None:
    trace, reading = load_workload(EXPORTS / "sacct.txt")
    core_s = sum((end - start) * cores for _, start, end, cores, *_ in RIGHT.values())
    assert trace.task_count >= len(RIGHT)
    assert reading is not None
    assert reading.left_out is not None
    reasons = {omission.reason: omission for omission in reading.left_out.reasons}
    assert set(reasons) == {
        "still running when the trace ends, so its end is not known",
        "cores or devices that do not divide by the nodes or tasks are rounded up for each",
    }
    # The job that runs on held its core from second 1 to the last of the others, 89.
    assert reading.left_out.machine_time == core_s + 88


def test_messy_records_are_counted() -> None:
    noticed = Noticed()
    rows_in(EXPORTS / "sacct.txt", noticed)
    assert dict(+noticed) == {
        "steps of jobs, which are no jobs": 29,
        "rows of which a JobName holds separators": 1,
        "rows of which a JobName holds line ends": 1,
        "rows of further attempts of a job, each of which is replayed": 1,
    }
    noticed = Noticed()
    rows_in(EXPORTS / "jobcomp.txt", noticed)
    assert noticed["rows of which a value holds line ends"] == 1


def test_bars_and_line_ends_in_two_columns_of_a_row_are_told_apart_by_the_times() -> None:
    """`sacct -o all` writes the name of a job twice: as JobName, and in SubmitLine."""
    noticed = Noticed()
    rows = rows_in(EXPORTS / "sacct-all.txt", noticed)
    names = ("plain", "bars", "lines", "gpu")
    assert list(map(facts_of, rows)) == [RIGHT[name] for name in names]
    for column in ("JobName", "SubmitLine"):
        assert noticed[f"rows of which a {column} holds separators"] == 1
        assert noticed[f"rows of which a {column} holds line ends"] == 1


HEADER = "JobID|JobName|Partition|Submit|Start|End|Elapsed|Timelimit|NNodes|NCPUS|ReqMem|AllocTRES|State"
GOOD = {
    "JobID": "7", "JobName": "n", "Partition": "cpu", "Submit": "2024-03-01T08:00:00", "Start": "2024-03-01T08:00:10",
    "End": "2024-03-01T09:00:10", "Elapsed": "01:00:00", "Timelimit": "02:00:00", "NNodes": "1", "NCPUS": "8",
    "ReqMem": "4Gn", "AllocTRES": "cpu=8,mem=4G,node=1", "State": "COMPLETED",
}  # fmt: skip


def sacct(folder: Path, *rows: dict[str, str]) -> Path:
    path = folder / "sacct.txt"
    path.write_text("\n".join([HEADER, *("|".join((GOOD | row).values()) for row in rows)]) + "\n")
    return path


@pytest.mark.parametrize(
    ("row", "right"),
    [
        ({"JobID": "102_[3-4%1]", "Start": "Unknown", "End": "Unknown", "Elapsed": "00:00:00", "State": "PENDING"},
         {"instances": 2, "status": "waiting", "start_us": None, "runtime_us": None, "cpu_milli": 8000}),
        ({"JobID": "102_[1,3,5-9:2%4]", "Start": "Unknown", "End": "Unknown", "State": "PENDING"}, {"instances": 5}),
        ({"JobID": "102_[1-3,...]", "Start": "Unknown", "End": "Unknown", "State": "PENDING"}, {"instances": 3}),
        ({"JobID": "102_[1-5,7,9,11-...]", "Start": "Unknown", "End": "Unknown", "State": "PENDING"},
         {"instances": 8}),
        ({"JobID": "102_[1-5,7-1...%4]", "Start": "Unknown", "End": "Unknown", "State": "PENDING"}, {"instances": 6}),
        ({"JobID": "103+0", "Timelimit": "Partition_Limit"}, {"job": "103+0", "limit_us": None, "estimate_us": None}),
        ({"Timelimit": "UNLIMITED"}, {"limit_us": None}),
        ({"Timelimit": "1-02:03:04"}, {"limit_us": 93_784 * S}),
        ({"Start": "None", "Elapsed": "00:00:00", "State": "CANCELLED by 1001"},
         {"status": "killed", "runtime_us": None}),
        ({"End": "Unknown", "Elapsed": "2-03:04:05", "State": "RUNNING"}, {"status": "running", "runtime_us": None}),
        ({"AllocTRES": "", "ReqMem": "2000Mc"}, {"cpu_milli": 8000, "memory_mb": 16_000}),
        ({"AllocTRES": "", "NNodes": "2", "ReqMem": "4Gn"}, {"gang_tasks": 2, "gang_nodes": 2, "memory_mb": 8192}),
        ({"AllocTRES": "", "ReqMem": "0n"}, {"memory_mb": None}),
        ({"AllocTRES": "billing=80,cpu=16,gres/gpu:a100=4,gres/gpu=4,mem=64G,node=1"},
         {"cpu_milli": 16_000, "gpu_milli": 4000}),
        ({"AllocTRES": "cpu=2,gres/gpu:a100=1,gres/gpu:v100=2,node=1"}, {"gpu_milli": 3000}),
        ({"Elapsed": "00:30:00"}, {"runtime_us": 1800 * S}),
        ({"State": "OUT_OF_MEMORY"}, {"status": "failed"}),
        ({"State": "NODE_FAIL"}, {"status": "lost"}),
        ({"State": "PREEMPTED"}, {"status": "evicted"}),
        ({"State": "SUSPENDED", "End": "Unknown"}, {"status": "running"}),
    ],
)  # fmt: skip
def test_each_field_is_read_as_the_manual_says(tmp_path: Path, row: dict[str, str], right: dict[str, Any]) -> None:
    [found] = rows_in(sacct(tmp_path, row))
    assert {name: getattr(found, name) for name in right} == right


BAD = {
    "Submit": ("soon", "Submit gives no submit: 'soon' is no date with a time"),
    "Start": ("2024-02-30T00:00:00", "Start gives no start: '2024-02-30T00:00:00' is no date"),
    "End": ("1709283610", "End gives no end: '1709283610' is no date with a time"),
    "Elapsed": ("1h", "Elapsed gives no runtime: '1h' is no duration"),
    "State": ("DREAMING", r"State gives no state: 'DREAMING' is no state of the map; add it to a list of \[states\]"),
    "JobID": ("102_[a-b]", r"JobID gives no array: '102_\[a-b\]' is no array as 102_\[3-4%1\]"),
    "AllocTRES": ("cpu=8,mem=lots,node=1", "AllocTRES gives no memory: could not convert string to float: 'lots'"),
}


@pytest.mark.parametrize("field", sorted(BAD))
def test_a_bad_field_is_named_by_line_and_target(tmp_path: Path, field: str) -> None:
    value, problem = BAD[field]
    with pytest.raises(InputError, match=rf"sacct\.txt:3: {problem}"):
        rows_in(sacct(tmp_path, {}, {field: value, "JobID": "8"} | {field: value}))
    bad_number = {"NNodes": "two", "NCPUS": "many"}
    for name, text in bad_number.items():
        with pytest.raises(InputError, match=rf"sacct\.txt:2: {name} gives no (nodes|cores): .*'{text}'"):
            rows_in(sacct(tmp_path, {"AllocTRES": "", name: text}))


def test_an_export_without_times_is_told_the_command(tmp_path: Path) -> None:
    path = tmp_path / "f"
    path.write_text("JobID|JobName|Partition|Account|AllocCPUS|State|ExitCode\n1|a|cpu|x|2|COMPLETED|0:0\n")
    with pytest.raises(
        InputError, match=r"f: has no column 'Submit', which gives submit; .*export it with sacct -P -o JobID"
    ):
        rows_in(path)


def test_a_requeued_job_without_a_second_submission_comes_when_its_first_attempt_ended(tmp_path: Path) -> None:
    second = {"Start": "2024-03-01T10:00:00", "End": "2024-03-01T10:10:00", "Elapsed": "00:10:00"}
    first, again = rows_in(sacct(tmp_path, {"State": "NODE_FAIL"}, second))
    assert (again.task, again.submit_us) == ("1", first.end_us)


def test_values_of_newer_json_are_read() -> None:
    """data_parser v0.0.40 (23.11): numbers as objects, and states as lists."""
    assert json_number('{"set":true,"infinite":false,"number":60}') == "60"
    assert json_number('{"set":false,"infinite":true,"number":0}') is None
    assert (json_number("60"), json_number("4294967295"), json_time("0"), json_time("7")) == ("60", None, None, "7")
    assert (json_state('["COMPLETED"]'), json_state("FAILED")) == ("COMPLETED", "FAILED")
    tres = json.dumps([{"type": "cpu", "name": "", "count": 8}, {"type": "gres", "name": "gpu:a100", "count": 4}])
    assert (json_tres(tres), gpu_count(json_tres(tres))) == ("cpu=8,gres/gpu:a100=4", 4)
    with pytest.raises(ValueError, match="no list of trackable resources"):
        json_tres("cpu")
    with pytest.raises(ValueError, match="is no range"):
        array_size("1_[2,-]")


def test_jobs_of_two_clusters_with_one_id_are_no_attempts(tmp_path: Path) -> None:
    """`sacct -M A,B` lists both clusters; each counts its jobs from 1."""
    words = "JobID|Cluster|Submit|Start|End|State\n"
    for cluster in ("A", "B"):
        words += f"5|{cluster}|2024-03-01T08:00:00|2024-03-01T08:00:10|2024-03-01T09:00:10|COMPLETED\n"
    (tmp_path / "f").write_text(words)
    noticed = Noticed()
    rows = rows_in(tmp_path / "f", noticed)
    assert [(row.job, row.task) for row in rows] == [("5", "0"), ("B/5", "0")]
    assert rows[0].submit_us == rows[1].submit_us
    assert not +noticed

    lines = (EXPORTS / "jobcomp.txt").read_text().splitlines()
    line = next(line for line in lines if line.startswith("JobId=") and "Cluster=" in line)
    other = re.sub("Cluster=[^ ]*", "Cluster=other", line)
    (tmp_path / "f").write_text(f"{line}\n{other}\n")
    first, second = rows_in(tmp_path / "f")
    assert (second.job, second.task, second.submit_us) == (f"other/{first.job}", "0", first.submit_us)

    jobs = json.loads((EXPORTS / "sacct.json").read_text())
    job = jobs["jobs"][0]
    (tmp_path / "f").write_text(json.dumps(jobs | {"jobs": [job, job | {"cluster": "other"}]}))
    first, second = rows_in(tmp_path / "f")
    assert (second.job, second.task, second.submit_us) == (f"other/{first.job}", "0", first.submit_us)


def test_a_row_that_overlaps_one_of_its_id_comes_no_later_than_it_started(tmp_path: Path) -> None:
    second = {"Start": "2024-03-01T08:30:00", "End": "2024-03-01T08:40:00", "Elapsed": "00:10:00"}
    _, again = rows_in(sacct(tmp_path, {}, second))
    assert again.submit_us == again.start_us


def test_what_slurmctld_remembers_is_what_it_logged_of_the_same_jobs() -> None:
    """Both were written by a real Slurm; of a requeued job scontrol knows its last attempt alone."""
    logged = {row.job: row for row in rows_in(EXPORTS / "scontrol-jobcomp.txt")}
    noticed = Noticed()
    rows = rows_in(EXPORTS / "scontrol.txt", noticed)
    assert format_of(EXPORTS / "scontrol.txt").name == "scontrol"
    assert len(rows) == 24
    assert not +noticed
    assert {row.partition for row in rows} == {"urgent", "main", "spare"}
    for row in rows:
        other = logged[row.job]
        same = (
            "start_us",
            "end_us",
            "runtime_us",
            "limit_us",
            "status",
            "user",
            "partition",
            "gang_nodes",
            "cpu_milli",
        )
        assert [getattr(row, name) for name in same] == [getattr(other, name) for name in same]
        assert row.submit_us == other.submit_us or other.task != "0"


JOB = (
    "JobId=7 JobName=n UserId=ann(1000) GroupId=g(1) Priority=4294901757 Account=a JobState={state} Reason=None "
    "Dependency={waits} RunTime={ran} TimeLimit={limit} SubmitTime=2024-03-01T08:00:00 StartTime={start} EndTime={end} "
    "Deadline=N/A Partition=p NumNodes={nodes} NumCPUs=4 NumTasks=4 CPUs/Task=1 TRES={tres} Features=(null) WorkDir=/"
)
RAN = {
    "state": "COMPLETED", "waits": "(null)", "ran": "01:00:00", "limit": "02:00:00", "start": "2024-03-01T08:00:10",
    "end": "2024-03-01T09:00:10", "nodes": "1", "tres": "cpu=8,mem=4G,node=1,billing=8",
}  # fmt: skip


@pytest.mark.parametrize(
    ("facts", "right"),
    [
        ({}, {"status": "finished", "runtime_us": 3600 * S, "limit_us": 7200 * S, "user": "ann", "group": "a",
              "parents": None, "deadline_us": None, "cpu_milli": 8000, "memory_mb": 4096, "priority": None}),
        ({"state": "PENDING", "waits": "afterok:5:6(unfulfilled)", "ran": "00:00:00", "start": "2024-03-02T08:00:00",
          "end": "2024-03-02T10:00:00", "nodes": "2-2", "tres": "(null)"},
         {"status": "waiting", "start_us": None, "end_us": None, "runtime_us": None, "parents": ["job 5", "job 6"],
          "cpu_milli": 4000, "gang_tasks": 2}),
        ({"state": "RUNNING", "limit": "UNLIMITED", "end": "Unknown", "tres": "cpu=8,node=1,gres/gpu:a100=2"},
         {"status": "running", "end_us": None, "runtime_us": None, "limit_us": None, "gpu_milli": 2000}),
        ({"state": "PREEMPTED", "ran": "00:00:00", "end": "2024-03-01T08:00:10"},
         {"status": "evicted", "runtime_us": None, "left_out": BRIEF}),
    ],
)  # fmt: skip
def test_states_of_scontrol(tmp_path: Path, facts: dict[str, str], right: dict[str, Any]) -> None:
    line = JOB.format(**(RAN | facts))
    # Without -o a job has several lines.
    for text in (line, line.replace(" GroupId", "\n   GroupId").replace(" RunTime", "\n   RunTime") + "\n"):
        (tmp_path / "f").write_text(f"{text}\n")
        noticed = Noticed()
        (row,) = rows_in(tmp_path / "f", noticed)
        assert {name: getattr(row, name) for name in right} == right
        assert not +noticed


@pytest.mark.parametrize(
    ("fact", "value", "problem"),
    [("state", "GONE", "JobState gives no state: 'GONE' is no state"), ("ran", "long", "RunTime gives no runtime"),
     ("start", "soon", "StartTime gives no start"), ("end", "soon", "EndTime gives no end")],
)  # fmt: skip
def test_a_wrong_value_of_scontrol_is_refused(tmp_path: Path, fact: str, value: str, problem: str) -> None:
    (tmp_path / "f").write_text(JOB.format(**RAN) + "\n" + JOB.format(**(RAN | {fact: value})) + "\n")
    with pytest.raises(InputError, match=rf"f:2: {problem}"):
        rows_in(tmp_path / "f")


@pytest.mark.parametrize("name", ["sacct.txt", "sacct.json", "jobcomp.txt", "scontrol.txt"])
def test_the_doctor_finds_no_defect_in_what_a_real_slurm_wrote(name: str) -> None:
    """Rows in the order of ends, and times of the clock, are as they should be in such files."""
    assert examine(EXPORTS / name).unanswered == []
