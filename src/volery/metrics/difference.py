"""Is it better, or was it chance? Differences between runs that share their random numbers."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
import numpy as np

from volery.core.streams import Streams

SEEDS_MIN = 2
"""With one seed nothing tells a difference from chance."""
CONFIDENCE_PERCENT = 95

ONE_SEED = "no difference shown: one seed cannot tell it from chance"
SPANS_ZERO = "no difference shown: the interval spans zero"
NOT_RANDOM = "not random: every seed gave the same run"
LOWER, HIGHER, IDENTICAL = "lower", "higher", "identical"


class Difference(msgspec.Struct, frozen=True):
    """The mean of a - b over seeds.

    Args:
        mean: of the differences, in the unit of what was compared.
        low, high: its 95 % percentile-bootstrap interval; None where seeds tell nothing: with one seed, or where
            nothing is random.
        seeds: number of pairs.
        verdict: "lower" or "higher" (a against b, the interval excludes zero), "identical" (every pair is equal),
            "not random: " or "no difference shown: " and why.
    """

    mean: float
    low: float | None
    high: float | None
    seeds: int
    verdict: str

    @property
    def is_shown(self) -> bool:
        """Whether a can be said to be lower or higher than b."""
        return self.verdict in (LOWER, HIGHER)


class ComparedMeans(msgspec.Struct, frozen=True):
    """One quantity of two architectures in the same setting, over the seeds that both have.

    Args:
        a, b: labels; a is the first architecture of the study.
        jobs: "all", "short" or "long".
        quantity: "median delay", "mean delay", "p99 delay" or "mean utilisation".
        unit: "s", or empty for a fraction.
        a_mean, b_mean: mean over the seeds.
        difference: of a - b.
    """

    a: str
    b: str
    jobs: str
    quantity: str
    unit: str
    a_mean: float
    b_mean: float
    difference: Difference


def interval_of_mean(values: Sequence[float]) -> tuple[float, float] | None:
    """The 95 % interval of a mean over seeds, by the same bootstrap; None for one seed.

    Raises:
        ValueError: when there is no value.
    """
    found = paired_difference(values, [0.0] * len(values))
    if found.low is None or found.high is None or found.seeds < SEEDS_MIN:
        return None
    return found.low, found.high


def paired_difference(a: Sequence[float], b: Sequence[float], resamples: int = 10_000) -> Difference:
    """Compare two quantities measured under the same seeds.

    Args:
        a, b: per seed, in the same order of seeds.
        resamples: bootstrap samples, drawn from a fixed stream: the same input gives the same interval.

    Raises:
        ValueError: when the lengths differ or there is nothing to compare.
    """
    if len(a) != len(b) or not a:
        raise ValueError(
            f"paired differences need the same seeds on both sides, at least one; got {len(a)} and {len(b)}"
        )
    pairs = np.asarray(a, dtype=np.float64) - np.asarray(b, dtype=np.float64)
    mean = float(pairs.mean())
    if len(pairs) < SEEDS_MIN:
        return Difference(mean, mean, mean, len(pairs), ONE_SEED)
    generator = np.random.default_rng(Streams(0).number("metrics/bootstrap"))
    means = pairs[generator.integers(0, len(pairs), size=(resamples, len(pairs)))].mean(axis=1)
    tail = (100 - CONFIDENCE_PERCENT) / 2
    low, high = (float(bound) for bound in np.percentile(means, (tail, 100 - tail)))
    # Summation order may put the bounds of equal pairs a rounding error away from their mean.
    low, high = min(low, mean), max(high, mean)
    if not pairs.any():
        verdict = IDENTICAL
    elif low <= 0 <= high:
        verdict = SPANS_ZERO
    else:
        verdict = LOWER if high < 0 else HIGHER
    return Difference(mean, low, high, len(pairs), verdict)


def seeded_difference(a: Sequence[float], b: Sequence[float], *, random: bool) -> Difference:
    """Compare two quantities like `paired_difference`, without an interval where seeds tell nothing.

    Args:
        a, b: per seed, in the same order of seeds.
        random: whether the runs of a or of b differ between seeds.

    Raises:
        ValueError: when the lengths differ or there is nothing to compare.
    """
    found = paired_difference(a, b)
    if found.seeds >= SEEDS_MIN and random:
        return found
    verdict = found.verdict if random or found.verdict in (IDENTICAL, ONE_SEED) else NOT_RANDOM
    return msgspec.structs.replace(found, low=None, high=None, verdict=verdict)
