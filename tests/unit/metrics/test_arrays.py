"""Columns of traces and records as arrays that share their memory."""

from __future__ import annotations

from array import array

import numpy as np

from volery.conformance.cases import trace_of
from volery.core.records import PATH_SHIFT
from volery.metrics.arrays import arrival_of_task_us, halves, largest_per_job, tasks_per_job, view


def test_a_path_is_read_in_two_halves_without_a_copy() -> None:
    path = array("q", [7 << PATH_SHIFT | 3, 0])
    low, high = halves(path)
    assert (low.tolist(), high.tolist()) == ([3, 0], [7, 0])
    path[1] = 5
    assert low.tolist() == [3, 5]


def test_jobs_without_tasks_have_no_largest_value() -> None:
    trace = trace_of("t", [0, 1, 2], [[1, 1], [], [1]])
    assert tasks_per_job(trace).tolist() == [2, 0, 1]
    assert largest_per_job(np.array([4, 9, 2]), trace, -1).tolist() == [9, -1, 2]
    assert arrival_of_task_us(trace).tolist() == view(trace.arrival_us)[[0, 0, 2]].tolist()
