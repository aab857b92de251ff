"""The chance of the workload: two designs compared job by job in one run of the same trace.

A trace is one realisation of the days that it stands for. Which jobs came is chance, and one run shows how much of it
there is: jobs are resampled in blocks of neighbours in the order of arrival, the same blocks for both designs.

Jobs that arrive together wait together. A bootstrap that draws single values takes them for independent, and its
intervals are too narrow. The moving-block bootstrap (Kuensch, Annals of Statistics 17, 1989) draws blocks of
neighbours. The series is closed to a ring (Politis & Romano, 1992), so that every value is drawn equally often.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from volery.statistics.differences import HIGHER, IDENTICAL, LOWER, SPANS_ONE, SPANS_ZERO
from volery.statistics.intervals import BOOTSTRAP_SEED, CONFIDENCE, EXACT, ROUNDING

BLOCKS: Final = "block bootstrap"
JOBS_RESAMPLES: Final = 499
"""The deviation of so many resamples is known to 3 %."""
RESAMPLES_MIN: Final = 100
JOBS_MIN: Final = 30
BLOCKS_MIN: Final = 5
BEYOND_MIN: Final = 5
"""A percentile needs so many jobs on its far side, and as many as a block has."""
BLOCK_FACTOR: Final = 2
"""Politis & White choose blocks for the least error of a variance; twice as long ones halve what it lacks."""
STUDENTISED_BLOCKS: Final = 200
"""More blocks than that are drawn in longer ones, which saves time; their sums are near to normal."""
LOGARITHM_MAX: Final = 700.0
"""Largest logarithm of a ratio's bound: where few jobs differ, a studentised bound may leave the range of numbers."""

NO_STATEMENT: Final = "no statement: "
FEW_JOBS: Final = f"{NO_STATEMENT}fewer than {JOBS_MIN} jobs"
FEW_BLOCKS: Final = f"{NO_STATEMENT}delays depend on one another over more than a fifth of the jobs"


class JobsDifference(msgspec.Struct, frozen=True):
    """The comparison of a with b over the jobs of one run.

    Args:
        statistic: Name of the statistic: "mean", "median" or a percentile such as "p99".
        a, b: Values of the statistic over the jobs that have a delay in both runs, seconds; 0 without such a job.
        difference: Difference a - b, seconds.
        low, high: Confidence interval of the difference, seconds; None where there is no statement.
        ratio: Ratio a / b; None where a value is not positive.
        ratio_low, ratio_high: Confidence interval of the ratio; None where there is none.
        jobs: Count of jobs that have a delay in both runs.
        block: Count of jobs per block; 0 where there is no statement.
        verdict: Statement: "lower" or "higher" (a against b), "identical" (every job is equal), "no difference shown: "
            or "no statement: " and why. Where there is an interval of the ratio, that interval decides.
        method: Method of the interval: "block bootstrap", "exact" where every job is equal; empty where there is no
            statement.
        p_value: 1 less the highest confidence at which the deciding interval still excludes "no difference"; None where
            there is no statement.
    """

    statistic: str
    a: float
    b: float
    difference: float
    low: float | None
    high: float | None
    ratio: float | None
    ratio_low: float | None
    ratio_high: float | None
    jobs: int
    block: int
    verdict: str
    method: str
    p_value: float | None = None

    @property
    def is_shown(self) -> bool:
        """True if a can be said to be lower or higher than b."""
        return self.verdict in (LOWER, HIGHER)

    def is_shown_at(self, confidence: float) -> bool:
        """True if the deciding interval of another confidence excludes "no difference", as `holm` asks."""
        return self.p_value is not None and self.p_value < 1 - confidence


def jobs_difference(
    submit_s: npt.ArrayLike,
    a_delay_s: npt.ArrayLike,
    b_delay_s: npt.ArrayLike,
    statistics: Sequence[str] = ("median", "mean", "p99"),
    *,
    confidence: float = CONFIDENCE,
    resamples: int = JOBS_RESAMPLES,
) -> list[JobsDifference]:
    """Compare the delays of the same jobs under two designs, one result per statistic.

    The interval says what other jobs of the same kind would have given; it says nothing of other seeds.

    Args:
        submit_s: Submission per job, seconds; only their order matters.
        a_delay_s, b_delay_s: Delay of the same jobs under each design, seconds; NaN for a job without delay, which
            leaves the comparison.
        statistics: Names of the statistics: "mean", "median" and percentiles from "p1" to "p99.9".
        confidence: Confidence of each interval, above 0, below 1.
        resamples: Count of resamples, drawn from a fixed stream: the same input gives the same intervals.

    Raises:
        ValueError: lengths differ, a statistic is unknown, or a number is out of its range.
    """
    levels = [_level(name) for name in statistics]
    if not 0 < confidence < 1:
        raise ValueError(f"a confidence of {confidence}; give one above 0 and below 1")
    if resamples < RESAMPLES_MIN:
        raise ValueError(f"{resamples} resamples; give at least {RESAMPLES_MIN}")

    a, b = _paired(submit_s, a_delay_s, b_delay_s)
    if len(a) < JOBS_MIN:
        return [_unstated(name, level, a, b, FEW_JOBS) for name, level in zip(statistics, levels, strict=True)]

    block = _block(a, b, levels)
    # With so few blocks no bootstrap shows how far the mean could have moved; equal series need none.
    if block > len(a) // BLOCKS_MIN and not np.array_equal(a, b):
        return [_unstated(name, level, a, b, FEW_BLOCKS) for name, level in zip(statistics, levels, strict=True)]

    ordered_series = Ordered(a), Ordered(b)
    random = np.random.default_rng(BOOTSTRAP_SEED)
    batches = [
        tuple(series.statistics(counts, levels) for series in ordered_series)
        for counts in drawn_counts(len(a), block, resamples, random)
    ]

    x, y = (np.concatenate([batch[side] for batch in batches]) for side in (0, 1))
    return [
        _compared(name, level, a, b, _Resampled(x[:, column], y[:, column], block, confidence))
        for column, (name, level) in enumerate(zip(statistics, levels, strict=True))
    ]


class _Resampled(NamedTuple):
    """One statistic of both designs in the resamples."""

    a: Floats
    b: Floats
    block: int
    confidence: float


def _level(statistic: str) -> float | None:
    """Return the level of a percentile, and None for the mean."""
    if statistic == "mean":
        return None
    try:
        level = 0.5 if statistic == "median" else float(statistic.removeprefix("p")) / 100
    except ValueError:
        level = math.nan
    if not 0 < level < 1 or statistic[0] not in "mp":
        raise ValueError(f"no statistic {statistic!r}; give mean, median or a percentile such as p99")
    return level


def _paired(submit_s: npt.ArrayLike, a_delay_s: npt.ArrayLike, b_delay_s: npt.ArrayLike) -> tuple[Floats, Floats]:
    """Return the delays of the jobs that both sides measured, in order of submission."""
    submit, a, b = (np.asarray(column, dtype=np.float64) for column in (submit_s, a_delay_s, b_delay_s))
    if not submit.shape == a.shape == b.shape or submit.ndim != 1:
        raise ValueError(f"delays need the same jobs on both sides; got {submit.shape}, {a.shape} and {b.shape}")

    measured = ~(np.isnan(a) | np.isnan(b))
    if np.isinf(a[measured]).any() or np.isinf(b[measured]).any() or np.isnan(submit).any():
        raise ValueError("a delay is infinite or a submission is no number; mark a job without delay by NaN")

    order = np.argsort(submit[measured], kind="stable")
    return a[measured][order], b[measured][order]


def _value(values: Floats, level: float | None) -> float:
    if not len(values):
        return 0.0
    return float(values.mean() if level is None else np.quantile(values, level))


def _block(a: Floats, b: Floats, levels: Sequence[float | None]) -> int:
    """Return the jobs per block: the longest that the delays, a percentile, or what is left of their pairs ask for.

    What both designs share, such as the tasks of a job, hides how the rest depends on its neighbours.
    """
    x, y = float(a.mean()), float(b.mean())
    series = [a, b, a - b, *([a / x - b / y] if x > 0 and y > 0 else [])]

    for level in levels:
        if level is not None:
            beyond = _beyond(a, level), _beyond(b, level)
            series += [*beyond, beyond[0] - beyond[1]]
    return min(math.ceil(BLOCK_FACTOR * max(map(block_length, series))), len(a))


def _beyond(values: Floats, level: float) -> Floats:
    """Return the influence of each job on a percentile, up to a factor: 1 above it, 0 below, less the mean."""
    above: Floats = (values > _value(values, level)).astype(np.float64)
    return above - float(above.mean())


def _influence(a: Floats, b: Floats, level: float | None, resampled: _Resampled) -> Floats:
    """Return the influence of each job on the logarithm of the ratio, or on the difference where there is no ratio."""
    x, y = (a - a.mean(), b - b.mean()) if level is None else (_beyond(a, level), _beyond(b, level))
    scales = [1.0, 1.0] if level is None else [_slope(x, resampled.a, resampled), _slope(y, resampled.b, resampled)]

    centres = _value(a, level), _value(b, level)
    if min(centres) > 0:
        scales = [scale / centre for scale, centre in zip(scales, centres, strict=True)]
    return scales[0] * x - scales[1] * y


def _slope(beyond: Floats, percentiles: Floats, resampled: _Resampled) -> float:
    """Return how a percentile moves with the share of jobs beyond it: the ratio of their deviations in the blocks."""
    blocks = len(beyond) / resampled.block
    share = math.sqrt(float((block_sums(beyond, resampled.block) ** 2).mean()) / blocks) / resampled.block
    return float(percentiles.std()) / share if share > 0 else 0.0


def _compared(name: str, level: float | None, a: Floats, b: Floats, resampled: _Resampled) -> JobsDifference:
    comparison = _unstated(name, level, a, b, SPANS_ZERO)
    if np.array_equal(a, b):
        comparison = msgspec.structs.replace(
            comparison, low=0.0, high=0.0, block=resampled.block, verdict=IDENTICAL, method=EXACT, p_value=1.0
        )
        return (
            comparison
            if comparison.ratio is None
            else msgspec.structs.replace(comparison, ratio_low=1.0, ratio_high=1.0)
        )

    beyond = len(a) if level is None else math.floor(min(level, 1 - level) * len(a) + 1e-9)
    # A block that lies beyond the percentile as a whole would move it by itself.
    if beyond < max(BEYOND_MIN, resampled.block):
        reason = f"{NO_STATEMENT}{beyond} jobs beyond the percentile, and blocks have {resampled.block}"
        return _unstated(name, level, a, b, reason)

    spread = _spread(_influence(a, b, level, resampled), resampled.block)
    low, high, p_value = spread.interval(
        comparison.difference,
        resampled.a - resampled.b,
        resampled.confidence,
        max(abs(comparison.a), abs(comparison.b)),
    )
    comparison = msgspec.structs.replace(
        comparison,
        low=low,
        high=high,
        block=resampled.block,
        verdict=_side(low, high, SPANS_ZERO),
        method=BLOCKS,
        p_value=p_value,
    )

    if comparison.ratio is None or min(resampled.a.min(), resampled.b.min()) <= 0:
        return comparison
    low, high, p_value = spread.interval(
        math.log(comparison.ratio), np.log(resampled.a / resampled.b), resampled.confidence, 1
    )
    return msgspec.structs.replace(
        comparison,
        ratio_low=math.exp(max(low, -LOGARITHM_MAX)),
        ratio_high=math.exp(min(high, LOGARITHM_MAX)),
        verdict=_side(low, high, SPANS_ONE),
        p_value=p_value,
    )


class _Spread(NamedTuple):
    """The shape of an interval of one comparison.

    Args:
        freedom: Degrees of freedom of Student's distribution.
        down, up: Standard deviations of the resamples that count as one below and above the estimate; at least 1.
    """

    freedom: float
    down: float
    up: float

    def interval(self, centre: float, resampled: Floats, confidence: float, scale: float) -> tuple[float, float, float]:
        """Return the bounds around an estimate, and the p-value of zero; rounding of `scale` counts as zero."""
        from scipy.special import stdtr, stdtrit

        centre = 0.0 if abs(centre) <= ROUNDING * scale else centre
        deviation = float(resampled.std())
        if deviation <= ROUNDING * scale:
            return centre, centre, 0.0 if centre else 1.0
        half = float(stdtrit(self.freedom, (1 + confidence) / 2)) * deviation
        towards_zero = (self.down if centre > 0 else self.up) * deviation
        p_value = 2 * float(stdtr(self.freedom, -abs(centre) / towards_zero))
        return centre - self.down * half, centre + self.up * half, p_value


def _spread(influence: Floats, block: int) -> _Spread:
    """Take Student's interval, and the studentised one of 95 % on the side on which that reaches further."""
    from scipy.special import stdtrit

    influence = influence - float(influence.mean())
    freedom = degrees_of_freedom(influence, block)
    blocks = len(influence) / block
    widening = math.sqrt(blocks / (blocks - 1))  # resamples spread about the mean of these blocks, not about the truth
    tail = (1 - CONFIDENCE) / 2

    longer = max(block, len(influence) // STUDENTISED_BLOCKS)
    low, high = studentised(influence, longer, tail, np.random.default_rng(BOOTSTRAP_SEED))

    student = -float(stdtrit(freedom, tail))
    return _Spread(freedom, widening * max(1.0, high / student), widening * max(1.0, -low / student))


def _side(low: float, high: float, spans: str) -> str:
    return LOWER if high < 0 else HIGHER if low > 0 else spans


def _unstated(name: str, level: float | None, a: Floats, b: Floats, verdict: str) -> JobsDifference:
    x, y = _value(a, level), _value(b, level)
    ratio = x / y if x > 0 and y > 0 else None
    return JobsDifference(name, x, y, x - y, None, None, ratio, None, None, len(a), 0, verdict, "")


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
        values: Values in the order of the series.
    """

    def __init__(self, values: Floats) -> None:
        self.values = values
        self.order = np.argsort(values, kind="stable")
        self.ranked = values[self.order]

    def statistics(self, counts: npt.NDArray[np.int32], levels: Sequence[float | None]) -> Floats:
        """Return per resample (row) the quantile at each level, or the mean where the level is None.

        Args:
            counts: Count of the draws of each value in each resample; every row has the same sum.
            levels: Levels from 0 to 1.
        """
        statistics = np.empty((len(counts), len(levels)))
        for column, level in enumerate(levels):
            if level is None:
                statistics[:, column] = np.einsum("ij,j->i", counts, self.values) / counts[0].sum()
            else:
                statistics[:, column] = self._quantiles(counts, level)
        return statistics

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
            drawn_before = self._drawn_before(counts, first)
            up_to = counts[:, self.order[first:last]].cumsum(axis=1, dtype=np.int32)
            if (drawn_before <= below).all() and (drawn_before + up_to[:, -1] > above).all():
                break
            # Some resample has its quantile outside the range.
            reach *= 2

        quantiles: Floats = self.ranked[first + (up_to <= (below - drawn_before)[:, None]).sum(axis=1)]
        if share:
            upper = self.ranked[first + (up_to <= (above - drawn_before)[:, None]).sum(axis=1)]
            quantiles = quantiles + share * (upper - quantiles)
        return quantiles

    def _drawn_before(self, counts: npt.NDArray[np.int32], rank: int) -> npt.NDArray[np.int32]:
        """Return per resample how many values of a lower rank were drawn."""
        lower = np.zeros(len(self.order), dtype=np.int32)
        lower[self.order[:rank]] = 1
        drawn_before: npt.NDArray[np.int32] = np.einsum("ij,j->i", counts, lower)
        return drawn_before


def drawn_counts(
    count: int, block: int, resamples: int, random: np.random.Generator
) -> Iterator[npt.NDArray[np.int32]]:
    """Draw resamples of `count` values in blocks of neighbours; yield in batches how often each value is drawn."""
    blocks = math.ceil(count / block)
    lengths = np.full(blocks, block)
    lengths[-1] = count - (blocks - 1) * block
    for first_row in range(0, resamples, BATCH):
        rows = min(BATCH, resamples - first_row)
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
    ring_sums: Floats = sums[block : block + len(influence)] - sums[: len(influence)]
    return ring_sums


def degrees_of_freedom(influence: Floats, block: int) -> float:
    """Return the degrees of freedom of the variance that blocks of a series estimate (Satterthwaite, 1946).

    They are 2 K / (k - 1) for K blocks whose sums have the kurtosis k: K for normal sums, fewer where a few blocks have
    most of the variance. At most K - 1, at least 1.

    Args:
        influence: Influence of each value on the statistic, of mean zero.
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
        influence: Influence of each value on the statistic, of mean zero.
        tail: Share of resamples beyond each quantile.
    """
    sums = block_sums(influence, block)
    drawn_sums = sums[random.integers(0, len(sums), (STUDENTISED, len(sums) // block))]

    deviations = drawn_sums.std(axis=1, ddof=1)
    has_deviation = deviations > 0
    if not has_deviation.any():
        return 0.0, 0.0
    ratios = math.sqrt(drawn_sums.shape[1]) * drawn_sums.mean(axis=1)[has_deviation] / deviations[has_deviation]
    low, high = np.quantile(ratios, [tail, 1 - tail])
    return float(low), float(high)
