"""Kendall's tau-b against its definition, pair by pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
from scipy import stats

from volery.statistics import kendall_tau


def test_tau_is_that_of_scipy_with_ties() -> None:
    first, second = np.random.default_rng(7).integers(0, 12, (2, 60)).tolist()
    assert kendall_tau(first, second) == pytest.approx(stats.kendalltau(first, second).statistic)


def test_tau_of_some_pairs_is_that_of_its_definition() -> None:
    first, second = np.random.default_rng(8).integers(0, 12, (2, 60)).tolist()
    ends = np.minimum(np.arange(60) + np.random.default_rng(9).integers(1, 9, 60), 60).tolist()
    score = untied_first = untied_second = 0
    for low, high in itertools.combinations(range(60), 2):
        if high < ends[low]:
            a, b = np.sign(first[high] - first[low]), np.sign(second[high] - second[low])
            score += a * b
            untied_first += a != 0
            untied_second += b != 0
    assert kendall_tau(first, second, ends) == pytest.approx(score / math.sqrt(untied_first * untied_second))
    assert kendall_tau(first, second, range(1, 61)) == 0


@pytest.mark.parametrize(("second", "tau"), [([1, 2, 3], 1.0), ([9, 4, 2], -1.0), ([5, 5, 5], 0.0)])
def test_tau_of_the_same_the_reverse_and_no_order(second: list[int], tau: float) -> None:
    assert kendall_tau([10, 20, 30], second) == pytest.approx(tau)
