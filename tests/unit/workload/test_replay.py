"""Traces of tasks as workloads: rows written here by hand in each format, and the real files where they are at hand."""

from __future__ import annotations

import gzip
import os
from array import array
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from tests.unit.architectures.pipeline.runs import run

from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.features import DEADLINES, PRIORITIES, features_of
from volery.core.model import NEVER, PREFERS_RACK, REQUIRES_RACK, Cluster
from volery.core.omissions import CHANGED, Omissions
from volery.core.trace import NO_GANG, Trace
from volery.core.workflows import check_workflows, levels
from volery.workload import load_trace, load_workload, states_gangs
from volery.workload.convert import convert
from volery.workload.formats import format_of, read_source
from volery.workload.formats.source import Noticed
from volery.workload.omissions import BEGAN_BEFORE
from volery.workload.replay import NODE_CPU_MILLI, NODE_MEMORY_MB, Passed, read_tasks
from volery.workload.table import VERSION, TableManifest, TaskRow, batches, table_output

S = 1_000_000
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


def tasks_of(path: Path, job_count: int | None = None) -> tuple[Trace, Passed]:
    return read_tasks(path, format_of(path), job_count)


def waits_omitted(omissions: Omissions | None) -> int:
    assert omissions is not None
    return omissions.waits_omitted


def read(folder: Path, text: str) -> tuple[Trace, Passed]:
    path = folder / "table.csv"
    path.write_text(text)
    return tasks_of(path)


def test_alibaba_2017_rows_of_a_job_that_begin_together_are_one_job(tmp_path: Path) -> None:
    path = tmp_path / "table.csv.gz"
    path.write_bytes(gzip.compress(V2017.encode()))
    trace, passed = tasks_of(path)
    assert trace.name == "table"
    assert trace.arrival_us.tolist() == [0, 90_000_000, 100_000_000]
    assert trace.first.tolist() == [0, 2, 4, 8]
    assert [at // 1_000_000 for at in trace.duration_us] == [96, 96, 5, 5, 10, 10, 10, 30]
    tenth, half, whole = (500, round(NODE_MEMORY_MB / 10)), (500, NODE_MEMORY_MB // 2), (1000, NODE_MEMORY_MB // 4)
    assert [trace.requests[k] for k in trace.request] == [tenth] * 2 + [half] * 5 + [whole]
    assert trace.estimate_us.tolist() == [96_000_000, 5_000_000, 15_000_000]
    assert (passed.rows, passed.unsorted_rows) == (1, 2), "one waited"
    assert passed.left_out is not None
    assert [(one.reason, one.tasks) for one in passed.left_out.of(CHANGED).reasons] == [(BEGAN_BEFORE, 2)]
    assert tasks_of(path, 1)[0].task_count == 4
    assert load_trace(path, durations="whole-seconds").resources == ("cpu_milli", "memory_mb")


@pytest.mark.parametrize(
    ("text", "durations", "request_", "passed_rows"),
    [
        (DURATIONS, [1_500_000] * 2, (500, NODE_MEMORY_MB // 4), 0),
        (V2018, [2_000_000] * 4, (500, NODE_MEMORY_MB // 4), 0),
        (GOOGLE_2019.replace("None", "0.25"), [2_000_000] * 2, (NODE_CPU_MILLI // 2, NODE_MEMORY_MB // 4), 0),
        (GOOGLE_2011, [5_000_000, 7_000_000], (NODE_CPU_MILLI // 2, NODE_MEMORY_MB // 4), 0),
    ],
)
def test_each_format_is_told_by_its_first_line(
    tmp_path: Path, text: str, durations: list[int], request_: tuple[int, int], passed_rows: int
) -> None:
    path = tmp_path / "table.csv"
    path.write_text(text)
    trace, passed = tasks_of(path)
    assert trace.duration_us.tolist() == durations
    assert {trace.requests[k] for k in trace.request} == {request_}
    assert passed.rows == passed_rows


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (
            "a,b,c\n1,2,3\n",
            r"table.csv:1: is a table with columns of its own \(a, b, c\); map them with `volery trace columns",
        ),
        (V2017.replace("110,7,1,3", "110,7,1,3.5"), r"table.csv:2: is no row of Alibaba v2017 .*'3.5' is no number of"),
        (V2017.replace("100,110", "soon,110"), r"table.csv:2: is no row .*could not convert string to float: 'soon'"),
        (V2017 + "1,2,3\n", r"table.csv:7: has 3 fields where 8 are expected; mend the row"),
        (GOOGLE_2019 + '2,"44', r"table.csv:5: a quoted field that begins here has no end"),
        (V2017.splitlines()[0] + "\n", "holds no task that can be replayed: it has no rows"),
        (DURATIONS.replace("0.25", "-1"), r"table.csv:2: is no row .*'-1' is no amount"),
        (DURATIONS.replace("1.5", "nan"), r"table.csv:2: is no row .*'nan' is no time"),
    ],
)
def test_a_wrong_table_is_named_by_its_line(tmp_path: Path, text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        read(tmp_path, text)


@pytest.mark.parametrize(
    ("name", "tasks", "passed_rows"),
    [
        ("alibaba2017/batch_task.csv.gz", 10_976_040, 9_176),
        ("alibaba2018/batch_task_capstone.csv.gz", 31_543, 0),
        ("google2019/borg_traces_slice.csv", 99, 0),
        ("google2011/task_events_MetCientifica.csv.gz", 33_302, 0),
    ],
)
def test_the_samples_are_read_whole(name: str, tasks: int, passed_rows: int) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    trace, passed = tasks_of(path)
    assert (trace.task_count, passed.rows) == (tasks, passed_rows)
    assert trace.resources == ("cpu_milli", "memory_mb")


SWF = """\
1 100 -1 30 4 -1 -1 -1 60 -1 1 7 -1 -1 -1 -1 -1 -1
2 90 -1 10 1 -1 -1 -1 -1 -1 1 8 -1 -1 -1 -1 -1 -1
3 110 -1 -1 1 -1 -1 -1 -1 -1 1 8 -1 -1 -1 -1 -1 -1
4 120 -1 5 1 -1 -1 -1 -1 -1 0 8 -1 -1 -1 -1 -1 -1
"""
GWF = "WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies\n0,1,5,11,1,1,\n0,2,5,12,1,1,1\n"


def test_a_rigid_job_is_a_gang_of_a_task_for_each_of_its_processors(tmp_path: Path) -> None:
    trace, _ = read(tmp_path, SWF)
    assert trace.first.tolist() == [0, 1, 5, 6]
    assert trace.gang_nodes.tolist() == [NO_GANG, 0, NO_GANG]
    assert trace.duration_us.tolist() == [10_000_000, *[30_000_000] * 4, 5_000_000]
    assert {trace.requests[place] for place in trace.request} == {(1000,)}


def test_rows_of_a_table_state_gangs_and_their_shapes(tmp_path: Path) -> None:
    """Tasks of several rows form one gang; what a row asks for is shared by its tasks."""
    rows = [
        TaskRow("a", "0", None, 0, None, None, 5, cpu_milli=6000, memory_mb=12, gang_tasks=3, gang_nodes=2),
        TaskRow("b", "0", None, 1, None, None, 5, instances=2, cpu_milli=1000, memory_mb=1, gang_nodes=0),
        TaskRow("b", "1", None, 1, None, None, 5, cpu_milli=2000, memory_mb=2, gang_nodes=0),
        TaskRow("c", "0", None, 2, None, None, 5, instances=2, cpu_milli=500, memory_mb=1),
    ]
    path = tmp_path / "t.parquet"
    write_rows(path, rows)
    trace = load_trace(path)
    assert trace.first.tolist() == [0, 3, 6, 8]
    assert trace.gang_nodes.tolist() == [2, 0, NO_GANG]
    asked = [trace.requests[place] for place in trace.request]
    assert asked == [(2000, 4)] * 3 + [(1000, 1)] * 2 + [(2000, 2)] + [(500, 1)] * 2
    assert states_gangs(str(path))

    assert not trace.gang_racks
    wishes = ["require", None, "prefer", "require"]
    write_rows(path, [msgspec.structs.replace(row, gang_rack=wish) for row, wish in zip(rows, wishes, strict=True)])
    assert list(load_trace(path).gang_racks) == [REQUIRES_RACK, PREFERS_RACK, 0], "the last job is no gang"
    write_rows(path, [msgspec.structs.replace(rows[0], gang_rack="near")])
    with pytest.raises(InputError, match=r"t\.parquet:1: gang_rack is 'near'; it is one of prefer, require, or null"):
        load_trace(path)

    write_rows(path, [msgspec.structs.replace(rows[0], gang_nodes=4)])
    with pytest.raises(InputError, match=r"t\.parquet: job 'a' is a gang of 3 tasks on 4 machines; give from 0 to 3"):
        load_trace(path)
    write_rows(path, rows[3:])
    assert not states_gangs(str(path))


def test_a_job_is_submitted_to_the_partition_that_its_first_row_names(tmp_path: Path) -> None:
    rows = [
        TaskRow("a", "0", None, 0, None, None, 5),
        TaskRow("a", "1", None, 0, None, None, 5, partition="gpu"),
        TaskRow("b", "0", None, 1, None, None, 5),
    ]
    path = tmp_path / "t.parquet"
    write_rows(path, rows)
    trace = load_trace(path)
    assert trace.partition == ("gpu", "")
    (submit,) = trace.submission(0)
    assert isinstance(submit, Submit)
    assert submit.job.partition == "gpu"

    write_rows(path, [msgspec.structs.replace(row, partition=None) for row in rows])
    plain = load_trace(path)
    assert not plain.partition
    assert plain.digest() != trace.digest()


def write_rows(path: Path, rows: list[TaskRow]) -> None:
    with table_output(path, force=True) as table:
        for batch in batches(rows):
            table.add(batch)
        table.finish(TableManifest(VERSION, "rows", "", "table", "a test"))


def test_read_as_one_task_a_job_asks_for_its_processors_and_brings_its_user_and_estimate(tmp_path: Path) -> None:
    path = tmp_path / "trace"
    path.write_text(SWF)
    trace, passed = read_tasks(path, format_of(path), has_gangs=False)
    assert not trace.gang_nodes
    assert trace.arrival_us.tolist() == [0, 10_000_000, 30_000_000]
    assert trace.duration_us.tolist() == [10_000_000, 30_000_000, 5_000_000]
    assert trace.estimate_us.tolist() == [10_000_000, 60_000_000, 5_000_000]
    assert trace.user == ("8", "7", "8")
    assert trace.resources == ("cpu_milli",)
    assert [trace.requests[k] for k in trace.request] == [(1000,), (4000,), (1000,)]
    assert (passed.rows, passed.unsorted_rows) == (1, 1), "one never ended; one failed, but ran"


def test_a_workflow_is_run_as_such_unless_its_parents_were_left_out(tmp_path: Path) -> None:
    source, table, bare = tmp_path / "a.gwf", tmp_path / "t.parquet", tmp_path / "bare.parquet"
    source.write_text(GWF)
    convert(source, table)
    convert(source, bare, parents=False)
    for path in (source, table):
        trace = load_trace(path)
        assert [trace.parents_of(task) for task in range(2)] == [(), (0,)]
        assert trace.resources == ("cpu_milli",)
    assert not load_trace(bare).parents
    assert load_trace(bare).first.tolist() == [0, 2]
    assert load_trace(source).digest() == load_trace(table).digest() != load_trace(bare).digest()


def parents(trace: Trace) -> list[list[tuple[int, ...]]]:
    """Per job, per task, its parents."""
    bounds = [(trace.first[job], trace.first[job + 1]) for job in range(trace.job_count)]
    return [[trace.parents_of(task) for task in range(low, high)] for low, high in bounds]


def test_rows_of_a_workflow_are_one_job_parents_first_wherever_they_stand(tmp_path: Path) -> None:
    """Job 7 comes second by arrival; its rows stand apart, a child before its parent, and are submitted one by one."""
    head = GWF.splitlines()[0]
    rows = ["7,3,20,30,1,1,1 2", "8,1,10,11,1,1,", "7,1,15,10,1,1,", "8,2,12,12,1,1,1", "7,2,16,20,1,1,1"]
    trace, passed = read(tmp_path, "\n".join([head, *rows]) + "\n")
    assert trace.arrival_us.tolist() == [0, 5_000_000]
    assert [at // 1_000_000 for at in trace.duration_us] == [11, 12, 10, 20, 30]
    assert parents(trace) == [[(), (0,)], [(), (2,), (2, 3)]]
    assert (passed.rows, waits_omitted(passed.left_out)) == (0, 0)
    first = read(tmp_path, "\n".join([head, *rows]) + "\n")[0]
    assert first.digest() == trace.digest()
    only, _ = tasks_of(tmp_path / "table.csv", 1)
    assert [at // 1_000_000 for at in only.duration_us] == [10, 20, 30], "all of the first workflow to begin"
    assert parents(only) == [[(), (0,), (0, 1)]]


def test_what_waits_for_a_row_that_is_passed_over_waits_for_its_parents(tmp_path: Path) -> None:
    rows = "M1,1,j,1,Terminated,10,12,50,25\nR2_1,1,j,1,Waiting,12,14,50,25\nR3_2,1,j,1,Terminated,14,19,50,25\n"
    trace, passed = read(tmp_path, V2018.splitlines()[0] + "\n" + rows)
    assert parents(trace) == [[(), (0,)]]
    assert (passed.rows, waits_omitted(passed.left_out)) == (1, 0)
    assert trace.arrival_us.tolist() == [0]


def test_each_of_many_instances_waits_for_each_of_its_parent(tmp_path: Path) -> None:
    rows = "M1,2,j,1,Terminated,10,12,50,25\nR2_1,3,j,1,Terminated,12,14,50,25\n"
    trace, _ = read(tmp_path, V2018.splitlines()[0] + "\n" + rows)
    assert parents(trace) == [[(), (), (0, 1), (0, 1), (0, 1)]]


def test_a_circle_is_refused_and_an_unknown_parent_counted(tmp_path: Path) -> None:
    head = GWF.splitlines()[0]
    with pytest.raises(InputError, match=r"job '0': 2 tasks wait for each other in a circle .* --repair cycle=cut"):
        read(tmp_path, f"{head}\n0,1,5,11,1,1,2\n0,2,5,12,1,1,1\n0,3,5,1,1,1,\n")
    trace, passed = read(tmp_path, f"{head}\n0,1,5,11,1,1,9\n0,2,5,12,1,1,1\n")
    assert parents(trace) == [[(), (0,)]]
    assert waits_omitted(passed.left_out) == 1
    _, reading = load_workload(tmp_path / "table.csv")
    assert reading is not None
    assert waits_omitted(reading.left_out) == 1


def test_too_many_waits_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("volery.workload.graph.EDGES_MAX", 5)
    rows = "M1,2,j,1,Terminated,10,12,50,25\nR2_1,3,j,1,Terminated,12,14,50,25\n"
    with pytest.raises(InputError, match=r"more than 5 tasks wait for tasks.*read fewer jobs"):
        read(tmp_path, V2018.splitlines()[0] + "\n" + rows)


@pytest.mark.parametrize(
    ("name", "shape"),
    [
        ("gwf/askalon_workload_ee.gwf.gz", (758, 30_746, 41_939, 5)),
        ("gwf/chronos_from_wta_with_dependencies.gwf.gz", (3_403, 10_208, 6_805, 3)),
        ("wta/askalon_simrepo", (50, 4_550, 8_800, 5)),
        ("wta/shell", (3_403, 10_208, 6_805, 3)),
    ],
)
def test_published_workflows_are_read_whole(name: str, shape: tuple[int, int, int, int]) -> None:
    """Jobs, tasks, edges and depth as counted when they were collected (Askalon: 758, 30,746, 41,939 and 5)."""
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    trace, _ = tasks_of(path / "tasks.parquet" if path.is_dir() else path)
    assert (trace.job_count, trace.task_count, len(trace.parents), max(levels(trace)) + 1) == shape


@pytest.mark.parametrize("name", ["alibaba-2017", "swf", "tr"])
def test_a_table_runs_as_its_source_does(tmp_path: Path, name: str) -> None:
    """Sources of requests give no users here, and Alibaba's has none."""
    source, table = tmp_path / "source", tmp_path / "source.parquet"
    source.write_text({"alibaba-2017": V2017, "swf": SWF, "tr": "5 2 1.5 1 2\n7 1 9 3\n"}[name])
    assert convert(source, table).format == name
    assert load_trace(table).digest() == load_trace(source).digest()
    assert load_trace(table).name == "source"


def test_what_half_of_the_tasks_ask_for_is_a_resource(tmp_path: Path) -> None:
    pods = "name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time\n"
    rows = "a,2000,512,1,500,LS,Succeeded,0,9,1\nb,0,256,0,0,LS,Succeeded,1,9,2\nc,,256,0,0,LS,Succeeded,2,9,2\n"
    trace, passed = read(tmp_path, pods + rows)
    assert trace.resources == ("cpu_milli", "memory_mb", "gpu_milli")
    assert [trace.requests[k] for k in trace.request] == [(2000, 512, 500), (0, 256, 0), (0, 256, 0)]
    assert passed.rows == 0


def test_a_request_of_zero_is_replayed_as_zero_and_no_other_becomes_zero(tmp_path: Path) -> None:
    """Of amounts, and of shares of the largest machine: 1e-6 of 16 GB is less than half a megabyte."""
    azure = "1,0,0.2,0,1000,0,on,x\n2,0.0001,100,0,1000,0,on,x\n"
    trace, _ = read(tmp_path, azure)
    assert [trace.requests[k] for k in trace.request] == [(0, 1), (1, 100)]
    reduced = "0;1;0;u;0;0;1000000;-1;0;0.000001\n0;2;0;u;0;0;1000000;-1;0.5;0\n"
    trace, _ = read(tmp_path, reduced)
    assert [trace.requests[k] for k in trace.request] == [(0, 1), (32_000, 0)]


def placed_table(path: Path) -> Path:
    """Two jobs, the later one first: a row of two equal tasks with input on machines 3 and 1, and tasks without any."""
    rows = [
        TaskRow(job="b", task="0", submit_us=5, runtime_us=7, instances=2, replicas=[3, 1]),
        TaskRow(job="b", task="1", submit_us=5, runtime_us=7, replicas=[]),
        TaskRow(job="a", task="0", submit_us=1, runtime_us=7),
        TaskRow(job="a", task="1", submit_us=1, runtime_us=9, replicas=[0]),
    ]
    with table_output(path) as table:
        for batch in batches(rows):
            table.add(batch)
    return path


def test_a_table_may_say_where_input_lies(tmp_path: Path) -> None:
    """And `volery trace convert --far` what distance from it costs; without, it costs nothing."""
    bare = placed_table(tmp_path / "bare.parquet")
    trace = load_trace(bare)
    assert trace.replicas_of(range(5)) == ((), (0,), (3, 1), (3, 1), ())
    assert trace.far_permille == (1000, 1000)
    convert(bare, tmp_path / "far.parquet", far_permille=(1500, 2000))
    far = load_trace(tmp_path / "far.parquet")
    assert far.replicas_of(range(5)) == trace.replicas_of(range(5))
    assert far.far_permille == (1500, 2000)
    convert(
        tmp_path / "far.parquet",
        tmp_path / "again.parquet",
        chosen_repairs={"clock-origin": "shift", "unsorted": "sort"},
    )
    again = load_trace(tmp_path / "again.parquet")
    assert again.digest() == far.digest(), "repairs keep where input lies"


def test_a_table_without_input_has_no_replicas(tmp_path: Path) -> None:
    path = tmp_path / "plain.parquet"
    with table_output(path) as table:
        for batch in batches([TaskRow(job="a", task="0", submit_us=1, runtime_us=7)]):
            table.add(batch)
    assert not load_trace(path).replicas


def wishing_table(path: Path, *, alike: bool = False) -> Path:
    """Three jobs, the last one first: urgent and due, nothing said, due before it is submitted; alike: nothing said."""
    rows = [
        TaskRow(job="c", task="0", submit_us=S + 20, runtime_us=7, deadline_us=S + 10, priority=-1),
        TaskRow(job="a", task="0", submit_us=S, runtime_us=7, priority=2, deadline_us=S + 90),
        TaskRow(job="a", task="1", submit_us=S, runtime_us=7, priority=5, deadline_us=S + 50),
        TaskRow(job="b", task="0", submit_us=S + 5, runtime_us=9),
    ]
    if alike:
        for row in rows:
            row.deadline_us, row.priority = None, 3
    with table_output(path) as table:
        for batch in batches(rows):
            table.add(batch)
    return path


def test_priorities_and_deadlines_reach_the_jobs_that_schedulers_see(tmp_path: Path) -> None:
    """On the run's clock; without those, jobs are as they were before tables could say so."""
    trace = load_trace(wishing_table(tmp_path / "a.parquet"))
    assert trace.priority.tolist() == [5, 0, -1]
    assert trace.deadline_us.tolist() == [90, NEVER, 20]
    jobs = [message.job for job in range(3) for message in trace.submission(job) if isinstance(message, Submit)]
    assert [(job.priority, job.deadline_us) for job in jobs] == [(5, 90), (0, NEVER), (-1, 20)]
    assert features_of(trace) == (PRIORITIES, DEADLINES)
    plain = load_trace(wishing_table(tmp_path / "b.parquet", alike=True))
    assert not plain.priority
    assert not plain.deadline_us


def test_repairs_keep_priorities_and_move_deadlines_with_the_clock(tmp_path: Path) -> None:
    source, table = wishing_table(tmp_path / "a.parquet"), tmp_path / "b.parquet"
    chosen = {"clock-origin": "shift", "unsorted": "sort", "deadline-before-submission": "null"}
    assert convert(source, table, chosen_repairs=chosen).left == {}
    trace = load_trace(table)
    assert trace.priority.tolist() == [5, 0, -1]
    assert trace.deadline_us.tolist() == [90, NEVER, NEVER]


def test_googles_priorities_decide_who_is_served_first(tmp_path: Path) -> None:
    """Two jobs for one machine while a third runs: the one of band 9 overtakes that of band 0, where bands count."""
    events = [
        f"{at},,{job},0,,{kind},u,3,{band},0.5,0.25,,0"
        for at, job, kind, band in [
            (0, 1, 0, 0),
            (0, 1, 1, 0),
            (10, 2, 0, 0),
            (20, 3, 0, 9),
            (30, 1, 4, 0),
            (30, 2, 1, 0),
            (60, 2, 4, 0),
            (60, 3, 1, 9),
            (90, 3, 4, 9),
        ]
    ]
    trace, _ = read(tmp_path, "\n".join(events) + "\n")
    assert trace.priority.tolist() == [0, 0, 9]
    bare = msgspec.structs.replace(trace, resources=(), requests=(), request=array("H"))
    start_us = {
        order: list(run("pipeline", bare, Cluster.uniform(1), T2=order).start_us) for order in ("fifo", "priority")
    }
    assert start_us["fifo"][1] < start_us["fifo"][2]
    assert start_us["priority"][2] < start_us["priority"][1]


def test_tasks_come_when_the_source_says_that_each_was_submitted(tmp_path: Path) -> None:
    """Job 7: its first task at 20 s; two more later, one of them said to come before what it waits for."""
    head = GWF.splitlines()[0]
    rows = ["8,1,10,11,1,1,", "7,1,20,10,1,1,", "7,2,45,20,1,1,1", "7,3,40,30,1,1,2", "8,2,10,12,1,1,1"]
    trace, _ = read(tmp_path, "\n".join([head, *rows]) + "\n")
    assert [at // S for at in trace.arrival_us] == [0, 10]
    assert [at // S for at in trace.submit_us] == [0, 0, 10, 35, 35], "nobody knew of task 2 before"
    check_workflows(trace)
    convert(tmp_path / "table.csv", tmp_path / "t.parquet", chosen_repairs={"clock-origin": "shift"})
    again = load_trace(tmp_path / "t.parquet")
    assert (again.submit_us, again.digest()) == (trace.submit_us, trace.digest())
    convert(tmp_path / "table.csv", tmp_path / "bare.parquet", submissions=False)
    bare = load_trace(tmp_path / "bare.parquet")
    assert (bare.submit_us.tolist(), bare.parents, bare.first) == ([], trace.parents, trace.first)
    together, _ = read(tmp_path, "\n".join([head, rows[0], rows[4]]) + "\n")
    assert not together.submit_us, "all come with their jobs: there is nothing to say"


def test_tasks_of_one_job_submitted_apart_are_one_job_where_the_source_says_so(tmp_path: Path) -> None:
    """As in Google's events; of a table that does not say so, what is submitted together is a job."""
    events = [
        f"{at},,{job},{task},,{kind},u,3,0,0.5,0.25,,0"
        for at, job, task, kind in [
            (10, 1, 0, 0),
            (20, 1, 1, 0),
            (20, 2, 0, 0),
            (30, 1, 0, 1),
            (30, 1, 1, 1),
            (30, 2, 0, 1),
            (50, 1, 1, 4),
            (60, 1, 0, 4),
            (70, 2, 0, 4),
        ]
    ]
    trace, _ = read(tmp_path, "\n".join(events) + "\n")
    assert (trace.arrival_us.tolist(), trace.first.tolist()) == ([0, 10], [0, 2, 3])
    assert trace.submit_us.tolist() == [10, 0, 10]
    assert trace.duration_us.tolist() == [20, 30, 40]
    old = tmp_path / "old.parquet"
    with table_output(old) as table:
        for batch in read_source(tmp_path / "table.csv", format_of(tmp_path / "table.csv"), Noticed()):
            place = batch.schema.get_field_index("task_submit_us")
            table.add(batch.set_column(place, batch.schema.field(place), pa.nulls(batch.num_rows, pa.int64())))
    apart = load_trace(old)
    assert (apart.job_count, apart.submit_us.tolist()) == (3, [])
    only, _ = tasks_of(tmp_path / "table.csv", 1)
    assert (only.job_count, only.task_count) == (1, 2), "the first job is read to its end"
