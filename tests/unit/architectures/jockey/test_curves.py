"""Utility curves."""

from __future__ import annotations

import pytest

from volery.architectures.jockey.curves import DEFAULT, UtilityCurve, due, parsed
from volery.core.errors import InputError
from volery.core.model import SECOND

MINUTE = 60 * SECOND


@pytest.mark.parametrize(
    ("minutes", "utility"),
    [(0, 1.0), (40, 1.0), (45, 0.0), (50, -1.0), (1040, -1000.0), (50 + 2 * 990, -1 - 2 * 999)],
)
def test_the_default_falls_from_1_at_the_deadline_to_minus_1_ten_minutes_later_and_on(
    minutes: int, utility: float
) -> None:
    assert due(40 * MINUTE, parsed(DEFAULT, "x")).at(minutes * MINUTE) == pytest.approx(utility)


def test_a_single_point_is_worth_the_same_whenever() -> None:
    assert {UtilityCurve(((5, 2.0),)).at(at) for at in (0, 5, 500)} == {2.0}


@pytest.mark.parametrize("text", ["", "0", "0:1+", "0:x", "a:1", "0:nan", "inf:1"])
def test_what_is_no_curve_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(InputError, match="is not SECONDS:UTILITY") as refused:
        parsed(text, "jockey:utility")
    assert refused.value.place == "jockey:utility"


@pytest.mark.parametrize("text", ["0:1+0:2", "5:1+-5:2"])
def test_times_increase(text: str) -> None:
    with pytest.raises(InputError, match="times increase"):
        parsed(text, "jockey:utility")
    with pytest.raises(InputError, match="no point"):
        UtilityCurve(())
