"""Value of the end of a job: piecewise linear functions of the time since it was submitted."""

from __future__ import annotations

import itertools
import math
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND, Time


class UtilityCurve(msgspec.Struct, frozen=True):
    """A utility by points; constant before the first, and beyond the last as steep as between the last two.

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
