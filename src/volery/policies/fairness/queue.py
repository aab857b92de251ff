"""Waiting tasks of several users: a line per user, and a fair order that says whose turn it is."""

from __future__ import annotations

from collections.abc import Callable

from volery.core.model import JobId, Task
from volery.policies.fairness.order import FairOrder
from volery.policies.fairness.shares import Resources
from volery.policies.queueing import ConstraintQueue

SLOT: Resources = (1,)


class FairQueue:
    """Stands where a `ConstraintQueue` stands; inside each user's line, first come first served among those that fit.

    Args:
        order: between users, over slots.

    Attributes:
        length: how many tasks wait.
    """

    __slots__ = ("_lines", "_order", "_user", "length")

    def __init__(self, order: FairOrder) -> None:
        self._order = order
        self._lines: dict[str, ConstraintQueue] = {}
        self._user: dict[JobId, str] = {}
        self.length = 0

    def belongs(self, job: JobId, user: str) -> None:
        """Whose job it is; said before anything of it is pushed or launched."""
        self._user[job] = user

    def launched(self, task: Task) -> None:
        """The task has taken a slot."""
        self._order.launched(self._user[task.job], SLOT)

    def ended(self, task: Task) -> None:
        """The task has given its slot back."""
        self._order.ended(self._user[task.job], SLOT)

    def masks(self) -> list[int]:
        """The distinct constraint sets that wait."""
        return list(dict.fromkeys(mask for line in self._lines.values() for mask in line.masks()))

    def push(self, task: Task) -> None:
        """Join the user's line at its tail."""
        user = self._user[task.job]
        line = self._lines.get(user)
        if line is None:
            line = self._lines[user] = ConstraintQueue()
        line.push(task)
        self.length += 1
        if line.length == 1:
            self._order.wants(user, SLOT)

    def pop_fitting(self, offered: int) -> Task | None:
        """Take the next task of the user whose turn it is among those with a task that such a worker satisfies."""
        found: list[Task] = []

        def accepts(user: str) -> bool:
            task = self._lines[user].pop_fitting(offered)
            if task is not None:
                found.append(task)
            return task is not None

        user = self._order.choose(accepts)
        if user is None:
            return None
        self._shrunk(user, 1)
        return found[0]

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this kind out; the others keep their places."""
        removed = []
        for user, line in self._lines.items():
            gone = line.remove(unwanted)
            if gone:
                removed += gone
                self._shrunk(user, len(gone))
        return removed

    def _shrunk(self, user: str, count: int) -> None:
        self.length -= count
        if not self._lines[user].length:
            self._order.wants(user, None)

    def check(self) -> None:
        """Raise AssertionError where lines and order disagree."""
        assert self.length == sum(line.length for line in self._lines.values())
        self._order.check()
