"""The jobs of a label in the order of their delay, and the bins of delay that every view of a page shares.

Ranks are worked out once. A place counts the rows of the runs of a label, one run after the other.
"""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np
import numpy.typing as npt

from volery.metrics.columns import Floats, Longs
from volery.report.groups import CLASSES, JobClass
from volery.report.parquet import RunJobs

Places = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
SMALL: Final = 1 << 32
"""As many places are told apart by four bytes."""
BINS: Final = 1024
"""Above zero; eight decades of delay make bins 1.8 % wide."""
CELLS: Final = 48
"""On each side of a density of pairs, above zero."""
UNMEASURED: Final = 255
"""Stands for the cell of a job without a delay."""


class RankedJobs(msgspec.Struct, frozen=True, eq=False):
    """The measured jobs of a label, all seeds together.

    Args:
        runs: of the label, by seed.
        order: places by falling delay, then run and row, per class of jobs.
        below: jobs up to the upper bound of each bin of the grid, from bin 0, per class of jobs.
        cells: per place the row (or column) of a density of pairs, or `UNMEASURED`.
    """

    runs: Sequence[RunJobs]
    order: Mapping[JobClass, Places]
    below: Mapping[JobClass, Longs]
    cells: Bytes

    def total(self, jobs: JobClass = "all") -> int:
        """The number of measured jobs of a class."""
        return int(self.order[jobs].size)

    def within(self, from_bin: int, to_bin: int, jobs: JobClass = "all") -> tuple[int, int]:
        """Ranks [first, last) of the jobs in the bins after `from_bin` up to `to_bin`; from -1."""
        below, total = self.below[jobs], self.total(jobs)
        first, last = (total - (int(below[place]) if place >= 0 else 0) for place in (to_bin, from_bin))
        return first, last

    def delay_s(self, rank: int, jobs: JobClass = "all") -> float:
        """Of the job at a rank, seconds."""
        run, row = self.job(rank, jobs)
        return float(run.delay_s[row])

    def job(self, rank: int, jobs: JobClass = "all") -> tuple[RunJobs, int]:
        """The run and row of the job at a rank."""
        place = int(self.order[jobs][rank])
        for run in self.runs:
            if place < run.delay_s.size:
                return run, place
            place -= run.delay_s.size
        raise IndexError(rank)

    def delays_s(self, jobs: JobClass = "all") -> Floats:
        """Of a class of jobs, by run and row."""
        return np.concatenate([np.zeros(0), *(run.delay_s[run.rows_of(jobs)] for run in self.runs)])

    def cells_of(self, run: RunJobs) -> Bytes:
        """The cells of the rows of one of the runs."""
        begin = sum(one.delay_s.size for one in itertools.takewhile(lambda one: one is not run, self.runs))
        return self.cells[begin : begin + run.delay_s.size]


def rank(labels: Sequence[Sequence[RunJobs]]) -> tuple[DelayGrid, list[RankedJobs]]:
    """One grid for the runs of all labels, so that a choice means the same for each; and their jobs by rank."""
    orders = [_orders(runs) for runs in labels]
    low, high = np.inf, 0.0
    sorted_s = []
    for runs, order in zip(labels, orders, strict=True):
        rising = _delays(runs)[order["all"]][::-1]
        sorted_s.append(rising)
        above = int(np.searchsorted(rising, 0.0, side="right"))
        if above < rising.size:
            low, high = min(low, float(rising[above])), max(high, float(rising[-1]))
    grid = DelayGrid(low, max(high, 10 * low)) if high > 0 else DelayGrid(1.0, 10.0)
    return grid, [_ranked(*one, grid) for one in zip(labels, orders, sorted_s, strict=True)]


def _delays(runs: Sequence[RunJobs]) -> Floats:
    return np.concatenate([np.zeros(0), *(run.delay_s for run in runs)])


def _orders(runs: Sequence[RunJobs]) -> dict[JobClass, Places]:
    delays = _delays(runs)
    kind: Any = np.uint32 if delays.size < SMALL else np.int64
    measured = np.flatnonzero(~np.isnan(delays))
    order = measured[np.argsort(-delays[measured], kind="stable")].astype(kind)
    short = np.concatenate([np.zeros(0, dtype=np.bool_), *(run.is_short for run in runs)])[order]
    return {"all": order, "short": order[short], "long": order[~short]}


def _ranked(runs: Sequence[RunJobs], order: dict[JobClass, Places], rising: Floats, grid: DelayGrid) -> RankedJobs:
    bounds = np.append(0.0, grid.bounds_s())
    below: dict[JobClass, Longs] = {"all": np.searchsorted(rising, bounds, side="right")}
    delays = _delays(runs)
    for jobs in CLASSES[1:]:
        below[jobs] = np.searchsorted(delays[order[jobs]][::-1], bounds, side="right")
    cells = np.full(delays.size, UNMEASURED, dtype=np.uint8)
    of_bin = grid.cells(np.arange(grid.bins + 1)).astype(np.uint8)
    cells[order["all"][::-1]] = np.repeat(of_bin, np.diff(below["all"], prepend=0))
    return RankedJobs(runs, order, below, cells)


class DelayGrid(msgspec.Struct, frozen=True):
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

    def cells(self, bins: Longs) -> Longs:
        """Row or column of a density per bin; bins side by side, and that of zero in a cell of its own."""
        return np.where(bins > 0, (bins - 1) * CELLS // self.bins + 1, 0)
