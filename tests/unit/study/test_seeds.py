"""The seeds of a study are numbers or `auto`; what does not go together is refused by its place."""

from __future__ import annotations

from typing import Any

import pytest

from volery.core.errors import InputError
from volery.study.spec import AutoSeeds, read_seeds, with_limits


def read(seeds: Any, seeds_max: Any = None, budget_s: Any = None) -> tuple[list[Any], AutoSeeds | None]:
    given, auto = read_seeds(seeds, seeds_max, budget_s, lambda name: f"here.{name}")
    return list(given), auto


def test_a_number_a_list_and_auto() -> None:
    assert read(3) == ([0, 1, 2], None)
    assert read([4, 2]) == ([4, 2], None)
    assert read("auto") == ([0, 1, 2], AutoSeeds(30, None))
    assert read("auto", 2, 600) == ([0, 1], AutoSeeds(2, 600.0))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ((0,), r"^here\.seeds: expected a number of seeds >= 1, or auto, not 0$"),
        ((True,), r"^here\.seeds: expected a number of seeds >= 1, or auto, not True$"),
        (("many",), r"^here\.seeds: expected a number of seeds >= 1, or auto, not 'many'$"),
        (([0, "auto"],), r'^here\.seeds: "auto" is no member of a list; give "auto" alone, or numbers$'),
        ((["auto"],), r'^here\.seeds: "auto" is no member of a list'),
        (("auto", 1), r"^here\.seeds_max: 1 seed decides no comparison; give 2 or more \(30 if left out\)$"),
        (("auto", 0), r"^here\.seeds_max: expected int >= 2, not 0$"),
        (("auto", "9"), r"^here\.seeds_max: expected int, got str, not '9'$"),
        (("auto", 9, 0), r"^here\.budget_s: a budget of 0 pays for no run; give CPU seconds above 0, or leave it out$"),
        (("auto", 9, -1.5), r"^here\.budget_s: expected float > 0.0, not -1.5$"),
        (("auto", 9, float("nan")), r"^here\.budget_s: expected a finite number, not nan$"),
        (([0], 5), r"^here\.seeds_max: belongs to seeds that are added; set here\.seeds to auto, or leave it out$"),
        ((1, 5), r"^here\.seeds_max: belongs to seeds that are added"),
        ((3, None, 60), r"^here\.budget_s: belongs to seeds that are added"),
    ],
)
def test_what_is_wrong_is_named_with_the_fix(given: tuple[Any, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(*given)


def test_limits_replace_those_that_are_given() -> None:
    limits = AutoSeeds(20, 60.0)
    assert with_limits(limits, None, None, str) == limits
    assert with_limits(limits, 8, None, str) == AutoSeeds(8, 60.0)
    assert with_limits(limits, None, 5, str) == AutoSeeds(20, 5.0)
    with pytest.raises(InputError, match="seeds_max: 1 seed decides no comparison"):
        with_limits(limits, 1, None, str)


def test_the_error_of_all_looks_together_is_5_percent() -> None:
    for limits in (AutoSeeds(), AutoSeeds(2), AutoSeeds(7)):
        looks = limits.looks()
        assert looks.counts[-1] == limits.seeds_max
        assert sum(1 - limits.confidence_at(count) for count in looks.counts) == pytest.approx(0.05)


def test_a_look_that_a_budget_moved_ahead_spends_no_more_than_the_planned_one() -> None:
    limits = AutoSeeds(8)
    assert limits.looks().counts == (3, 5, 8)
    assert limits.confidence_at(4) > limits.confidence_at(5)
    assert limits.looks_of(4).counts == (3, 4, 5, 8)
