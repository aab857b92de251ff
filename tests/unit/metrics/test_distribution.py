"""Distributions in nine numbers, and ratios of percentiles."""

from __future__ import annotations

import numpy as np
import pytest

from volery.metrics import distribution
from volery.metrics.distribution import EMPTY, Slowdown, slowdown


def test_percentiles_between_two_places_are_in_proportion() -> None:
    found = distribution(np.arange(11, dtype=np.int64) * 1_000_000, unit=1e6)
    assert (found.count, found.mean, found.p50, found.p90, found.p95, found.max) == (11, 5.0, 5.0, 9.0, 9.5, 10.0)


@pytest.mark.parametrize(
    ("count", "far"),
    [(999, (None, None)), (1_000, (998.001, None)), (9_999, (9_988.002, None)), (10_001, (9_990.0, 9_999.0))],
)
def test_a_far_percentile_is_measured_where_a_value_lies_beyond_it(
    count: int, far: tuple[float | None, float | None]
) -> None:
    found = distribution(np.arange(count, dtype=np.int64))
    assert (found.p99_9, found.p99_99) == pytest.approx(far)


def test_no_values_give_zeros() -> None:
    assert distribution(np.zeros(0)) == EMPTY


def test_the_sample_keeps_its_order_unless_that_may_be_lost() -> None:
    values = np.array([3.0, 1.0, 2.0])
    distribution(values)
    assert values.tolist() == [3.0, 1.0, 2.0]
    assert distribution(values, overwrite=True) == distribution(np.array([1.0, 2.0, 3.0]))


def test_a_ratio_to_an_ideal_of_zero_is_unknown() -> None:
    values = np.array([1.0, 2.0])
    twice = slowdown(distribution(2 * values), distribution(values))
    assert twice == Slowdown(2.0, 2.0, 2.0, 2.0)
    assert slowdown(distribution(values), EMPTY) == Slowdown(None, None, None, None)
