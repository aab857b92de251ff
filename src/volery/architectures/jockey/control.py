"""The control loop: how many tokens a job is to have, period by period."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from volery.architectures.jockey.curves import UtilityCurve
from volery.core.model import Time

Left = Callable[[float], Time]
"""From an allocation to the time that the job still takes with it."""


class Loop(msgspec.Struct, frozen=True):
    """The parameters of the loop.

    Args:
        slack: times left are reckoned so many times as long as the model says.
        alpha: hysteresis, the share of the way to what is wanted that is gone per period; 1: at once.
        dead_us: dead zone: the job is to be done so much before its deadline, and nothing changes while the forecast
            is no further than that from it.
        grid: allocations to choose from, tokens, increasing.
    """

    slack: float
    alpha: float
    dead_us: Time
    grid: tuple[int, ...]

    def utilities(self, curve: UtilityCurve, elapsed_us: Time, left: Left) -> list[float]:
        """Per allocation of the grid, what it is worth: U(elapsed + slack * C + dead zone)."""
        return [curve.at(self.forecast_us(elapsed_us, left(tokens)) + self.dead_us) for tokens in self.grid]

    def forecast_us(self, elapsed_us: Time, left_us: Time) -> Time:
        """The forecast end of the job, since its submission."""
        return elapsed_us + round(self.slack * left_us)

    def wanted(self, utilities: Sequence[float]) -> int:
        """The smallest allocation whose worth is the largest."""
        return self.grid[utilities.index(max(utilities))]

    def adjusted(self, held: float, deadline_us: Time, curve: UtilityCurve, elapsed_us: Time, left: Left) -> float:
        """The next allocation; all that there is where even that is too little.

        Args:
            held: the last one, tokens.
            deadline_us: since the submission, as `elapsed_us`.
            curve: what being done when is worth.
            elapsed_us: since the submission.
            left: of the model.
        """
        target_us = deadline_us - self.dead_us
        if self.forecast_us(elapsed_us, left(self.grid[-1])) > target_us:
            return float(self.grid[-1])
        if abs(self.forecast_us(elapsed_us, left(held)) - target_us) <= self.dead_us:
            return held
        return held + self.alpha * (self.wanted(self.utilities(curve, elapsed_us, left)) - held)
