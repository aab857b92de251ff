"""Control of allocations: utility curves, the loop that sets the tokens of a job, and their division among jobs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND, Time

Left = Callable[[float], Time]
"""From an allocation to the time that the job still takes with it."""


class UtilityCurve(msgspec.Struct, frozen=True):
    """The value of the end of a job, by points of the time since its submission.

    It is constant before the first point, and beyond the last as steep as between the last two.

    Args:
        points: (time since the submission in microseconds, utility), times increasing.

    Raises:
        InputError: there is no point, or times do not increase.
    """

    points: tuple[tuple[Time, float], ...]

    def __post_init__(self) -> None:
        """Refuse what is no function of time."""
        if not self.points:
            raise InputError("utility", "has no point; give at least one, as (deadline, 1)")
        for (before, _), (after, _) in itertools.pairwise(self.points):
            if after <= before:
                raise InputError("utility", f"the point at {after} us follows that at {before} us; times increase")

    def at(self, time_us: Time) -> float:
        """The value of an end at this time."""
        points = self.points
        if time_us <= points[0][0] or len(points) == 1:
            return points[0][1]
        place = next((k for k in range(1, len(points)) if time_us <= points[k][0]), len(points) - 1)
        (low_us, low), (high_us, high) = points[place - 1], points[place]
        return low + (high - low) * (time_us - low_us) / (high_us - low_us)


DEFAULT: Final = "0:1+600:-1+60000:-1000"
"""The curve of the paper, as recalled: 1 until the deadline, -1 ten minutes later, -1000 after a thousand minutes."""


def parsed(text: str, place: str) -> UtilityCurve:
    """A curve about a deadline, from `SECONDS:UTILITY+...`, where seconds count from the deadline.

    Args:
        text: as `DEFAULT`.
        place: what errors name.

    Raises:
        InputError: it is not of that form, or times do not increase.
    """
    points: list[tuple[Time, float]] = []
    for part in text.split("+"):
        at, colon, utility = part.partition(":")
        try:
            points.append((round(float(at) * SECOND), float(utility)))
        except (ValueError, OverflowError):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}") from None
        if not (colon and math.isfinite(points[-1][1])):
            raise InputError(place, f"{part!r} in {text!r} is not SECONDS:UTILITY, as {DEFAULT}")
    return UtilityCurve(tuple(points))


def due(deadline_us: Time, about: UtilityCurve) -> UtilityCurve:
    """The curve of a job.

    Args:
        deadline_us: since the submission.
        about: a curve whose times count from the deadline.
    """
    return UtilityCurve(tuple([(deadline_us + at, utility) for at, utility in about.points]))


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


class TokenClaim(msgspec.Struct, frozen=True):
    """The request of a job.

    Args:
        steps: allocations that it may be given, tokens, increasing, from 0 to what it asks for.
        utilities: what each is worth.
    """

    steps: tuple[int, ...]
    utilities: tuple[float, ...]

    def best_from(self, place: int, tokens: int) -> tuple[float, int]:
        """(utility per token, place) of the step up that pays best, at most so many tokens up; the place itself: none.

        Utilities need not be concave, so that steps further up are looked at too.
        """
        best, chosen = 0.0, place
        for further in range(place + 1, len(self.steps)):
            more = self.steps[further] - self.steps[place]
            gain = (self.utilities[further] - self.utilities[place]) / more
            if more <= tokens and gain > best:
                best, chosen = gain, further
        return best, chosen


def arbitrated(claims: Sequence[TokenClaim], tokens: int) -> list[int]:
    """Per claim what it is given: what it asks for where all fit, else by marginal utility; ties go to the first."""
    if sum([claim.steps[-1] for claim in claims]) <= tokens:
        return [claim.steps[-1] for claim in claims]
    at, left = [0] * len(claims), tokens
    while True:
        offers = [claim.best_from(place, left) for claim, place in zip(claims, at, strict=True)]
        best = max(range(len(claims)), key=lambda number: (offers[number][0], -number), default=-1)
        if best < 0 or not offers[best][0]:
            return [claim.steps[place] for claim, place in zip(claims, at, strict=True)]
        left -= claims[best].steps[offers[best][1]] - claims[best].steps[at[best]]
        at[best] = offers[best][1]
