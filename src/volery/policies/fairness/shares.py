"""Resource vectors and exact shares.

A vector counts integer units per resource (milli-CPU, MB, GPUs); a slot is the one resource of a cluster whose tasks
take one unit each. Shares are kept as whole numbers of 2^-128, rounded down: two weighted shares whose capacity times
weight stays below 2^64 then compare as the rationals do, ties included, at the price of one division.
"""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from operator import le
from typing import Final

Resources = tuple[int, ...]

SHARE_BITS: Final = 128
WHOLE: Final = 1 << SHARE_BITS
"""The share of one who holds all of a resource."""


def plus(one: Resources, other: Resources) -> Resources:
    """The sum, resource by resource."""
    return tuple([a + b for a, b in zip(one, other, strict=True)])


def minus(one: Resources, other: Resources) -> Resources:
    """The difference, resource by resource."""
    return tuple([a - b for a, b in zip(one, other, strict=True)])


def fits(demand: Resources, free: Resources) -> bool:
    """True if there is enough of everything."""
    return all(map(le, demand, free))


def dominant_share(used: Resources, capacity: Resources) -> Fraction:
    """The largest of the shares of each resource (Ghodsi et al., NSDI 2011, section 4)."""
    return max(Fraction(units, whole) for units, whole in zip(used, capacity, strict=True))


def share_key(used: Resources, capacity: Resources, weight: int = 1) -> int:
    """The dominant share over the weight, in units of 2^-128, to compare by."""
    return max([(units << SHARE_BITS) // (whole * weight) for units, whole in zip(used, capacity, strict=True)])


def checked_capacity(capacity: Sequence[int]) -> Resources:
    """The capacity as a vector.

    Raises:
        ValueError: when there is no resource, or none of one.
    """
    if not capacity or min(capacity) < 1:
        raise ValueError(f"a share needs a positive capacity of every resource, not {tuple(capacity)}")
    return tuple(capacity)


def checked_demand(demand: Resources, capacity: Resources) -> Resources:
    """A demand, which has as many resources as the capacity.

    Raises:
        ValueError: otherwise.
    """
    if len(demand) != len(capacity) or min(demand) < 0:
        raise ValueError(f"{demand} is no demand on {len(capacity)} resources: give each of them, >= 0")
    return demand
