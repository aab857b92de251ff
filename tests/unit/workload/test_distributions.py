"""Distributions known by bounds and mean."""

from __future__ import annotations

import math

import numpy as np
import pytest

from volery.workload.arrays import Reals
from volery.workload.distributions import (
    BoundedPareto,
    CutLogNormal,
    DiscretePareto,
    exponential,
    geometric,
    log_normal_factors,
    solve_decreasing,
)

GRID: Reals = (np.arange(400_000) + 0.5) / 400_000
"""Equally spaced shares: a mean over their quantiles is the integral that the expected value is."""


@pytest.mark.parametrize(("low", "high", "mean"), [(1.0, 100.0, 5.0), (90.6, 21_260.0, 1_080.0), (1.0, 9.0, 1.5)])
def test_a_bounded_pareto_has_the_mean_and_bounds_that_it_was_asked_for(low: float, high: float, mean: float) -> None:
    law = BoundedPareto.with_mean(low, high, mean)
    drawn = law.quantile(GRID)
    assert law.mean() == pytest.approx(mean, rel=1e-9)
    assert drawn.mean() == pytest.approx(mean, rel=2e-3)
    assert low <= drawn.min() < drawn.max() <= high
    assert (np.diff(drawn) >= 0).all()


def test_a_bounded_pareto_of_shape_one_has_the_logarithmic_mean() -> None:
    assert BoundedPareto(1.0, math.e, 1.0).mean() == pytest.approx(1 / (1 - 1 / math.e))
    assert BoundedPareto(1.0, math.e, 1.0 + 1e-7).mean() == pytest.approx(1 / (1 - 1 / math.e), rel=1e-6)


def test_a_power_law_falls_as_a_power() -> None:
    """Doubling x divides P(X > x) by two to the shape, far from the upper bound."""
    drawn = BoundedPareto(1.0, 1e9, 1.5).quantile(GRID)
    assert (drawn > 4).mean() / (drawn > 2).mean() == pytest.approx(2**-1.5, rel=1e-3)


@pytest.mark.parametrize(("high", "mean"), [(5_900, 21.8), (50, 2.0), (51_834, 1_197.0)])
def test_a_discrete_pareto_has_its_mean_over_whole_numbers(high: int, mean: float) -> None:
    law = DiscretePareto.with_mean(high, mean)
    drawn = law.quantile(GRID)
    assert law.mean() == pytest.approx(mean, rel=1e-9)
    assert drawn.mean() == pytest.approx(mean, rel=5e-3)
    assert 1 == drawn.min() < drawn.max() <= high
    assert law.quantile(np.array([0.0, 1.0])).tolist() == [1, high]


@pytest.mark.parametrize(("high", "mean", "sigma"), [(90.6, 19.0, 1.2), (1_129.5, 162.0, 1.0), (10.0, 4.0, 0.5)])
def test_a_cut_log_normal_has_its_mean_and_never_exceeds_the_cut(high: float, mean: float, sigma: float) -> None:
    law = CutLogNormal.with_mean(high, mean, sigma)
    drawn = law.quantile(GRID[::10])
    assert law.mean() == pytest.approx(mean, rel=1e-9)
    assert drawn.mean() == pytest.approx(mean, rel=2e-3)
    assert 0 < drawn.min() < drawn.max() <= high
    assert law.quantile(np.array([0.0, 1.0]))[1] <= high


def test_exponential_draws_have_mean_one_and_no_memory() -> None:
    drawn = exponential(GRID)
    assert drawn.mean() == pytest.approx(1, rel=1e-3)
    assert (drawn > 2).sum() / (drawn > 1).sum() == pytest.approx(math.exp(-1), rel=1e-3)


def test_geometric_draws_start_at_one_and_have_their_mean() -> None:
    drawn = geometric(GRID, 10.0)
    assert drawn.min() == 1
    assert drawn.mean() == pytest.approx(10, rel=1e-3)
    assert (drawn == 1).mean() == pytest.approx(0.1, rel=1e-3)
    assert geometric(GRID[:5], 1.0).tolist() == [1] * 5


def test_log_normal_factors_have_mean_one_and_their_spread() -> None:
    rng = np.random.Generator(np.random.PCG64(1))
    factors = log_normal_factors(rng.random(200_000), rng.random(200_000), 0.33)
    assert factors.mean() == pytest.approx(1, rel=5e-3)
    assert factors.std() == pytest.approx(0.33, rel=2e-2)


def test_an_impossible_mean_is_refused() -> None:
    with pytest.raises(ValueError, match="no value between"):
        BoundedPareto.with_mean(1.0, 10.0, 11.0)
    with pytest.raises(ValueError, match="no value between"):
        solve_decreasing(lambda x: -x, 5.0, 0.0, 1.0)
