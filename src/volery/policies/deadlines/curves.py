"""What it is worth when a job is done: piecewise linear functions of the time since it was submitted."""

from __future__ import annotations

import itertools
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND, Time

MINUTE: Final[Time] = 60 * SECOND


class Curve(msgspec.Struct, frozen=True):
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
        """What being done at this time is worth."""
        points = self.points
        if time_us <= points[0][0] or len(points) == 1:
            return points[0][1]
        place = next((k for k in range(1, len(points)) if time_us <= points[k][0]), len(points) - 1)
        (low_us, low), (high_us, high) = points[place - 1], points[place]
        return low + (high - low) * (time_us - low_us) / (high_us - low_us)


def due(deadline_us: Time) -> Curve:
    """The default curve: 1 until the deadline, -1 ten minutes later, -1000 after a thousand.

    Args:
        deadline_us: since the submission.
    """
    return Curve(((deadline_us, 1.0), (deadline_us + 10 * MINUTE, -1.0), (deadline_us + 1000 * MINUTE, -1000.0)))
