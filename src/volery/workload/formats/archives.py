"""Formats of public archives: SWF, GWF, WfCommons, and the Workflow Trace Archive (WTA).

SWF, the Standard Workload Format (Feitelson's Parallel Workloads Archive, version 2.2), has 18 fields; -1 is unknown. A
job is one task here that asks for its processors. Memory is per processor in the file, in kilobytes; per job here.

GWF, as the reference architecture's traces have it, has seven fields: WorkflowID, JobID, SubmitTime, RunTime, NProcs,
ReqNProcs, Dependencies (blank-separated); times in seconds (Versluis et al., SC 2018). What the file calls a workflow
is a job here, and what it calls a job is a task.

A WfCommons document (JSON, WfFormat 1.3 to 1.5) is a workflow, and so a job here. Since 1.4 what a task is and how it
ran stand apart (`specification`, `execution`); before, they were one.

WTA's tasks are in parquet (schema 1.0): one file, or a folder of parts; times in milliseconds, -1 is unknown. Columns
differ in type from trace to trace; they are cast. The archive's ids are numbers that name a task in its workflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.formats.source import (
    AMOUNT_END,
    Format,
    Head,
    Noticed,
    amount,
    document,
    known,
    microseconds,
    parquet_parts,
    place,
    table_rows,
)
from volery.workload.table import BATCH_ROWS, SCHEMA, TaskRow

SWF_FIELDS: Final = 18
SWF_STATUS: Final = {"0": "failed", "1": "finished", "5": "killed"}
SWF_SIZE: Final = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,9})\b")
SWF_PARTS: Final = ("2", "3", "4")
"""Statuses of rows that repeat a part of a job that was checkpointed; the job has a row of its own."""


def fits_swf(head: Head) -> bool:
    """Comments begin with `;`; rows have 18 numbers."""
    rows = [line.split() for line in head.lines if not line.startswith(";")]
    return (
        bool(head.lines)
        and all(len(row) == SWF_FIELDS and _are_numbers(row) for row in rows)
        and (bool(rows) or all(line.startswith(";") for line in head.lines))
    )


def _are_numbers(words: list[str]) -> bool:
    return all(word.lstrip("-+").replace(".", "", 1).isdigit() for word in words)


def _positive(text: str) -> float | None:
    value = float(text)
    if not abs(value) < AMOUNT_END:
        raise ValueError(f"{text!r} is no amount")
    return value if value > 0 else None


def read_swf(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The jobs of a file, plain or gzip-compressed.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    for number, line in numbered_lines(path):
        words = line.decode("utf-8", "replace").split()
        if not words or words[0].startswith(";"):
            continue
        with place(path, number, "SWF"):
            if len(words) != SWF_FIELDS:
                raise ValueError(f"{len(words)} fields where there are {SWF_FIELDS}")
            row = _swf_row(words, number)
        if words[10] in SWF_PARTS:
            noticed["rows of a part of a checkpointed job, passed over"] += 1
            continue
        yield row


def _swf_row(words: list[str], number: int) -> TaskRow:
    submit = microseconds(words[1])
    # -1 stands for unknown throughout; other negative values are wrong and left to the doctor
    wait = None if float(words[2]) == -1 else microseconds(words[2])
    runtime = None if float(words[3]) == -1 else microseconds(words[3])
    # a job that was cancelled while it waited has neither; its wait is the time until then
    never = runtime is None and _positive(words[4]) is None
    start = None if wait is None or never else submit + wait
    procs = _positive(words[7]) or _positive(words[4])
    memory_kb = _positive(words[9]) or _positive(words[6])
    estimate = _positive(words[8])
    return TaskRow(
        job=None if words[0] == "-1" else words[0],
        task="0",
        user=None if words[11] == "-1" else words[11],
        submit_us=submit,
        start_us=start,
        end_us=None if start is None or runtime is None else start + runtime,
        runtime_us=runtime,
        estimate_us=None if estimate is None else round(estimate * SECOND),
        cpu_milli=None if procs is None else procs * 1000,
        memory_mb=None if memory_kb is None or procs is None else memory_kb * procs / 1024,
        status=SWF_STATUS.get(words[10]),
        line=number,
    )


def _swf_processors(head: Head) -> int | None:
    """`MaxProcs` of the comments, or where it is not stated `MaxNodes`, which it equals by default."""
    stated = {found[1]: int(found[2]) for line in head.lines if (found := SWF_SIZE.match(line))}
    return stated.get("MaxProcs") or stated.get("MaxNodes") or None


SWF: Final = Format(
    "swf", "SWF", fits_swf, rows=read_swf, processors=_swf_processors,
    remarks=(
        "-1 is unknown; a job of n processors is one task that asks for n cores",
        "a preceding job (field 17) is a job of its own here and is not read",
    ),
)  # fmt: skip


GWF_COLUMNS: Final = frozenset({"WorkflowID", "JobID", "SubmitTime", "RunTime", "NProcs", "ReqNProcs", "Dependencies"})


def _processors(text: str) -> float | None:
    """None where it is not above 0: unknown."""
    return None if float(text) <= 0 else amount(text)


def read_gwf(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a file, plain or gzip-compressed.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    bare = 0
    for number, row in table_rows(path, sorted(GWF_COLUMNS), header=GWF_COLUMNS):
        with place(path, number, "GWF"):
            processors = _processors(row["ReqNProcs"]) or _processors(row["NProcs"])
            parents = row["Dependencies"].split()
            bare += not parents
            submit = microseconds(row["SubmitTime"])
            made = TaskRow(
                job=known(row["WorkflowID"]),
                task=known(row["JobID"]),
                submit_us=submit,
                runtime_us=microseconds(row["RunTime"]),
                cpu_milli=None if processors is None else processors * 1000,
                parents=[] if parents == ["-1"] else parents,
                line=number,
                task_submit_us=submit,
            )
        yield made
    noticed["tasks without parents"] += bare


GWF: Final = Format(
    "gwf", "GWF", lambda head: head.names() >= GWF_COLUMNS, rows=read_gwf,
    remarks=("times are whole seconds; a WorkflowID is a job here and a JobID a task",),
)  # fmt: skip


Bytes = Annotated[float, msgspec.Meta(ge=0)]


class WorkflowTask(msgspec.Struct, rename="camel"):
    """A task: its specification, its execution, or both."""

    name: str | None = None
    id: str | None = None
    parents: list[str] | None = None
    runtime_in_seconds: float | None = None
    runtime: float | None = None
    core_count: float | None = None
    cores: float | None = None
    memory_in_bytes: Bytes | None = None


class Tasks(msgspec.Struct):
    """The tasks of a specification or execution."""

    tasks: list[WorkflowTask] = []


class DocumentGraph(msgspec.Struct):
    """The graph of a document, and its execution."""

    tasks: list[WorkflowTask] = []
    specification: Tasks = msgspec.field(default_factory=Tasks)
    execution: Tasks = msgspec.field(default_factory=Tasks)


class Document(msgspec.Struct, rename="camel"):
    """A whole file: one named workflow."""

    name: str
    workflow: DocumentGraph
    schema_version: str | None = None


def read_wfcommons(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a document; `line` is a task's place in it.

    Raises:
        InputError: it is no such document, or a task is wrong.
    """
    found = document(path, Document, "WfCommons document")
    flow = found.workflow
    tasks = flow.specification.tasks or flow.tasks
    ran = {task.id: task for task in flow.execution.tasks}
    ids = {task.id for task in tasks}
    for number, task in enumerate(tasks, 1):
        with place(path, number, "WfCommons"):
            yield _wfcommons_row(found.name, task, ran.get(task.id, task), ids, number, noticed)


def _wfcommons_row(
    job: str, task: WorkflowTask, ran: WorkflowTask, ids: set[str | None], number: int, noticed: Noticed
) -> TaskRow:
    """Before 1.4, parents are named rather than numbered, and names are then the ids."""
    by_name = bool(task.parents) and not set(task.parents or ()) & ids
    runtime = ran.runtime_in_seconds if ran.runtime_in_seconds is not None else ran.runtime
    cores = ran.core_count if ran.core_count is not None else ran.cores
    noticed["tasks without a runtime"] += runtime is None
    noticed["tasks whose parents are given by name"] += by_name
    runtime_us = None if runtime is None else microseconds(runtime)
    return TaskRow(
        job=job,
        task=task.id or task.name,
        submit_us=0,
        runtime_us=runtime_us,
        cpu_milli=None if cores is None else cores * 1000,
        memory_mb=None if ran.memory_in_bytes is None else ran.memory_in_bytes / (1 << 20),
        parents=task.parents or [],
        line=number,
    )


def fits_wfcommons(head: Head) -> bool:
    """By the key that holds the graph."""
    return head.start.startswith(b"{") and any('"workflow"' in line for line in head.lines)


WFCOMMONS: Final = Format(
    "wfcommons", "WfCommons", fits_wfcommons, rows=read_wfcommons,
    remarks=(
        "a document is one workflow, submitted at 0: arrivals must be added to run several",
        "the document is read whole",
    ),
)  # fmt: skip


WTA_COLUMNS: Final = frozenset({"id", "workflow_id", "ts_submit", "runtime", "parents"})
MILLISECOND: Final = 1000
"""Microseconds in one."""
WTA_PROCESSORS: Final = ("core", "cpu", "thread", "cores", "cpus", "threads")


def read_wta(path: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
    """The tasks of a file or folder, a part at a time.

    Raises:
        InputError: a part cannot be read, or a column holds what it must not.
    """
    row = 0
    for part in parquet_parts(path):
        try:
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield _wta_batch(batch, row, noticed)
                    row += batch.num_rows
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            problem = (str(error).splitlines() or [""])[0]
            raise InputError(f"{part}:{row + 1}", f"is no part of a WTA trace: {problem}; fetch it again") from None


def _wta_batch(batch: pa.RecordBatch, row: int, noticed: Noticed) -> pa.RecordBatch:
    rows = batch.num_rows
    columns: dict[str, Any] = {}

    def column(name: str, kind: Any) -> Any:
        if name not in batch.schema.names:
            return pa.nulls(rows, kind)
        values = pc.cast(batch.column(name), kind)
        return pc.if_else(pc.equal(values, pa.scalar(-1, kind)), pa.scalar(None, kind), values)

    def scaled(name: str) -> Any:
        return pc.multiply_checked(column(name, pa.int64()), MILLISECOND)

    columns["job"] = pc.cast(batch.column("workflow_id"), pa.string())
    columns["task"] = pc.cast(batch.column("id"), pa.string())
    columns["user"] = pc.cast(column("user_id", pa.int64()), pa.string())
    columns["submit_us"] = pc.multiply_checked(pc.cast(batch.column("ts_submit"), pa.int64()), MILLISECOND)
    columns["task_submit_us"] = columns["submit_us"]
    columns["runtime_us"] = scaled("runtime")
    columns["start_us"] = pc.add(columns["submit_us"], scaled("wait_time"))
    columns["end_us"] = pc.add(columns["start_us"], columns["runtime_us"])
    columns["cpu_milli"] = pc.multiply(
        _wta_cores(batch, column("resource_amount_requested", pa.float64()), noticed), 1000.0
    )
    columns["parents"] = pc.cast(pc.cast(batch.column("parents"), pa.list_(pa.int64())), pa.list_(pa.string()))
    columns["instances"] = pa.array([1] * rows, pa.int64())
    columns["line"] = pa.array(range(row + 1, row + rows + 1), pa.int64())
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA
    )


def _wta_cores(batch: pa.RecordBatch, requested: Any, noticed: Noticed) -> Any:
    """Requested amounts of processors; None where the resource is another."""
    if "resource_type" not in batch.schema.names:
        return requested
    kinds = pc.utf8_lower(pc.cast(batch.column("resource_type"), pa.string()))
    processors = pc.fill_null(pc.is_in(kinds, value_set=pa.array(WTA_PROCESSORS)), False)
    if others := batch.num_rows - (pc.sum(processors).as_py() or 0):
        noticed["rows whose resource is no processor; its amount is not read"] += others
    return pc.if_else(processors, requested, pa.scalar(None, pa.float64()))


WTA: Final = Format(
    "wta", "WTA", lambda head: head.columns >= WTA_COLUMNS, batches=read_wta,
    remarks=(
        "-1 is unknown; times are milliseconds; submissions may all be 0, and arrivals must then be added",
        "memory, disk, network, energy and the parameters of tasks are not read",
    ),
)  # fmt: skip
