"""The chance of the workload: two designs compared job by job in one run of the same trace.

A trace is one realisation of the days that it stands for. Which jobs came is chance, and one run shows how much of it
there is: jobs are resampled in blocks of neighbours in the order of arrival, the same blocks for both designs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from volery.statistics.blocks import (
    Floats,
    Ordered,
    block_length,
    block_sums,
    degrees_of_freedom,
    drawn_counts,
    studentised,
)
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

NO_STATEMENT: Final = "no statement: "
FEW_JOBS: Final = f"{NO_STATEMENT}fewer than {JOBS_MIN} jobs"
FEW_BLOCKS: Final = f"{NO_STATEMENT}delays depend on one another over more than a fifth of the jobs"


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
    if block > len(a) // BLOCKS_MIN and not np.array_equal(a, b):
        return [_unstated(name, level, a, b, FEW_BLOCKS) for name, level in zip(statistics, levels, strict=True)]
    ordered = Ordered(a), Ordered(b)
    random = np.random.default_rng(BOOTSTRAP_SEED)
    drawn = [
        tuple(one.statistics(counts, levels) for one in ordered)
        for counts in drawn_counts(len(a), block, resamples, random)
    ]
    x, y = (np.concatenate([batch[side] for batch in drawn]) for side in (0, 1))
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


def _influence(a: Floats, b: Floats, level: float | None, drawn: _Resampled) -> Floats:
    """Return the influence of each job on the logarithm of the ratio, or on the difference where there is no ratio."""
    x, y = (a - a.mean(), b - b.mean()) if level is None else (_beyond(a, level), _beyond(b, level))
    scales = [1.0, 1.0] if level is None else [_slope(x, drawn.a, drawn), _slope(y, drawn.b, drawn)]
    centres = _value(a, level), _value(b, level)
    if min(centres) > 0:
        scales = [scale / centre for scale, centre in zip(scales, centres, strict=True)]
    return scales[0] * x - scales[1] * y


def _slope(beyond: Floats, resampled: Floats, drawn: _Resampled) -> float:
    """Return how a percentile moves with the share of jobs beyond it: the ratio of their deviations in the blocks."""
    blocks = len(beyond) / drawn.block
    share = math.sqrt(float((block_sums(beyond, drawn.block) ** 2).mean()) / blocks) / drawn.block
    return float(resampled.std()) / share if share > 0 else 0.0


def _compared(name: str, level: float | None, a: Floats, b: Floats, drawn: _Resampled) -> JobsDifference:
    """Compare one statistic of the jobs."""
    found = _unstated(name, level, a, b, SPANS_ZERO)
    if np.array_equal(a, b):
        found = msgspec.structs.replace(
            found, low=0.0, high=0.0, block=drawn.block, verdict=IDENTICAL, method=EXACT, p_value=1.0
        )
        return found if found.ratio is None else msgspec.structs.replace(found, ratio_low=1.0, ratio_high=1.0)
    beyond = len(a) if level is None else math.floor(min(level, 1 - level) * len(a) + 1e-9)
    if beyond < max(BEYOND_MIN, drawn.block):
        why = f"{NO_STATEMENT}{beyond} jobs beyond the percentile, and blocks have {drawn.block}"
        return _unstated(name, level, a, b, why)
    spread = _spread(_influence(a, b, level, drawn), drawn.block)
    low, high, p_value = spread.interval(
        found.difference, drawn.a - drawn.b, drawn.confidence, max(abs(found.a), abs(found.b))
    )
    found = msgspec.structs.replace(
        found, low=low, high=high, block=drawn.block, verdict=_side(low, high, SPANS_ZERO), method=BLOCKS,
        p_value=p_value,
    )  # fmt: skip
    if found.ratio is None or min(drawn.a.min(), drawn.b.min()) <= 0:
        return found
    low, high, p_value = spread.interval(math.log(found.ratio), np.log(drawn.a / drawn.b), drawn.confidence, 1)
    return msgspec.structs.replace(
        found, ratio_low=math.exp(low), ratio_high=math.exp(high), verdict=_side(low, high, SPANS_ONE), p_value=p_value
    )


class _Spread(NamedTuple):
    """The shape of an interval of one comparison.

    Args:
        freedom: degrees of freedom of Student's distribution.
        down, up: standard deviations of the resamples that count as one below and above the estimate; at least 1.
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
    """Return the values of one statistic without intervals."""
    x, y = _value(a, level), _value(b, level)
    ratio = x / y if x > 0 and y > 0 else None
    return JobsDifference(name, x, y, x - y, None, None, ratio, None, None, len(a), 0, verdict, "")
