"""Columns of traces and numpy arrays."""

from __future__ import annotations

from array import array

import msgspec
import numpy as np

from volery.workload.arrays import arrivals, column, generator, job_means, made_trace, microseconds, unlike_means, view


def test_a_view_shares_its_memory_and_a_column_does_not() -> None:
    held = array("q", [1, 2])
    seen = view(held)
    held[0] = 7
    assert seen.tolist() == [7, 2]
    own = column(seen)
    held[0] = 1
    assert own.tolist() == [7, 2]


def test_seconds_become_whole_microseconds_half_to_even() -> None:
    assert microseconds(np.array([0.0000005, 0.0000015, 1.25])).tolist() == [0, 2, 1_250_000]


def test_the_first_job_arrives_at_zero() -> None:
    assert arrivals(np.array([3.0, 1.0, 0.5])).tolist() == [0, 1_000_000, 1_500_000]


def test_the_estimate_of_a_made_job_is_its_mean() -> None:
    trace = made_trace("made", np.array([0, 5]), np.array([2, 1]), np.array([10, 21, 7]))
    assert (trace.name, trace.first.tolist(), trace.estimate_us.tolist()) == ("made", [0, 2, 3], [16, 7])
    assert job_means(view(trace.duration_us), view(trace.first)).tolist() == [15.5, 7.0]


def test_estimates_unlike_the_mean_are_marked() -> None:
    """By more than a thousandth, and by more than a microsecond, which rounding takes."""
    trace = made_trace("made", np.array([0, 0, 0]), np.array([1, 1, 1]), np.array([10_000, 10_000, 5]))
    trace = msgspec.structs.replace(trace, estimate_us=array("q", [10_010, 10_011, 6]))
    assert unlike_means(trace).tolist() == [False, True, False]


def test_a_stream_is_named_by_seed_and_purpose() -> None:
    draws = [generator(seed, name).random() for seed, name in ((1, "a"), (1, "a"), (1, "b"), (2, "a"))]
    assert draws[0] == draws[1]
    assert len(set(draws)) == 3
