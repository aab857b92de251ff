"""Numbers as people read them: three digits and a unit."""

from __future__ import annotations

import math
from typing import Final

_SCALE: Final[tuple[tuple[float, float, str], ...]] = (
    # below so many seconds: divide by this, call it that
    (999.5e-6, 1e-6, "µs"),
    (999.5e-3, 1e-3, "ms"),
    (119.5, 1.0, "s"),
    (119.5 * 60, 60.0, "min"),
    (47.95 * 3600, 3600.0, "h"),
    (float("inf"), 86400.0, "d"),
)
UNIT_S: Final = {unit: unit_s for _, unit_s, unit in _SCALE}
"""Seconds of each unit."""
NUMBER_WIDTH: Final = 4
NOTHING: Final = "\u2013"
MINUS: Final = "\u2212"
PLUS_MINUS: Final = "\u00b1"
TIMES: Final = "\u00d7"


def digits(value: float) -> str:
    """Three significant digits, no exponent below ten million, thousands separated: 1.50, 12.3, 123, 12,345."""
    size = abs(value)
    if size == 0:
        return "0"
    if size >= 1e7:
        return f"{value:.2e}"
    if size < 0.001:
        return f"{value:.1e}"
    decimals = 0 if size >= 99.95 else 1 if size >= 9.995 else 2 if size >= 0.9995 else 3
    return f"{value:,.{decimals}f}"


def split_duration(seconds: float) -> tuple[str, str]:
    """Number and unit of a duration."""
    if seconds == 0:
        return "0", "s"
    for below, unit_s, unit in _SCALE:
        if abs(seconds) < below:
            return digits(seconds / unit_s), unit
    raise ValueError(f"{seconds} is no duration")


def duration(seconds: float) -> str:
    """A duration with three digits: 1.50 ms, 2.30 s, 12.0 min."""
    return " ".join(split_duration(seconds))


def aligned_duration(seconds: float) -> str:
    """A duration padded on the left, so that numbers and units line up in a left-justified column."""
    number, unit = split_duration(seconds)
    return f"{number:>{NUMBER_WIDTH}} {unit}"


def percent(fraction: float) -> str:
    """A fraction of 0 to 1 in percent: 54.3 %."""
    return f"{100 * fraction:.1f} %"


def confidence(level: float) -> str:
    """A confidence in percent, with as many decimals as tell it from certainty: 95 %, 98.5 %, 99.98 %."""
    places = max(1, math.ceil(-math.log10(100 * (1 - level)) - 1e-9))
    return f"{100 * level:.{places}f}".removesuffix(".0") + " %"


def ratio(a: float, b: float) -> str:
    """The ratio of the larger of two numbers to the smaller; a dash where one is zero or less."""
    if a <= 0 or b <= 0:
        return NOTHING
    return f"{digits(max(a, b) / min(a, b))}{TIMES}"
