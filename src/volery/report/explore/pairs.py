"""The same jobs under two architectures: a density of their delays, and the jobs that differ most."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import msgspec
import numpy as np

from volery.metrics.columns import Floats, Longs
from volery.report.explore.delays import sparse
from volery.report.explore.ranked import CELLS, UNMEASURED, Bytes, DelayGrid, RankedJobs
from volery.report.parquet import RunJobs

OUTLIERS: Final = 20
"""On each side of equality."""
CHUNK: Final = 1 << 17
"""Jobs that are compared at once: what is worked out of them stays in a processor's cache."""


class Pair(msgspec.Struct, frozen=True):
    """Delays of the jobs that both have, all seeds together.

    Args:
        a, b: numbers of the labels; a is on the horizontal axis.
        jobs: how many both have measured.
        a_lower, b_lower: how many are delayed less under a, under b.
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
    less, more = Furthest(), Furthest()
    for one in _shared(of_a, of_b):
        counts += np.bincount(one.cell_a.astype(np.int64) * (CELLS + 1) + one.cell_b, minlength=counts.size)
        jobs += one.job.size
        a_lower += int((one.a_s < one.b_s).sum())
        b_lower += int((one.b_s < one.a_s).sum())
        factor = np.maximum(one.a_s, grid.low_s) / np.maximum(one.b_s, grid.low_s)
        more.look(factor, one)
        less.look(1 / factor, one)
    chosen = sorted(less.found + more.found, key=lambda one: -one[0])
    return Pair(
        a, b, jobs, a_lower, b_lower, sparse(counts),
        [one[1] for one in chosen], [one[2] for one in chosen],
        [round(one[3], 6) for one in chosen], [round(one[4], 6) for one in chosen],
    )  # fmt: skip


class Furthest:
    """The jobs with the largest factors above one; of equal ones those that came first."""

    def __init__(self) -> None:
        self.found: list[tuple[float, int, int, float, float]] = []
        """Factor, seed, job, delays under a and b; the largest factor first."""
        self._least = 1.0

    def look(self, factor: Floats, jobs: Shared) -> None:
        """Look through some more."""
        at = np.flatnonzero(factor > self._least)
        if at.size > OUTLIERS:
            at = at[np.argsort(-factor[at], kind="stable")[:OUTLIERS]]
        self.found += [
            (float(factor[k]), jobs.seed, int(jobs.job[k]), float(jobs.a_s[k]), float(jobs.b_s[k])) for k in at.tolist()
        ]
        self.found.sort(key=lambda one: -one[0])
        del self.found[OUTLIERS:]
        if len(self.found) == OUTLIERS:
            self._least = self.found[-1][0]


def _shared(of_a: RankedJobs, of_b: RankedJobs) -> Iterator[Shared]:
    """The jobs of both, some at a time."""
    runs_b = {run.seed: run for run in of_b.runs}
    for a in of_a.runs:
        b = runs_b.get(a.seed)
        if b is None:
            continue
        cells_a, cells_b = of_a.cells_of(a), of_b.cells_of(b)
        if a.job.size == b.job.size and bool((a.job == b.job).all()):
            for low in range(0, a.job.size, CHUNK):
                part = slice(low, low + CHUNK)
                yield _both(a, b, part, part, cells_a, cells_b)
        else:
            _, rows_a, rows_b = np.intersect1d(a.job, b.job, return_indices=True)
            yield _both(a, b, rows_a, rows_b, cells_a, cells_b)


def _both(a: RunJobs, b: RunJobs, rows_a: slice | Longs, rows_b: slice | Longs, of_a: Bytes, of_b: Bytes) -> Shared:
    cell_a, cell_b = of_a[rows_a], of_b[rows_b]
    found = Shared(a.seed, a.job[rows_a], a.delay_s[rows_a], b.delay_s[rows_b], cell_a, cell_b)
    both = (cell_a != UNMEASURED) & (cell_b != UNMEASURED)
    return found if both.all() else Shared(a.seed, *(column[both] for column in found[1:]))
