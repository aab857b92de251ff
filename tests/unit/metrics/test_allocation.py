"""Allocation times and their parts, on records built by hand."""

from __future__ import annotations

from tests.unit.metrics.test_jobs import MS, records_of

from volery.core.model import NEVER
from volery.core.records import PATH_SHIFT
from volery.metrics import (
    allocation,
)


class TestAllocation:
    def test_the_parts_sum_to_the_allocation_time(self) -> None:
        records = records_of([0], [[(10 * MS, 11 * MS), (3 * MS, 4 * MS)]], [12 * MS])
        records.path[0] = (2 * MS << PATH_SHIFT) + 1 * MS
        records.path[1] = 1 * MS
        records.waited_us[0] = 4 * MS
        parts = allocation(records)
        assert parts.communication.tolist() == [1 * MS, 1 * MS]
        assert parts.processing.tolist() == [2 * MS, 0]
        assert parts.worker_queueing.tolist() == [4 * MS, 0]
        assert parts.framework_queueing.tolist() == [3 * MS, 2 * MS]

    def test_a_causal_chain_older_than_the_task_never_exceeds_its_allocation_time(self) -> None:
        records = records_of([0], [[(700, 900)]], [1000])
        records.path[0] = (600 << PATH_SHIFT) + 500
        records.waited_us[0] = 50
        parts = allocation(records)
        assert (parts.communication[0], parts.processing[0]) == (500, 200)
        assert (parts.worker_queueing[0], parts.framework_queueing[0]) == (0, 0)

    def test_tasks_that_never_started_have_no_parts(self) -> None:
        records = records_of([0], [[(NEVER, NEVER), (500, 600)]], [700])
        records.path[1] = 500
        records.waited_us[1] = 10
        parts = allocation(records)
        assert parts.communication.tolist() == [NEVER, 500]
        assert parts.framework_queueing.tolist() == [NEVER, 0]
