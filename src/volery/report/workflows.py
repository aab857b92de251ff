"""What became of workflows, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.metrics import WorkflowSummary
from volery.report import means
from volery.report.groups import RunGroup
from volery.report.means import Column
from volery.report.units import digits, duration

WORKFLOW_HEADS: Final = ("task response", "job makespan", "schedule length", "job waiting")
WORKFLOW_NOTE: Final = (
    "Workflows: means over tasks or jobs, then over seeds. Schedule length: job makespan / critical path. Job waiting: "
    "until the first task starts."
)
_WORKFLOWS: Final[Sequence[Column[WorkflowSummary]]] = (
    (lambda one: one.task_response_s.mean, duration),
    (lambda one: one.makespan_s.mean, duration),
    (lambda one: one.schedule_length.mean, digits),
    (lambda one: one.waiting_s.mean, duration),
)


def workflow_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `WORKFLOW_HEADS`, of the groups whose traces have workflows."""
    return means.rows(groups, lambda run: run.workflows, _WORKFLOWS)
