"""Alibaba's batch tasks of 2017 and 2018, the table of mean durations made of the former, and the pods of 2023.

A row stands for `instances` equal tasks. Published files of 2017 and 2018 have no header; copies with one are common.
The 2018 names of tasks hold the graph: `R2_1` is task 2 and waits for task 1 (trace 2018, schema of batch_task), and so
does `R2_1_Stg5`; a name without numbers has no known place in it.
"""

from __future__ import annotations

import re
from typing import Final

from volery.workload.formats.source import (
    UNKNOWN_STATUS,
    Head,
    Noticed,
    amount,
    count,
    fields,
    known,
    looked_up,
    microseconds,
    row_like,
    span,
    table_format,
)
from volery.workload.table import TaskRow

V2017: Final = (
    "task_create_time",
    "task_end_time",
    "job_id",
    "task_id",
    "number_of_instances",
    "status",
    "number_of_cpus_requested_per_instance_in_the_task",
    "normalized_memory_requested_per_instance_in_the_task",
)
MEANS: Final = frozenset({"submit_time", "duration", "cpu", "memory", "job_id", "task_id", "instances_num"})
V2018: Final = (
    "task_name",
    "instance_num",
    "job_name",
    "task_type",
    "status",
    "start_time",
    "end_time",
    "plan_cpu",
    "plan_mem",
)
PODS: Final = frozenset({"name", "cpu_milli", "memory_mib", "num_gpu", "creation_time", "deletion_time"})
STATUS: Final = {
    "Terminated": "finished",
    "Failed": "failed",
    "Waiting": "waiting",
    "Running": "running",
    "Ready": "waiting",
    "Interrupted": "killed",
    "Cancelled": "killed",
    "Succeeded": "finished",
    "Pending": "waiting",
}
NO_PHASE: Final = ("", "Unknown")
"""The phases of a pod whose state could not be read."""
IN_GRAPH: Final = re.compile(r"[^_]*[A-Za-z](\d+)((?:_.*?)?)(?:_Stg\d+)?")
CORE: Final = 10
"""Thousandths of a core in one of their units: 100 is a core."""


def _time(text: str) -> int | None:
    return microseconds(text) if text else None


def _row_2017(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    begin, end = _time(row["task_create_time"]), _time(row["task_end_time"])

    row_made = TaskRow(
        job=known(row["job_id"]),
        task=known(row["task_id"]),
        submit_us=begin,
        end_us=end,
        runtime_us=span(begin, end),
        instances=count(row["number_of_instances"]) if row["number_of_instances"] else None,
        cpu_milli=amount(row[V2017[6]], CORE),
        memory_share=amount(row[V2017[7]]),
        status=looked_up(STATUS, row["status"], "status") if row["status"] else None,
        line=number,
    )

    noticed["rows that ask for nothing"] += row_made.cpu_milli is None
    return row_made


def _row_means(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    row_made = TaskRow(
        job=known(row["job_id"]),
        task=known(row["task_id"]),
        submit_us=_time(row["submit_time"]),
        runtime_us=_time(row["duration"]),
        instances=count(row["instances_num"]),
        cpu_milli=amount(row["cpu"], 1000),
        memory_share=amount(row["memory"]),
        line=number,
    )

    noticed["rows that ask for nothing"] += row_made.cpu_milli is None
    return row_made


def parents_of(name: str) -> tuple[str, list[str]] | None:
    """A task's number and those it waits for; None where the name holds neither.

    A part that is no number is kept, as a wait for a task that the job does not have.
    """
    place_in_graph = IN_GRAPH.fullmatch(name)
    return (
        None if place_in_graph is None else (place_in_graph[1], [part for part in place_in_graph[2].split("_") if part])
    )


def _row_2018(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    begin, end = _time(row["start_time"]), _time(row["end_time"])
    graph = parents_of(row["task_name"])
    noticed["tasks whose name tells no place in a graph"] += graph is None

    return TaskRow(
        job=known(row["job_name"]),
        task=known(row["task_name"]) if graph is None else graph[0],
        submit_us=begin,
        start_us=begin,
        end_us=end,
        runtime_us=span(begin, end),
        instances=count(row["instance_num"]) if row["instance_num"] else None,
        cpu_milli=amount(row["plan_cpu"], CORE),
        memory_share=amount(row["plan_mem"], 0.01),
        parents=None if graph is None else graph[1],
        status=looked_up(STATUS, row["status"], "status") if row["status"] else None,
        line=number,
    )


def _row_pods(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    begin, end = _time(row["creation_time"]), _time(row["deletion_time"])
    start = _time(row.get("scheduled_time", ""))
    noticed["pods that were never placed"] += start is None

    gpus = amount(row["num_gpu"])
    milli_per_gpu = amount(row.get("gpu_milli", "")) if gpus else 0.0
    phase = row.get("pod_phase", "")
    noticed[UNKNOWN_STATUS] += phase not in STATUS and phase not in NO_PHASE

    return TaskRow(
        job=known(row["name"]),
        task="0",
        submit_us=begin,
        start_us=start,
        end_us=end,
        runtime_us=span(start, end),
        cpu_milli=amount(row["cpu_milli"]),
        memory_mb=amount(row["memory_mib"]),
        gpu_milli=None if gpus is None or milli_per_gpu is None else gpus * milli_per_gpu,
        constraints=[f"gpu_spec={row['gpu_spec']}"] if row.get("gpu_spec") else [],
        status=STATUS.get(phase),
        line=number,
    )


def _headless(head: Head, names: tuple[str, ...]) -> bool:
    rows = [fields(line) for line in head.lines]
    if any(len(row) != len(names) for row in rows):
        return False
    stated = {row[names.index("status")] for row in rows} - {""}
    return bool(stated) and stated <= set(STATUS)


ALIBABA: Final = (
    table_format(
        "alibaba-2017",
        "Alibaba v2017 batch_task",
        _row_2017,
        names=V2017,
        header=frozenset(V2017),
        fits=lambda head: head.names() >= set(V2017) or _headless(head, V2017),
        like=row_like("nn..nwnn"),
        remarks=(
            "end minus creation is the time of the whole task, an upper bound of an instance's",
            "memory is a share of the largest machine; rows that wait ask for nothing; some begin before the trace",
        ),
    ),
    table_format("alibaba-2017-means", "Alibaba v2017 mean durations", _row_means, header=MEANS),
    table_format(
        "alibaba-2018",
        "Alibaba v2018 batch_task",
        _row_2018,
        names=V2018,
        header=frozenset(V2018) - {"task_type"},
        fits=lambda head: head.names() >= set(V2018) - {"task_type"} or _headless(head, V2018),
        like=row_like("wnw.wnnnn"),
        remarks=(
            "the graph is in the names of tasks: R2_1 is task 2 and waits for task 1",
            "there is no submission: a task is taken to be submitted when it starts",
        ),
    ),
    table_format(
        "alibaba-gpu",
        "Alibaba GPU v2023 pods",
        _row_pods,
        header=PODS,
        remarks=("a pod is a job of one task; gpu_spec lists models, any of which will do",),
    ),
)
