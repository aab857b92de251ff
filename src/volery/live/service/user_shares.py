"""Shares of a live federation: the part that each user is due, its changes, and the preemptions for it.

An order of an administrator is stored first, then sent to the components that place tasks, by the same message as in
the lab, and sent again from time to time: they may have restarted.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
from collections.abc import Callable, Collection, Mapping
from fractions import Fraction
from typing import Final

import msgspec

from volery.core.capabilities import Share
from volery.core.errors import InputError
from volery.core.events import Reweigh
from volery.core.model import Address, JobId, Message
from volery.live.clock import in_background, unix_now_us
from volery.live.messages import PreemptionReport
from volery.live.service.batches import UnwrittenError, Written
from volery.live.service.ledgers import NOBODY, ShareHistory
from volery.live.status import PreemptionStatus, ShareStatus, WeightChange

WHY: Final[Mapping[str, str]] = {
    "share": "who gained had less than its share, and who lost more",
    "priority": "who gained is more urgent",
    "cost": "the whole is better so",
}
"""By what rule attempts are preempted, in words."""

log = logging.getLogger(__name__)


class UserShares:
    """The shares of users, their weights and preemptions.

    Args:
        due, shares, weight_subscribers: `guaranteed`, `under` and the same of `DueShares`.
        written: see `Written`.
        send: hands a message to a component.
    """

    def __init__(
        self,
        due: Mapping[str, Fraction],
        shares: Callable[[Mapping[str, int]], tuple[Share, ...]] | None,
        weight_subscribers: Collection[Address],
        book: ShareHistory,
        written: Written,
        send: Callable[[Address, Message], None],
    ) -> None:
        self._due = due
        self._shares_by = shares
        self._weight_subscribers = weight_subscribers
        self._book = book
        self._written = written
        self._send = send
        self._changing = asyncio.Lock()
        self._noting: set[asyncio.Task[None]] = set()
        self._number, self._weights = book.weights()
        self._shares = self._known()

    @property
    def can_change(self) -> bool:
        return self._shares_by is not None

    def _known(self) -> tuple[Share, ...]:
        """The present shares, without weights of users who are no longer in the tree."""
        shares = self._shares_by
        if shares is None:
            return ()
        there = {share.name for share in shares({})}
        for name in [name for name in self._weights if name not in there]:
            log.warning(
                "%r has no place in the tree of shares any more; its weight of %d is left out",
                name[:80],
                self._weights.pop(name),
            )
        return shares(self._weights)

    def due(self) -> Mapping[str, Fraction]:
        if not self.can_change:
            return self._due
        return {share.name: share.due for share in self._shares if not share.members}

    def weights(self) -> Mapping[str, int]:
        return {share.name: share.weight for share in self._shares if not share.members}

    def listed(self, user: str | None = None) -> list[ShareStatus]:
        """Everybody's share, in the order of the tree; or one user's, with those of the organisations above it."""
        shares = self._shares
        if user is not None:
            own = [share for share in shares if share.name == user and not share.members]
            above = {name for share in own for name in share.within}
            shares = tuple(share for share in shares if share in own or (share.members and share.name in above))
        return [
            ShareStatus(
                name=share.name,
                within=share.within,
                organisation=share.members > 0,
                weight=share.weight,
                share=float(share.due),
            )
            for share in shares
        ]

    def found(self, name: str, user: str | None = None) -> ShareStatus | None:
        """Of `listed` the share of a user or, where no user has the name, of an organisation."""
        found = [share for share in self.listed(user) if share.name == name]
        return min(found, key=lambda share: share.organisation, default=None)

    async def reweigh(self, name: str, weight: int, by: str) -> ShareStatus:
        """Give a user, or an organisation, another weight from now on.

        Args:
            weight: against its siblings in the tree.
            by: who orders it; it is written down.

        Raises:
            InputError: the scheduler has no shares, nobody has that name, or it is no weight.
        """
        shares = self._shares_by
        if shares is None:
            problem = "this scheduler knows no shares that can change; of those in the registry, Megha with `shares`"
            raise InputError(f"shares/{name[:80]}", problem)
        async with self._changing:  # a change is sent under its own number
            weights = {**self._weights, name: weight}
            due = shares(weights)
            before = self.found(name)
            assert before is not None, "whose weight can change has one"
            was = before.weight
            self._number = await self._written(lambda: self._book.reweigh(name, weight, was, by, unix_now_us()))
            self._weights, self._shares = weights, due
        log.info("the weight of %r is %d, and was %d%s", name, weight, was, f", by {by}" if by else "")
        self.send_weights()
        after = self.found(name)
        assert after is not None
        return after

    def send_weights(self, only: Collection[Address] | None = None) -> None:
        """Send changed weights to the components that place tasks, or to some of them."""
        if self._number:
            message = Reweigh(self._number, tuple(sorted(self._weights.items())))
            for address in self._weight_subscribers:
                if only is None or address in only:
                    self._send(address, message)

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        return self._book.changes(name, limit)

    def note(self, told: PreemptionReport) -> None:
        """Store a preemption, however often that has to be tried."""
        noting = in_background(self._noted(told), "the record of a preemption")
        self._noting.add(noting)
        noting.add_done_callback(self._noting.discard)

    async def _noted(self, told: PreemptionReport) -> None:
        while True:
            try:
                await self._written(lambda: self._book.note(told))
                return
            except UnwrittenError:
                continue
            except (InputError, sqlite3.Error):  # the federation is shutting down, or its store has failed
                return

    def why_again(self, job: JobId, place: int, attempt: int) -> str:
        """The reason why an attempt of a task was preempted, without the name of who gained; else nothing."""
        lost = self._book.last_lost(job, place)
        if lost is not None and lost.reason not in WHY:  # its row is damaged
            return lost.reason
        if lost is None or lost.attempt != attempt:
            return ""
        return f"attempt {attempt} was preempted: {WHY[lost.reason]}; the task begins anew when there is room"

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int, sees: str | None = None
    ) -> list[PreemptionStatus]:
        """Preemptions, the last one first; see `ShareHistory.preemptions`.

        Args:
            sees: the user whose jobs alone may be seen; the other side is left out then. None: all users'.
        """
        if sees is None:
            return self._book.preemptions(user, job, before, limit)
        if user not in (None, sees):
            return []
        return [_seen_by(sees, one) for one in self._book.preemptions(sees, job, before, limit)]


def _seen_by(user: str, one: PreemptionStatus) -> PreemptionStatus:
    if one.user != user:
        one = msgspec.structs.replace(one, job=NOBODY, index=NOBODY, attempt=0, user="", loss=None)
    if one.for_user != user:
        one = msgspec.structs.replace(one, for_job=NOBODY, for_index=NOBODY, for_user="", gain=None)
    return one
