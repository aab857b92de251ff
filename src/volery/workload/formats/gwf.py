"""GWF as the reference architecture's traces have it: seven fields, the parents of a task by their ids.

WorkflowID, JobID, SubmitTime, RunTime, NProcs, ReqNProcs, Dependencies (blank-separated); times in seconds (Versluis et
al., SC 2018). What the file calls a workflow is a job here, and what it calls a job is a task.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from volery.workload.formats.source import Format, Head, Noticed, amount, known, microseconds, place, table_rows
from volery.workload.table import TaskRow

HEADER: Final = frozenset({"WorkflowID", "JobID", "SubmitTime", "RunTime", "NProcs", "ReqNProcs", "Dependencies"})


def _processors(text: str) -> float | None:
    """None where it is not above 0: unknown."""
    return None if float(text) <= 0 else amount(text)


def read(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
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


def fits(head: Head) -> bool:
    """By the names of its columns."""
    return head.names() >= HEADER


GWF: Final = Format(
    "gwf", "GWF", fits, rows=read,
    remarks=("times are whole seconds; a WorkflowID is a job here and a JobID a task",),
)  # fmt: skip
