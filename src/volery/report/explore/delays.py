"""Delays as a page holds them: counts on a fine logarithmic grid, exact percentiles, and some of the jobs themselves.

A grid has a place for each pixel of a wide screen, so that a curve drawn from the counts looks like one drawn from all
jobs; the counts are exact at the bounds of its bins, which is where a reader's choice snaps to.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec
import numpy as np

from volery.metrics import Distribution, distribution
from volery.metrics.columns import Floats, Longs
from volery.report.groups import CLASSES
from volery.report.rows import RunJobs

BINS: Final = 1024
"""Above zero; eight decades of delay make bins 1.8 % wide."""
LONGEST_SHARE: Final = 2
"""One of so many jobs that a page keeps of a label are its most delayed; the others are spread over all ranks."""


class Grid(msgspec.Struct, frozen=True):
    """Bounds of bins: bin 0 holds delays of zero, bin i those in (bound i-1, bound i] with bounds from low_s to high_s.

    The bounds are low_s * (high_s / low_s) ** ((i - 1) / (bins - 1)); bin 1 holds all above zero up to low_s.
    """

    low_s: float
    high_s: float
    bins: int = BINS

    def bounds_s(self) -> Floats:
        """The upper bounds of bins 1 to `bins`, seconds."""
        steps = np.arange(self.bins) / max(1, self.bins - 1)
        bounds: Floats = self.low_s * (self.high_s / self.low_s) ** steps
        bounds[0], bounds[-1] = self.low_s, self.high_s
        return bounds

    def bin_of(self, delays_s: Floats) -> Longs:
        """The bin of each delay."""
        found = np.searchsorted(self.bounds_s(), delays_s, side="left") + 1
        return np.where(delays_s > 0, np.minimum(found, self.bins), 0)


def grid_of(runs: Iterable[RunJobs]) -> Grid:
    """One grid for all runs, so that a choice means the same for each; of a decade at least."""
    low, high = np.inf, 0.0
    for run in runs:
        above = run.delay_s[run.delay_s > 0]
        if above.size:
            low, high = min(low, float(above.min())), max(high, float(above.max()))
    return Grid(low, max(high, 10 * low)) if high > 0 else Grid(1.0, 10.0)


class Counted(msgspec.Struct, frozen=True):
    """The delays of one class of jobs under one label, all seeds together.

    Args:
        whole: exact, seconds.
        bins: pairs of (empty bins before it, jobs in it), flat, one for each bin that holds jobs.
    """

    whole: Distribution
    bins: list[int]


def counted(runs: Sequence[RunJobs], grid: Grid) -> dict[str, Counted]:
    """Per class of jobs that occurs; without short and long where one of them does not."""
    found: dict[str, Counted] = {}
    for jobs in CLASSES:
        delays = np.concatenate([run.delay_s[run.rows_of(jobs)] for run in runs])
        if delays.size:
            found[jobs] = Counted(distribution(delays), sparse(np.bincount(grid.bin_of(delays))))
    return found if {"short", "long"} <= found.keys() else {jobs: one for jobs, one in found.items() if jobs == "all"}


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


def kept_rows(runs: Sequence[RunJobs], grid: Grid, most: int) -> Rows:
    """The most delayed jobs of a label and some of all the others, at most so many, evenly over the ranks."""
    places = Places.of(runs)
    total = places.order.size
    chosen = np.arange(total)
    if total > most:
        longest = most // LONGEST_SHARE
        spread = longest + np.arange(most - longest) * (total - longest) // (most - longest)
        chosen = np.append(chosen[:longest], spread)
    return places.rows(grid, chosen, total)


class Places(msgspec.Struct, frozen=True, eq=False):
    """The measured jobs of one class of all runs of a label, by falling delay, then run and job.

    Args:
        runs: of the label.
        run, row: place of the run, and of the job in it, of each job.
        delay_s: of each, seconds.
        order: places by rank.
    """

    runs: Sequence[RunJobs]
    run: Longs
    row: Longs
    delay_s: Floats
    order: Longs

    @classmethod
    def of(cls, runs: Sequence[RunJobs], jobs: str = "all") -> Places:
        """Those of a class of jobs."""
        rows = [run.rows_of(jobs) for run in runs]
        if not rows:
            none = np.zeros(0, dtype=np.int64)
            return cls(runs, none, none, np.zeros(0), none)
        delays = np.concatenate([run.delay_s[at] for run, at in zip(runs, rows, strict=True)])
        return cls(
            runs,
            np.repeat(np.arange(len(runs)), [at.size for at in rows]),
            np.concatenate(rows),
            delays,
            np.argsort(-delays, kind="stable"),
        )

    def within(self, grid: Grid, from_bin: int, to_bin: int) -> tuple[int, int]:
        """Ranks [first, last) of the jobs in the bins after `from_bin` up to `to_bin`."""
        bounds = np.concatenate(([-1.0, 0.0], grid.bounds_s()))  # the upper bounds of bins -1, 0, 1 ...
        falling = -self.delay_s[self.order]
        first, last = (int(np.searchsorted(falling, -bounds[place + 1], side="left")) for place in (to_bin, from_bin))
        return first, last

    def rows(self, grid: Grid, ranks: Longs, total: int) -> Rows:
        """The jobs at these ranks."""
        at = self.order[ranks]
        pairs = [(self.runs[run], row) for run, row in zip(self.run[at].tolist(), self.row[at].tolist(), strict=True)]
        delays = self.delay_s[at]
        return Rows(
            total,
            [run.seed for run, _ in pairs],
            [int(run.job[row]) for run, row in pairs],
            [int(run.tasks[row]) for run, row in pairs],
            [int(not run.is_short[row]) for run, row in pairs],
            grid.bin_of(delays).tolist(),
            [_short(run.submit_s[row]) for run, row in pairs],
            [_short(delay) for delay in delays.tolist()],
        )


def _short(seconds: float) -> float:
    """Seconds to a microsecond and six digits."""
    value = float(seconds)
    return -1.0 if math.isnan(value) else round(float(f"{value:.6g}"), 6)
