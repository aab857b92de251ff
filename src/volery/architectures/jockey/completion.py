"""C(progress, allocation): how long a job still takes, from simulated runs of it."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import Final

import msgspec

from volery.core.model import Time

BINS: Final = 100
"""Of progress; what has progressed by 1 is done."""
Samples = Sequence[tuple[float, Time]]
"""(progress, time left) at moments of runs with one allocation."""


class Remaining(msgspec.Struct, frozen=True):
    """The table.

    Args:
        grid: allocations, tokens, increasing.
        left_us: per allocation and bin of progress, the time left that is reckoned with; 0 where all is done.
    """

    grid: tuple[int, ...]
    left_us: tuple[tuple[Time, ...], ...]

    def at(self, progress: float, tokens: float) -> Time:
        """The time left; between allocations by a straight line, beyond the ends as at the ends."""
        column = min(BINS, int(progress * BINS))
        grid = self.grid
        if tokens <= grid[0]:
            return self.left_us[0][column]
        for place, (low, high) in enumerate(itertools.pairwise(grid)):
            if tokens <= high:
                few, many = self.left_us[place][column], self.left_us[place + 1][column]
                return round(few + (many - few) * (tokens - low) / (high - low))
        return self.left_us[-1][column]


def tabulated(grid: Sequence[int], samples: Sequence[Samples], percentile: float) -> Remaining:
    """The table from samples.

    Args:
        grid: allocations, increasing.
        samples: per allocation.
        percentile: of the times left that fall into a bin, by nearest rank; 100: the worst. A bin without any is
            filled by a straight line between its neighbours, the first ones as the first that is not empty.
    """
    return Remaining(tuple(grid), tuple([_row(one, percentile) for one in samples]))


def _row(samples: Samples, percentile: float) -> tuple[Time, ...]:
    found: list[list[Time]] = [[] for _ in range(BINS)]
    for at, left_us in samples:
        if at < 1.0:
            found[int(at * BINS)].append(left_us)
    known = [(column, _ranked(sorted(times), percentile)) for column, times in enumerate(found) if times]
    row = [known[0][1] if known else 0] * BINS
    for (low, before), (high, after) in itertools.pairwise([*known, (BINS, 0)]):
        for column in range(low, high):
            row[column] = round(before + (after - before) * (column - low) / (high - low))
    return (*row, 0)


def _ranked(times: Sequence[Time], percentile: float) -> Time:
    return times[max(0, math.ceil(percentile / 100 * len(times)) - 1)]
