"""False positives under no difference, for every number of seeds that studies have.

2000 comparisons per case: the standard error of a share of 5 % is 0.5 points. Bootstraps of 999 resamples keep the
test short; 9999, as in use, give the same shares within that error.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest

from volery.statistics import Difference, looks, paired_difference, paired_ratio

COMPARISONS = 2000
RESAMPLES = 999
COUNTS = (2, 3, 5, 10, 20)

Floats = npt.NDArray[np.float64]
Compare = Callable[[Floats, Floats, int], Difference]
Draw = Callable[[np.random.Generator, tuple[int, ...]], Floats]


def normal(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return random.normal(10, 1, shape)


def lognormal(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return random.lognormal(0, 1, shape)


def no_more_than_chance(compare: Compare, draw: Draw, seeds: int, least: float, most: float) -> None:
    """Demand that equal designs are told apart in a share of comparisons between two bounds."""
    random = np.random.default_rng([17, seeds])
    a, b = draw(random, (2, COMPARISONS, seeds))
    found = sum(compare(x, y, RESAMPLES).is_shown for x, y in zip(a, b, strict=True)) / COMPARISONS
    assert least <= found <= most, f"{found:.1%} of comparisons of {seeds} seeds show a difference"


@pytest.mark.parametrize("seeds", COUNTS)
@pytest.mark.parametrize(("compare", "draw"), [(paired_difference, normal), (paired_ratio, lognormal)])
def test_equal_designs_are_told_apart_in_three_to_seven_percent(compare: Compare, draw: Draw, seeds: int) -> None:
    no_more_than_chance(compare, draw, seeds, 0.03, 0.07)


@pytest.mark.parametrize("seeds", COUNTS)
def test_differences_of_lognormal_draws_are_told_apart_in_ten_percent_at_most(seeds: int) -> None:
    no_more_than_chance(paired_difference, lognormal, seeds, 0.001, 0.10)


def two_valued(random: np.random.Generator, shape: tuple[int, ...]) -> Floats:
    return random.choice([0.0015, 0.0025], shape)


@pytest.mark.parametrize("seeds", [3, 5, 10])
def test_equal_designs_whose_median_is_one_of_two_are_told_apart_in_seven_percent_at_most(seeds: int) -> None:
    no_more_than_chance(paired_ratio, two_valued, seeds, 0.01, 0.07)


def percentile_bootstrap(a: Floats, b: Floats, resamples: int) -> Difference:
    """The interval that this project had before: percentiles of resampled means."""
    pairs = a - b
    drawn = np.random.default_rng(20_987).integers(0, len(pairs), (resamples, len(pairs)))
    low, high = np.percentile(pairs[drawn].mean(axis=1), [2.5, 97.5])
    verdict = "lower" if high < 0 else "higher" if low > 0 else "no difference shown"
    return Difference(float(pairs.mean()), float(low), float(high), len(pairs), verdict)


@pytest.mark.parametrize("seeds", [2, 10])
def test_the_percentile_bootstrap_fails_the_same_test(seeds: int) -> None:
    with pytest.raises(AssertionError, match="show a difference"):
        no_more_than_chance(percentile_bootstrap, normal, seeds, 0.03, 0.07)


def test_an_interval_that_never_tells_apart_fails_the_same_test() -> None:
    with pytest.raises(AssertionError, match=r"0\.0%"):
        no_more_than_chance(lambda a, b, _: paired_difference([1.0, 2.0], [2.0, 1.0]), normal, 3, 0.03, 0.07)


def shown_at_a_look(studies: int, *, corrected: bool) -> float:
    """The share of studies of equal designs that show a difference at one of their looks."""
    plan = looks(3, 30)
    random = np.random.default_rng(23)
    a, b = lognormal(random, (2, studies, plan.counts[-1]))
    return sum(
        any(
            paired_ratio(
                x[:count], y[:count], RESAMPLES, confidence=plan.confidence_at(count) if corrected else 0.95
            ).is_shown
            for count in plan.counts
        )
        for x, y in zip(a, b, strict=True)
    ) / len(a)


def test_all_looks_of_a_growing_study_err_in_five_percent_together() -> None:
    assert 0.02 <= shown_at_a_look(500, corrected=True) <= 0.05


def test_looks_without_correction_err_far_more() -> None:
    assert shown_at_a_look(100, corrected=False) > 0.10
