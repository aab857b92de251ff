"""A distribution in nine numbers, and Pigeon's ratio of percentiles."""

from __future__ import annotations

import msgspec
import numpy as np
import numpy.typing as npt

PERCENTILES = (50, 90, 95, 99)
FAR = {1_000: 99.9, 10_000: 99.99}
"""Count of values from which one of them lies beyond the percentile -> the percentile."""


class Distribution(msgspec.Struct, frozen=True, omit_defaults=True):
    """Count, mean, percentiles (linearly interpolated) and maximum, in the unit that the owner's name states.

    With a count of zero all other numbers are zero and mean nothing.

    Args:
        count: Count of the values.
        mean: Sum / count.
        p50, p90, p95, p99: Percentiles: of the n sorted values, the one at place p (n - 1) / 100 from 0, between two
            places in proportion.
        max: Largest value.
        p99_9: 99.9th percentile; None below 1,000 values, where it is the largest value and little else.
        p99_99: 99.99th percentile; None below 10,000 values.
    """

    count: int
    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    p99_9: float | None = None
    p99_99: float | None = None


class Slowdown(msgspec.Struct, frozen=True):
    """Percentile of the JRT over the same percentile of the ideal JRT (Pigeon, SoCC 2019).

    The percentiles are taken separately: it is a ratio of percentiles, not a percentile of ratios. A number is None
    where the percentile of the ideal JRT is zero.

    Args:
        p50, p90, p95, p99: Percentile of the JRT / the same percentile of the ideal JRT (no unit).
    """

    p50: float | None
    p90: float | None
    p95: float | None
    p99: float | None


BINS = 100


class Histogram(msgspec.Struct, frozen=True):
    """A distribution as counts of equal bins, and how much of it stands in few of them.

    Args:
        most: Upper edge of the last bin; the first one begins at zero.
        counts: Counts of `BINS` bins.
        peaks_5, peaks_10, peaks_20: Shares of the values in the so many fullest bins (0 to 1).
    """

    most: float
    counts: tuple[int, ...]
    peaks_5: float
    peaks_10: float
    peaks_20: float


def histogram(values: npt.NDArray[np.int64], *, unit: float = 1.0) -> Histogram | None:
    """Counts of values that are not negative; None where there is none above zero.

    Args:
        values: Values of the sample.
        unit: Unit, as in `distribution`.
    """
    if not values.size or values.max() <= 0:
        return None

    counts, _ = np.histogram(values, bins=BINS, range=(0, float(values.max())))
    fullest_share = np.sort(counts)[::-1].cumsum() / values.size
    return Histogram(
        float(values.max()) / unit,
        tuple(counts.tolist()),
        *[float(fullest_share[bins - 1]) for bins in (5, 10, 20)],
    )


EMPTY = Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)


def distribution(
    values: npt.NDArray[np.int64] | npt.NDArray[np.float64], *, unit: float = 1.0, overwrite: bool = False
) -> Distribution:
    """Summarise values.

    Args:
        values: Values of the sample.
        unit: Count of the sample's units that make one of the result's (1e6 turns microseconds into seconds).
        overwrite: True if the order of `values` may be lost, which saves a copy.
    """
    if not values.size:
        return EMPTY

    mean, largest = float(values.mean()), float(values.max())
    percentiles = (*PERCENTILES, *(p for count, p in FAR.items() if values.size >= count))
    percentile_values = np.percentile(values, percentiles, method="linear", overwrite_input=overwrite)

    p50, p90, p95, p99, *far = (float(p) / unit for p in percentile_values)
    return Distribution(int(values.size), mean / unit, p50, p90, p95, p99, largest / unit, *far)


def slowdown(jrt: Distribution, ideal: Distribution) -> Slowdown:
    """The slowdown at each percentile of two distributions in the same unit."""

    def ratio(measured: float, best: float) -> float | None:
        return measured / best if best > 0 else None

    return Slowdown(
        ratio(jrt.p50, ideal.p50), ratio(jrt.p90, ideal.p90), ratio(jrt.p95, ideal.p95), ratio(jrt.p99, ideal.p99)
    )
