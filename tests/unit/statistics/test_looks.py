"""Looks at a growing study: where they are, and that their errors sum to the whole."""

from __future__ import annotations

import pytest

from volery.statistics import looks


@pytest.mark.parametrize(
    ("first", "seeds_max", "counts"),
    [
        (3, 30, (3, 5, 8, 13, 21, 30)),
        (3, 3, (3,)),
        (2, 3, (2, 3)),
        (3, 6, (3, 6)),
        (3, 7, (3, 5, 7)),
        (5, 100, (5, 8, 13, 21, 34, 54, 100)),
    ],
)
def test_looks_grow_by_a_share_and_end_at_the_largest_number_of_seeds(
    first: int, seeds_max: int, counts: tuple[int, ...]
) -> None:
    assert looks(first, seeds_max).counts == counts


@pytest.mark.parametrize("confidence", [0.9, 0.95])
@pytest.mark.parametrize(("first", "seeds_max"), [(2, 2), (3, 30), (7, 1000)])
def test_the_errors_of_all_looks_sum_to_that_of_the_study(first: int, seeds_max: int, confidence: float) -> None:
    plan = looks(first, seeds_max, confidence)
    errors = [1 - plan.confidence_at(count) for count in plan.counts]
    assert sum(errors) == pytest.approx(1 - confidence)
    assert min(errors) > 0
    spent = [sum(errors[: i + 1]) for i in range(len(errors))]
    assert spent == pytest.approx([(1 - confidence) * count / seeds_max for count in plan.counts])


def test_a_count_without_a_look_is_refused() -> None:
    with pytest.raises(ValueError, match="no look at 4 seeds; looks are at 3, 5, 8"):
        looks(3, 8).confidence_at(4)


@pytest.mark.parametrize(
    ("first", "seeds_max", "confidence", "problem"),
    [(1, 30, 0.95, "at least 2"), (5, 4, 0.95, "give at least 5"), (3, 30, 1.0, "above 0 and below 1")],
)
def test_a_plan_that_cannot_be_is_refused(first: int, seeds_max: int, confidence: float, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        looks(first, seeds_max, confidence)
