"""Every reader: rows made here in its format, what they say in the canonical table, and the way there and back."""

from __future__ import annotations

import gzip
import json
import os
import random
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.errors import InputError
from volery.workload.formats import FORMATS, NO_LINE_END, format_of, read_source
from volery.workload.formats.columns import MAPS
from volery.workload.formats.source import Noticed
from volery.workload.table import (
    BATCH_ROWS,
    OMISSIONS,
    RIGID_JOBS,
    VERSION_KEY,
    TableManifest,
    TaskRow,
    batches,
    is_table,
    manifest_of,
    read_table,
    rows_of,
    table_output,
)

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[5] / "shared" / "traces"))
S = 1_000_000
USAGE = ",collection_id,instance_index,resource_request,constraint,start_time,end_time,user,priority,spread\n"
TEXTS: dict[str, str] = {
    "tr": "5 2 1.5 1 2\n6.5 1 3 3\n",
    "job-summary": "job_id,arrival_s,ntasks,mean_task_s,max_task_s_floor,ideal_completion_s,source\n"
    "1,0,2,1.5,2,2,a\n2,10,1,3.25,3,13,a\n3,,,,,24,b\n",
    "swf": "; Version: 2.2\n1 0 -1 30 4 -1 -1 -1 -1 -1 -1 1 -1 -1 -1 -1 -1 -1\n"
    "2 10 5 30 4 -1 -1 4 60 2048 1 3 -1 -1 -1 -1 -1 -1\n3 20 0 -1 1 -1 -1 1 -1 -1 5 -1 1 1 1 1 1 -1\n"
    "3 20 0 7 1 -1 -1 1 -1 -1 2 -1 1 1 1 1 1 -1\n",
    "gwf": "WorkflowID, JobID , SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies\n0, 1, 16, 11, 1, 2,   \n"
    "0, 2, 40, 11, 1, -1, 1 \n",
    "alibaba-2017": "100,110,7,1,3,Terminated,50,0.5\n-5,96,9,2,2,Failed,50,0.1\n95,96,9,1,2,Waiting,,\n",
    "alibaba-2017-means":
    ",submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n0,5,1.5,0.5,0.25,1,2,4,0\n",
    "alibaba-2018":
    "M1,2,j_1,1,Terminated,10,12,50,25\nR3_1_2,1,j_1,1,Running,12,,100,\nMergeTask,,j_2,1,Failed,13,12,,\n",
    "alibaba-gpu": "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,"
    "scheduled_time\np-0,12000,16384,1,460,,LS,Succeeded,0,40,10\np-1,2000,512,0,0,T4|P100,LS,Pending,5,90,\n",
    "google-2011": "0,,1,1,,0,ua,3,9,0.5,0.25,0.125,1\n4,,1,1,77,1,ua,3,9,0.5,0.25,0.125,1\n9,,1,1,77,4,ua,3,9,,,,\n"
    "9,2,1,2,77,1,ub,3,9,,,,\n9223372036854775807,,1,2,77,4,ub,3,9,,,,\n",
    "google-2011-jobs": "0,,3,0,u=,3,n=,l=\n5,,3,1,u=,3,n=,l=\n7,,3,5,u=,3,n=,l=\n",
    "google-2011-reduced": "0;12;0;user;2;10;5000000;-1;0.5;0.25\n",
    "google-2019-usage": USAGE + "0,44,1,\"{'cpus': 0.5, 'memory': None}\",[],1000000,3000000,u,200,\"[0.1\n 0.2]\"\n"
    '1,45,2,"{}","[{c}]",1000000,,u,,"[]"\n',
    "google-2019": '{"time":"5","type":0,"collection_id":"44","instance_index":1,"resource_request":{"cpus":0.5},'
    '"priority":450}\n'
    '{"time":7,"type":3,"collection_id":44,"instance_index":1,"constraint":[{"name":"k","value":"v","relation":1}]}\n'
    '{"time":"11","type":6,"collection_id":"44","instance_index":1}\n',
    "azure-requests": "0,2.0,4893,9046,265027,50,simulated,medium\n",
    "swim": "job0\t49\t49\t740773\t0\t62\njob1\t50\t1\t134217729\t4\t62\tin\t\t\n",
    "philly": json.dumps([
        {"jobid": "a1", "submitted_time": "2017-10-09 07:00:00", "status": "Pass", "user": "u", "attempts": [
            {"start_time": "2017-10-09 07:00:10", "end_time": "2017-10-09 07:00:20", "detail": [{"gpus": ["g", "h"]}]},
            {"start_time": "2017-10-09 07:00:30", "end_time": "2017-10-09 07:01:00", "detail": [{"gpus": ["g0"]}]},
        ]},
        {"jobid": "a2", "submitted_time": "2017-10-09 07:00:00 PDT", "status": "Killed", "attempts": []},
    ]),
    "philly-durations": "timestamp,duration,num_gpus,gpu_time,cluster\n1970-01-01 00:01:00,66.0,2,132.0,11cb48\n",
    "wfcommons": json.dumps({"name": "blast", "schemaVersion": "1.5", "workflow": {
        "specification": {"tasks": [
            {"name": "s", "id": "s1", "parents": []}, {"name": "b", "id": "b1", "parents": ["s1"]},
        ]},
        "execution": {"tasks": [
            {"id": "s1", "runtimeInSeconds": 1.5, "coreCount": 2, "memoryInBytes": 1048576}, {"id": "b1"},
        ]},
    }}),
}  # fmt: skip
VERSION_3 = ["priority", "deadline_us", "task_submit_us"]
DAMAGE = ["", "-", "9" * 20, '"', ",", "nan", "\n", "1e400", "\0", "x"]
T0 = 1_507_557_600 * S
"""2017-10-09 07:00:00 PDT."""
ROWS: dict[str, list[TaskRow]] = {
    "job-summary": [
        TaskRow("1", "0", None, 0, None, None, 500_000, 1_500_000, parents=[], line=2),
        TaskRow("1", "1", None, 0, None, None, 2_500_000, 1_500_000, parents=[], line=2),
        TaskRow("2", "0", None, 10 * S, None, None, 3_250_000, 3_250_000, parents=[], line=3),
        TaskRow("3", "0", None, 20 * S, None, None, 500_000, 2_500_000, parents=[], line=4),
        TaskRow("3", "1", None, 20 * S, None, None, 4_500_000, 2_500_000, parents=[], line=4),
    ],
    "tr": [
        TaskRow("1", "0", None, 5 * S, None, None, S, 1_500_000, parents=[], line=1),
        TaskRow("1", "1", None, 5 * S, None, None, 2 * S, 1_500_000, parents=[], line=1),
        TaskRow("2", "0", None, 6_500_000, None, None, 3 * S, 3 * S, parents=[], line=2),
    ],
    "swf": [
        TaskRow("1", "0", "1", 0, None, None, 30 * S, cpu_milli=4000, line=2, gang_tasks=4),
        TaskRow("2", "0", "3", 10 * S, 15 * S, 45 * S, 30 * S, 60 * S, cpu_milli=4000, memory_mb=8, status="finished",
                line=3, limit_us=60 * S, gang_tasks=4),
        TaskRow("3", "0", None, 20 * S, 20 * S, cpu_milli=1000, parents=["job 1"], status="killed", line=4),
    ],
    "gwf": [
        TaskRow("0", "1", None, 16 * S, None, None, 11 * S, cpu_milli=2000, parents=[], line=2, task_submit_us=16 * S),
        TaskRow("0", "2", None, 40 * S, None, None, 11 * S, cpu_milli=1000, parents=["1"], line=3,
                task_submit_us=40 * S),
    ],
    "wta": [
        TaskRow("9", "1", None, 0, None, None, 7_184_000, cpu_milli=1000, parents=[], line=1, task_submit_us=0),
        TaskRow("9", "2", "5", 6 * S, 6_003_000, 6_013_000, 10_000, cpu_milli=2000, parents=["1"], line=2,
                task_submit_us=6 * S),
    ],
    "alibaba-2017": [
        TaskRow("7", "1", None, 100 * S, None, 110 * S, 10 * S, instances=3, cpu_milli=500, memory_share=0.5,
                status="finished", line=1),
        TaskRow("9", "2", None, -5 * S, None, 96 * S, 101 * S, instances=2, cpu_milli=500, memory_share=0.1,
                status="failed", line=2),
        TaskRow("9", "1", None, 95 * S, None, 96 * S, S, instances=2, status="waiting", line=3),
    ],
    "alibaba-2017-means": [
        TaskRow("1", "2", None, 5 * S, None, None, 1_500_000, instances=4, cpu_milli=500, memory_share=0.25, line=2)
    ],
    "alibaba-2018": [
        TaskRow("j_1", "1", None, 10 * S, 10 * S, 12 * S, 2 * S, instances=2, cpu_milli=500, memory_share=0.25,
                parents=[], status="finished", line=1),
        TaskRow("j_1", "3", None, 12 * S, 12 * S, cpu_milli=1000, parents=["1", "2"], status="running", line=2),
        TaskRow("j_2", "MergeTask", None, 13 * S, 13 * S, 12 * S, instances=None, status="failed", line=3),
    ],
    "alibaba-gpu": [
        TaskRow("p-0", "0", None, 0, 10 * S, 40 * S, 30 * S, cpu_milli=12_000, memory_mb=16_384, gpu_milli=460,
                constraints=[], status="finished", line=2),
        TaskRow("p-1", "0", None, 5 * S, None, 90 * S, cpu_milli=2000, memory_mb=512, gpu_milli=0,
                constraints=["gpu_spec=T4|P100"], status="waiting", line=3),
    ],
    "google-2011": [
        TaskRow("1", "1", "ua", 0, 4, 9, 5, cpu_share=0.5, memory_share=0.25, disk_share=0.125,
                constraints=["different_machine"], status="finished", line=1, priority=9, task_submit_us=0),
        TaskRow("1", "2", "ub", None, 9, status="running", line=4, priority=9),
    ],
    "google-2011-jobs": [
        TaskRow("3", "0", "u=", 0, 5, 7, 2, instances=None, status="killed", line=1, task_submit_us=0)
    ],
    "google-2011-reduced": [
        TaskRow("12", "0", "user", 0, None, 5 * S, 5 * S, cpu_share=0.5, memory_share=0.25, line=1, priority=10)
    ],
    "google-2019-usage": [
        TaskRow("44", "1", "u", S, S, 3 * S, 2 * S, cpu_share=0.5, constraints=[], line=2, priority=200),
        TaskRow("45", "2", "u", S, S, constraints=["[{c}]"], line=4),
    ],
    "google-2019": [
        TaskRow("44", "1", None, 5, 7, 11, 4, cpu_share=0.5, constraints=["k!=v"], status="finished", line=1,
                priority=450, task_submit_us=5),
    ],
    "azure-packing": [
        TaskRow("8", "0", "3", 43_200 * S, 43_200 * S, 86_400 * S, 43_200 * S, cpu_share=0.25, memory_share=0.5,
                disk_share=0.125, status="finished", line=1, priority=0),
        TaskRow("9", "0", "3", -86_400 * S, -86_400 * S, status="running", line=2, priority=-1),
    ],
    "azure-requests": [
        TaskRow("0", "0", None, 50_000, None, None, 265_027_000, cpu_milli=2000, memory_mb=4893, disk_mb=9046, line=1)
    ],
    "philly": [
        TaskRow("a1", "0", "u", T0, T0 + 10 * S, T0 + 20 * S, 10 * S, gpu_milli=2000, parents=[], status="failed",
                line=1, gang_tasks=2),
        TaskRow("a1", "1", "u", T0, T0 + 30 * S, T0 + 60 * S, 30 * S, gpu_milli=1000, parents=["0"], status="finished",
                line=1),
        TaskRow("a2", "0", None, T0, parents=[], status="killed", line=2),
    ],
    "philly-durations": [TaskRow("2", "0", "11cb48", 28_860 * S, None, None, 66 * S, gpu_milli=2000, line=2,
                                 gang_tasks=2)],
    "swim": [
        TaskRow("job0", "0", None, 49 * S, None, None, 20 * S, parents=[], line=1),
        TaskRow("job1", "0", None, 50 * S, None, None, 20 * S, instances=3, parents=[], line=2,
                changed="a job with reduces, of which the maps alone are replayed"),
    ],
    "wfcommons": [
        TaskRow("blast", "s1", None, 0, None, None, 1_500_000, cpu_milli=2000, parents=[], line=1),
        TaskRow("blast", "b1", None, 0, parents=["s1"], line=2),
    ],
}  # fmt: skip


def write_wta(path: Path) -> None:
    """A child list of reals, as in the archive's Chronos trace."""
    columns: dict[str, Any] = {
        "id": [1, 2], "workflow_id": [9, 9], "ts_submit": [0, 6000], "runtime": [7184, 10], "wait_time": [-1, 3],
        "user_id": pa.array([-1, 5], pa.int32()), "resource_amount_requested": [1.0, 2.0],
        "resource_type": ["thread", "core"], "parents": [[], [1]], "children": [[2.0], []],
    }  # fmt: skip
    pq.write_table(pa.table(columns), path)


def write_packing(path: Path) -> None:
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("create table vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        base.execute("create table vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
        base.executemany("insert into vm values (?,?,?,?,?,?)", [(8, 3, 1, 0, 0.5, 1.0), (9, 3, 2, 1, -1.0, None)])
        kinds = [(0, 1, 0, 0.25, 0.5, None, 0.125, 0), (1, 1, 1, 0.5, 0.75, None, 0.25, 0)]
        base.executemany("insert into vmType values (?,?,?,?,?,?,?,?)", kinds)


def made(folder: Path, name: str) -> Path:
    """A file of the format, under a name that says nothing."""
    path = folder / "source"
    writers: dict[str, Callable[[Path], None]] = {"wta": write_wta, "azure-packing": write_packing}
    if name in writers:
        writers[name](path)
    else:
        path.write_text(TEXTS[name])
    return path


def rows_in(path: Path, name: str | None = None) -> list[TaskRow]:
    return [row for batch in read_source(path, format_of(path, name), Noticed()) for row in rows_of(batch)]


def manifest() -> TableManifest:
    return TableManifest(1, "source", "00", "tr", "volery", noticed={"blank lines": 2})


def test_every_format_has_a_case_here() -> None:
    mapped = {one.name for one in MAPS}  # of which each has a file of rows, in columns/
    assert set(ROWS) == {one.name for one in FORMATS} - {"table"} - mapped


@pytest.mark.parametrize("name", sorted(ROWS))
def test_a_reader_says_what_the_source_says_and_nothing_more(tmp_path: Path, name: str) -> None:
    path = made(tmp_path, name)
    assert format_of(path).name == name
    assert rows_in(path) == ROWS[name]
    if name in TEXTS:
        text = path.read_bytes()
        half = text.index(b"\n") + 1 if b"\n" in text else 1
        packed = gzip.compress(text[:half]) + gzip.compress(text[half:])
        for copy in (packed, b"\xef\xbb\xbf" + text, text.replace(b"\n", b"\r\n"), text.removesuffix(b"\n")):
            path.write_bytes(copy)
            assert rows_in(path) == ROWS[name]


@pytest.mark.parametrize("name", sorted(ROWS))
def test_the_canonical_table_holds_every_row_of_every_reader(tmp_path: Path, name: str) -> None:
    path, table = made(tmp_path, name), tmp_path / "table"
    with table_output(table) as output:
        for batch in read_source(path, format_of(path), Noticed()):
            output.add(batch)
        output.finish(manifest())
    assert format_of(table).name == "table"
    assert rows_in(table) == ROWS[name]
    assert manifest_of(table) == manifest()


def test_rows_are_taken_a_batch_at_a_time(tmp_path: Path) -> None:
    """So that memory holds a batch, however long the file is."""
    taken = 0

    def rows() -> Iterator[TaskRow]:
        nonlocal taken
        for taken in range(1, BATCH_ROWS + 3):
            yield TaskRow(line=taken)

    parts = batches(rows())
    assert next(parts).num_rows == taken == BATCH_ROWS
    assert next(parts).num_rows == 2
    with table_output(tmp_path / "t.parquet") as output:
        for batch in batches(rows()):
            output.add(batch)
        output.finish(manifest())
    assert pq.ParquetFile(tmp_path / "t.parquet").num_row_groups == 2


def test_a_wta_folder_of_parts_is_one_trace(tmp_path: Path) -> None:
    parts = tmp_path / "trace" / "tasks.parquet"
    parts.mkdir(parents=True)
    write_wta(parts / "part-0.parquet")
    write_wta(parts / "part-1.parquet")
    assert [row.line for row in rows_in(tmp_path / "trace")] == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("name", "old", "new", "problem"),
    [
        ("tr", "5 2 1.5 1 2", "5 3 1.5 1 2", r"source:1: is no row of \.tr: it has 2 durations where field 2 says"),
        ("job-summary", "2,10,1,", "2,10,0,", "source:3: is no row of a summary of jobs: a time is negative, or"),
        ("job-summary", "2,10,1,", "2,10,1.5,", "source:3: is no row of a summary of jobs: .* tasks is not whole"),
        ("job-summary", ",,24,b", ",,nan,b", "source:4: is no row of a summary of jobs: a number is not below 1e.09"),
        ("job-summary", "2,10,1,", "2,14,1,", "source:3: is no row of a summary of jobs: a job ends before its"),
        ("swf", "2 10 5", "2 10", "source:3: is no row of SWF: 17 fields where there are 18"),
        ("swf", "2 10 5", "2 soon 5", "source:3: is no row of SWF: could not convert .*'soon'; mend or delete"),
        ("gwf", "0, 2, 40", "0, 2", "source:3: has 6 fields where 7 are expected; mend the row"),
        ("gwf", ", Dependencies", ", Dependencies, NProcs", "source:1: names the column 'NProcs' twice; keep one"),
        ("alibaba-2017", "7,1,3,", "7,1,-1,", "source:1: is no row of Alibaba v2017 .*'-1' is no number of instances"),
        ("alibaba-2018", "10,12,50", "10,12,-50", "source:1: is no row of Alibaba v2018 .*'-50' is no amount"),
        ("google-2011", "ub,3,9,", "ub,3,urgent,", "source:4: is no row of Google 2011 .*'urgent'"),
        ("google-2011", "ub,3,9,", "ub,3,2147483648,", "source:4: .*'2147483648' is no priority: a whole number below"),
        (
            "google-2019",
            ":450",
            ":4294967296",
            "source:1: is no row of Google 2019 instance_events: Expected `int` <= 2147483647",
        ),
        ("google-2011", "4,,1,1,77,1", "4,,1,1,77,9", "source:2: is no row of Google 2011 task_events: '9'"),
        (
            "google-2019",
            '{"time":7',
            '{"time":}',
            "source:2: is no row of Google 2019 instance_events: JSON is malformed",
        ),
        ("google-2019", '"type":3', '"type":33', "source:2: is no row of Google 2019 instance_events: 33 is no type"),
        ("philly", '"jobid": "a1", ', "", r"source: is no log of Philly's jobs: .*jobid"),
        ("wfcommons", '"tasks": [{"name": "s"', '"tasks": [{"name": 7', "source: is no WfCommons document: .*name"),
        ("philly-durations", "1970-01-01", "1970-13-01", "source:2: is no row of Philly durations: "),
        ("gwf", "16, 11,", "16, 1_1,", "source:2: is no row of GWF: '1_1' is no number"),
        ("alibaba-2018", "10,12,50", "10,\u0661\u0662,50", "source:1: is no row of Alibaba v2018 .* is no number"),
        ("job-summary", "\n2,10,", "\n1,10,", "source:3: .*job_id '1' is not above that of the row before"),
        (
            "swim",
            "\t740773\t0\t62",
            "\t740773",
            "source:1: is no row of SWIM: it has 4 fields with tabs .* 6 are expected",
        ),
        ("swim", "740773", "-1", "source:1: is no row of SWIM: '-1' is no amount"),
        ("swim", "134217729", "9e14", "source:2: is no row of SWIM: .* is no number of instances"),
        ("azure-requests", ",50,", ",1e99,", "source:1: is no row of Azure requests: '1e99' is no time"),
    ],
)
def test_a_wrong_row_is_named_by_its_line(tmp_path: Path, name: str, old: str, new: str, problem: str) -> None:
    path = made(tmp_path, name)
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))
    with pytest.raises(InputError, match=problem):
        rows_in(path, name)


def test_values_of_another_type_are_named_by_their_row(tmp_path: Path) -> None:
    path = made(tmp_path, "azure-packing")
    with closing(sqlite3.connect(path)) as base, base:
        base.execute("update vmType set core = 'many'")
    with pytest.raises(InputError, match=r"source:1: is no row of Azure packing: .*'many'"):
        rows_in(path)
    pq.write_table(pa.table({"id": [1], "workflow_id": [9], "ts_submit": [0], "runtime": [1], "parents": ["x"]}), path)
    with pytest.raises(InputError, match=r"source:1: is no part of a WTA trace: "):
        rows_in(path)


@pytest.mark.parametrize(
    ("wrong", "problem"),
    [
        (TaskRow("a", "1", status="FINISHED"), "source:2: status is 'FINISHED'; it is one of finished, failed, "),
        (TaskRow("a", "1", estimate_us=-5), "source:2: estimate_us is -5; it is 0 or more, or null"),
    ],
)
def test_values_that_a_table_cannot_hold_are_refused(tmp_path: Path, wrong: TaskRow, problem: str) -> None:
    path = tmp_path / "source"
    with table_output(path) as writer:
        for batch in batches([TaskRow("a", "0"), wrong]):
            writer.add(batch)
    with pytest.raises(InputError, match=problem):
        rows_in(path)


def test_a_file_of_no_format_and_a_format_of_no_name_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.swf"
    path.write_text("what is this\n")
    with pytest.raises(InputError, match=r"a\.swf:1: begins with 'what is this', which no known format .*--format"):
        format_of(path)
    with pytest.raises(InputError, match="--format: 'gfw' is no format; did you mean 'gwf'"):
        format_of(path, "gfw")
    with pytest.raises(InputError, match="absent: no such file"):
        format_of(tmp_path / "absent")


@pytest.mark.parametrize(
    ("version", "lacks"),
    [
        (b"1", ["replicas", *VERSION_3, *OMISSIONS, *RIGID_JOBS, "gang_rack"]),
        (b"2", [*VERSION_3, *OMISSIONS, *RIGID_JOBS, "gang_rack"]),
        (b"3", [*OMISSIONS, *RIGID_JOBS, "gang_rack"]),
        (b"4", [*RIGID_JOBS, "gang_rack"]),
        (b"5", ["gang_rack"]),
    ],
)
def test_an_older_table_is_read_and_says_nothing_of_what_came_later(
    tmp_path: Path, version: bytes, lacks: list[str]
) -> None:
    path = tmp_path / "old.parquet"
    said = TaskRow(
        job="1", task="a", submit_us=0, runtime_us=5, line=1, replicas=[4], priority=3, deadline_us=9, task_submit_us=2,
        left_out="a", changed="b", limit_us=8, gang_tasks=2, gang_nodes=1, gang_rack="prefer",
    )  # fmt: skip
    [batch] = batches([said])
    old = pa.Table.from_batches([batch]).drop_columns(lacks).replace_schema_metadata({VERSION_KEY: version})
    pq.write_table(old, path)
    assert is_table(path)
    [row] = [row for part in read_table(path) for row in rows_of(part)]
    assert row == msgspec.structs.replace(said, **dict.fromkeys(lacks))
    pq.write_table(old.replace_schema_metadata({VERSION_KEY: b"6"}), path)
    with pytest.raises(InputError, match="other columns than its version"):
        next(read_table(path))


def test_a_table_of_another_version_or_cut_short_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    pq.write_table(pa.table({"a": [1]}), path)
    assert not is_table(path)
    with pytest.raises(
        InputError, match=r"t\.parquet: is no trace table: .* it lacks job, task, .*; make one of version 6"
    ):
        next(read_table(path))
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(InputError, match=r"t\.parquet: is no parquet file that can be read"):
        next(read_table(path))


SAMPLES = [
    ("swf/NASA-iPSC-1993-3.1-cln.swf.gz", "swf", 18_239, {}),
    ("swf/SDSC-SP2-1998_first5000lines.swf.gz", "swf", 4_961, {}),
    ("gwf/askalon_workload_ee.gwf.gz", "gwf", 30_746, {}),
    ("gwf/chronos_exp_noscaler_ca.gwf.gz", "gwf", 10_208, {"tasks without parents": 10_208}),
    ("wta/shell/tasks.parquet", "wta", 10_208, {}),
    ("wta/askalon_simrepo/tasks.parquet", "wta", 4_550, {}),
    ("wta/spec_trace_1", "wta", 14_630, {}),
    ("google2011/job_events_parts_00000-00039.csv.gz", "google-2011-jobs", 54_043,
     {"attempts submitted before the trace begins": 3_986}),
    ("google2011/firmament_small_task_events.csv", "google-2011", 20, {}),
    ("google2011/task_events_MetCientifica.csv.gz", "google-2011-reduced", 33_302,
     {"rows that begin with the first": 33_302}),
    ("google2019/borg_traces_slice.csv", "google-2019-usage", 99, {"rows with constraints": 23}),
    ("alibaba2017/batch_task.csv.gz", "alibaba-2017", 80_553, {"rows that ask for nothing": 9_017}),
    ("alibaba2017/cloudsimpy_jobs.csv.gz", "alibaba-2017-means", 31_756, {}),
    ("alibaba2018/batch_task_capstone.csv.gz", "alibaba-2018", 11_354, {}),
    ("alibaba_gpu/openb_pod_list_gpuspec33.csv.gz", "alibaba-gpu", 8_152, {}),
    ("azure/dodoor_azure_vm_10000.csv.gz", "azure-requests", 10_000, {"rows of mode simulated": 10_000}),
    ("philly/philly_pollux.csv.gz", "philly-durations", 82_247, {}),
    ("tr/GOOG_subtrace.tr.gz", "tr", 312_558, {}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "form", "rows", "quirks"), SAMPLES)
def test_the_samples_load_with_their_quirks(name: str, form: str, rows: int, quirks: dict[str, int]) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    noticed = Noticed()
    found = format_of(path)
    assert found.name == form
    assert sum(batch.num_rows for batch in read_source(path, found, noticed)) == rows
    assert {quirk: noticed[quirk] for quirk in quirks} == quirks


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_whatever_is_wrong_is_the_users_to_mend(tmp_path: Path, name: str) -> None:
    """Files with a few bytes changed are read, or refused with a place; nothing else happens."""
    places = []
    for seed in range(60):
        rng = random.Random(seed)
        text = list(TEXTS[name])
        for _ in range(rng.randrange(1, 4)):
            at = rng.randrange(len(text))
            text[at : at + rng.randrange(3)] = rng.choice(DAMAGE)
        path = tmp_path / "source"
        path.write_text("".join(text))
        try:
            rows_in(path, name)
            format_of(path)
        except InputError as error:
            places.append(error.place)
    assert places
    assert all(place.startswith(str(tmp_path / "source")) for place in places)


@pytest.mark.parametrize(("end", "times"), [("\n", 0), ("\r\n", 0), ("", 1)])
def test_a_last_line_without_an_end_is_noticed(end: str, times: int, tmp_path: Path) -> None:
    """A file that is cut in its last field, as `12 1` of `12 13`, has a row that reads as a whole one."""
    path = tmp_path / "cut.gwf"
    head = "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies"
    path.write_bytes(f"{head}\n1,1,0,5,1,1,\n1,2,0,5,1,1,1{end}".encode())
    noticed = Noticed()
    assert sum(batch.num_rows for batch in read_source(path, format_of(path), noticed)) == 2
    assert noticed[NO_LINE_END] == times


def test_a_changed_byte_of_a_canonical_table_is_found(tmp_path: Path) -> None:
    path = tmp_path / "trace.parquet"
    with table_output(path) as table:
        for batch in batches([TaskRow(job=str(row), task="0", submit_us=row * 977) for row in range(1000)]):
            table.add(batch)
        table.finish(manifest())
    content = bytearray(path.read_bytes())
    content[len(content) // 8] ^= 1
    path.write_bytes(content)
    with pytest.raises(InputError, match="is damaged"):
        list(read_table(path))
