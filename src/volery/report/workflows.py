"""What became of workflows, as rows of a table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.report.groups import RunGroup
from volery.report.units import digits, duration

WORKFLOW_HEADS: Final = ("task response", "job makespan", "schedule length", "job waiting")
WORKFLOW_NOTE: Final = (
    "Workflows: means over tasks or jobs, then over seeds. Schedule length: job makespan / critical path. Job waiting: "
    "until the first task starts."
)


def workflow_rows(groups: Sequence[RunGroup]) -> list[list[str]]:
    """Label and cells under `WORKFLOW_HEADS`, of the groups whose traces have workflows."""
    rows = []
    for group in groups:
        found = [run.workflows for run in group.runs if run.workflows is not None]
        if found:
            count = len(found)
            rows.append(
                [
                    group.label,
                    duration(sum(one.task_response_s.mean for one in found) / count),
                    duration(sum(one.makespan_s.mean for one in found) / count),
                    digits(sum(one.schedule_length.mean for one in found) / count),
                    duration(sum(one.waiting_s.mean for one in found) / count),
                ]
            )
    return rows
