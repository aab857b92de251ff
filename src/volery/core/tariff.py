"""Costs of machines that are provisioned and released while a run lasts (stages R6 and R7)."""

from __future__ import annotations

from typing import Final

import msgspec

from volery.core.model import SECOND, Time

HOUR: Final[Time] = 3600 * SECOND


class Billing(msgspec.Struct, frozen=True):
    """Machines that come and go, and their prices.

    Args:
        machines: their numbers; each is off until a component reports that it is on (`Switched`).
        interval_us: a machine is paid for by whole intervals from the beginning of its boot; 0: to the microsecond.
        machine_price: of a machine for an hour, in any currency.
        unit_price: for an hour of each unit of the resource that counts processors, or of each slot.
        factors: of both prices in successive hours of the run, then from the first again; nothing: constant prices.
    """

    machines: frozenset[int]
    interval_us: Time = 0
    machine_price: float = 0.0
    unit_price: float = 1.0
    factors: tuple[float, ...] = ()

    def paid_us(self, span_us: Time) -> Time:
        """The time that is paid for a machine that was provisioned for a span: every interval that has begun."""
        return -(-span_us // self.interval_us) * self.interval_us if self.interval_us else span_us

    def paid_until_us(self, since_us: Time, now: Time) -> Time:
        """The end of the paid interval of a machine that was provisioned since then."""
        if not self.interval_us:
            return now
        return since_us + ((now - since_us) // self.interval_us + 1) * self.interval_us

    def factor(self, now: Time) -> float:
        """The factor of the prices at a moment."""
        return self.factors[now // HOUR % len(self.factors)] if self.factors else 1.0

    def weighed_h(self, since_us: Time, span_us: Time) -> float:
        """The hours that are paid for a machine that was provisioned for a span, times the factors of their moments."""
        paid_us = self.paid_us(span_us)
        if not self.factors:
            return paid_us / HOUR
        at_us, until_us, found = since_us, since_us + paid_us, 0.0
        while at_us < until_us:
            next_us = min(until_us, (at_us // HOUR + 1) * HOUR)
            found += (next_us - at_us) / HOUR * self.factor(at_us)
            at_us = next_us
        return found

    def price(self, units: int) -> float:
        """The price of a machine with so many units for an hour."""
        return self.machine_price + self.unit_price * units
