"""Blocks of neighbours: their length, how they are drawn, and the statistics of resamples."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pytest

from volery.statistics.blocks import Ordered, block_length, degrees_of_freedom, drawn_counts


def autoregressive(coefficient: float, count: int, seed: int = 1) -> npt.NDArray[np.float64]:
    random = np.random.default_rng(seed)
    values = np.zeros(count)
    for i in range(1, count):
        values[i] = coefficient * values[i - 1] + random.normal()
    return values


@pytest.mark.parametrize("coefficient", [0.3, 0.7, 0.9])
def test_the_block_length_of_an_autoregressive_series_is_that_of_the_formula(coefficient: float) -> None:
    count = 20_000
    # sum |k| r^|k| over sum r^|k|, then Politis & White (2004) with the factor of 2009
    slope = 2 * coefficient / (1 - coefficient) ** 2
    spectrum = (1 + coefficient) / (1 - coefficient)
    expected = (2 * slope**2 / (4 / 3 * spectrum**2)) ** (1 / 3) * count ** (1 / 3)
    found = np.mean([block_length(autoregressive(coefficient, count, seed)) for seed in range(5)])
    assert found == pytest.approx(expected, rel=0.15)


def test_independent_and_equal_values_need_no_blocks() -> None:
    random = np.random.default_rng(1)
    assert np.mean([block_length(random.normal(size=5_000)) for _ in range(20)]) < 5
    for equal in (3.0, 0.1):  # the mean of the latter is rounded
        assert block_length(np.full(10_000, equal)) == 1


@pytest.mark.parametrize(("count", "block"), [(10, 1), (10, 3), (10, 5), (10, 10), (101, 20)])
def test_resamples_have_as_many_values_as_the_series_in_blocks_of_neighbours(count: int, block: int) -> None:
    counts = np.concatenate(list(drawn_counts(count, block, 1_000, np.random.default_rng(1))))
    assert counts.shape == (1_000, count)
    assert (counts.sum(axis=1) == count).all()
    assert counts.mean(axis=0) == pytest.approx(1, abs=0.35)
    steps = np.abs(np.diff(counts, axis=1, append=counts[:, :1])).sum(axis=1)
    assert steps.max() <= 2 * -(-count // block), "a block begins once and ends once"


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("block", [1, 7, 60, 200])
def test_statistics_of_resamples_are_those_of_numpy(block: int, tied: bool) -> None:
    values = autoregressive(0.95, 200)
    if tied:
        values = np.round(values)
    levels = (0.5, None, 0.99, 0.01, 0.9, 0.333)
    for counts in drawn_counts(200, block, 100, np.random.default_rng(2)):
        found = Ordered(values).statistics(counts, levels)
        for row, drawn in zip(found, counts, strict=True):
            sample = np.repeat(values, drawn)
            expected = [sample.mean() if level is None else np.quantile(sample, level) for level in levels]
            assert row == pytest.approx(expected)


def test_the_spread_of_resampled_means_is_that_of_the_series() -> None:
    values = autoregressive(0.8, 20_000)
    block = round(2 * block_length(values))
    means = np.concatenate(
        [Ordered(values).statistics(c, (None,)) for c in drawn_counts(20_000, block, 499, np.random.default_rng(3))]
    )
    assert means.std() == pytest.approx(5 / np.sqrt(20_000), rel=0.15)  # 1 / (1 - 0.8) of independent normal values


def test_normal_blocks_have_a_degree_of_freedom_each_and_one_large_block_has_few() -> None:
    random = np.random.default_rng(4)
    values = random.normal(size=10_000)
    assert degrees_of_freedom(values - values.mean(), 100) == pytest.approx(99, rel=0.2)
    lonely = np.where(np.arange(10_000) // 100 == 7, 5.0, 0.0)
    assert degrees_of_freedom(lonely - lonely.mean(), 100) < 4
    assert degrees_of_freedom(np.zeros(100), 10) == 9
