"""Delays as a page holds them: counts on a fine logarithmic grid, exact percentiles, and some of the jobs themselves.

A grid has a place for each pixel of a wide screen, so that a curve drawn from the counts looks like one drawn from all
jobs; the counts are exact at the bounds of its bins, which is where a reader's choice snaps to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Final

import msgspec
import numpy as np

from volery.metrics import Distribution, distribution
from volery.metrics.columns import Longs
from volery.report.explore.ranked import DelayGrid, RankedJobs
from volery.report.groups import CLASSES, JobClass

LONGEST_SHARE: Final = 2
"""One of so many jobs that a page keeps of a label are its most delayed; the others are spread over all ranks."""


class DelayCounts(msgspec.Struct, frozen=True):
    """The delays of one class of jobs under one label, all seeds together.

    Args:
        whole: exact, seconds.
        bins: pairs of (empty bins before it, jobs in it), flat, one for each bin that holds jobs.
    """

    whole: Distribution
    bins: list[int]


def counted(of: RankedJobs) -> dict[str, DelayCounts]:
    """Per class of jobs that occurs; without short and long where one of them does not."""
    apart = of.total("short") and of.total("long")
    return {
        jobs: DelayCounts(distribution(of.delays_s(jobs)), sparse(np.diff(of.below[jobs], prepend=0)))
        for jobs in CLASSES
        if of.total(jobs) and (jobs == "all" or apart)
    }


def sparse(counts: Longs) -> list[int]:
    """Pairs of (empty places before it, number) for each place that is not empty, flat."""
    places = np.flatnonzero(counts)
    skipped = np.diff(places, prepend=-1) - 1
    return np.column_stack((skipped, counts[places])).ravel().tolist()


class Rows(msgspec.Struct, frozen=True):
    """Jobs as columns, the most delayed first.

    Args:
        total: how many there are, of which these are some.
        seed, job, tasks, is_long, bin: of each; `is_long` is 0 or 1, `bin` that of its delay.
        submit_s, delay_s: seconds; a submission that is not known is told by -1.
    """

    total: int
    seed: list[int]
    job: list[int]
    tasks: list[int]
    is_long: list[int]
    bin: list[int]
    submit_s: list[float]
    delay_s: list[float]


def kept_rows(of: RankedJobs, grid: DelayGrid, most: int) -> Rows:
    """The most delayed jobs of a label and some of all the others, at most so many, evenly over the ranks."""
    total = of.total()
    chosen = np.arange(total)
    if total > most:
        longest = most // LONGEST_SHARE
        spread = longest + np.arange(most - longest) * (total - longest) // (most - longest)
        chosen = np.append(chosen[:longest], spread)
    return rows_at(of, grid, chosen.tolist())


def rows_at(of: RankedJobs, grid: DelayGrid, ranks: Iterable[int], jobs: JobClass = "all") -> Rows:
    """The jobs at these ranks."""
    found = [of.job(rank, jobs) for rank in ranks]
    delays = np.array([run.delay_s[row] for run, row in found])
    return Rows(
        of.total(jobs),
        [run.seed for run, _ in found],
        [int(run.job[row]) for run, row in found],
        [int(run.tasks[row]) for run, row in found],
        [int(not run.is_short[row]) for run, row in found],
        grid.bin_of(delays).tolist(),
        [_short(run.submit_s[row]) for run, row in found],
        [_short(delay) for delay in delays.tolist()],
    )


def _short(seconds: float) -> float:
    """Seconds to a microsecond and six digits."""
    value = float(seconds)
    return -1.0 if math.isnan(value) else round(float(f"{value:.6g}"), 6)
