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
from functools import partial
from typing import Final

import msgspec

from volery.core.capabilities import Share
from volery.core.errors import InputError
from volery.core.events import Reweigh
from volery.core.model import Address, JobId
from volery.live.clock import in_background, unix_now_us
from volery.live.messages import PreemptionReport, Send
from volery.live.service.batches import UnwrittenError, Written
from volery.live.service.ledgers import NOBODY, ShareHistory
from volery.live.status import PreemptionStatus, ShareStatus, WeightChange

WHY: Final[Mapping[str, str]] = {
    "share": "who gained had less than its share, and who lost more",
    "priority": "who gained is more urgent",
    "cost": "the whole is better so",
}
"""The rules by which attempts are preempted, in words."""

log = logging.getLogger(__name__)


class UserShares:
    """The shares of users, their weights and preemptions.

    Args:
        due, shares, weight_subscribers: `guaranteed`, `under` and the same of `DueShares`.
        written: see `Written`.
    """

    def __init__(
        self,
        due: Mapping[str, Fraction],
        shares: Callable[[Mapping[str, int]], tuple[Share, ...]] | None,
        weight_subscribers: Collection[Address],
        book: ShareHistory,
        written: Written,
        send: Send,
    ) -> None:
        self._due = due
        self._shares_by = shares
        self._weight_subscribers = weight_subscribers
        self._book = book
        self._written = written
        self._send = send
        self._change_lock = asyncio.Lock()
        self._note_tasks: set[asyncio.Task[None]] = set()
        self._number, self._weights = book.weights()
        self._shares = self._present()

    @property
    def can_change(self) -> bool:
        return self._shares_by is not None

    def _present(self) -> tuple[Share, ...]:
        """The present shares, without weights of users who are no longer in the tree."""
        shares = self._shares_by
        if shares is None:
            return ()

        names = {share.name for share in shares({})}
        for name in [name for name in self._weights if name not in names]:
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
            organisations = {name for share in own for name in share.within}
            shares = tuple(share for share in shares if share in own or (share.members and share.name in organisations))

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

    def named(self, name: str, user: str | None = None) -> ShareStatus | None:
        """The share in `listed` of a user or, where no user has the name, of an organisation."""
        shares = [share for share in self.listed(user) if share.name == name]
        return min(shares, key=lambda share: share.organisation, default=None)

    async def reweigh(self, name: str, weight: int, by: str) -> ShareStatus:
        """Give a user, or an organisation, another weight from now on.

        Args:
            weight: weight against its siblings in the tree.
            by: author of the order, which is stored with it.

        Raises:
            InputError: the scheduler has no shares, nobody has that name, or it is no weight.
        """
        shares = self._shares_by

        if shares is None:
            problem = "this scheduler knows no shares that can change; of those in the registry, Megha with `shares`"
            raise InputError(f"shares/{name[:80]}", problem)

        async with self._change_lock:  # a change is sent under its own number
            weights = {**self._weights, name: weight}
            due = shares(weights)

            share = self.named(name)
            assert share is not None, "whose weight can change has one"
            was = share.weight
            self._number = await self._written(partial(self._record, name, weight, was, by))
            self._weights, self._shares = weights, due

        log.info("the weight of %r is %d, and was %d%s", name, weight, was, f", by {by}" if by else "")
        self.send_weights()
        new_share = self.named(name)
        assert new_share is not None

        return new_share

    def _record(self, name: str, weight: int, was: int, by: str) -> int:
        return self._book.reweigh(name, weight, was, by, unix_now_us())

    def send_weights(self, only: Collection[Address] | None = None) -> None:
        """Send changed weights to the components that place tasks, or to some of them."""
        if self._number:
            message = Reweigh(self._number, tuple(sorted(self._weights.items())))
            for address in self._weight_subscribers:
                if only is None or address in only:
                    self._send(address, message)

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        return self._book.changes(name, limit)

    def note(self, report: PreemptionReport) -> None:
        """Store a preemption, however often that has to be tried."""
        note_task = in_background(self._keep_noting(report), "the record of a preemption")
        self._note_tasks.add(note_task)
        note_task.add_done_callback(self._note_tasks.discard)

    async def _keep_noting(self, report: PreemptionReport) -> None:
        while True:
            try:
                await self._written(partial(self._book.note, report))
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
        return [_seen_by(sees, status) for status in self._book.preemptions(sees, job, before, limit)]


def _seen_by(user: str, status: PreemptionStatus) -> PreemptionStatus:
    if status.user != user:
        status = msgspec.structs.replace(status, job=NOBODY, index=NOBODY, attempt=0, user="", loss=None)
    if status.for_user != user:
        status = msgspec.structs.replace(status, for_job=NOBODY, for_index=NOBODY, for_user="", gain=None)
    return status
