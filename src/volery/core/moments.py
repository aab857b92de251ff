"""A time histogram of a counted fact, in bounded memory."""

from __future__ import annotations

from typing import Final

from volery.core.model import Time

MOMENTS_MAX: Final = 1 << 16
"""So many moments are told apart; beyond them neighbours are put together, two by two."""


class Moments:
    """Amounts by time.

    Attributes:
        width_us: moments are told to so many microseconds: 1 (exact), or a power of two where there are many.
        amounts: moment // width_us -> how much; the sum is exact whatever the width is.
    """

    def __init__(self) -> None:
        self.width_us = 1
        self.amounts: dict[int, int] = {}

    def note(self, now: Time, amount: int) -> None:
        """Add an amount at a time."""
        at = now // self.width_us
        self.amounts[at] = self.amounts.get(at, 0) + amount
        while len(self.amounts) > MOMENTS_MAX:
            self._widen()

    def _widen(self) -> None:
        self.width_us *= 2
        wider: dict[int, int] = {}
        for at, amount in self.amounts.items():
            wider[at // 2] = wider.get(at // 2, 0) + amount
        self.amounts = wider
