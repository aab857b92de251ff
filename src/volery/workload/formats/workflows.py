"""Formats of workflow archives: GWF, WfCommons, and the Workflow Trace Archive (WTA).

GWF, as the reference architecture's traces have it, has seven fields: WorkflowID, JobID, SubmitTime, RunTime, NProcs,
ReqNProcs, Dependencies (blank-separated); times in seconds (Versluis et al., SC 2018). What the file calls a workflow
is a job here, and what it calls a job is a task.

A WfCommons document (JSON, WfFormat 1.3 to 1.5) is a workflow, and so a job here. Since 1.4 what a task is and how it
ran stand apart (`specification`, `execution`); before, they were one.

WTA's tasks are in parquet (schema 1.0): one file, or a folder of parts; times in milliseconds, -1 is unknown. Columns
differ in type from trace to trace; they are cast. The archive's ids are numbers that name a task in its workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.workload.formats.source import (
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

HEADER: Final = frozenset({"WorkflowID", "JobID", "SubmitTime", "RunTime", "NProcs", "ReqNProcs", "Dependencies"})


def _processors(text: str) -> float | None:
    """None where it is not above 0: unknown."""
    return None if float(text) <= 0 else amount(text)


def read_gwf(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a file, plain or gzip-compressed.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    bare = 0
    for number, row in table_rows(path, sorted(HEADER), header=HEADER):
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
    "gwf", "GWF", lambda head: head.names() >= HEADER, rows=read_gwf,
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


NEEDED: Final = frozenset({"id", "workflow_id", "ts_submit", "runtime", "parents"})
MILLISECOND: Final = 1000
"""Microseconds in one."""
CORES: Final = ("core", "cpu", "thread", "cores", "cpus", "threads")


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

    def known(name: str, kind: Any) -> Any:
        if name not in batch.schema.names:
            return pa.nulls(rows, kind)
        values = pc.cast(batch.column(name), kind)
        return pc.if_else(pc.equal(values, pa.scalar(-1, kind)), pa.scalar(None, kind), values)

    def scaled(name: str) -> Any:
        return pc.multiply_checked(known(name, pa.int64()), MILLISECOND)

    columns["job"] = pc.cast(batch.column("workflow_id"), pa.string())
    columns["task"] = pc.cast(batch.column("id"), pa.string())
    columns["user"] = pc.cast(known("user_id", pa.int64()), pa.string())
    columns["submit_us"] = pc.multiply_checked(pc.cast(batch.column("ts_submit"), pa.int64()), MILLISECOND)
    columns["task_submit_us"] = columns["submit_us"]
    columns["runtime_us"] = scaled("runtime")
    columns["start_us"] = pc.add(columns["submit_us"], scaled("wait_time"))
    columns["end_us"] = pc.add(columns["start_us"], columns["runtime_us"])
    columns["cpu_milli"] = pc.multiply(
        _wta_cores(batch, known("resource_amount_requested", pa.float64()), noticed), 1000.0
    )
    columns["parents"] = pc.cast(pc.cast(batch.column("parents"), pa.list_(pa.int64())), pa.list_(pa.string()))
    columns["instances"] = pa.array([1] * rows, pa.int64())
    columns["line"] = pa.array(range(row + 1, row + rows + 1), pa.int64())
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA
    )


def _wta_cores(batch: pa.RecordBatch, amount: Any, noticed: Noticed) -> Any:
    """Requested amounts of processors; None where the resource is another."""
    if "resource_type" not in batch.schema.names:
        return amount
    kinds = pc.utf8_lower(pc.cast(batch.column("resource_type"), pa.string()))
    processors = pc.fill_null(pc.is_in(kinds, value_set=pa.array(CORES)), False)
    if others := batch.num_rows - (pc.sum(processors).as_py() or 0):
        noticed["rows whose resource is no processor; its amount is not read"] += others
    return pc.if_else(processors, amount, pa.scalar(None, pa.float64()))


WTA: Final = Format(
    "wta", "WTA", lambda head: head.columns >= NEEDED, batches=read_wta,
    remarks=(
        "-1 is unknown; times are milliseconds; submissions may all be 0, and arrivals must then be added",
        "memory, disk, network, energy and the parameters of tasks are not read",
    ),
)  # fmt: skip
