"""The same jobs under two architectures: a density of their delays, and the jobs that differ most."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import msgspec
import numpy as np

from volery.metrics.columns import Floats, Longs
from volery.report.explore.delays import Grid, sparse
from volery.report.rows import RunJobs

CELLS: Final = 48
"""On each side of a density."""
OUTLIERS: Final = 20
"""On each side of equality."""


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


def pair(a: int, b: int, runs_a: Sequence[RunJobs], runs_b: Sequence[RunJobs], grid: Grid) -> Pair:
    """Two labels on the jobs that both have measured under the same seeds."""
    of_b = {run.seed: run for run in runs_b}
    parts = [_shared(run, of_b[run.seed]) for run in runs_a if run.seed in of_b]
    if not parts:
        return Pair(a, b, 0, 0, 0, [], [], [], [], [])
    seed, job, delay_a, delay_b = map(np.concatenate, zip(*parts, strict=True))
    cell = cell_of(grid, delay_a) * (CELLS + 1) + cell_of(grid, delay_b)
    factor = np.log(np.maximum(delay_a, grid.low_s)) - np.log(np.maximum(delay_b, grid.low_s))
    order = np.argsort(factor, kind="stable")
    low, high = order[:OUTLIERS], order[::-1][:OUTLIERS]
    ends = np.append(low[factor[low] < 0], high[factor[high] > 0])
    chosen = ends[np.argsort(-np.abs(factor[ends]), kind="stable")]
    return Pair(
        a, b, int(job.size), int((delay_a < delay_b).sum()), int((delay_b < delay_a).sum()),
        sparse(np.bincount(cell)),
        seed[chosen].tolist(), job[chosen].tolist(),
        np.round(delay_a[chosen], 6).tolist(), np.round(delay_b[chosen], 6).tolist(),
    )  # fmt: skip


def cell_of(grid: Grid, delays_s: Floats) -> Longs:
    """Row or column of a density; bins of the grid side by side."""
    fine = grid.bin_of(delays_s)
    return np.where(fine > 0, (fine - 1) * CELLS // grid.bins + 1, 0)


def _shared(a: RunJobs, b: RunJobs) -> tuple[Longs, Longs, Floats, Floats]:
    """Seed, job and both delays of the jobs that two runs have measured."""
    if a.job.size == b.job.size and bool((a.job == b.job).all()):
        rows = np.flatnonzero((a.delay_s >= 0) & (b.delay_s >= 0))
        return np.full(rows.size, a.seed), a.job[rows], a.delay_s[rows], b.delay_s[rows]
    rows_a, rows_b = a.rows_of("all"), b.rows_of("all")
    job, at_a, at_b = np.intersect1d(a.job[rows_a], b.job[rows_b], return_indices=True)
    return np.full(job.size, a.seed), job, a.delay_s[rows_a][at_a], b.delay_s[rows_b][at_b]
