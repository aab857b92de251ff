"""Paired comparisons of two designs over the seeds that both have run, and corrections for several of them.

Holm's correction is for several comparisons, and the looks for comparisons that are judged while seeds are added.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from volery.statistics.intervals import CONFIDENCE, RESAMPLES, ROUNDING, Interval, interval_of_mean

Values = Sequence[float] | npt.NDArray[np.float64]

SEEDS_MIN: Final = 2
"""Least count of seeds: with one seed nothing tells a difference from chance."""

ONE_SEED: Final = "no difference shown: one seed cannot tell it from chance"
SPANS_ZERO: Final = "no difference shown: the interval spans zero"
SPANS_ONE: Final = "no difference shown: the interval of the ratio spans one"
CORRECTED: Final = "no difference shown: not after the correction for several comparisons"
NOT_RANDOM: Final = "not random: every seed gave the same run"
LOWER, HIGHER, IDENTICAL = "lower", "higher", "identical"


class Difference(msgspec.Struct, frozen=True):
    """The comparison of a with b over seeds.

    Args:
        mean: Mean of the differences a - b, in the unit of what was compared.
        low, high: Confidence interval of that mean; None where seeds tell nothing (one seed, or nothing is random).
        verdict: Statement: "lower" or "higher" (a against b), "identical" (every pair is equal up to rounding), "not
            random: " or "no difference shown: " and why. Where there is a ratio, its interval decides.
        method: Method of the interval: "paired t", "BCa bootstrap", "exact"; empty where there is none.
        ratio: Geometric mean of a / b, where a and b were compared as ratios.
        ratio_low, ratio_high: Confidence interval of the ratio.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    verdict: str
    method: str = ""
    ratio: float | None = None
    ratio_low: float | None = None
    ratio_high: float | None = None

    @property
    def is_shown(self) -> bool:
        """True if a can be said to be lower or higher than b."""
        return self.verdict in (LOWER, HIGHER)


class ComparedMeans(msgspec.Struct, frozen=True):
    """One quantity of two architectures in the same setting, over the seeds that both have.

    Args:
        a, b: Labels; a is the first architecture of the study.
        jobs: Jobs that are compared: "all", "short" or "long".
        quantity: Measure that is compared: "median delay", "mean delay", "p99 delay" or "mean utilisation".
        unit: Unit of the quantity: "s", or empty for a fraction.
        difference: Difference a - b. Its interval is that of this comparison alone; its verdict is corrected.
        comparisons: Count of comparisons the verdict is corrected for (Holm): those of this quantity in this setting.
        confidence: Confidence of the interval, and of the family of verdicts; unset: 95 %.
    """

    a: str
    b: str
    jobs: str
    quantity: str
    unit: str
    a_mean: float
    b_mean: float
    difference: Difference
    comparisons: int = 1
    confidence: float | msgspec.UnsetType = msgspec.UNSET


class ComparedJobs(ComparedMeans, frozen=True, kw_only=True):
    """One quantity of two architectures in one run of each, compared job by job; the chance is that of the workload.

    Args:
        job_count: Count of jobs that both runs have measured.
        block: Count of jobs per block of the bootstrap.
    """

    seed: int
    job_count: int
    block: int


def paired_difference(
    a: Values, b: Values, resamples: int = RESAMPLES, *, confidence: float = CONFIDENCE
) -> Difference:
    """Compare two quantities measured under the same seeds by their differences.

    Args:
        a, b: Values per seed, in the same order of seeds.
        resamples: Count of bootstrap samples, drawn from a fixed stream: the same input gives the same interval.

    Raises:
        ValueError: the lengths differ, there is nothing to compare, or a value is no finite number.
    """
    x, y = _arrays(a, b)
    pairs = np.where(_are_equal(x, y), 0.0, x - y)
    mean = float(pairs.mean())

    interval = interval_of_mean(pairs, confidence, resamples)
    if interval is None:
        return Difference(mean, mean, mean, len(pairs), ONE_SEED)
    verdict = IDENTICAL if not pairs.any() else _side(interval, SPANS_ZERO)
    return Difference(mean, interval.low, interval.high, len(pairs), verdict, interval.method)


def paired_ratio(a: Values, b: Values, resamples: int = RESAMPLES, *, confidence: float = CONFIDENCE) -> Difference:
    """Compare two skewed quantities measured under the same seeds by the logarithm of their ratio.

    Where a value is not positive there is no ratio, and their differences are compared.

    Args:
        a, b, resamples, confidence: Values and settings, as for `paired_difference`.

    Raises:
        ValueError: the lengths differ, there is nothing to compare, or a value is no finite number.
    """
    comparison = paired_difference(a, b, resamples, confidence=confidence)
    x, y = _arrays(a, b)
    if len(x) < SEEDS_MIN or min(x.min(), y.min()) <= 0:
        return comparison

    logs = np.where(_are_equal(x, y), 0.0, np.log(x) - np.log(y))
    interval = interval_of_mean(logs, confidence, resamples)
    assert interval is not None, "there are two pairs or more"
    return msgspec.structs.replace(
        comparison,
        verdict=comparison.verdict if comparison.verdict == IDENTICAL else _side(interval, SPANS_ONE),
        method=interval.method,
        ratio=math.exp(float(logs.mean())),
        ratio_low=math.exp(interval.low),
        ratio_high=math.exp(interval.high),
    )


def seeded_difference(
    a: Values, b: Values, *, random: bool, skewed: bool = False, confidence: float = CONFIDENCE
) -> Difference:
    """Compare two quantities, without an interval where seeds tell nothing.

    Args:
        a, b: Values per seed, in the same order of seeds.
        random: True if the runs of a or of b differ between seeds.
        skewed: True if the quantity is compared by ratios, as durations are.

    Raises:
        ValueError: the lengths differ, or there is nothing to compare.
    """
    comparison = (paired_ratio if skewed else paired_difference)(a, b, confidence=confidence)
    if comparison.seeds >= SEEDS_MIN and random:
        return comparison

    verdict = comparison.verdict if random or comparison.verdict in (IDENTICAL, ONE_SEED) else NOT_RANDOM
    return msgspec.structs.replace(
        comparison, low=None, high=None, ratio_low=None, ratio_high=None, verdict=verdict, method=""
    )


def _arrays(a: Values, b: Values) -> tuple[np.ndarray, np.ndarray]:
    if len(a) != len(b) or not len(a):
        raise ValueError(
            f"paired differences need the same seeds on both sides, at least one; got {len(a)} and {len(b)}"
        )
    return np.asarray(a, dtype=np.float64), np.asarray(b, dtype=np.float64)


def _are_equal(x: np.ndarray, y: np.ndarray) -> npt.NDArray[np.bool_]:
    """Return per pair if its sides differ by rounding at most."""
    equal: npt.NDArray[np.bool_] = np.abs(x - y) <= ROUNDING * np.maximum(np.abs(x), np.abs(y))
    return equal


def _side(interval: Interval, spans: str) -> str:
    if not interval.excludes_zero:
        return spans
    return LOWER if interval.high < 0 else HIGHER


def holm(
    excludes: Sequence[Callable[[float], bool]], confidence: float = CONFIDENCE, family: int | None = None
) -> list[bool]:
    """Decide which of several comparisons show a difference, with one family-wise error.

    The comparison with the least p-value is held to (1 - confidence) / k, the next to (1 - confidence) / (k - 1),
    and so on until one fails (Holm, Scandinavian Journal of Statistics 6, 1979). Intervals serve in place of
    p-values: a p-value is below a level where the interval of that confidence excludes "no difference". This is
    Holm's procedure wherever a wider interval holds the narrower one.

    Args:
        excludes: Functions from a confidence to true if the interval of a comparison excludes "no difference".
        confidence: Confidence that all claimed differences together are to have.
        family: Count of comparisons the data have chosen these from, themselves included; None: no others. The design
            with the lowest mean of k is chosen from all pairs: k (k - 1) / 2. Without this, 20 equal designs of 3
            seeds, each compared with the lowest, give a false difference in 13 % of boards.

    Raises:
        ValueError: the family is smaller than the comparisons.
    """
    other_comparisons = (len(excludes) if family is None else family) - len(excludes)
    if other_comparisons < 0:
        raise ValueError(f"a family of {family} has no {len(excludes)} comparisons; give at least {len(excludes)}")
    shown = [False] * len(excludes)

    while not all(shown):
        open_count = shown.count(False) + other_comparisons
        newly_shown = [
            i
            for i, excludes_at in enumerate(excludes)
            if not shown[i] and excludes_at(1 - (1 - confidence) / open_count)
        ]

        # The next comparison with the least p-value fails: so do all others, whose p-values are larger.
        if not newly_shown:
            break
        for i in newly_shown:
            shown[i] = True
    return shown


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
    """The seeds at which comparisons of a study that grows are judged, and the confidence that each look must have.

    A study that adds seeds until a difference shows has several chances of a false one. Every look gets a share of the
    error 1 - confidence, and the shares sum to it (alpha spending: Lan & DeMets, Biometrika 70, 1983). The error spent
    after n of n_max seeds is (1 - confidence) n / n_max: linear in the seeds (Kim & DeMets, Biometrika 74, 1987).

    The levels follow from Bonferroni's inequality (the union bound), which holds whatever the looks have in common.
    Looks share their seeds, so that all looks together err less often than they may.

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
