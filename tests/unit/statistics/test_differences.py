"""Paired differences over seeds."""

from __future__ import annotations

import pytest

from volery.statistics import Difference, paired_difference, seeded_difference


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
    assert paired_difference([1.5, 2.5], [1.5, 2.5]) == Difference(0.0, 0.0, 0.0, 2, "identical")


def test_one_and_the_same_difference_under_every_seed_has_an_exact_sign() -> None:
    found = paired_difference([0.1 + 0.2] * 3, [0.3 - 0.1] * 3)
    low, high = bounds(found)
    assert (found.verdict, low <= found.mean <= high) == ("higher", True)
    assert high - low < 1e-15


def test_the_interval_is_the_same_whenever_it_is_asked_for() -> None:
    values = [3.0, 1.0, 4.0, 1.0, 5.0], [2.0, 6.0, 5.0, 3.0, 5.0]
    assert paired_difference(*values) == paired_difference(*values)


def test_the_interval_covers_the_truth_about_as_often_as_it_says() -> None:
    import numpy as np

    random = np.random.default_rng(4)
    covered = 0
    for _ in range(200):
        found = paired_difference(list(random.normal(1.0, 1.0, 30)), [0.0] * 30, resamples=400)
        low, high = bounds(found)
        covered += low <= 1.0 <= high
    assert 175 <= covered <= 199


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
