"""The table of workflows."""

from __future__ import annotations

import msgspec
import pytest
from tests.unit.report.samples import sample_run

from volery.metrics import Distribution, RunSummary, WorkflowSummary
from volery.report.groups import group_runs
from volery.report.tables import plain
from volery.report.workflows import WORKFLOW_NOTE, workflow_rows


def mean(value: float) -> Distribution:
    return Distribution(3, value, *[9.0] * 5)


def flowing(*times: float, seed: int = 0) -> RunSummary:
    summary = WorkflowSummary(3, *map(mean, times))
    return msgspec.structs.replace(sample_run(seed=seed), workflows=summary)


@pytest.mark.parametrize("width", [80, 140])
def test_workflows_have_a_table_with_means_over_the_seeds(width: int) -> None:
    runs = [flowing(1.0, 20.0, 1.5, 0.25), flowing(3.0, 40.0, 2.5, 0.75, seed=1)]
    text = plain(runs, width=width)
    row = text.partition("Workflows")[2].splitlines()[3].split()
    assert " ".join(row[1:]) == "2.00 s 30.0 s 2.00 500 ms"
    assert "longest task" not in text
    assert "critical path" in text
    assert WORKFLOW_NOTE[:30] in text


def test_runs_without_workflows_have_none() -> None:
    assert workflow_rows(group_runs([sample_run()])) == []
    text = plain([sample_run()])
    assert "Workflows" not in text
    assert "longest task" in text
