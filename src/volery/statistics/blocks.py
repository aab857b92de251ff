"""Blocks of neighbours in a series, resampled: the mean and quantiles of series whose values depend on one another.

Values that follow each other are alike: jobs that arrive together wait together. A bootstrap that draws single values
takes them for independent, and its intervals are too narrow. The moving-block bootstrap (Kuensch, Annals of Statistics
17, 1989) draws blocks of neighbours. The series is closed to a ring (Politis & Romano, 1992), so that every value is
drawn equally often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

BATCH: Final = 64
"""Resamples that are counted at once, which bounds the memory."""


class Ordered:
    """A series with its values sorted once, of which resamples are given as counts.

    Args:
        values: in the order of the series.
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.order = np.argsort(values, kind="stable")
        self.ranked = values[self.order]

    def statistics(self, counts: npt.NDArray[np.int32], levels: Sequence[float | None]) -> Floats:
        """Return per resample (row) the quantile at each level, or the mean where the level is None.

        Args:
            counts: per resample, how often each value is drawn; every row has the same sum.
            levels: from 0 to 1.
        """
        found = np.empty((len(counts), len(levels)))
        if any(level is not None for level in levels):
            up_to = counts[:, self.order].cumsum(axis=1, dtype=np.int32)
        for column, level in enumerate(levels):
            if level is None:
                found[:, column] = counts @ self.values / counts[0].sum()
            else:
                found[:, column] = self._quantiles(up_to, level)
        return found

    def _quantiles(self, up_to: npt.NDArray[np.int32], level: float) -> Floats:
        """Interpolate linearly between the two values at place (n - 1) level, as numpy's percentile does."""
        place = level * (int(up_to[0, -1]) - 1)
        below, share = int(place), place - int(place)
        lower = np.array([row.searchsorted(below, "right") for row in up_to])
        found: Floats = self.ranked[lower]
        if share:
            upper = np.array([row.searchsorted(below + 1, "right") for row in up_to])
            found = found + share * (self.ranked[upper] - found)
        return found


def drawn_counts(
    count: int, block: int, resamples: int, random: np.random.Generator
) -> Iterator[npt.NDArray[np.int32]]:
    """Draw resamples of `count` values in blocks of neighbours; yield in batches how often each value is drawn."""
    blocks = math.ceil(count / block)
    lengths = np.full(blocks, block)
    lengths[-1] = count - (blocks - 1) * block
    for done in range(0, resamples, BATCH):
        rows = min(BATCH, resamples - done)
        starts = random.integers(0, count, (rows, blocks)) + (2 * count * np.arange(rows))[:, None]
        ends = starts + lengths
        steps = np.bincount(starts.ravel(), minlength=rows * 2 * count).astype(np.int32)
        steps -= np.bincount(ends.ravel(), minlength=rows * 2 * count).astype(np.int32)[: rows * 2 * count]
        covered = steps.reshape(rows, 2 * count).cumsum(axis=1, dtype=np.int32)
        yield covered[:, :count] + covered[:, count:]


def block_length(values: Floats) -> float:
    """Return the block length with the least error of the variance of the mean (Politis & White, 2004).

    The rule is that of Econometric Reviews 23 with the correction of Patton, Politis & White (Econometric Reviews 28,
    2009), for blocks on a ring: (2 G^2 / D)^(1/3) n^(1/3) with D = 4/3 g(0)^2, from autocovariances under a flat-top
    window that ends at twice the lag after which correlations are noise.
    """
    count = len(values)
    centred = values - values.mean()
    width = 1 << (2 * count - 1).bit_length()
    transformed = np.fft.rfft(centred, width)
    covariances = np.fft.irfft(transformed * np.conj(transformed), width)[:count] / count
    if covariances[0] <= 0:
        return 1.0
    window = _window(covariances / covariances[0])
    lags = np.arange(1, window + 1)
    tapered = np.minimum(1.0, 2 * (1 - lags / window)) * covariances[1 : window + 1]
    spectrum = float(covariances[0] + 2 * tapered.sum())
    if spectrum <= 0:  # neighbours that compensate each other: blocks bring nothing
        return 1.0
    slope = float(2 * (lags * tapered).sum())
    return max(1.0, math.cbrt(1.5 * (slope / spectrum) ** 2 * count))


def _window(correlations: Floats) -> int:
    """Return twice the last lag before max(5, sqrt(log10 n)) lags whose correlations are noise."""
    count = len(correlations)
    quiet = max(5, math.ceil(math.sqrt(math.log10(count))))
    lags_max = min(count - 1, math.ceil(math.sqrt(count)) + quiet)
    noise = np.abs(correlations[1 : lags_max + 1]) < 2 * math.sqrt(math.log10(count) / count)
    runs = np.convolve(noise, np.ones(quiet, dtype=np.int64), "valid") == quiet
    last = int(runs.argmax()) if runs.any() else lags_max
    return min(max(2 * last, 1), lags_max)
