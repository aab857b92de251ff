"""The queues of a GM's users (arXiv 2103.08413, section IV-C): one line each, served in turn.

A queue can be asked for only while others wait too, which is contention: then users with less than their share come
before the others, in turn among themselves.
"""

from __future__ import annotations

from collections.abc import Callable

from volery.core.model import Task
from volery.core.resources import Packing
from volery.policies.queues import Kind, VectorQueue


class UserLines:
    """Stands where the queue of first come first served stands.

    Args:
        packing: of requests.
        user_of: whose task it is.
        is_short: whether a user has less than its share.

    Attributes:
        length: how many tasks wait.
    """

    __slots__ = ("_is_short", "_lines", "_packing", "_user_of", "length")

    def __init__(self, packing: Packing, user_of: Callable[[Task], int], is_short: Callable[[int], bool]) -> None:
        self._packing = packing
        self._user_of = user_of
        self._is_short = is_short
        self._lines: dict[int, VectorQueue] = {}
        self.length = 0

    def users(self) -> list[int]:
        """Those who have tasks waiting, whose turn is next first."""
        return list(self._lines)

    def __contains__(self, kind: object) -> bool:
        """Whether a task of this kind waits."""
        return any(kind in line for line in self._lines.values())

    def kinds(self) -> list[Kind]:
        """The distinct constraint sets and requests that wait."""
        return list(dict.fromkeys(kind for line in self._lines.values() for kind in line.kinds()))

    def kinds_of(self, user: int) -> list[Kind]:
        """Those of one user."""
        return self._lines[user].kinds() if user in self._lines else []

    def push(self, task: Task) -> None:
        """Join the user's line at its tail."""
        self._line_of(task).push(task)
        self.length += 1

    def push_front(self, task: Task) -> None:
        """Join the user's line at its head."""
        self._line_of(task).push_front(task)
        self.length += 1

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the first task that a machine can take from the line of whoever is next; see `VectorQueue`."""
        users = list(self._lines)
        if len(users) > 1:
            short = {user for user in users if self._is_short(user)}
            users = [user for user in users if user in short] + [user for user in users if user not in short]
        for user in users:
            task = self._lines[user].pop_fitting(offered, free)
            if task is not None:
                self._taken(user)
                return task
        return None

    def pop_kind(self, user: int, kind: Kind) -> Task:
        """Take the first task of a kind from the user's line, where there has to be one."""
        task = self._lines[user].pop_kind(kind)
        self._taken(user)
        return task

    def any_fitting(self, offered: int, free: int) -> bool:
        """Whether `pop_fitting` would find a task."""
        return any(line.any_fitting(offered, free) for line in self._lines.values())

    def remove(self, unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out; the others keep their places."""
        removed: list[Task] = []
        for user in self.users():
            removed += self._lines[user].remove(unwanted)
            if not self._lines[user].length:
                del self._lines[user]
        self.length -= len(removed)
        return removed

    def _line_of(self, task: Task) -> VectorQueue:
        user = self._user_of(task)
        if user not in self._lines:
            self._lines[user] = VectorQueue(self._packing)
        return self._lines[user]

    def _taken(self, user: int) -> None:
        """Others are next."""
        self.length -= 1
        line = self._lines.pop(user)
        if line.length:
            self._lines[user] = line
