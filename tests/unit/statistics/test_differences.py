"""Paired differences over seeds."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from volery.statistics import Difference, holm, paired_difference, paired_ratio, seeded_difference


def bounds(found: Difference) -> tuple[float, float]:
    assert found.low is not None
    assert found.high is not None
    return found.low, found.high


def test_a_difference_that_every_seed_shows_is_told() -> None:
    found = paired_difference([1.0, 1.1, 0.9], [2.0, 2.2, 2.1])
    assert found.verdict == "lower"
    assert found.is_shown
    assert found.mean == pytest.approx(-1.1)
    low, high = bounds(found)
    assert low <= found.mean <= high < 0
    assert paired_difference([2.0, 2.2, 2.1], [1.0, 1.1, 0.9]).verdict == "higher"


def test_an_interval_that_spans_zero_shows_nothing() -> None:
    found = paired_difference([1.0, 2.0, 3.0], [2.0, 1.0, 3.5])
    low, high = bounds(found)
    assert low < 0 < high
    assert not found.is_shown
    assert found.verdict == "no difference shown: the interval spans zero"


def test_an_interval_that_ends_at_zero_shows_nothing() -> None:
    assert not paired_difference([1.0, 1.0], [1.0, 2.0]).is_shown


def test_one_seed_shows_nothing_however_large_the_difference() -> None:
    found = paired_difference([1.0], [1000.0])
    assert found == Difference(-999.0, -999.0, -999.0, 1, "no difference shown: one seed cannot tell it from chance")


def test_equal_pairs_are_identical() -> None:
    assert paired_difference([1.5, 2.5], [1.5, 2.5]) == Difference(0.0, 0.0, 0.0, 2, "identical", "exact")


def test_one_and_the_same_difference_under_every_seed_has_an_exact_sign() -> None:
    found = paired_difference([0.1 + 0.2] * 3, [0.3 - 0.1] * 3)
    low, high = bounds(found)
    assert (found.verdict, low <= found.mean <= high) == ("higher", True)
    assert high - low < 1e-15


@pytest.mark.parametrize("compare", [paired_difference, paired_ratio])
def test_sides_that_differ_by_rounding_are_identical(compare: Callable[..., Difference]) -> None:
    assert 0.1 + 0.2 != 0.3
    assert compare([0.1 + 0.2] * 3, [0.3] * 3).verdict == "identical"
    assert compare([0.1 + 0.2, 1e6], [0.3, 1e6 + 1e-3]).verdict.startswith("no difference shown")


def test_the_interval_is_the_same_whenever_it_is_asked_for() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0], [2.0, 6.0, 5.0, 3.0, 5.0]
    assert paired_difference(*values) == paired_difference(*values)


def test_the_interval_of_differences_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(4)
    covered = 0
    for _ in range(400):
        low, high = bounds(paired_difference(random.normal(1.0, 1.0, 30), np.zeros(30), resamples=999))
        covered += low <= 1.0 <= high
    assert 370 <= covered <= 392


def test_the_interval_of_a_ratio_covers_the_truth_about_as_often_as_it_says() -> None:
    random = np.random.default_rng(5)
    covered = 0
    for count in (3, 20) * 200:
        found = paired_ratio(2 * random.lognormal(size=count), random.lognormal(size=count), resamples=999)
        assert found.ratio_low is not None
        assert found.ratio_high is not None
        covered += found.ratio_low <= 2.0 <= found.ratio_high
    assert 370 <= covered <= 392


def test_a_ratio_is_that_of_geometric_means_and_its_interval_decides() -> None:
    found = paired_ratio([1.0, 4.0, 2.0], [2.0, 8.0, 4.1])
    assert found.ratio == pytest.approx((0.5 * 0.5 * 2 / 4.1) ** (1 / 3))
    assert found.verdict == "lower"
    assert not paired_difference([1.0, 4.0, 2.0], [2.0, 8.0, 4.1]).is_shown, "seeds differ more than designs do"
    assert found.mean == paired_difference([1.0, 4.0, 2.0], [2.0, 8.0, 4.1]).mean


def test_ratios_that_span_one_show_nothing() -> None:
    assert paired_ratio([1.0, 2.0, 3.0], [2.0, 1.0, 3.5]).verdict.endswith("the interval of the ratio spans one")


@pytest.mark.parametrize("zero", [0.0, -1.0])
def test_values_that_are_not_positive_are_compared_by_differences(zero: float) -> None:
    values = [zero, 1.0, 2.0], [3.0, 4.0, 5.2]
    assert paired_ratio(*values) == paired_difference(*values)
    assert paired_ratio(*values).ratio is None


def test_equal_and_single_ratios_are_told_as_differences_are() -> None:
    equal = paired_ratio([1.5, 2.5], [1.5, 2.5])
    assert (equal.verdict, equal.ratio, equal.ratio_low, equal.ratio_high) == ("identical", 1.0, 1.0, 1.0)
    assert paired_ratio([1.0], [1000.0]) == paired_difference([1.0], [1000.0])
    constant = paired_ratio([2.0, 4.0], [1.0, 2.0])
    assert (constant.verdict, constant.ratio, constant.method) == ("higher", 2.0, "exact")


def test_the_method_of_the_interval_is_named() -> None:
    random = np.random.default_rng(6)
    assert paired_difference(random.normal(size=14), random.normal(size=14)).method == "paired t"
    assert paired_difference(random.normal(size=15), random.normal(size=15)).method == "BCa bootstrap"


@pytest.mark.parametrize(("a", "b"), [([], []), ([1.0], [1.0, 2.0])])
def test_unequal_or_empty_sides_are_refused(a: list[float], b: list[float]) -> None:
    with pytest.raises(ValueError, match="same seeds"):
        paired_difference(a, b)


def test_equal_seeds_give_an_exact_difference_without_an_interval() -> None:
    found = seeded_difference([1.0] * 6, [3.0] * 6, random=False)
    assert found == Difference(-2.0, None, None, 6, "not random: every seed gave the same run")
    assert not found.is_shown
    assert seeded_difference([1.0] * 6, [1.0] * 6, random=False).verdict == "identical"
    assert seeded_difference([1.0], [3.0], random=True).low is None
    drawn = seeded_difference([1.0, 2.0], [3.0, 5.0], random=True)
    assert drawn == paired_difference([1.0, 2.0], [3.0, 5.0])
    skewed = seeded_difference([1.0, 2.0], [3.0, 5.0], random=True, skewed=True)
    assert skewed == paired_ratio([1.0, 2.0], [3.0, 5.0])
    still = seeded_difference([1.0] * 6, [3.0] * 6, random=False, skewed=True)
    assert still.ratio == pytest.approx(1 / 3)
    assert still.ratio_low is still.ratio_high is None


DESIGNS = 20


def by_p_values(p_values: list[float], alpha: float, family: int) -> list[bool]:
    """Holm's procedure as he wrote it, on p-values in order."""
    shown = [False] * len(p_values)
    for step, i in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        if p_values[i] > alpha / (family - step):
            break
        shown[i] = True
    return shown


def of(p_value: float) -> Callable[[float], bool]:
    return lambda confidence: p_value <= 1 - confidence


def test_intervals_that_widen_with_confidence_give_holms_procedure() -> None:
    random = np.random.default_rng(8)
    shown = 0
    for _ in range(500):
        p_values = list(random.uniform(0, 0.05, random.integers(1, 12)) ** random.integers(1, 3))
        family = len(p_values) + int(random.integers(0, 5))
        found = holm([of(p) for p in p_values], 0.95, family)
        assert found == by_p_values(p_values, 0.05, family)
        shown += sum(found)
    assert 500 < shown < 3000, "some are shown, and some are not"


def test_a_step_that_shows_nothing_ends_it() -> None:
    assert holm([of(0.02), of(0.03)]) == [True, True]
    assert holm([of(0.03), of(0.03)]) == [False, False]
    assert holm([of(0.02), of(0.03)], family=3) == [False, False]
    assert holm([]) == []


def test_a_family_smaller_than_its_comparisons_is_refused() -> None:
    with pytest.raises(ValueError, match="a family of 1 has no 2 comparisons"):
        holm([of(0.01), of(0.01)], family=1)


def false_boards(*, seeds: int, lowest: bool, corrected: bool = True, boards: int = 300) -> float:
    """The share of boards of equal designs that show a difference from the first, or from the lowest, design."""
    random = np.random.default_rng([21, seeds])
    found = 0
    for _ in range(boards):
        values = random.lognormal(sigma=0.3, size=(DESIGNS, seeds))
        reference = int(values.mean(axis=1).argmin()) if lowest else 0
        others = [one for i, one in enumerate(values) if i != reference]

        def excludes(its: np.ndarray, reference: np.ndarray = values[reference]) -> Callable[[float], bool]:
            if not paired_ratio(its, reference, 999).is_shown:  # a wider interval shows nothing either
                return lambda confidence: False
            return lambda confidence: paired_ratio(its, reference, 999, confidence=confidence).is_shown

        tests = [excludes(its) for its in others]
        family = DESIGNS * (DESIGNS - 1) // 2 if lowest else None
        found += any(holm(tests, family=family) if corrected else [one(0.95) for one in tests])
    return found / boards


@pytest.mark.parametrize("lowest", [False, True])
@pytest.mark.parametrize("seeds", [3, 10])
def test_a_board_of_equal_designs_seldom_shows_a_difference(seeds: int, lowest: bool) -> None:
    assert false_boards(seeds=seeds, lowest=lowest) <= 0.07


def test_a_board_without_correction_fails_the_same_test() -> None:
    assert false_boards(seeds=5, lowest=False, corrected=False, boards=100) > 0.3
