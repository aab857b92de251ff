"""Conversions between the compact columns of a trace and numpy arrays, and the columns of synthetic traces."""

from __future__ import annotations

from array import array
from typing import Final

import numpy as np
from numpy.typing import NDArray

from volery.core.model import SECOND
from volery.core.streams import Streams
from volery.core.trace import Trace

Integers = NDArray[np.int64]
Reals = NDArray[np.float64]
MEAN_TOLERANCE: Final = 1e-3


def view(column: array[int]) -> Integers:
    """The column as a numpy array, without a copy."""
    return np.asarray(column)


def column(values: Integers) -> array[int]:
    """A numpy array as a column of its own."""
    values_column = array("q")
    values_column.frombytes(np.ascontiguousarray(values, dtype=np.int64).tobytes())
    return values_column


def microseconds(seconds: Reals) -> Integers:
    """Seconds as whole microseconds, rounded half to even."""
    return np.rint(seconds * SECOND).astype(np.int64)


def generator(seed: int, name: str) -> np.random.Generator:
    """The numpy generator of a named stream.

    Callers draw uniform numbers alone and transform them: numpy keeps those the same from version to version, while
    its other distributions may change (NEP 19).
    """
    return np.random.Generator(np.random.PCG64(Streams(seed).number(name)))


def job_means(duration_us: Integers, first: Integers) -> Reals:
    """Mean task duration of each job, microseconds; every job has a task."""
    return np.asarray(np.add.reduceat(duration_us, first[:-1]) / np.diff(first), dtype=np.float64)


def unlike_means(trace: Trace) -> NDArray[np.bool_]:
    """Per job, whether its estimate differs from the mean of its durations by more than a thousandth.

    Files state means with few digits.
    """
    means = job_means(view(trace.duration_us), view(trace.first))
    unlike: NDArray[np.bool_] = np.abs(view(trace.estimate_us) - means) > np.maximum(means * MEAN_TOLERANCE, 1)
    return unlike


def ranks(u: Reals) -> Integers:
    """Per draw, how many are smaller."""
    return np.argsort(np.argsort(u, kind="stable"), kind="stable")


def arrivals(gaps_s: Reals) -> Integers:
    """Arrivals from the gaps before each job; the first arrives at 0."""
    at = np.cumsum(gaps_s)
    return microseconds(at - at[0])


def made_trace(name: str, arrival_us: Integers, sizes: Integers, duration_us: Integers) -> Trace:
    """The trace of jobs of these sizes; each job's estimate is its mean.

    Args:
        arrival_us, sizes: per job.
        duration_us: per task.
    """
    first = np.concatenate(([0], np.cumsum(sizes)))
    estimate_us = np.rint(job_means(duration_us, first)).astype(np.int64)
    return Trace(name, column(arrival_us), column(first), column(duration_us), column(estimate_us))
