"""The tolerance of a published number is read from the number as it is printed, by one rule."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.study.tolerance import Tolerance, read_printed, tolerance_of


@pytest.mark.parametrize(
    ("text", "value", "half_unit"),
    [("1.003", 1.003, 0.0005), ("12,000", 12_000, 0.5), ("5", 5, 0.5), ("2.3e5", 230_000, 5_000), ("10^6", 1e6, 5e5),
     ("-0.9", -0.9, 0.05), ("0", 0, 0.5)],
)  # fmt: skip
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
        ("25", 0.25, 0.2),  # percent
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


def test_around_zero_the_printed_precision_is_all_that_there_is() -> None:
    assert tolerance_of(read_printed("0.0", "p"), 0.0, "p") == Tolerance(0.0, 0.05)
    assert tolerance_of(read_printed("0", "p"), 0.0, "p", is_share=True) == Tolerance(0.0, 0.005)


@pytest.mark.parametrize(("printed", "goal"), [("3", 1.0), ("25", 26.0), ("0", 1.0), ("100", 0.0)])
def test_a_tested_number_that_is_not_the_printed_one_is_refused(printed: str, goal: float) -> None:
    with pytest.raises(InputError, match=r"^p: .* is printed and .* is tested"):
        tolerance_of(read_printed(printed, "p"), goal, "p")
