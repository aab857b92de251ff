"""The tolerance of a published number is read from the number as it is printed, by one rule."""

from __future__ import annotations

import pytest

from experiments.claims import Tolerance, read_printed, tolerance_of
from volery.core.errors import InputError


@pytest.mark.parametrize(
    ("text", "value", "half_unit"),
    [
        ("1.003", 1.003, 0.0005),
        ("12,000", 12_000, 0.5),
        ("5", 5, 0.5),
        ("2.3e5", 230_000, 5_000),
        ("10^6", 1e6, 5e5),
        ("-0.9", -0.9, 0.05),
        ("0", 0, 0.5),
    ],
)
def test_the_precision_of_a_number_is_half_a_unit_of_its_last_digit(text: str, value: float, half_unit: float) -> None:
    found = read_printed(text, "p")
    assert found.value == pytest.approx(value)
    assert found.half_unit == pytest.approx(half_unit)


@pytest.mark.parametrize("text", ["", "ten", "1.003 s", "1.", "1/3", "25%"])
def test_what_is_no_number_is_refused_at_its_place(text: str) -> None:
    with pytest.raises(InputError, match=r"^c\.printed: .* is no number; give it as the source prints it"):
        read_printed(text, "c.printed")


@pytest.mark.parametrize(
    ("printed", "goal", "share"),
    [
        ("1.003", 1.003, 0.2),
        ("25", 25, 0.2),
        ("8.5", 510, 0.2),  # minutes
        ("1.4", 0.0014, 0.2),  # milliseconds
        ("2", 2, 0.25),  # half a unit is more than 20 %
        ("10^6", 1e6, 0.5),
        ("15", 0.85, 0.03 / 0.85),  # 15 % less: 20 % of the change
        ("15", 1.15, 0.03 / 1.15),
        ("1", 0.99, 0.005 / 0.99),  # half a percentage point
    ],
)
def test_the_tolerance_is_20_percent_or_the_printed_precision_whichever_is_larger(
    printed: str, goal: float, share: float
) -> None:
    assert tolerance_of(read_printed(printed, "p"), goal, "p").share == pytest.approx(share)


def test_a_fraction_may_be_printed_in_percent_and_nothing_else_may() -> None:
    assert tolerance_of(read_printed("25", "p"), 0.25, "p", is_share=True).share == pytest.approx(0.2)
    with pytest.raises(InputError, match=r"^p: 25 is printed and 0.25 is tested"):
        tolerance_of(read_printed("25", "p"), 0.25, "p")


@pytest.mark.parametrize(
    ("printed", "goal", "room"),
    [
        ("1.03", 1.03, 0.006),  # 20 % of a change of 0.03
        ("1.25", 1.25, 0.05),
        ("10", 10, 1.8),
        ("1.1", 1.1, 0.05),  # half a unit is more than 20 % of the change
        ("2", 2, 0.5),
        ("1.0", 1, 0.05),  # no change is claimed
        ("0.8", 0.8, 0.05),
        ("0.333", 0.333, 0.0666),  # nearer to zero than to one: 20 % of the factor
        ("7", 0.07, 0.014),  # percent
        ("3", 1.03, 0.006),  # a change of 3 %
    ],
)
def test_of_a_factor_between_measured_sides_the_tolerance_is_that_of_the_change(
    printed: str, goal: float, room: float
) -> None:
    found = tolerance_of(read_printed(printed, "p"), goal, "p", is_factor=True)
    assert found.share == pytest.approx(room / goal)


@pytest.mark.parametrize(("printed", "goal"), [("1.002", 1.003), ("0.2", 1.001)])
def test_a_factor_near_one_is_the_printed_one_to_its_last_digit(printed: str, goal: float) -> None:
    assert tolerance_of(read_printed("0.333", "p"), 1 / 3, "p", is_factor=True).margin == 0.0
    with pytest.raises(InputError, match=r"^p: .* is printed and .* is tested"):
        tolerance_of(read_printed(printed, "p"), goal, "p", is_factor=True)


def test_around_zero_the_printed_precision_is_all_that_there_is() -> None:
    assert tolerance_of(read_printed("0.0", "p"), 0.0, "p") == Tolerance(0.0, 0.05)
    assert tolerance_of(read_printed("0", "p"), 0.0, "p", is_share=True) == Tolerance(0.0, 0.005)


@pytest.mark.parametrize(
    ("printed", "goal"), [("3", 1.0), ("25", 26.0), ("0", 1.0), ("100", 0.0), ("10^6", 1e5), ("1000", 0.1)]
)
def test_a_tested_number_that_is_not_the_printed_one_is_refused(printed: str, goal: float) -> None:
    with pytest.raises(InputError, match=r"^p: .* is printed and .* is tested"):
        tolerance_of(read_printed(printed, "p"), goal, "p")
