"""The chance of the workload: two designs compared job by job in one run of the same trace.

A trace is one realisation of the days that it stands for. Which jobs came is chance, and one run shows how much of it
there is: jobs are resampled in blocks of neighbours in the order of arrival, the same blocks for both designs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np
import numpy.typing as npt

from volery.statistics.blocks import Floats, Ordered, block_length, drawn_counts
from volery.statistics.differences import HIGHER, IDENTICAL, LOWER, SPANS_ONE, SPANS_ZERO
from volery.statistics.intervals import BOOTSTRAP_SEED, CONFIDENCE, EXACT, ROUNDING

BLOCKS: Final = "block bootstrap"
JOBS_RESAMPLES: Final = 999
RESAMPLES_MIN: Final = 100
JOBS_MIN: Final = 30
BEYOND_MIN: Final = 5
"""A percentile needs so many jobs on its far side."""
BLOCKS_MIN: Final = 5

FEW_JOBS: Final = f"no statement: fewer than {JOBS_MIN} jobs"
FEW_BEYOND: Final = f"no statement: fewer than {BEYOND_MIN} jobs beyond the percentile"


class JobsDifference(msgspec.Struct, frozen=True):
    """The comparison of a with b over the jobs of one run.

    Args:
        statistic: "mean", "median" or a percentile such as "p99".
        a, b: its values over the jobs that have a delay in both runs, seconds; 0 without such a job.
        difference: a - b, seconds.
        low, high: its confidence interval, seconds; None where there is no statement.
        ratio: a / b; None where a value is not positive.
        ratio_low, ratio_high: its confidence interval; None where there is none.
        jobs: number of jobs that have a delay in both runs.
        block: jobs per block; 0 where there is no statement.
        verdict: "lower" or "higher" (a against b), "identical" (every job is equal), "no difference shown: " or
            "no statement: " and why. Where there is an interval of the ratio, that interval decides.
        method: "block bootstrap", "exact" where every job is equal; empty where there is no statement.
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

    @property
    def is_shown(self) -> bool:
        """True if a can be said to be lower or higher than b."""
        return self.verdict in (LOWER, HIGHER)


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
        submit_s: submission per job, seconds; only their order matters.
        a_delay_s, b_delay_s: delay of the same jobs under each design, seconds; NaN for a job without delay, which
            leaves the comparison.
        statistics: "mean", "median" and percentiles from "p1" to "p99.9".
        confidence: of each interval, above 0, below 1.
        resamples: of the blocks, drawn from a fixed stream: the same input gives the same intervals.

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
    ordered = Ordered(a), Ordered(b)
    random = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = [
        tuple(one.statistics(counts, levels) for one in ordered)
        for counts in drawn_counts(len(a), block, resamples, random)
    ]
    x, y = (np.concatenate([batch[side] for batch in drawn]) for side in (0, 1))
    half_widths = _half_widths(len(a) / block, confidence)
    return [
        _unstated(name, level, a, b, FEW_BEYOND)
        if level is not None and min(level, 1 - level) * len(a) < BEYOND_MIN
        else _compared(name, level, a, b, x[:, column], y[:, column], block, half_widths)
        for column, (name, level) in enumerate(zip(statistics, levels, strict=True))
    ]


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
    """Return the jobs per block: the longest that the delays, their difference or a percentile ask for."""
    series = [a, b, a - b]
    series += [(one <= _value(one, level)).astype(np.float64) for one in (a, b) for level in levels if level]
    return max(1, min(math.ceil(max(map(block_length, series))), len(a) // BLOCKS_MIN))


def _half_widths(blocks: float, confidence: float) -> float:
    """Return the half width of an interval in standard deviations of the resamples.

    Student's quantile with one degree of freedom per block but one, and the mean of few blocks taken for the truth.
    """
    from scipy.special import stdtrit

    return float(stdtrit(blocks - 1, (1 + confidence) / 2)) * math.sqrt(blocks / (blocks - 1))


def _compared(
    name: str, level: float | None, a: Floats, b: Floats, x: Floats, y: Floats, block: int, half_widths: float
) -> JobsDifference:
    """Compare one statistic of the jobs, with its values x and y in the resamples."""
    found = _unstated(name, level, a, b, SPANS_ZERO)
    if np.array_equal(a, b):
        found = msgspec.structs.replace(found, low=0.0, high=0.0, block=block, verdict=IDENTICAL, method=EXACT)
        return found if found.ratio is None else msgspec.structs.replace(found, ratio_low=1.0, ratio_high=1.0)
    scale = max(abs(found.a), abs(found.b))
    half = half_widths * float((x - y).std())
    low, high = (0.0 if abs(bound) <= ROUNDING * scale else bound for bound in _around(found.difference, half))
    verdict = LOWER if high < 0 else HIGHER if low > 0 else SPANS_ZERO
    found = msgspec.structs.replace(found, low=low, high=high, block=block, verdict=verdict, method=BLOCKS)
    if found.ratio is None or min(x.min(), y.min()) <= 0:
        return found
    low, high = (
        0.0 if abs(bound) <= ROUNDING else bound
        for bound in _around(math.log(found.ratio), half_widths * float(np.log(x / y).std()))
    )
    verdict = LOWER if high < 0 else HIGHER if low > 0 else SPANS_ONE
    return msgspec.structs.replace(found, ratio_low=math.exp(low), ratio_high=math.exp(high), verdict=verdict)


def _around(centre: float, half: float) -> tuple[float, float]:
    return centre - half, centre + half


def _unstated(name: str, level: float | None, a: Floats, b: Floats, verdict: str) -> JobsDifference:
    """Return the values of one statistic without intervals."""
    x, y = _value(a, level), _value(b, level)
    ratio = x / y if x > 0 and y > 0 else None
    return JobsDifference(name, x, y, x - y, None, None, ratio, None, None, len(a), 0, verdict, "")
