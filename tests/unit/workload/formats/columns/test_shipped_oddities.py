"""Oddities of the logs that shipped maps read: records that are no jobs, attempts, sizes of Torque, gangs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.unit.workload.formats.columns.test_shipped_maps import (
    BEGIN_S,
    CASES,
    ROWS,
    SECOND,
    condor_row,
    pods_text,
    read,
    stored,
)

from volery.core.errors import InputError
from volery.workload import load_trace
from volery.workload.formats import format_of
from volery.workload.formats.source import Noticed


def test_records_of_pbs_that_are_no_ends_are_counted_and_a_rerun_is_an_attempt(tmp_path: Path) -> None:
    rerun = f"user=a queue=q qtime={BEGIN_S} start={BEGIN_S + 10} end={BEGIN_S + 30} Exit_status=-11 run_count=1"
    ended = f"user=a queue=q qtime={BEGIN_S} start={BEGIN_S + 50} end={BEGIN_S + 90} Exit_status=0 run_count=2"
    lines = ("Q;1.s;queue=q", f"R;1.s;{rerun}", f"E;1.s;{ended}", f"E;2[].s;{ended}", f"E;2[1].s;{ended}")
    noticed = Noticed()
    rows = read(stored(tmp_path, "".join(f"03/01/2024 08:00:00;{line}\n" for line in lines)), noticed)
    assert [(row["job"], row["submit_us"], row["runtime_us"], row["status"]) for row in rows] == [
        ("1.s", BEGIN_S * SECOND, 20 * SECOND, "killed"),
        ("1.s", (BEGIN_S + 30) * SECOND, 40 * SECOND, "finished"),
        ("2[1].s", BEGIN_S * SECOND, 40 * SECOND, "finished"),
    ]
    assert +noticed == {
        "records of an event that is no end of a job": 1,
        "records of whole arrays, whose jobs have their own": 1,
        "rows of further attempts of a job, each of which is replayed": 1,
    }


@pytest.mark.parametrize(
    ("nodes", "cores"),
    [("2:ppn=8", 16_000.0), ("n1:ppn=4+n2:ppn=8", None), ("2", 2000.0), ("2:ppn=8:fast", 16_000.0)],
)
def test_processors_of_torque_are_those_of_each_node_where_all_nodes_are_alike(
    tmp_path: Path, nodes: str, cores: float | None
) -> None:
    message = f"qtime={BEGIN_S} start={BEGIN_S} end={BEGIN_S + 1} Resource_List.nodes={nodes} Resource_List.nodect=2"
    (row,) = read(stored(tmp_path, f"03/01/2024 08:00:00;E;1.s;{message} Exit_status=0\n"))
    assert (row["gang_tasks"], row["cpu_milli"]) == (2, cores)


def test_the_attributes_of_a_job_of_condor_may_stand_far_below_each_other(tmp_path: Path) -> None:
    """Printed whole, a job has over a hundred, one in a line."""
    filled = {f"A{n:03d}": 0 for n in range(150)}
    path = stored(tmp_path, json.dumps([filled | condor_row(0)], indent=1))
    assert format_of(path).name == "condor-history"
    assert read(path)[0]["status"] == "finished"


def test_nodes_of_kubernetes_are_no_trace(tmp_path: Path) -> None:
    node = {"apiVersion": "v1", "kind": "Node", "metadata": {"uid": "n"}, "status": {"conditions": []}}
    with pytest.raises(InputError, match=r"has no column 'metadata.creationTimestamp', which gives submit"):
        read(stored(tmp_path, pods_text([node])))


@pytest.mark.parametrize(("name", "tasks"), [("gwa", 60), ("helios", 48), ("pbs", 48), ("elasticflow", 90)])
def test_the_jobs_of_several_tasks_are_gangs_in_the_lab(tmp_path: Path, name: str, tasks: int) -> None:
    """GWF: 20 + 8 x 2 + 8 x 3; Helios and PBS: 8 x (1 + 2 + 3); ElasticFlow: 6 x (1 + 2 + 4 + 8)."""
    case = CASES[name]
    trace = load_trace(stored(tmp_path, case.text([case.row(k) for k in range(ROWS)])))
    assert (trace.job_count, trace.task_count) == (ROWS, tasks)
    sizes = [trace.first[job + 1] - trace.first[job] for job in range(ROWS)]
    assert [trace.gang_of(job) is not None for job in range(ROWS)] == [size > 1 for size in sizes]


@pytest.mark.parametrize(
    ("memory", "status", "right"),
    [("1073741824b", 10001, (1024, "killed")), ("1073741824", 256, (1024, "killed")), ("2gb", 255, (2048, "failed")),
     ("2048kb", 1000, (2, "killed"))],
)  # fmt: skip
def test_memory_of_pbs_may_be_bytes_and_an_exit_status_large(
    tmp_path: Path, memory: str, status: int, right: tuple[float, str]
) -> None:
    message = f"qtime={BEGIN_S} start={BEGIN_S} end={BEGIN_S + 1} Resource_List.mem={memory} Exit_status={status}"
    (row,) = read(stored(tmp_path, f"03/01/2024 08:00:00;E;1.s;{message}\n"))
    assert (row["memory_mb"], row["status"]) == right
