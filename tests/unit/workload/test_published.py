"""Readers of public tables: rows written here by hand in each format, and the real files where they are at hand."""

from __future__ import annotations

import gzip
import os
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.workload import load_trace
from volery.workload.published import NODE_CPU_MILLI, NODE_MEMORY_MB, read_published

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[4] / "shared" / "traces"))
V2017 = """\
task_create_time, task_end_time, job_id, task_id,number_of_instances, status, number_of_cpus_requested_per_instance_in_\
the_task,normalized_memory_requested_per_instance_in_the_task
100,110,7,1,3,Terminated,50,0.5
100,130,7,2,1,Terminated,100,0.25
90,95,8,1,2,Terminated,50,0.5
95,96,9,1,2,Waiting,,
-5,96,9,2,2,Terminated,50,0.1
"""
DURATIONS = ",submit_time,duration,cpu,memory,job_id,task_id,instances_num,disk\n0,5,1.5,0.5,0.25,1,1,2,0\n"
V2018 = """\
task_name,instance_num,job_name,task_type,status,start_time,end_time,plan_cpu,plan_mem
M1,2,j_1,1,Terminated,10,12,50,25
R2_1,2,j_1,1,Failed,10,12,50,25
"""
GOOGLE_2019 = """\
,collection_id,resource_request,start_time,end_time,distribution
0,44,"{'cpus': 0.5, 'memory': 0.25}",1000000,3000000,"[0.1
 0.2]"
1,44,"{'cpus': 0.5, 'memory': None}",1000000,3000000,"[]"
"""
GOOGLE_2011 = "0;12;0;user;2;10;5000000;-1;0.5;0.25\n0;12;1;user;2;10;7000000;-1;0.5;0.25\n"


def read(folder: Path, text: str) -> object:
    path = folder / "table.csv"
    path.write_text(text)
    return read_published(path)


def test_alibaba_2017_rows_of_a_job_that_begin_together_are_one_job(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(V2017.encode()))
    trace, passed = read_published(path)
    assert trace.name == "table"
    assert trace.arrival_us.tolist() == [0, 10_000_000]
    assert trace.first.tolist() == [0, 2, 6]
    assert [at // 1_000_000 for at in trace.duration_us] == [5, 5, 10, 10, 10, 30]
    half, whole = (500, NODE_MEMORY_MB // 2), (1000, NODE_MEMORY_MB // 4)
    assert [trace.requests[k] for k in trace.request] == [half] * 5 + [whole]
    assert trace.estimate_us.tolist() == [5_000_000, 15_000_000]
    assert (passed.rows, passed.unsorted_rows) == (2, 1)
    assert read_published(path, 1)[0].task_count == 4
    assert load_trace(path, durations="whole-seconds").resources == ("cpu_milli", "memory_mb")


@pytest.mark.parametrize(
    ("text", "durations", "request_", "passed_rows"),
    [
        (DURATIONS, [1_500_000] * 2, (500, NODE_MEMORY_MB // 4), 0),
        (V2018, [2_000_000] * 2, (500, NODE_MEMORY_MB // 4), 1),
        (GOOGLE_2019, [2_000_000], (NODE_CPU_MILLI // 2, NODE_MEMORY_MB // 4), 1),
        (GOOGLE_2011, [5_000_000, 7_000_000], (NODE_CPU_MILLI // 2, NODE_MEMORY_MB // 4), 0),
    ],
)
def test_each_format_is_told_by_its_first_line(
    tmp_path: Path, text: str, durations: list[int], request_: tuple[int, int], passed_rows: int
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    trace, passed = read_published(path)
    assert trace.duration_us.tolist() == durations
    assert {trace.requests[k] for k in trace.request} == {request_}
    assert passed.rows == passed_rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a,b,c\n1,2,3\n", r"table.csv:1: is not the first line of a known table \(Alibaba v2017"),
        (V2017.replace("110,7,1,3", "110,7,1,3.5"), r"table.csv:2: is no row of Alibaba v2017 .*'3.5' is no number of"),
        (V2017.replace("100,110", "soon,110"), r"table.csv:2: is no row .*could not convert string to float: 'soon'"),
        (V2017 + "1,2,3\n", r"table.csv:7: has 3 fields where 8 are expected; mend the row"),
        (GOOGLE_2019 + '2,"44', r"table.csv:5: a quoted field that begins here has no end"),
        (V2017.splitlines()[0] + "\n", "holds no task that asks for anything and ends; 0 rows were passed over"),
        (DURATIONS.replace("0.25", "-1"), r"table.csv:2: is no row .*500 thousandths of a core and -1"),
        (DURATIONS.replace("1.5", "nan"), r"table.csv:2: is no row .*'nan' is no time"),
    ],
)
def test_a_wrong_table_is_named_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "tasks", "passed_rows"),
    [
        ("alibaba2017/batch_task.csv.gz", 10_134_838, 13_717),
        ("alibaba2018/batch_task_capstone.csv.gz", 31_539, 1),
        ("google2019/borg_traces_slice.csv", 99, 0),
        ("google2011/task_events_MetCientifica.csv.gz", 33_302, 0),
    ],
)
def test_the_samples_are_read_whole(name: str, tasks: int, passed_rows: int) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    trace, passed = read_published(path)
    assert (trace.task_count, passed.rows) == (tasks, passed_rows)
    assert trace.resources == ("cpu_milli", "memory_mb")
