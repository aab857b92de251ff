"""Numbers as people read them."""

from __future__ import annotations

import pytest

from volery.report.units import aligned_duration, digits, duration, percent, ratio


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "0 s"),
        (0.0015, "1.50 ms"),
        (1e-6, "1.00 µs"),
        (0.000_999_4, "999 µs"),
        (0.000_999_6, "1.00 ms"),
        (0.9996, "1.00 s"),
        (2.3, "2.30 s"),
        (9.996, "10.0 s"),
        (99.96, "100 s"),
        (119.4, "119 s"),
        (119.6, "1.99 min"),
        (720, "12.0 min"),
        (3600, "60.0 min"),
        (7200, "2.00 h"),
        (172_800, "2.00 d"),
        (-0.5, "-500 ms"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_durations_below_a_microsecond_are_not_lost() -> None:
    assert duration(2.5e-7) == "0.250 µs"


def test_aligned_durations_put_their_units_below_each_other() -> None:
    places = {aligned_duration(seconds).rindex(" ") for seconds in (0, 1e-6, 0.0015, 0.1, 2.3, 12.5, 100, 720, 90_000)}
    assert places == {4}


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0"), (4.0, "4.00"), (0.0123, "0.012"), (227_272.7, "227,273"), (0.0001, "1.0e-04"), (3e9, "3.00e+09")],
)
def test_digits_keep_three_and_never_round_to_nothing(value: float, text: str) -> None:
    assert digits(value) == text


def test_ratios_say_how_many_times_and_nothing_about_zero() -> None:
    assert ratio(2.0, 1.0) == ratio(1.0, 2.0) == "2.00\u00d7"
    assert ratio(0.0, 1.0) == "\u2013"
    assert percent(0.5432) == "54.3 %"


def test_what_is_no_number_is_no_duration() -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration(float("nan"))
