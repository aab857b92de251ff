"""Intervals of a mean: Student's, the BCa bootstrap of scipy, and what neither can answer."""

from __future__ import annotations

import math
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from volery.statistics import BCA, EXACT, PAIRED_T, Interval, interval_of_mean, intervals


def found(values: list[float], confidence: float = 0.95) -> Interval:
    interval = interval_of_mean(values, confidence)
    assert interval is not None
    return interval


@pytest.mark.parametrize("count", [2, 3, 14])
def test_the_interval_of_few_values_is_students(count: int) -> None:
    values = list(np.random.default_rng(1).lognormal(size=count))
    expected = stats.ttest_1samp(values, 0).confidence_interval(0.9)
    interval = found(values, 0.9)
    assert (interval.low, interval.high) == pytest.approx((expected.low, expected.high))
    assert interval.method == PAIRED_T


@pytest.mark.parametrize("count", [15, 20, 40])
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.999])
def test_the_interval_of_many_values_holds_students_and_the_widened_bca_of_scipy(count: int, confidence: float) -> None:
    values = np.random.default_rng(count).lognormal(size=count)
    tail = stats.norm.cdf(math.sqrt(count / (count - 1)) * stats.t.ppf((1 - confidence) / 2, count - 1))
    drawn: Any = SimpleNamespace(bootstrap_distribution=intervals._weights(count, 9999) @ values)
    bca = stats.bootstrap(
        (values,), np.mean, method="BCa", confidence_level=1 - 2 * tail, n_resamples=0, bootstrap_result=drawn
    ).confidence_interval
    student = stats.ttest_1samp(values, 0).confidence_interval(confidence)
    interval = found(list(values), confidence)
    assert interval.low == pytest.approx(min(bca.low, student.low))
    assert interval.high == pytest.approx(max(bca.high, student.high))
    assert interval.method == BCA


def test_resamples_are_drawn_with_equal_chances() -> None:
    weights = intervals._weights(20, 9999)
    assert weights.sum(axis=1) == pytest.approx(1)
    assert weights.mean(axis=0) == pytest.approx(1 / 20, rel=0.05)
    assert weights.var(axis=0) == pytest.approx(19 / 20 / 400, rel=0.1)  # that of 20 draws with replacement, over 20


def test_a_higher_confidence_gives_a_wider_interval() -> None:
    for count in (3, 20):
        values = list(np.random.default_rng(5).lognormal(size=count))
        ladder = [found(values, 1 - 0.05 / share) for share in (1, 2, 5, 20, 190)]
        assert all(a.low >= b.low and a.high <= b.high for a, b in pairwise(ladder))


def test_one_value_has_no_interval_and_equal_values_have_an_exact_one() -> None:
    assert interval_of_mean([3.0]) is None
    assert found([0.0] * 4) == Interval(0.0, 0.0, EXACT)
    assert found([0.1 + 0.2, 0.3, 0.3]).method == EXACT
    assert found([0.1 + 0.2, 0.3, 0.3]).low <= 0.3 <= found([0.1 + 0.2, 0.3, 0.3]).high


def test_values_of_which_all_but_one_are_equal_have_a_finite_interval() -> None:
    for count in (2, 3, 15, 40):
        interval = found([0.0] * (count - 1) + [1.0])
        assert interval.low <= 1 / count <= interval.high
        assert not interval.excludes_zero


def test_the_highest_confidence_of_skewed_values_has_the_widest_bootstrap_interval() -> None:
    for values in ([0.0] * 14 + [1.0], [0.0] * 14 + [-1.0]):
        bounds = [intervals._bca(np.array(values), 1 - error, 9999) for error in (0.05, 1e-3, 1e-5, 1e-9)]
        for narrow, wide in pairwise(bounds):
            assert narrow is not None
            assert wide is not None
            assert wide[0] <= narrow[0] < narrow[1] <= wide[1]


def test_resampled_means_that_equal_the_mean_count_half_whatever_their_last_digits() -> None:
    few = np.array([0.0] * 7 + [1.0] * 13)  # 19 % of the resamples have the mean of the values
    exact, rounded = intervals._bca(few, 0.95, 9999), intervals._bca(0.1 + 0.2 * few, 0.95, 9999)
    assert exact is not None
    assert rounded == pytest.approx([0.1 + 0.2 * bound for bound in exact])


@pytest.mark.parametrize(
    ("values", "confidence", "problem"),
    [
        ([], 0.95, "needs values"),
        ([1.0, math.nan], 0.95, "finite"),
        ([math.inf], 0.95, "finite"),
        ([1.0, 2.0], 1.0, "confidence of 1.0"),
        ([1.0, 2.0], 0.0, "confidence of 0.0"),
    ],
)
def test_what_has_no_interval_is_refused(values: list[float], confidence: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        interval_of_mean(values, confidence)
