"""What all makers of synthetic work end with: arrivals from gaps, a limit on size, and the columns of a trace."""

from __future__ import annotations

from typing import Final

import numpy as np

from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.workload.columns import Integers, Reals, column, job_means, microseconds

TASKS_MAX: Final = 100_000_000
"""A trace of more tasks would need over 3 GB for its columns and the records of a run."""


def arrivals(gaps_s: Reals) -> Integers:
    """Arrivals from the gaps before each job; the first arrives at 0."""
    at = np.cumsum(gaps_s)
    return microseconds(at - at[0])


def check_size(text: str, tasks: int) -> None:
    """Refuse a workload that would not fit into memory.

    Raises:
        InputError: at the spec.
    """
    if tasks > TASKS_MAX:
        raise InputError(
            text, f"would have {tasks} tasks; at most {TASKS_MAX} are possible: ask for fewer jobs or tasks"
        )


def made_trace(name: str, arrival_us: Integers, sizes: Integers, duration_us: Integers) -> Trace:
    """The trace of jobs of these sizes; schedulers are told each job's mean.

    Args:
        name: the spec.
        arrival_us, sizes: per job.
        duration_us: per task.
    """
    first = np.concatenate(([0], np.cumsum(sizes)))
    estimate_us = np.rint(job_means(duration_us, first)).astype(np.int64)
    return Trace(name, column(arrival_us), column(first), column(duration_us), column(estimate_us))
