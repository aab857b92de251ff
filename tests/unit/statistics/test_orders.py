"""Kendall's tau-b against its definition, pair by pair."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

from volery.statistics import kendall_tau


def test_tau_counts_pairs_and_ties_as_its_definition_does() -> None:
    first, second = np.random.default_rng(7).integers(0, 12, (2, 60)).tolist()
    score = untied_first = untied_second = 0
    for (a, b), (c, d) in itertools.combinations(zip(first, second, strict=True), 2):
        score += ((a > c) - (a < c)) * ((b > d) - (b < d))
        untied_first += a != c
        untied_second += b != d
    assert kendall_tau(first, second) == pytest.approx(score / math.sqrt(untied_first * untied_second))


@pytest.mark.parametrize(("second", "tau"), [([1, 2, 3], 1.0), ([9, 4, 2], -1.0), ([5, 5, 5], 0.0)])
def test_tau_of_the_same_the_reverse_and_no_order(second: list[int], tau: float) -> None:
    assert kendall_tau([10, 20, 30], second) == pytest.approx(tau)
