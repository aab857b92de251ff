"""Columns of a trace or of records as numpy arrays that share their memory."""

from __future__ import annotations

import sys
from array import array

import numpy as np
import numpy.typing as npt

from volery.core.records import Records
from volery.core.trace import Trace

Longs = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]

LOW_HALF = 0 if sys.byteorder == "little" else 1


def view(column: array[int]) -> Longs:
    """A column of 64-bit integers without a copy; it must not grow while the view is in use."""
    return np.asarray(column)


def halves(column: array[int]) -> tuple[npt.NDArray[np.uint32], npt.NDArray[np.uint32]]:
    """The low and the high 32 bits of a column of non-negative 64-bit integers, without a copy."""
    words = view(column).view(np.uint32)
    return words[LOW_HALF::2], words[1 - LOW_HALF :: 2]


def tasks_per_job(trace: Trace) -> Longs:
    """Number of tasks of each job."""
    return np.diff(view(trace.first))


def arrival_of_task_us(trace: Trace) -> Longs:
    """The submission time of each task's job."""
    return np.repeat(view(trace.arrival_us), tasks_per_job(trace))


def asked(trace: Trace, resource: int) -> Longs:
    """The amount of a resource that each task asks for."""
    amounts = np.array([request[resource] for request in trace.requests], dtype=np.int64)
    return np.asarray(amounts[np.asarray(trace.request)])


def ready_us(records: Records) -> Longs:
    """The time at which each task could start: it was submitted, and the last of its parents had ended."""
    return view(records.ready_us) if records.ready_us else arrival_of_task_us(records.trace)


def largest_per_job(values: Longs, trace: Trace, otherwise: int) -> Longs:
    """The largest value of each job's tasks; `otherwise` for a job without tasks."""
    largest = np.full(trace.job_count, otherwise, dtype=np.int64)
    filled = tasks_per_job(trace) > 0
    if filled.any():
        # An empty job repeats its successor's first task, which reduceat would take for a job of one task.
        largest[filled] = np.maximum.reduceat(values, view(trace.first)[:-1][filled])
    return largest
