"""The tolerance of a published number: one rule for the whole ledger.

A number is reproduced within 20 % of it, or within half a unit of its last printed digit, whichever is larger. The
precision is read from the number as the source prints it. The unit may differ from the one that is measured in: 25 %
may be tested as 0.25, and 8.5 minutes as 510 s. Where the source prints a change in percent ("15 % shorter"), the
tested factor is 1 - 0.15 or 1 + 0.15, and the 20 % are of the change.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from volery.core.errors import InputError

SHARE: Final = 0.2
"""Of the published number."""
AGREEMENT: Final = 1e-3
"""Relative distance up to which the tested number is the printed one in another unit."""
_NUMBER: Final = re.compile(r"(?P<digits>[+-]?\d[\d,]*(?:\.(?P<decimals>\d+))?)(?:e(?P<power>[+-]?\d+))?\Z")
_POWER_OF_TEN: Final = re.compile(r"10\^(-?\d+)\Z")
_UNITS: Final = (1.0, 60.0, 3600.0, 86400.0, *(10.0**power for power in range(-9, 10) if power))


class Printed(msgspec.Struct, frozen=True):
    """A number as a source prints it.

    Args:
        value: the number.
        half_unit: half a unit of its last printed digit.
    """

    value: float
    half_unit: float

    @property
    def room(self) -> float:
        """How far a measured number may lie from the printed one, in the printed unit."""
        return max(SHARE * abs(self.value), self.half_unit)


class Tolerance(msgspec.Struct, frozen=True):
    """The distance that is allowed: `share` of the target, and `margin` in the metric's own unit."""

    share: float
    margin: float = 0.0


def read_printed(text: str, place: str) -> Printed:
    """Read a printed number, as "1.003", "12,000", "2.3e5" or "10^6".

    Raises:
        InputError: at `place`, when the text is no number.
    """
    power_of_ten = _POWER_OF_TEN.match(text)
    found = _NUMBER.match(f"1e{power_of_ten.group(1)}" if power_of_ten else text)
    if found is None:
        raise InputError(
            place, f"{text!r} is no number; give it as the source prints it, without its unit: 1.003, 12,000 or 2.3e5"
        )
    power = int(found["power"] or 0)
    value = float(f"{found['digits'].replace(',', '')}e{power}")
    return Printed(value, 0.5 * 10.0 ** (power - len(found["decimals"] or "")))


def tolerance_of(printed: Printed, goal: float, place: str, *, is_share: bool = False) -> Tolerance:
    """Work out the tolerance of a tested number from the printed one.

    Args:
        printed: what the source prints.
        goal: what is tested: factor x right where the right side is a number, else the factor.
        place: of `printed` in the file.
        is_share: true for a fraction, which a source prints in percent.

    Raises:
        InputError: at `place`, when the tested number is not the printed one in any unit.
    """
    if not printed.value and not goal:
        return Tolerance(0.0, printed.half_unit * (0.01 if is_share else 1.0))
    for change in _changes(printed.value):
        if _agree(goal, change):
            return Tolerance(printed.room / 100 / abs(change))
    if any(_agree(goal, printed.value * unit) for unit in _UNITS) and printed.value:
        return Tolerance(printed.room / abs(printed.value))
    raise InputError(
        place, f"{printed.value:g} is printed and {goal:g} is tested; make factor x right the printed number"
    )


def _changes(percent: float) -> Iterator[float]:
    """The factors of a change in percent; none of them is zero."""
    for factor in (1 - percent / 100, 1 + percent / 100):
        if factor and percent:
            yield factor


def _agree(a: float, b: float) -> bool:
    return math.isclose(a, b, rel_tol=AGREEMENT)
