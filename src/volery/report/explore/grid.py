"""Bins of delay that every view of a page shares, and the coarser cells of a density."""

from __future__ import annotations

from typing import Final

import msgspec
import numpy as np

from volery.metrics.columns import Floats, Longs

BINS: Final = 1024
"""Above zero; eight decades of delay make bins 1.8 % wide."""
CELLS: Final = 48
"""On each side of a density of pairs, above zero."""
UNMEASURED: Final = 255
"""Stands for the cell of a job without a delay."""


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

    def cells(self, bins: Longs) -> Longs:
        """Row or column of a density per bin; bins side by side, and that of zero in a cell of its own."""
        return np.where(bins > 0, (bins - 1) * CELLS // self.bins + 1, 0)
