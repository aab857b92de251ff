"""Holm's step-down correction for several comparisons (Scandinavian Journal of Statistics 6, 1979)."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from volery.statistics.intervals import CONFIDENCE


def holm(
    excludes: Sequence[Callable[[float], bool]], confidence: float = CONFIDENCE, family: int | None = None
) -> list[bool]:
    """Decide which of several comparisons show a difference, with one family-wise error.

    The comparison with the least p-value is held to (1 - confidence) / k, the next to (1 - confidence) / (k - 1), and
    so on until one fails. Intervals serve in place of p-values: a p-value is below a level where the interval of that
    confidence excludes "no difference". This is Holm's procedure wherever a wider interval holds the narrower one.

    Args:
        excludes: per comparison, from a confidence to true if its interval excludes "no difference".
        confidence: that all claimed differences together are to have.
        family: how many comparisons the data have chosen these from, themselves included; None: no others. The design
            with the lowest mean of k is chosen from all pairs: k (k - 1) / 2. Without this, 20 equal designs of 3
            seeds, each compared with the lowest, give a false difference in 13 % of boards.

    Raises:
        ValueError: the family is smaller than the comparisons.
    """
    others = (len(excludes) if family is None else family) - len(excludes)
    if others < 0:
        raise ValueError(f"a family of {family} has no {len(excludes)} comparisons; give at least {len(excludes)}")
    shown = [False] * len(excludes)
    while not all(shown):
        left = shown.count(False) + others
        new = [i for i, one in enumerate(excludes) if not shown[i] and one(1 - (1 - confidence) / left)]
        if not new:
            break
        for i in new:
            shown[i] = True
    return shown
