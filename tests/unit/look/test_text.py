"""Numbers as people read them."""

from __future__ import annotations

import pytest

from volery.look.text import (
    aligned_duration,
    broken_label,
    confidence,
    digits,
    duration,
    percent,
    ratio,
    share,
    shortened,
    time_span,
)


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


def test_a_part_that_is_neither_nothing_nor_all_is_not_shown_as_such() -> None:
    parts = (0, 1e-15, 0.0002, 0.0006, 0.9994, 0.9999, 1 - 1e-15, 1, 1.0001)
    shown = ["0.0 %", "0.0 %", "< 0.1 %", "0.1 %", "99.9 %", "> 99.9 %", "100.0 %", "100.0 %", "100.0 %"]
    assert list(map(percent, parts)) == shown


def test_what_is_no_number_is_no_duration() -> None:
    with pytest.raises(ValueError, match="no duration"):
        duration(float("nan"))


def test_time_spans_are_durations_in_microseconds() -> None:
    assert time_span(1_500) == "1.50 ms"
    assert time_span(-1_500) == "-1.50 ms"
    assert time_span(0) == "0 s"
    assert time_span(999_999) == "1.00 s"
    assert time_span(90 * 1_000_000) == "90.0 s"
    assert time_span(3 * 3600 * 1_000_000) == "3.00 h"
    assert time_span(None) == "\N{EN DASH}"


def test_a_share_of_nothing_is_a_dash() -> None:
    assert share(1, 3) == "33.3 %"
    assert share(1, 0) == "\N{EN DASH}"


def test_a_confidence_near_certainty_keeps_the_decimals_that_tell_them_apart() -> None:
    assert [confidence(level) for level in (0.95, 0.985, 0.9998)] == ["95 %", "98.5 %", "99.98 %"]


def test_a_long_label_keeps_its_beginning_and_its_end() -> None:
    assert shortened("a" * 200) == "a" * 200
    assert shortened("a" * 300 + "end", 12) == "aaaaaaaa \N{HORIZONTAL ELLIPSIS} aend"


def test_labels_break_where_they_read_well() -> None:
    assert broken_label("megha:gms=10,lms=10", 12) == ["megha:gms=", "10,lms=10"]
    assert broken_label("abcdefgh", 3) == ["abc", "def", "gh"]
