"""Jobs that held machines are replayed however they ended; what is left out is counted by reason."""

from __future__ import annotations

import os
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from volery.core.omissions import CHANGED, LEFT_OUT, REQUESTS, WAITS, Omissions
from volery.workload import load_workload
from volery.workload.convert import convert
from volery.workload.doctor import examine
from volery.workload.formats.archives import OTHER_RESOURCE, UNLIKE_PARTS
from volery.workload.formats.google import BEGUN_TWICE
from volery.workload.formats.source import UNKNOWN_STATUS
from volery.workload.omissions import (
    BEFORE_TRACE,
    BEGAN_BEFORE,
    CONSTRAINED,
    IMPOSSIBLE_REQUEST,
    NEGATIVE_RUNTIME,
    NEVER_STARTED,
    NO_INSTANCES,
    NO_JOB,
    NO_RUNTIME,
    NO_USER,
    NOT_FINISHED,
    STILL_RUNNING,
    TWINS,
    UNRESOLVED,
    OmissionTally,
    Only,
    judge,
    unknown_request,
)
from volery.workload.table import SCHEMA, TaskRow, batches, table_output

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[4] / "shared" / "traces"))
S = 1_000_000
SWF = """\
1 0 0 30 4 -1 -1 4 60 -1 1 7 -1 -1 -1 -1 -1 -1
2 10 5 10 1 -1 -1 1 -1 -1 0 8 -1 -1 -1 -1 -1 -1
3 20 0 20 5 -1 -1 5 -1 -1 5 8 -1 -1 -1 -1 -1 -1
4 30 9 -1 -1 -1 -1 2 -1 -1 5 8 -1 -1 -1 -1 -1 -1
5 40 9 0 2 -1 -1 2 -1 -1 5 8 -1 -1 -1 -1 -1 -1
"""
"""One finished (120 core-seconds), one failed after its start (10), one was killed (100), two were cancelled before."""
PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,qos,pod_phase,creation_time,deletion_time,scheduled_time
a,1000,512,1,500,LS,Succeeded,0,9,1
b,1000,256,1,500,LS,Running,1,9,2
c,1000,256,1,500,LS,Failed,2,12,2
d,1000,256,1,500,LS,Pending,2,12,
"""
AZURE_LIKE = (
    "task_create_time, task_end_time, job_id, task_id,number_of_instances, status, number_of_cpus_requested_per_\
instance_in_the_task,normalized_memory_requested_per_instance_in_the_task\n"
)


def read(folder: Path, text: str, only: Only = "ran", jobs: int | None = None) -> tuple[list[int], Omissions]:
    """Durations in seconds, and what is left out; a rigid job is read as one task."""
    path = folder / "trace"
    path.write_text(text)
    trace, reading = load_workload(path, only=only, job_count=jobs, has_gangs=False)
    assert reading is not None
    assert reading.left_out is not None
    return [at // S for at in trace.duration_us], reading.left_out


def counts(found: Omissions) -> dict[str, int]:
    return {one.reason: one.tasks for one in found.reasons}


def test_jobs_that_failed_or_were_killed_after_their_start_are_replayed(tmp_path: Path) -> None:
    durations, left = read(tmp_path, SWF)
    assert durations == [30, 10, 20]
    assert counts(left) == {NEVER_STARTED: 2}
    assert (left.jobs, left.jobs_left_out, left.machine_share, left.is_large) == (5, 2, 0.0, True)
    assert (round(left.machine_time, 6), left.unit) == (230.0, "core-seconds")


def test_only_finished_leaves_them_out_and_says_how_much_machine_time_they_had(tmp_path: Path) -> None:
    durations, left = read(tmp_path, SWF, "finished")
    assert durations == [30]
    assert counts(left) == {NOT_FINISHED: 2, NEVER_STARTED: 2}
    assert left.reasons[0].machine_time == pytest.approx(110)
    assert left.machine_share == pytest.approx(110 / 230)
    assert left.is_large


def test_pods_that_run_are_replayed_from_their_start_to_their_deletion(tmp_path: Path) -> None:
    durations, left = read(tmp_path, PODS)
    assert durations == [8, 7, 10]
    assert counts(left) == {NEVER_STARTED: 1}


def test_a_task_that_outlives_the_trace_has_held_its_machine_until_then_at_least(tmp_path: Path) -> None:
    rows = "0,100,1,1,1,Terminated,100,0.1\n40,0,2,1,2,Running,100,0.1\n"
    durations, left = read(tmp_path, AZURE_LIKE + rows)
    assert durations == [100]
    (one,) = left.reasons
    assert (one.reason, one.tasks, one.unmeasured) == (STILL_RUNNING, 2, 2)
    assert one.machine_time == pytest.approx(2 * 60)
    assert one.machine_share == pytest.approx(120 / 220)


def test_a_row_that_began_before_the_trace_is_replayed_with_what_was_left_of_it(tmp_path: Path) -> None:
    rows = "-50,30,1,1,1,Terminated,100,0.1\n-50,-10,2,1,1,Terminated,100,0.1\n10,20,3,1,1,Terminated,100,0.1\n"
    durations, left = read(tmp_path, AZURE_LIKE + rows)
    assert durations == [30, 10]
    assert counts(left.of(LEFT_OUT)) == {BEFORE_TRACE: 1}
    assert counts(left.of(CHANGED)) == {BEGAN_BEFORE: 1}
    assert left.of(LEFT_OUT).machine_share == 0.0


def test_a_row_without_a_request_is_replayed_and_counted_though_its_machine_time_is_unknown(tmp_path: Path) -> None:
    rows = "0,100,1,1,1,Terminated,100,0.1\n0,,2,1,1,Terminated,100,0.1\n0,9,3,1,1,Terminated,,\n"
    durations, left = read(tmp_path, AZURE_LIKE + rows + "5,9,4,1,1,Terminated,100,0.1\n")
    assert durations == [100, 9, 4]
    assert counts(left.of(LEFT_OUT)) == {NO_RUNTIME: 1}
    assert counts(left.of(REQUESTS)) == {unknown_request("cpu_milli"): 1, unknown_request("memory_mb"): 1}
    assert left.of(LEFT_OUT, REQUESTS).unmeasured == 3
    assert left.is_large


def test_impossible_numbers_give_no_negative_machine_time() -> None:
    numbers = [float("nan"), -5000.0, 1e300, 1000.0, 1000.0, 1000.0]
    said: dict[str, list[object]] = {
        "job": [str(k) for k in range(6)],
        "submit_us": [0] * 6,
        "cpu_milli": [*numbers],
        "runtime_us": [S, S, S, -S, S, S],
        "instances": [1, 1, 1, 1, -3, 1],
    }
    columns = [pa.array(said.get(field.name, [None] * 6), field.type) for field in SCHEMA]
    batch = pa.record_batch(columns, schema=SCHEMA)
    amounts = {"cpu_milli": batch.column("cpu_milli")}
    tally = OmissionTally(("cpu_milli",))
    tally.add(batch, judge(batch, amounts, "ran"), amounts)
    left = tally.omissions(frozenset("5"))
    assert counts(left) == {IMPOSSIBLE_REQUEST: 3, NEGATIVE_RUNTIME: 1, NO_INSTANCES: 1}
    assert (left.machine_time, left.machine_share, left.unmeasured) == (1.0, 0.0, 5)


def test_of_the_first_jobs_alone_what_is_left_out_is_counted(tmp_path: Path) -> None:
    durations, left = read(tmp_path, SWF, "finished", jobs=1)
    assert durations == [30]
    assert counts(left) == {}
    _, left = read(
        tmp_path, SWF.replace("1 0 0", "1 99 0") + "6 50 0 7 1 -1 -1 1 -1 -1 1 8 -1 -1 -1 -1 -1 -1\n", jobs=4
    )
    assert counts(left) == {NEVER_STARTED: 2}


def test_the_doctor_and_convert_take_the_same_reading(tmp_path: Path) -> None:
    read(tmp_path, SWF)
    ran, finished = (examine(tmp_path / "trace", only=only).left_out for only in ("ran", "finished"))
    assert ran is not None
    assert finished is not None
    assert counts(ran) == {NEVER_STARTED: 2}
    assert counts(finished) == {NOT_FINISHED: 2, NEVER_STARTED: 2}
    made = convert(tmp_path / "trace", tmp_path / "t.parquet", only="finished")
    assert (made.rows, made.remarks[-1]) == (1, "rows that did not finish were left out on request")
    _, reading = load_workload(tmp_path / "t.parquet")
    assert reading is not None
    assert reading.left_out is not None
    assert not reading.left_out.reasons


@pytest.mark.parametrize(
    ("name", "ran", "finished", "share"),
    [
        ("swf/SDSC-SP2-1998_first5000lines.swf.gz", 4_606, 3_525, 0.466),
        ("alibaba_gpu/openb_pod_list_default.csv.gz", 7_255, 192, 0.938),
    ],
)
def test_published_traces_are_replayed_with_all_that_ran(name: str, ran: int, finished: int, share: float) -> None:
    path = TRACES / name
    if not path.exists():
        pytest.skip("the public traces are not beside this repository")
    assert load_workload(path)[0].job_count == ran
    trace, reading = load_workload(path, only="finished")
    assert reading is not None
    assert reading.left_out is not None
    assert trace.job_count == finished
    assert reading.left_out.machine_share == pytest.approx(share, abs=0.0005)


def swf(*rows: str) -> str:
    """Rows of which the fields after the given ones are unknown."""
    return "".join(row + " -1" * (18 - len(row.split())) + "\n" for row in rows)


PARTS = swf("7 0 5 100 4 -1 -1 4 -1 -1 2", "7 -1 50 30 4 -1 -1 4 -1 -1 2", "7 -1 9 20 4 -1 -1 4 -1 -1 3")


def test_parts_of_a_job_without_a_row_of_its_own_are_the_row_that_it_would_have(tmp_path: Path) -> None:
    durations, left = read(tmp_path, PARTS + swf("8 10 0 50 2 -1 -1 2 -1 -1 1"))
    assert durations == [150, 50]
    assert (left.jobs, left.tasks, left.reasons) == (2, 2, ())


@pytest.mark.parametrize("place", [0, 1, 2])
def test_parts_of_a_job_beside_its_own_row_are_counted_once(tmp_path: Path, place: int) -> None:
    rows = [*PARTS.splitlines(keepends=True)]
    rows.insert(place, swf("7 0 5 150 4 -1 -1 4 -1 -1 1"))
    durations, left = read(tmp_path, "".join(rows))
    assert durations == [150]
    assert (left.machine_time, left.reasons) == (600.0, ())


def test_a_row_that_stands_twice_is_told_and_an_attempt_is_not(tmp_path: Path) -> None:
    _, left = read(tmp_path, SWF + SWF.splitlines()[0])
    assert counts(left)[TWINS] == 2
    events = ("0,,1,0,,0", "1,,1,0,7,1", "2,,1,0,7,2", "2,,1,0,,0", "3,,1,0,7,1", "5,,1,0,7,4")
    durations, left = read(tmp_path, "".join(f"{event},u,3,9,0.5,0.25,0,0\n" for event in events))
    assert (len(durations), left.reasons) == (2, ())


def test_an_unknown_runtime_of_gwf_is_no_runtime_below_zero(tmp_path: Path) -> None:
    head = "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n"
    _, left = read(tmp_path, head + "0,1,0,10,1,1,\n0,2,0,-1,1,1,\n0,3,0,-2,1,1,\n")
    assert counts(left) == {NO_RUNTIME: 1, NEGATIVE_RUNTIME: 1}


def test_a_row_of_no_instances_is_left_out_and_counted(tmp_path: Path) -> None:
    rows = ("0,10,1,1,2,Terminated,50,0.1", "0,10,1,2,0,Terminated,50,0.1", "0,10,2,1,0,Waiting,,")
    durations, left = read(tmp_path, "".join(f"{row}\n" for row in rows))
    assert durations == [10, 10]
    assert counts(left) == {NO_INSTANCES: 1, NEVER_STARTED: 1}
    assert (left.jobs, left.jobs_left_out) == (2, 1)


def test_statuses_of_parts_in_a_log_that_means_other_things_by_them_lose_no_job(tmp_path: Path) -> None:
    rows = swf(
        "1 0 -1 100 4 -1 -1 4 200 -1 3",
        "1 10 -1 50 2 -1 -1 2 60 -1 4",
        "3.0 20 -1 70 8 -1 -1 8 90 -1 2.0",
        "4 30 -1 9 1 -1 -1 1 90 -1 6",
    )
    durations, left = read(tmp_path, rows)
    assert durations == [100, 50, 70, 9]
    assert left.reasons == ()
    assert examine(tmp_path / "trace").noticed[UNKNOWN_STATUS] == 1


def test_a_preceding_job_is_a_wait_that_is_counted(tmp_path: Path) -> None:
    rows = [f"{k} {k} 0 10 1 -1 -1 1 -1 -1 1 7 1 -1 1 -1 {k - 1 or -1} 5\n" for k in range(1, 4)]
    durations, left = read(tmp_path, "".join(rows))
    assert durations == [10, 10, 10]
    (one,) = left.reasons
    assert (one.effect, one.reason, one.jobs, one.waits, left.waits) == (WAITS, UNRESOLVED, 2, 2, 2)


GWF = "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n"


@pytest.mark.parametrize(
    ("text", "unresolved", "stated"),
    [
        (GWF + "0,1,0,10,1,1,-1\n0,2,0,10,1,1,1 77\n1,2,0,10,1,1,1\n", 2, 3),
        (GWF + "-1,1,0,10,1,1,-1\n-1,2,0,10,1,1,1\n", 1, 1),
        ("M1,1,j,1,Terminated,1,9,50,2\nR2_1,1,j,1,Terminated,1,9,50,2\nR9_2_5,1,j,1,Terminated,1,9,50,2\n", 1, 3),
        ("M1,1,j,1,Terminated,1,9,50,2\nR2_1_Stg4,1,j,1,Terminated,1,9,50,2\n", 0, 1),
        ("M1,1,j,1,Terminated,1,9,50,2\nR2_1_of,1,j,1,Terminated,1,9,50,2\n", 1, 2),
    ],
)
def test_a_wait_for_a_task_that_is_not_in_the_file_is_counted(
    tmp_path: Path, text: str, unresolved: int, stated: int
) -> None:
    _, left = read(tmp_path, text)
    assert (left.waits_omitted, left.waits, left.is_large) == (unresolved, stated, unresolved > 0)
    diagnosis = examine(tmp_path / "trace").left_out
    assert diagnosis is not None
    assert (diagnosis.waits_omitted, diagnosis.waits) == (unresolved, stated)


def test_waits_that_a_wta_trace_states_by_children_alone_are_kept(tmp_path: Path) -> None:
    columns = {
        "id": [1, 2, 3],
        "workflow_id": [9, 9, 9],
        "ts_submit": [0, 0, 0],
        "runtime": [10, 20, 30],
        "parents": pa.array([[], [1], []], pa.list_(pa.int64())),
        "children": [[2.0, 3.0], [3.0], []],
    }
    pq.write_table(pa.table(columns), tmp_path / "t")
    trace, reading = load_workload(tmp_path / "t")
    assert reading is not None
    assert reading.left_out is not None
    assert [trace.parents_of(task) for task in range(3)] == [(), (0,), (0, 1)]
    assert (reading.left_out.waits, reading.left_out.reasons) == (3, ())


def test_a_wait_that_leads_through_a_left_out_task_is_counted_where_it_ends(tmp_path: Path) -> None:
    rows = "M1,1,j,1,Waiting,,,50,2\nR2_1_8,1,j,1,Waiting,,,50,2\nR3_2,1,j,1,Terminated,1,9,50,2\n"
    _, left = read(tmp_path, rows)
    assert (left.waits_omitted, left.waits) == (1, 1)


def table(path: Path, *rows: TaskRow) -> Omissions:
    """What is omitted of a table of these rows, which are of jobs of their own."""
    whole = (msgspec.structs.replace(row, job=str(k), task="0", submit_us=0) for k, row in enumerate(rows))
    with table_output(path) as output:
        for batch in batches(whole):
            output.add(batch)
    _, reading = load_workload(path)
    assert reading is not None
    assert reading.left_out is not None
    return reading.left_out


def test_a_reason_that_a_reader_gives_is_counted_with_its_effect(tmp_path: Path) -> None:
    left = table(
        tmp_path / "t",
        TaskRow(runtime_us=S, cpu_milli=1000, left_out="an alloc set, whose content is replayed"),
        TaskRow(runtime_us=2 * S, cpu_milli=1000, changed="the gap between attempts is not work"),
        TaskRow(runtime_us=S, cpu_milli=1000),
    )
    found = {(one.effect, one.reason, one.tasks, one.machine_time) for one in left.reasons}
    assert found == {
        (LEFT_OUT, "an alloc set, whose content is replayed", 1, 1.0),
        (CHANGED, "the gap between attempts is not work", 1, 2.0),
    }
    assert (left.jobs, left.jobs_left_out, left.machine_time) == (3, 1, 4.0)


def test_users_of_some_jobs_are_kept_and_the_jobs_of_nobody_counted(tmp_path: Path) -> None:
    left = table(tmp_path / "t", TaskRow(runtime_us=S, user="ann"), TaskRow(runtime_us=S))
    assert counts(left) == {NO_USER: 1}
    assert load_workload(tmp_path / "t")[0].user == ("ann", "")
    assert table(tmp_path / "u", TaskRow(runtime_us=S)).reasons == (), "nobody has one"


def test_constraints_that_a_run_does_not_heed_are_counted(tmp_path: Path) -> None:
    left = table(tmp_path / "t", TaskRow(runtime_us=S, constraints=["gpu=T4"]), TaskRow(runtime_us=S, constraints=[]))
    assert counts(left) == {CONSTRAINED: 1}


def test_a_resource_that_few_rows_state_is_asked_for_where_it_counts(tmp_path: Path) -> None:
    rows = [TaskRow(runtime_us=S, cpu_milli=1000, memory_mb=64.0 if k < 2 else None) for k in range(5)]
    table(tmp_path / "t", *rows)
    both, reading = load_workload(tmp_path / "t", resources=("cpu_milli", "memory_mb"))
    assert reading is not None
    assert reading.left_out is not None
    assert (both.resources, set(both.requests)) == (("cpu_milli", "memory_mb"), {(1000, 64), (1000, 0)})
    assert counts(reading.left_out) == {unknown_request("memory_mb"): 3}
    alone, reading = load_workload(tmp_path / "t", resources=("cpu_milli", "gpu_milli"))
    assert reading is not None
    assert reading.left_out is not None
    assert (alone.resources, alone.requests) == (("cpu_milli",), ((1000,),)), "nobody asks for GPUs"
    assert (reading.left_out.reasons, reading.unheeded) == ((), ("memory_mb",))


def test_memory_that_was_used_is_no_request(tmp_path: Path) -> None:
    rows = swf("1 0 -1 10 4 -1 2048 4 -1 -1 1", "2 0 -1 10 4 -1 2048 4 -1 1024 1")
    read(tmp_path, rows)
    trace, reading = load_workload(tmp_path / "trace", resources=("cpu_milli", "memory_mb"))
    assert reading is not None
    assert reading.left_out is not None
    assert [trace.requests[k] for k in trace.request] == [(1000, 0)] * 4 + [(1000, 1)] * 4, "a task per processor"
    assert counts(reading.left_out) == {unknown_request("memory_mb"): 1}


def changed(left: Omissions) -> dict[str, int]:
    return {one.reason: one.tasks for one in left.reasons if one.effect == CHANGED}


def test_parts_that_differ_in_processors_or_lack_a_runtime_are_counted(tmp_path: Path) -> None:
    rows = swf(
        "1 0 0 50 4 -1 -1 4 -1 -1 2",
        "1 -1 0 50 8 -1 -1 8 -1 -1 3",
        "2 9 0 50 4 -1 -1 4 -1 -1 2",
        "2 -1 0 -1 4 -1 -1 4 -1 -1 3",
        "3 9 0 50 4 -1 -1 4 -1 -1 2",
        "3 -1 0 10 4 -1 -1 4 -1 -1 3",
    )
    durations, left = read(tmp_path, rows)
    assert durations == [100, 50, 60]
    assert changed(left) == {UNLIKE_PARTS: 2}


def test_a_part_of_an_unknown_job_is_left_out_and_counted(tmp_path: Path) -> None:
    known, whole, part = "1 0 0 50 4 -1 -1 4 -1 -1 1", "-1 5 0 50 4 -1 -1 4 -1 -1 1", "-1 6 0 50 4 -1 -1 4 -1 -1 2"
    durations, left = read(tmp_path, swf(known, whole, part))
    assert durations == [50]
    assert counts(left) == {NO_JOB: 2}


def test_a_request_of_another_resource_than_processors_is_counted_in_a_wta_trace(tmp_path: Path) -> None:
    path = tmp_path / "w.parquet"
    columns = {
        "id": [1, 2, 3, 4],
        "workflow_id": [1, 1, 1, 1],
        "ts_submit": [0] * 4,
        "runtime": [1000] * 4,
        "parents": pa.array([[], [1], [], []], pa.list_(pa.int64())),
        "resource_type": ["core", "gpu", None, "gpu"],
        "resource_amount_requested": [1.0, 2.0, 3.0, -1.0],
    }
    pq.write_table(pa.table(columns), path)
    _, reading = load_workload(str(path))
    assert reading is not None
    assert reading.left_out is not None
    assert changed(reading.left_out) == {OTHER_RESOURCE: 2}


def test_two_tasks_of_one_id_in_a_job_with_waits_are_counted(tmp_path: Path) -> None:
    header = "WorkflowID,JobID,SubmitTime,RunTime,NProcs,ReqNProcs,Dependencies\n"
    path = tmp_path / "t.gwf"
    path.write_text(f"{header}1,1,0,10,1,1,-1\n1,1,0,20,1,1,-1\n1,2,0,5,1,1,1\n2,3,0,5,1,1,-1\n")
    trace, reading = load_workload(str(path))
    assert reading is not None
    assert reading.left_out is not None
    assert changed(reading.left_out) == {TWINS: 2}
    assert list(trace.parents) == [0, 1]


@pytest.mark.parametrize(("kind", "runtime_s"), [(1, 20), (0, 30)])
def test_an_attempt_that_begins_twice_without_an_end_is_counted(tmp_path: Path, kind: int, runtime_s: int) -> None:
    events = [(0, 0), (10, 1), (20, kind), (40, 4)]
    path = tmp_path / "events.csv"
    path.write_text("".join(f"{at}000000,,1,0,5,{event},u,2,3,0.1,0.1,0,0\n" for at, event in events))
    trace, reading = load_workload(str(path))
    assert reading is not None
    assert reading.left_out is not None
    assert [us // 1_000_000 for us in trace.duration_us] == [runtime_s]
    assert changed(reading.left_out) == {BEGUN_TWICE: 1}


def test_a_resource_that_only_later_rows_state_is_named_among_those_that_do_not_count(tmp_path: Path) -> None:
    path = tmp_path / "t.parquet"
    rows = [TaskRow(str(k), "0", submit_us=k, runtime_us=9, cpu_milli=1.0) for k in range(1 << 16)]
    rows.append(TaskRow("last", "0", submit_us=1 << 16, runtime_us=9, cpu_milli=1.0, gpu_milli=1000.0))
    with table_output(path) as output:
        for batch in batches(rows):
            output.add(batch)
    _, reading = load_workload(str(path))
    assert reading is not None
    assert reading.unheeded == ("gpu_milli",)
