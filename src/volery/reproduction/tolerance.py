"""The tolerance of a published number: one rule for the whole ledger.

A number is reproduced within 20 % of it, or within half a unit of its last printed digit, whichever is larger. The
precision is read from the number as the source prints it. The unit may differ from the one that is measured in: 25 %
may be tested as 0.25, and 8.5 minutes as 510 s.

A factor between two measured quantities claims a change. Of a factor of 1.03 the 20 % are of the change of 0.03: 20 %
of the factor would reproduce the opposite order too. A factor below a half is closer to zero than to one, and the 20 %
are of the factor, so that they reach neither. Where the source prints a change in percent ("15 % shorter"), the tested
factor is 1 - 0.15 or 1 + 0.15, and the 20 % are of the printed percent.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.reproduction.claims import Claim, Side

SHARE: Final = 0.2
"""Of the published number, or of the change that a published factor claims."""
AGREEMENT: Final = 2e-3
"""Relative distance up to which the tested number may be the printed one: 1/3 is printed as 0.333."""
_NUMBER: Final = re.compile(r"(?P<digits>[+-]?\d[\d,]*(?:\.(?P<decimals>\d+))?)(?:e(?P<power>[+-]?\d+))?\Z")
_POWER_OF_TEN: Final = re.compile(r"10\^(-?\d+)\Z")
_UNITS: Final = (1.0, 60.0, 3600.0, 86400.0, *(10.0**power for power in (-9, -6, -3, 3, 6, 9)))
"""Minutes, hours, days, milli to nano, thousands to billions. No other power of ten is the size of a unit: 10^6 that is
tested as 10^5 is an error."""
_PERCENT: Final = 0.01
"""The further unit of fractions and of factors."""


class Printed(msgspec.Struct, frozen=True):
    """A number as a source prints it.

    Args:
        value: the number.
        half_unit: half a unit of its last printed digit.
    """

    value: float
    half_unit: float

    def room(self, claimed: float) -> float:
        """The distance that is allowed in the printed unit, where the source claims a size of `claimed`."""
        return max(SHARE * abs(claimed), self.half_unit)


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


def tolerance_of(
    printed: Printed, goal: float, place: str, *, is_share: bool = False, is_factor: bool = False
) -> Tolerance:
    """Work out the tolerance of a tested number from the printed one.

    Args:
        printed: what the source prints.
        goal: the tested number, `Claim.goal`.
        place: of `printed` in the file.
        is_share: true for a fraction, which a source prints in percent.
        is_factor: true where the right side is measured, so that the tested number is a factor.

    Raises:
        InputError: at `place`, when the tested number is not the printed one in any unit.
    """
    if not printed.value and not goal:
        return Tolerance(0.0, printed.half_unit * (0.01 if is_share else 1.0))
    for change in _changes(printed.value):
        if _agree(goal, change, printed.half_unit / 100):
            return Tolerance(printed.room(printed.value) / 100 / abs(change))
    for unit in (*_UNITS, *([_PERCENT] if is_share or is_factor else [])):
        if printed.value and _agree(goal, printed.value * unit, printed.half_unit * unit):
            value = abs(printed.value)
            change = min(value, abs(value - 1 / unit)) if is_factor else value
            return Tolerance(printed.room(change) / value)
    raise InputError(
        place, f"{printed.value:g} is printed and {goal:g} is tested; make factor x right the printed number"
    )


def tolerance_of_claim(claim: Claim, place: str) -> Tolerance:
    """Work out the tolerance of a claim with relation "about".

    Raises:
        InputError: at `place`, as `read_printed` and `tolerance_of` do.
    """
    printed, is_factor = read_printed(claim.printed, place), isinstance(claim.right, Side)
    return tolerance_of(printed, claim.goal, place, is_share=claim.is_share, is_factor=is_factor)


def _changes(percent: float) -> Iterator[float]:
    """The factors of a change in percent; none of them is zero."""
    for factor in (1 - percent / 100, 1 + percent / 100):
        if factor and percent:
            yield factor


def _agree(goal: float, printed: float, half_unit: float) -> bool:
    """Return true if a tested number is the printed one, within its last digit and within AGREEMENT."""
    room = min(AGREEMENT * abs(printed), half_unit)
    return math.isclose(goal, printed, abs_tol=room)
