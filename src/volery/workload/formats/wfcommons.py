"""WfCommons JSON (WfFormat 1.3 to 1.5): a document is a workflow, and so a job here.

Since 1.4 what a task is and how it ran stand apart (`specification`, `execution`); before, they were one.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Final

import msgspec

from volery.core.errors import InputError
from volery.workload.files import numbered_lines
from volery.workload.formats.source import Format, Head, Noticed, microseconds, place
from volery.workload.table import TaskRow

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


def read(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a document; `line` is a task's place in it.

    Raises:
        InputError: it is no such document, or a task is wrong.
    """
    text = b"\n".join(line.rstrip(b"\n") for _, line in numbered_lines(path))
    try:
        document = msgspec.json.decode(text, type=Document)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"is no WfCommons document: {error}; fetch it again") from None
    flow = document.workflow
    tasks = flow.specification.tasks or flow.tasks
    ran = {task.id: task for task in flow.execution.tasks}
    ids = {task.id for task in tasks}
    for number, task in enumerate(tasks, 1):
        with place(path, number, "WfCommons"):
            yield _row(document.name, task, ran.get(task.id, task), ids, number, noticed)


def _row(
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


def fits(head: Head) -> bool:
    """By the key that holds the graph."""
    return head.start.startswith(b"{") and any('"workflow"' in line for line in head.lines)


WFCOMMONS: Final = Format(
    "wfcommons", "WfCommons", fits, rows=read,
    remarks=(
        "a document is one workflow, submitted at 0: arrivals must be added to run several",
        "the document is read whole",
    ),
)  # fmt: skip
