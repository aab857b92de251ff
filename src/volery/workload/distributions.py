"""Distributions that are known by their bounds and their mean, drawn by inverting uniform numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from statistics import NormalDist

import msgspec
import numpy as np

from volery.workload.arrays import Integers, Reals

NORMAL = NormalDist()
BISECTIONS = 80
"""Halves the widest bracket used here below the spacing of floats."""


def solve_decreasing(function: Callable[[float], float], target: float, low: float, high: float) -> float:
    """The argument between `low` and `high` at which a decreasing function takes the value `target`.

    Raises:
        ValueError: it does not take the value there.
    """
    if not function(high) <= target <= function(low):
        raise ValueError(f"no value between {low} and {high} gives {target}")
    for _ in range(BISECTIONS):
        middle = (low + high) / 2
        low, high = (middle, high) if function(middle) > target else (low, middle)
    return (low + high) / 2


def normal_quantiles(u: Reals) -> Reals:
    """Quantiles of the standard normal distribution; finite at 0 and 1."""
    return np.array([NORMAL.inv_cdf(min(max(p, 1e-300), 1 - 1e-16)) for p in u.tolist()], dtype=np.float64)


class BoundedPareto(msgspec.Struct, frozen=True):
    """A power law between two bounds: P(X > x) falls as x**-shape."""

    low: float
    high: float
    shape: float

    @staticmethod
    def with_mean(low: float, high: float, mean: float) -> BoundedPareto:
        """The one with this mean."""
        shape = solve_decreasing(lambda a: BoundedPareto(low, high, a).mean(), mean, 1e-6, 60.0)
        return BoundedPareto(low, high, shape)

    def mean(self) -> float:
        ratio, a = self.high / self.low, self.shape
        spread = math.log(ratio) if abs(a - 1) < 1e-9 else (1 - ratio ** (1 - a)) / (a - 1)
        return float(self.low * a * spread / (1 - ratio**-a))

    def quantile(self, u: Reals) -> Reals:
        """The value that a share `u` of draws stays below."""
        floor = (self.high / self.low) ** -self.shape
        return np.asarray(self.low * (1 - u * (1 - floor)) ** (-1 / self.shape))


class DiscretePareto(msgspec.Struct, frozen=True):
    """A power law over the whole numbers 1 to `high`: a bounded Pareto on [1, high + 1), rounded down."""

    high: int
    shape: float

    @staticmethod
    def with_mean(high: int, mean: float) -> DiscretePareto:
        """The one with this mean."""
        return DiscretePareto(high, solve_decreasing(lambda a: DiscretePareto(high, a).mean(), mean, 1e-6, 60.0))

    def mean(self) -> float:
        """The expected value: the sum over k of P(X >= k)."""
        k = np.arange(1, self.high + 1, dtype=np.float64)
        floor = (self.high + 1.0) ** -self.shape
        return float(((k**-self.shape - floor) / (1 - floor)).sum())

    def quantile(self, u: Reals) -> Integers:
        """The value that a share `u` of draws stays below."""
        drawn = BoundedPareto(1.0, self.high + 1.0, self.shape).quantile(u).astype(np.int64)
        return np.minimum(drawn, self.high)


class CutLogNormal(msgspec.Struct, frozen=True):
    """A log-normal distribution without what lies above `high`."""

    high: float
    mu: float
    sigma: float

    @staticmethod
    def with_mean(high: float, mean: float, sigma: float) -> CutLogNormal:
        """The one with this mean and this spread of the logarithm before the cut."""
        top = math.log(high) + 4 * sigma
        mu = -solve_decreasing(lambda m: CutLogNormal(high, -m, sigma).mean(), mean, -top, -math.log(mean) + 9 * sigma)
        return CutLogNormal(high, mu, sigma)

    def mean(self) -> float:
        cut = (math.log(self.high) - self.mu) / self.sigma
        return math.exp(self.mu + self.sigma**2 / 2) * NORMAL.cdf(cut - self.sigma) / NORMAL.cdf(cut)

    def quantile(self, u: Reals) -> Reals:
        """The value that a share `u` of draws stays below."""
        kept_share = NORMAL.cdf((math.log(self.high) - self.mu) / self.sigma)
        return np.minimum(np.exp(self.mu + self.sigma * normal_quantiles(u * kept_share)), self.high)


def exponential(u: Reals) -> Reals:
    """Draws with mean 1."""
    return -np.log1p(-u)


def geometric(u: Reals, mean: float) -> Integers:
    """Draws 1, 2, 3 ... with this mean, each further step equally likely."""
    if mean == 1:
        return np.ones(len(u), dtype=np.int64)
    return 1 + np.floor(np.log1p(-u) / math.log1p(-1 / mean)).astype(np.int64)


def log_normal_factors(u: Reals, v: Reals, spread: float) -> Reals:
    """Log-normal draws with mean 1 and this standard deviation, by Box and Muller from two uniform numbers each."""
    sigma = math.sqrt(math.log1p(spread**2))
    return np.asarray(np.exp(sigma * np.sqrt(-2 * np.log1p(-u)) * np.cos(2 * np.pi * v) - sigma**2 / 2))
