"""What nodes with queues of their own share: their slots, and the account of head-of-line blocking."""

from __future__ import annotations

from volery.core.component import Component
from volery.core.model import Time


class SlotKeeper(Component):
    """A node that counts its idle slots, and for how long long tasks have held all of them.

    That time, blocked time, is `_blocked_us`, and now on top while `_blocking`: short tasks that wait then are blocked
    at the head of the line.

    Args:
        slots: of the machine.
    """

    __slots__ = ("_blocked_us", "_blocking", "_idle", "_long_running", "_slots")

    def __init__(self, slots: int) -> None:
        self._idle = self._slots = slots
        self._long_running = 0
        self._blocking = False
        self._blocked_us: Time = 0

    def _long_starts(self, now: Time) -> None:
        self._long_running += 1
        if self._long_running == self._slots:
            self._blocking = True
            self._blocked_us -= now

    def _long_ends(self, now: Time) -> None:
        self._long_running -= 1
        if self._blocking:
            self._blocking = False
            self._blocked_us += now
