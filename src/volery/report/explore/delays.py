"""Delays of jobs as a page holds them: ranks, counts on a grid, exact percentiles, some of the jobs, and pairs.

Ranks are worked out once. A grid has a place for each pixel of a wide screen, so that a curve drawn from the counts
looks like one drawn from all jobs; the counts are exact at the bounds of its bins, to which a reader's choice snaps. A
pair is a density of the delays of the same jobs under two architectures, and the jobs that differ most.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from volery.metrics import Distribution, distribution
from volery.metrics.arrays import Floats, Longs
from volery.report.groups import CLASSES, JobClass
from volery.report.parquet import RunJobs

Places = npt.NDArray[np.uint32] | npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]
SMALL: Final = 1 << 32
"""The number of places that four bytes tell apart."""
BINS: Final = 1024
"""Above zero; eight decades of delay make bins 1.8 % wide."""
CELLS: Final = 48
"""The number of cells on each side of a density of pairs, above zero."""
UNMEASURED: Final = 255
"""Stands for the cell of a job without a delay."""


class RankedJobs(msgspec.Struct, frozen=True, eq=False):
    """The measured jobs of a label, all seeds together.

    Args:
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
        """The delay of the job at a rank, seconds."""
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
        """The delays of a class of jobs, by run and row."""
        return np.concatenate([np.zeros(0), *(run.delay_s[run.rows_of(jobs)] for run in self.runs)])

    def cells_of(self, run: RunJobs) -> Bytes:
        """The cells of the rows of one of the runs."""
        begin = sum(
            earlier_run.delay_s.size
            for earlier_run in itertools.takewhile(lambda earlier_run: earlier_run is not run, self.runs)
        )
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

    # At least a decade: equal delays have a grid, too.
    grid = DelayGrid(low, max(high, 10 * low)) if high > 0 else DelayGrid(1.0, 10.0)
    return grid, [_ranked(*label_parts, grid) for label_parts in zip(labels, orders, sorted_s, strict=True)]


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
        bins = np.searchsorted(self.bounds_s(), delays_s, side="left") + 1
        return np.where(delays_s > 0, np.minimum(bins, self.bins), 0)

    def cells(self, bins: Longs) -> Longs:
        """Row or column of a density per bin; bins side by side, and that of zero in a cell of its own."""
        return np.where(bins > 0, (bins - 1) * CELLS // self.bins + 1, 0)


LONGEST_SHARE: Final = 2
"""One of so many jobs that a page keeps of a label are its most delayed; the others are spread over all ranks."""


class DelayCounts(msgspec.Struct, frozen=True):
    """The delays of one class of jobs under one label, all seeds together.

    Args:
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
        seed, job, tasks, is_long, bin: columns of facts; `is_long` is 0 or 1, `bin` is the bin of the delay.
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


def kept_rows(ranked_jobs: RankedJobs, grid: DelayGrid, rows_max: int) -> Rows:
    """The most delayed jobs of a label and some of all the others, at most so many, evenly over the ranks."""
    total = ranked_jobs.total()
    ranks = np.arange(total)

    if total > rows_max:
        longest = rows_max // LONGEST_SHARE
        # Integer steps over the rest: every rank has the same chance, and the same folder gives the same page.
        spread = longest + np.arange(rows_max - longest) * (total - longest) // (rows_max - longest)
        ranks = np.append(ranks[:longest], spread)
    return rows_at(ranked_jobs, grid, ranks.tolist())


def rows_at(ranked_jobs: RankedJobs, grid: DelayGrid, ranks: Iterable[int], jobs: JobClass = "all") -> Rows:
    jobs_at = [ranked_jobs.job(rank, jobs) for rank in ranks]

    delays = np.array([run.delay_s[row] for run, row in jobs_at])
    return Rows(
        ranked_jobs.total(jobs),
        [run.seed for run, _ in jobs_at],
        [int(run.job[row]) for run, row in jobs_at],
        [int(run.tasks[row]) for run, row in jobs_at],
        [int(not run.is_short[row]) for run, row in jobs_at],
        grid.bin_of(delays).tolist(),
        [_short(run.submit_s[row]) for run, row in jobs_at],
        [_short(delay) for delay in delays.tolist()],
    )


def _short(seconds: float) -> float:
    """Seconds to a microsecond and six digits."""
    value = float(seconds)
    return -1.0 if math.isnan(value) else round(float(f"{value:.6g}"), 6)


OUTLIERS: Final = 20
"""The number of outliers on each side of equality."""
CHUNK: Final = 1 << 17
"""Jobs that are compared at once: what is worked out of them stays in a processor's cache."""


class Pair(msgspec.Struct, frozen=True):
    """Delays of the jobs that both have, all seeds together.

    Args:
        a, b: numbers of the labels; a is on the horizontal axis.
        jobs: number of jobs that both have measured.
        a_lower, b_lower: number of jobs that are delayed less under a, under b.
        cells: sparse counts of cell column * (CELLS + 1) + row; column and row 0 hold delays of zero.
        seed, job, a_s, b_s: the jobs whose delays differ by the largest factor, columns.
    """

    a: int
    b: int
    jobs: int
    a_lower: int
    b_lower: int
    cells: list[int]
    seed: list[int]
    job: list[int]
    a_s: list[float]
    b_s: list[float]


class Shared(NamedTuple):
    """Jobs that two runs of one seed have both measured."""

    seed: int
    job: Longs
    a_s: Floats
    b_s: Floats
    cell_a: Bytes
    cell_b: Bytes


def pair(a: int, b: int, of_a: RankedJobs, of_b: RankedJobs, grid: DelayGrid) -> Pair:
    """Two labels on the jobs that both have measured under the same seeds."""
    counts = np.zeros((CELLS + 1) ** 2, dtype=np.int64)
    jobs = a_lower = b_lower = 0
    faster_a, slower_a = Furthest(), Furthest()

    for shared_jobs in _shared(of_a, of_b):
        counts += np.bincount(
            shared_jobs.cell_a.astype(np.int64) * (CELLS + 1) + shared_jobs.cell_b, minlength=counts.size
        )
        jobs += shared_jobs.job.size
        a_lower += int((shared_jobs.a_s < shared_jobs.b_s).sum())
        b_lower += int((shared_jobs.b_s < shared_jobs.a_s).sum())
        # Delays of zero and below count as the least delay of the grid, so that their ratio is finite.
        factor = np.maximum(shared_jobs.a_s, grid.low_s) / np.maximum(shared_jobs.b_s, grid.low_s)
        slower_a.look(factor, shared_jobs)
        faster_a.look(1 / factor, shared_jobs)

    outliers = sorted(faster_a.outliers + slower_a.outliers, key=lambda outlier: -outlier[0])
    return Pair(
        a,
        b,
        jobs,
        a_lower,
        b_lower,
        sparse(counts),
        [outlier[1] for outlier in outliers],
        [outlier[2] for outlier in outliers],
        [round(outlier[3], 6) for outlier in outliers],
        [round(outlier[4], 6) for outlier in outliers],
    )


class Furthest:
    """The jobs with the largest factors above one; of equal ones those that came first."""

    def __init__(self) -> None:
        self.outliers: list[tuple[float, int, int, float, float]] = []
        """Factor, seed, job, delays under a and b; the largest factor first."""
        self._least_factor = 1.0

    def look(self, factor: Floats, jobs: Shared) -> None:
        """Look through some more."""
        at = np.flatnonzero(factor > self._least_factor)
        if at.size > OUTLIERS:
            at = at[np.argsort(-factor[at], kind="stable")[:OUTLIERS]]
        self.outliers += [
            (float(factor[k]), jobs.seed, int(jobs.job[k]), float(jobs.a_s[k]), float(jobs.b_s[k])) for k in at.tolist()
        ]
        self.outliers.sort(key=lambda outlier: -outlier[0])
        del self.outliers[OUTLIERS:]

        if len(self.outliers) == OUTLIERS:
            self._least_factor = self.outliers[-1][0]


def _shared(of_a: RankedJobs, of_b: RankedJobs) -> Iterator[Shared]:
    """The jobs of both, some at a time."""
    runs_b = {run.seed: run for run in of_b.runs}
    for a in of_a.runs:
        b = runs_b.get(a.seed)

        if b is None:
            continue

        cells_a = of_a.cells_of(a)
        cells_b = of_b.cells_of(b)
        # The same jobs in the same order, the usual case: no rows have to be matched.
        if a.job.size == b.job.size and bool((a.job == b.job).all()):
            for low in range(0, a.job.size, CHUNK):
                part = slice(low, low + CHUNK)
                yield _both(a, b, part, part, cells_a, cells_b)
        else:
            _, rows_a, rows_b = np.intersect1d(a.job, b.job, return_indices=True)
            yield _both(a, b, rows_a, rows_b, cells_a, cells_b)


def _both(a: RunJobs, b: RunJobs, rows_a: slice | Longs, rows_b: slice | Longs, of_a: Bytes, of_b: Bytes) -> Shared:
    cell_a = of_a[rows_a]
    cell_b = of_b[rows_b]
    shared = Shared(a.seed, a.job[rows_a], a.delay_s[rows_a], b.delay_s[rows_b], cell_a, cell_b)

    is_measured = (cell_a != UNMEASURED) & (cell_b != UNMEASURED)
    return shared if is_measured.all() else Shared(a.seed, *(column[is_measured] for column in shared[1:]))
