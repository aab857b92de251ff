"""Looks at a study that grows: the seeds at which comparisons are judged, and the confidence each look must have.

A study that adds seeds until a difference shows has several chances of a false one. Every look gets a share of the
error 1 - confidence, and the shares sum to it (alpha spending: Lan & DeMets, Biometrika 70, 1983). The error spent
after n of n_max seeds is (1 - confidence) n / n_max: linear in the seeds (Kim & DeMets, Biometrika 74, 1987).

The levels follow from Bonferroni's inequality (the union bound), which holds whatever the looks have in common. Looks
share their seeds, so that all looks together err less often than they may.
"""

from __future__ import annotations

from typing import Final

import msgspec

from volery.statistics.differences import SEEDS_MIN
from volery.statistics.intervals import CONFIDENCE

GROWTH: Final = 1.6
"""Factor from one look to the next: looks at equal steps would spend the error on looks that have little new."""


class InterimLook(msgspec.Struct, frozen=True):
    """One judgement of a study that grows.

    Args:
        confidence: Confidence of each interval at this look.
    """

    seeds: int
    confidence: float = CONFIDENCE


class Looks(msgspec.Struct, frozen=True):
    """The looks of one study; see `looks`.

    Args:
        counts: Counts of seeds at which comparisons are judged, growing; the last is the largest number of seeds.
        confidence: Confidence of all looks together.
    """

    counts: tuple[int, ...]
    confidence: float = CONFIDENCE

    def confidence_at(self, count: int) -> float:
        """Return the confidence that an interval must have at the look after `count` seeds.

        Raises:
            ValueError: there is no look at this count.
        """
        if count not in self.counts:
            raise ValueError(f"no look at {count} seeds; looks are at {', '.join(map(str, self.counts))}")

        seeds_before = [0, *self.counts][self.counts.index(count)]
        # The look may spend the share of the error that belongs to the seeds since the look before.
        return 1 - (1 - self.confidence) * (count - seeds_before) / self.counts[-1]


def looks(first: int, seeds_max: int, confidence: float = CONFIDENCE) -> Looks:
    """Plan the looks of a study: after `first` seeds, then at 1.6 times as many each time, and at `seeds_max`.

    A look that `seeds_max` follows by less than a quarter is left out: `looks(3, 30)` looks at 3, 5, 8, 13, 21, 30.

    Raises:
        ValueError: `first` is below two, `seeds_max` is below `first`, or the confidence is no probability.
    """
    if first < SEEDS_MIN:
        raise ValueError(f"the first look is at {first} seeds; differences need at least {SEEDS_MIN}")
    if seeds_max < first:
        raise ValueError(f"at most {seeds_max} seeds, and a first look at {first}; give at least {first}")
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence}; give one above 0 and below 1")

    counts = [first]
    while (following := round(counts[-1] * GROWTH)) * 1.25 < seeds_max:
        counts.append(following)

    if counts[-1] < seeds_max:
        counts.append(seeds_max)
    return Looks(tuple(counts), confidence)
