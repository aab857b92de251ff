"""Holm's step-down correction for several comparisons (Scandinavian Journal of Statistics 6, 1979)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from volery.statistics.intervals import CONFIDENCE


def holm(
    excludes: Sequence[Callable[[float], bool]], confidence: float = CONFIDENCE, family: int | None = None
) -> list[bool]:
    """Which of several comparisons show a difference, with one family-wise error.

    The comparison with the least p-value is held to (1 - confidence) / k, the next to (1 - confidence) / (k - 1), and
    so on until one fails. Intervals serve in place of p-values: a p-value is below a level where the interval of that
    confidence excludes "no difference".

    Args:
        excludes: per comparison, from a confidence to true if its interval excludes "no difference".
        confidence: that all claimed differences together are to have.
        family: how many comparisons the data have chosen these from, themselves included; None: no others.
    """
    others = (len(excludes) if family is None else family) - len(excludes)
    shown = [False] * len(excludes)
    while True:
        left = shown.count(False) + others
        new = [i for i, one in enumerate(excludes) if not shown[i] and one(1 - (1 - confidence) / left)]
        if not new:
            return shown
        for i in new:
            shown[i] = True
        if all(shown):
            return shown
