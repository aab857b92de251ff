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

from volery.statistics.intervals import ROUNDING

Floats = npt.NDArray[np.float64]

LAGS_SHARE: Final = 5
"""Autocorrelations are looked at up to this share (a fifth) of the series."""
STUDENTISED: Final = 999
"""Resamples of block sums, which are cheap."""
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
        for column, level in enumerate(levels):
            if level is None:
                found[:, column] = np.einsum("ij,j->i", counts, self.values) / counts[0].sum()
            else:
                found[:, column] = self._quantiles(counts, level)
        return found

    def _quantiles(self, counts: npt.NDArray[np.int32], level: float) -> Floats:
        """Interpolate linearly between the two values at place (n - 1) level, as numpy's percentile does.

        Only values near the quantile of the series are counted one by one; their range grows until it has the quantile
        of every resample.
        """
        count = len(self.ranked)
        place = level * (count - 1)
        below, share = int(place), place - int(place)
        above = min(below + 1, count - 1) if share else below
        reach = 2 * int(np.abs(self._drawn_before(counts, below) - below).max()) + 8
        while True:
            first, last = max(0, below - reach), min(count, below + reach + 1)
            before = self._drawn_before(counts, first)
            up_to = counts[:, self.order[first:last]].cumsum(axis=1, dtype=np.int32)
            if (before <= below).all() and (before + up_to[:, -1] > above).all():
                break
            reach *= 2
        found: Floats = self.ranked[first + (up_to <= (below - before)[:, None]).sum(axis=1)]
        if share:
            upper = self.ranked[first + (up_to <= (above - before)[:, None]).sum(axis=1)]
            found = found + share * (upper - found)
        return found

    def _drawn_before(self, counts: npt.NDArray[np.int32], rank: int) -> npt.NDArray[np.int32]:
        """Return per resample how many values of a lower rank were drawn."""
        lower = np.zeros(len(self.order), dtype=np.int32)
        lower[self.order[:rank]] = 1
        found: npt.NDArray[np.int32] = np.einsum("ij,j->i", counts, lower)
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
    window that ends at twice the lag after which correlations are noise. That lag may be a fifth of the series: queues
    under high load remember longer than the sqrt(n) lags of the original.
    """
    count = len(values)
    if np.ptp(values) <= ROUNDING * np.abs(values).max():  # rounding of the mean would look like one long dependence
        return 1.0
    centred = values - values.mean()
    width = 1 << (2 * count - 1).bit_length()
    transformed = np.fft.rfft(centred, width)
    covariances = np.fft.irfft(transformed * np.conj(transformed), width)[:count] / count
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
    lags_max = max(quiet + 1, count // LAGS_SHARE)
    noise = np.abs(correlations[1 : lags_max + 1]) < 2 * math.sqrt(math.log10(count) / count)
    runs = np.convolve(noise, np.ones(quiet, dtype=np.int64), "valid") == quiet
    last = int(runs.argmax()) if runs.any() else lags_max
    return min(max(2 * last, 1), lags_max)


def block_sums(influence: Floats, block: int) -> Floats:
    """Return the sum of the block that begins at each value of a series closed to a ring."""
    sums = np.concatenate([[0.0], np.concatenate([influence, influence[:block]]).cumsum()])
    found: Floats = sums[block : block + len(influence)] - sums[: len(influence)]
    return found


def degrees_of_freedom(influence: Floats, block: int) -> float:
    """Return the degrees of freedom of the variance that blocks of a series estimate (Satterthwaite, 1946).

    They are 2 K / (k - 1) for K blocks whose sums have the kurtosis k: K for normal sums, fewer where a few blocks have
    most of the variance. At most K - 1, at least 1.

    Args:
        influence: of each value on the statistic, of mean zero.
        block: values per block.
    """
    blocks = len(influence) / block
    squares = block_sums(influence, block) ** 2
    variance = float(squares.mean())
    if variance <= 0:
        return blocks - 1
    kurtosis = float((squares**2).mean()) / variance**2
    return max(1.0, min(blocks - 1, 2 * blocks / max(kurtosis - 1, 1e-9)))


def studentised(influence: Floats, block: int, tail: float, random: np.random.Generator) -> tuple[float, float]:
    """Return the two quantiles of the studentised mean of resampled blocks (Goetze & Kuensch, 1996).

    Where a series is skewed, a low mean comes with a low deviation, and the two quantiles are not opposite.

    Args:
        influence: of each value on the statistic, of mean zero.
        block: values per block.
        tail: share of resamples beyond each quantile.
        random: the stream of the resamples.
    """
    sums = block_sums(influence, block)
    drawn = sums[random.integers(0, len(sums), (STUDENTISED, len(sums) // block))]
    deviations = drawn.std(axis=1, ddof=1)
    known = deviations > 0
    if not known.any():
        return 0.0, 0.0
    ratios = math.sqrt(drawn.shape[1]) * drawn.mean(axis=1)[known] / deviations[known]
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return float(low), float(high)
