"""Means with their ranges, a row each, as a picture; drawn by hand, so that the same numbers give the same bytes."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from volery.report.plots import GRID, INK, PALETTE
from volery.report.svg import picture, text

ROW, MARGIN, HEAD, RADIUS = 26, 16, 34, 5
LETTER: Final = 7.2
"""Width of a letter in pixels, on the safe side."""
PLOT: Final = 300
"""Width of the plot itself, in pixels."""


class Range(msgspec.Struct, frozen=True):
    """A row.

    Args:
        label: what it is.
        mean, low, high: in the unit of the picture; on a logarithmic axis above zero.
        shown: the mean in words.
        marked: in the other colour.
    """

    label: str
    mean: float
    low: float
    high: float
    shown: str
    marked: bool = False


def range_svg(title: str, rows: Sequence[Range], *, log: bool = False) -> str:
    """The picture, as a file of its own.

    Args:
        title: what is measured, with its unit.
        rows: from top to bottom.
        log: a logarithmic axis; otherwise it begins at zero.
    """
    left = MARGIN + round(LETTER * max(len(row.label) for row in rows)) + 12
    width = left + PLOT + 12 + round(LETTER * max(len(row.shown) for row in rows)) + MARGIN
    places = _Places([row.low for row in rows], [row.high for row in rows], left, log)
    parts = [text(MARGIN, 22, title, "start", 13, bold=True)]
    bottom = HEAD + ROW * len(rows)
    parts += [
        f'<line x1="{x}" y1="{HEAD}" x2="{x}" y2="{bottom}" stroke="{GRID}" stroke-width="1"/>' for x in places.grid()
    ]
    for k, row in enumerate(rows):
        parts += _row(row, HEAD + ROW * k + ROW // 2, left, places)
    return picture(width, bottom + MARGIN, parts, alone=True)


class _Places:
    """Where values stand."""

    def __init__(self, lows: Sequence[float], highs: Sequence[float], left: float, log: bool) -> None:
        self._left, self._log = left, log
        self.low, self.high = 0.0, max(highs) or 1.0
        if log:
            self.low, self.high = math.floor(math.log10(min(lows))), math.ceil(math.log10(max(highs)) + 1e-9)

    def x(self, value: float) -> float:
        place = math.log10(value) if self._log else value
        return round(self._left + PLOT * (place - self.low) / (self.high - self.low), 1)

    def grid(self) -> Iterator[float]:
        """At every power of ten, or at quarters."""
        steps = self.high - self.low if self._log else 4
        for k in range(int(steps) + 1):
            yield round(self._left + PLOT * k / steps, 1)


def _row(row: Range, y: int, left: float, places: _Places) -> Iterator[str]:
    colour = PALETTE[1] if row.marked else PALETTE[0]
    low, mean, high = places.x(row.low), places.x(row.mean), places.x(row.high)
    yield text(left - 12, y + 4, row.label, "end", 12)
    yield f'<line x1="{left}" y1="{y}" x2="{left + PLOT}" y2="{y}" stroke="{GRID}" stroke-width="1"/>'
    if high > low:
        yield f'<line x1="{low}" y1="{y}" x2="{high}" y2="{y}" stroke="{colour}" stroke-width="3"/>'
    yield f'<circle cx="{mean}" cy="{y}" r="{RADIUS}" fill="{colour}" stroke="{INK}" stroke-width="0.5"/>'
    yield text(left + PLOT + 12, y + 4, row.shown, "start", 12)
