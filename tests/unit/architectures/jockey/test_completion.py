"""The table C(progress, allocation)."""

from __future__ import annotations

import pytest

from volery.architectures.jockey.completion import BINS, Remaining, tabulated


def test_the_worst_sample_of_a_bin_counts_and_empty_bins_lie_between_their_neighbours() -> None:
    table = tabulated([10], [[(0.0, 1000), (0.0, 900), (0.5, 400), (0.505, 500)]], 100)
    assert [table.at(p, 10) for p in (0.0, 0.005, 0.25, 0.5)] == [1000, 1000, 750, 500]
    assert table.at(0.75, 10) == 250, "towards nothing left when all is done"
    assert table.at(1.0, 10) == 0


@pytest.mark.parametrize(("percentile", "left"), [(100, 40), (75, 30), (50, 20), (1, 10)])
def test_a_percentile_is_by_nearest_rank(percentile: float, left: int) -> None:
    assert tabulated([1], [[(0.2, us) for us in (40, 10, 30, 20)]], percentile).at(0.2, 1) == left


def test_before_the_first_sample_the_first_counts_and_without_any_nothing_is_left() -> None:
    assert tabulated([1], [[(0.3, 70)]], 100).at(0.1, 1) == 70
    assert tabulated([1], [[]], 100).left_us == ((0,) * (BINS + 1),)


def test_between_allocations_a_straight_line_and_beyond_them_the_ends() -> None:
    table = Remaining((10, 20, 40), tuple([(us,) * (BINS + 1) for us in (800, 400, 200)]))
    assert [table.at(0.5, tokens) for tokens in (1, 10, 12.5, 20, 30, 40, 90)] == [800, 800, 700, 400, 300, 200, 200]
