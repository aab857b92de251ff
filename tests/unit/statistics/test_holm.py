"""Holm's correction: exactly his procedure, and the family-wise error of a board of equal designs."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from volery.statistics import holm, paired_ratio

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
