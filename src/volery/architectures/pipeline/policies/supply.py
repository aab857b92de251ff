"""What stages R6 and R7 are told of machines that come and go, whenever whoever manages the machines asks them.

Units are processors; slots where machines offer nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from volery.core.model import Time


class Offer(NamedTuple):
    """A machine that may be provisioned, or one that runs nothing and may be released.

    Args:
        machine: its number among those that are managed.
        units: that it has.
        price: for an hour.
        speed: in the cluster's unit; 1 where it gives none.
        paid_until_us: when its paid time ends; of one that is off: now.
    """

    machine: int
    units: int
    price: float
    speed: int
    paid_until_us: Time


class Supply(msgspec.Struct, frozen=True):
    """What there is, and what is asked for.

    Args:
        on: units of machines that are on.
        coming: when the units of each machine that boots will be on: (time, units).
        whole: units of all machines that can be had.
        held: units that tasks hold which run.
        asked: units that tasks ask for which wait and could start.
        every_us: time between two decisions.
        boot_us: from being provisioned to being on.
        changed_us: when machines were last provisioned or released because of stage R7; -1: never.
        peaks: for each hour since the run began, the most that was held and asked for at any decision, 0 where there
            was none; the last hour is the one that lasts.
    """

    on: int
    coming: tuple[tuple[Time, int], ...]
    whole: int
    held: int
    asked: int
    every_us: Time
    boot_us: Time
    changed_us: Time = -1
    peaks: Sequence[int] = ()

    @property
    def units(self) -> int:
        """Of machines that are on or boot."""
        return self.on + sum([units for _, units in self.coming])

    @property
    def demand(self) -> int:
        """Units held and asked for."""
        return self.held + self.asked
