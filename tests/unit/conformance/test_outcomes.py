"""Demands on workflows reject records in which a task started before its parents had finished."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from tests.unit.conformance.made import records_of

from volery.conformance import NonconformanceError
from volery.conformance.cases import Case, trace_of
from volery.conformance.outcomes import demand_parents_first
from volery.core.model import NEVER, Cluster
from volery.core.workflows import with_parents

CHAIN = with_parents(trace_of("chain", [0], [[1_000, 1_000]]), [(), (0,)])


@pytest.mark.parametrize(
    ("end", "start", "ready", "problem"),
    [
        (2_000, 2_500, 2_000, ""),
        (2_000, NEVER, NEVER, ""),
        (2_000, 1_999, 2_000, "started at 1999 us, could not start before 2000 us"),
        (NEVER, 2_500, 2_000, "started at 2500 us, waits for one that never finished"),
        (2_000, 2_500, 2_100, "is recorded as ready at 2100 us"),
    ],
)
def test_a_task_starts_after_its_parents(end: int, start: int, ready: int, problem: str) -> None:
    case = Case("chain", 0, CHAIN, Cluster.uniform(2))
    records = records_of(case, {0: (0, 0, end), 1: (1, start, NEVER)}, {}, {})
    records.ready_us[0], records.ready_us[1] = 0, ready
    if not problem:
        demand_parents_first(case, records)
        return
    with pytest.raises(NonconformanceError, match=f"task 1 of case 'chain'.*{problem}"):
        demand_parents_first(case, records)


def test_a_task_that_is_submitted_later_than_its_job_waits_for_that() -> None:
    later = msgspec.structs.replace(CHAIN, submit_us=array("q", [0, 3_000]))
    case = Case("later", 0, later, Cluster.uniform(2))
    records = records_of(case, {0: (0, 0, 1_000), 1: (1, 2_000, 3_000)}, {}, {})
    records.ready_us[0], records.ready_us[1] = 0, 3_000
    with pytest.raises(NonconformanceError, match="could not start before 3000 us"):
        demand_parents_first(case, records)
