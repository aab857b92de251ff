"""The reader of WfCommons documents (JSON, WfFormat 1.0 to 1.6); a document is a workflow, and so a job here.

Since 1.5 the specification of a task and its execution are apart (`specification`, `execution`); before, they were one,
and at first `tasks` was `jobs`. A task waits for its `parents`, and its `children` wait for it. Both name tasks by id
or by name in all versions: ids came into use tool by tool.

`memoryInBytes` is the measured resident set of a task, not a request, and is not read.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.workload.files import bare_name
from volery.workload.formats.source import Format, Head, Noticed, document, microseconds, place
from volery.workload.table import TaskRow

REPEATED: Final = "an execution of a task that the document executes again below"
SECOND_LIST: Final = "in a second list of tasks of the document, of which the first is replayed"
UNSPECIFIED: Final = "executed, but in no specification, so that nothing states their waits"


class WorkflowTask(msgspec.Struct, rename="camel"):
    """A task: its specification, its execution, or both."""

    name: str | None = None
    id: str | int | None = None
    parents: list[str | int] | None = None
    children: list[str | int] | None = None
    runtime_in_seconds: float | None = None
    runtime: float | None = None
    core_count: float | None = None
    cores: float | None = None

    @property
    def key(self) -> str | None:
        """The id of the task; its name where it has none."""
        return self.name if self.id is None else str(self.id)


class Tasks(msgspec.Struct):
    """The tasks of a specification or execution."""

    tasks: list[WorkflowTask] = []


class DocumentGraph(msgspec.Struct):
    """The graph of a document, and its execution."""

    tasks: list[WorkflowTask] = []
    jobs: list[WorkflowTask] = []
    specification: Tasks = msgspec.field(default_factory=Tasks)
    execution: Tasks = msgspec.field(default_factory=Tasks)


class Document(msgspec.Struct, rename="camel"):
    """A whole file: one named workflow."""

    workflow: DocumentGraph
    name: str = ""
    schema_version: str | None = None


class _Graph:
    """The tasks of a document by id, and what each waits for.

    A text that is the id of one task and the name of another is what most references of the document are.
    """

    def __init__(self, tasks: Sequence[WorkflowTask]) -> None:
        self._ids = {task.key for task in tasks}
        counts = Counter(task.name for task in tasks)
        self._id_of_name = {task.name: task.key for task in tasks if counts[task.name] == 1}

        stated = [str(stated_id) for task in tasks for stated_id in (*(task.parents or ()), *(task.children or ()))]
        # Documents give parents by id or by name: the form that more of them fit holds for all.
        by_name = sum(stated_id in self._id_of_name for stated_id in stated)
        self._is_by_name = by_name > sum(stated_id in self._ids for stated_id in stated)

        self._parents: dict[str | None, list[str]] = {}
        for task in tasks:
            parents = self._parents.setdefault(task.key, [])
            parents += [self.id_of(stated_id) for stated_id in task.parents or ()]
        self._add_children(tasks)

    def _add_children(self, tasks: Sequence[WorkflowTask]) -> None:
        """Let children wait for their parents where only these state it.

        A child that is no task of the document is kept as a parent of that name, so that the wait is counted; unless
        the parents of tasks state as many waits, by other names.
        """
        lost: list[tuple[str | None, str]] = []
        for task in tasks:
            for child in map(self.id_of, task.children or ()):
                if child not in self._ids:
                    lost.append((task.key, child))
                elif task.key is not None:
                    self._parents[child].append(task.key)

        waits = sum(len(set(parents) & self._ids) for parents in self._parents.values())
        stated = sum(len(task.children or ()) for task in tasks)
        for key, child in lost[: max(0, stated - waits)]:
            self._parents[key].append(child)

    def id_of(self, reference: str | int | None) -> str:
        """The id of the task that a reference names; the reference itself where there is none, or more than one."""
        text = str(reference)
        if text in self._ids and not (self._is_by_name and text in self._id_of_name):
            return text
        return self._id_of_name.get(text) or text

    def parents_of(self, task: WorkflowTask) -> list[str]:
        """Ids of the tasks that a task waits for, each once."""
        return list(dict.fromkeys(self._parents[task.key]))

    def __contains__(self, key: str) -> bool:
        return key in self._ids


def read_wfcommons(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a document; `line` is a task's place in it.

    Raises:
        InputError: it is no such document, it has no tasks, or a task is wrong.
    """
    workflow_document = document(path, Document, "WfCommons document")

    flow = workflow_document.workflow
    lists = [task_list for task_list in (flow.specification.tasks, flow.tasks, flow.jobs) if task_list]
    tasks = lists[0] if lists else []

    if not tasks and not flow.execution.tasks:
        keys = "workflow.specification.tasks, workflow.tasks and workflow.jobs"
        version = workflow_document.schema_version or "unknown"
        raise InputError(str(path), f"has no task in {keys} (schema version {version}); fetch it again")

    job = workflow_document.name or bare_name(path)
    graph = _Graph(tasks)
    executions: dict[str, list[WorkflowTask]] = {}
    for ran in flow.execution.tasks:
        executions.setdefault(graph.id_of(ran.key), []).append(ran)

    known_ids = {None if task.id is None else str(task.id) for task in tasks}
    for number, task in enumerate(tasks, 1):
        *earlier, ran = executions.pop(graph.id_of(task.id) if task.id is not None else str(task.key), [task])
        noticed["tasks whose parents are given by name"] += (
            not {str(task_list) for task_list in task.parents or known_ids} & known_ids
        )
        with place(path, number, "WfCommons"):
            for repeated in earlier:
                yield _row(job, task.key, repeated, [], number, left_out=REPEATED)
            row = _row(job, task.key, ran, graph.parents_of(task), number)
        noticed["tasks without a runtime"] += row.runtime_us is None
        yield row

    for number, (key, [*_, ran]) in enumerate(executions.items(), len(tasks) + 1):
        with place(path, number, "WfCommons"):
            yield _row(job, key, ran, [], number, changed=UNSPECIFIED)

    other_tasks = [task for task_list in lists[1:] for task in task_list if graph.id_of(task.key) not in graph]
    for number, task in enumerate(other_tasks, len(tasks) + len(executions) + 1):
        with place(path, number, "WfCommons"):
            yield _row(job, task.key, task, [], number, left_out=SECOND_LIST)


def _row(
    job: str,
    key: str | None,
    ran: WorkflowTask,
    parents: list[str],
    number: int,
    left_out: str | None = None,
    changed: str | None = None,
) -> TaskRow:
    runtime = ran.runtime_in_seconds if ran.runtime_in_seconds is not None else ran.runtime
    cores = ran.core_count if ran.core_count is not None else ran.cores

    return TaskRow(
        job=job,
        task=key,
        submit_us=0,
        runtime_us=None if runtime is None else microseconds(runtime),
        cpu_milli=None if cores is None else cores * 1000,
        parents=parents,
        line=number,
        left_out=left_out,
        changed=changed,
    )


def fits_wfcommons(head: Head) -> bool:
    """True if the file has the key that holds the graph."""
    return head.start.startswith(b"{") and any('"workflow"' in line for line in head.lines)


WFCOMMONS: Final = Format(
    "wfcommons",
    "WfCommons",
    fits_wfcommons,
    rows=read_wfcommons,
    columns=frozenset({"workflow", "tasks", "name"}),
    remarks=(
        "a document is one workflow, submitted at 0: arrivals must be added to run several",
        "memory is what a task was measured to hold, not a request, and is not read",
        "the document is read whole",
    ),
)
