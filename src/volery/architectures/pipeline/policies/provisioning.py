"""Policies of stage R6: which machines are provisioned, and which of those that run nothing are released."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec

from volery.architectures.pipeline.policies.policy import Policy
from volery.architectures.pipeline.policies.supply import Offer, Supply
from volery.architectures.pipeline.policies.view import View


class InOrder(Policy, frozen=True):
    """The first in the order of machines; released are the last."""

    release_at: Annotated[
        Literal["interval", "once"],
        msgspec.Meta(description="interval: a machine stays until the time that it is paid for is about to end"),
    ] = "interval"

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """The smallest is provisioned first, and released last."""
        return (offer.machine,)

    def provision(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> list[int]:
        """Machine after machine, until together they have the units."""
        found: list[int] = []
        for offer in sorted(offers, key=self.rank):
            if units <= 0:
                break
            found.append(offer.machine)
            units -= offer.units
        return found

    def release(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> list[int]:
        """Machine after machine, of those that have no more than what is left of the units."""
        soon, found = view.now + supply.every_us, list[int]()
        for offer in sorted(offers, key=self.rank, reverse=True):
            if offer.units <= units and (self.release_at == "once" or offer.paid_until_us <= soon):
                found.append(offer.machine)
                units -= offer.units
        return found


class Cheapest(InOrder, frozen=True):
    """The one that costs the least for what it computes: price over processors times speed."""

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """By price per unit and speed, then in order."""
        return (offer.price / (max(offer.units, 1) * offer.speed), offer.machine)


class Biggest(InOrder, frozen=True):
    """The one with the most processors, so that few machines have to boot."""

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """By units, then in order."""
        return (-offer.units, offer.machine)
