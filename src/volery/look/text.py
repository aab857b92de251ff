"""Numbers, times and labels as text that people read."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Iterable, Iterator, Sequence
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
LABEL_MAX, LINE_MAX = 200, 70
"""Letters of a label that are shown, and those of one that stands on a line of a picture."""
ROUNDING: Final = 1e-12
"""Error of a fraction that was computed."""
_MICROSECONDS: Final = 1_000_000
_TURNING: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]")
"""Unicode's controls of direction (UAX 9; letters that are written from right to left are no harm and stay), codes that
no terminal should obey and no XML may hold, and halves of characters; tab and new line stay."""


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
    if seconds == 0:
        return "0", "s"
    for below, unit_s, unit in _SCALE:
        if abs(seconds) < below:
            return digits(seconds / unit_s), unit
    raise ValueError(f"{seconds} is no duration")


def duration(seconds: float) -> str:
    """A duration with three digits: 1.50 ms, 2.30 s, 12.0 min."""
    return " ".join(split_duration(seconds))


def time_span(us: int | None) -> str:
    """A duration given in microseconds; a dash where there is none."""
    return NOTHING if us is None else duration(us / _MICROSECONDS)


def aligned_duration(seconds: float) -> str:
    """A duration padded on the left, so that numbers and units line up in a left-justified column."""
    number, unit = split_duration(seconds)
    return f"{number:>{NUMBER_WIDTH}} {unit}"


def percent(fraction: float) -> str:
    """A fraction of 0 to 1 in percent: 54.3 %; 0.0 % is nothing, and 100.0 % is all."""
    shown = f"{100 * fraction:.1f} %"
    if shown.lstrip("-") == "0.0 %":
        return "0.0 %" if abs(fraction) < ROUNDING else "< 0.1 %"
    return "> 99.9 %" if shown == "100.0 %" and fraction < 1 - ROUNDING else shown


def share(part: float, of: float) -> str:
    """A part in percent; a dash where there is no whole."""
    return percent(part / of) if of else NOTHING


def whole(count: int) -> str:
    """A count with its thousands separated."""
    return f"{count:,}"


def confidence(level: float) -> str:
    """A confidence in percent, with as many decimals as tell it from certainty: 95 %, 98.5 %, 99.98 %."""
    places = max(1, math.ceil(-math.log10(100 * (1 - level)) - 1e-9))
    return f"{100 * level:.{places}f}".removesuffix(".0") + " %"


def ratio(a: float, b: float) -> str:
    """The ratio of the larger of two numbers to the smaller; a dash where one is zero or less."""
    if a <= 0 or b <= 0:
        return NOTHING
    return f"{digits(max(a, b) / min(a, b))}{TIMES}"


def utc(unix_us: int, *, fine: bool = False) -> str:
    """Show a moment as `2026-11-22 14:03:12Z`.

    Args:
        unix_us: microseconds since 1970-01-01 UTC.

    Raises:
        OverflowError, OSError, ValueError: it is beyond the platform's calendar.
    """
    shown = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(unix_us // _MICROSECONDS))
    return f"{shown}.{unix_us % _MICROSECONDS // 1000:03d}Z" if fine else f"{shown}Z"


def straight(text: str) -> str:
    """Text without the signs that would turn the direction of what follows it, and those that command a terminal."""
    return _TURNING.sub("\N{REPLACEMENT CHARACTER}", text)


def shortened(label: str, most: int = LABEL_MAX) -> str:
    """A label that a page, a picture or a table can bear, `straight`; of a longer one its beginning and its end."""
    label = straight(label)
    if len(label) <= most:
        return label
    end = most // 3
    return f"{label[: most - end]} \u2026 {label[-end:]}"


def broken_label(label: str, width: int) -> list[str]:
    """A label in lines of at most so many characters, broken where it reads well."""
    lines = [""]
    for piece in re.findall(r"[^:,=\s]*[:,=\s]*", label):
        if lines[-1] and len(lines[-1] + piece.rstrip()) > width:
            lines.append("")
        for at in range(0, len(piece), width):
            lines[-1] += piece[at : at + width]
            if at + width < len(piece):
                lines.append("")
    return lines


def markdown_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> Iterator[str]:
    """The lines of a Markdown table, and an empty one; bars in cells stay text."""
    yield f"| {' | '.join(heads)} |"
    yield "|" + "---|" * len(heads)
    for row in rows:
        yield "| " + " | ".join(cell.replace("|", "\\|") for cell in row) + " |"
    yield ""
