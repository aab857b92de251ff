"""Queues of several users at one worker, served by strict priority or by weighted fair shares.

Sparrow applies such policies at each worker alone, so that shares over the cluster hold in expectation only
(Ousterhout et al., SOSP 2013, section 4.2).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol


class UserOrder(Protocol):
    """The order in which the users of a worker are served."""

    def rank(self, user: str) -> float:
        """The user with the smallest rank is served next; of equal ones, the one who has waited longest."""
        ...

    def opened(self, user: str, others: Iterable[str]) -> None:
        """A user without entries gets one; the others have some."""

    def served(self, user: str) -> None:
        """An entry of the user was taken."""


class StrictPriority:
    """Serves the smallest number first; without preemption.

    Args:
        priorities: per user; others come last.
    """

    __slots__ = ("_priorities",)

    def __init__(self, priorities: Mapping[str, int]) -> None:
        self._priorities = priorities

    def rank(self, user: str) -> float:
        return self._priorities.get(user, float("inf"))

    def opened(self, user: str, others: Iterable[str]) -> None:
        pass

    def served(self, user: str) -> None:
        pass


class FairShare:
    """Serves the user with the fewest starts per weight.

    A user who comes back does not make up for the time away: the count of starts is raised to the least that the
    waiting users have.

    Args:
        weights: per user, above 0; others have weight 1.
    """

    __slots__ = ("_started", "_weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        self._weights = weights
        self._started: dict[str, float] = {}

    def rank(self, user: str) -> float:
        return self._started[user]

    def opened(self, user: str, others: Iterable[str]) -> None:
        least = min([self._started[other] for other in others], default=0.0)
        self._started[user] = max(self._started.get(user, 0.0), least)

    def served(self, user: str) -> None:
        self._started[user] += 1.0 / self._weights.get(user, 1.0)


class UserQueues:
    """One first-in-first-out queue per user; entries are numbers.

    Args:
        order: between users.
    """

    __slots__ = ("_order", "_queues", "_user_of")

    def __init__(self, order: UserOrder) -> None:
        self._order = order
        self._queues: dict[str, dict[int, None]] = {}
        self._user_of: dict[int, str] = {}

    def __len__(self) -> int:
        """The number of entries."""
        return len(self._user_of)

    def push(self, number: int, user: str) -> None:
        """Append to the user's queue."""
        queue = self._queues.get(user)
        if queue is None:
            self._order.opened(user, self._queues)
            queue = self._queues[user] = {}
        queue[number] = None
        self._user_of[number] = user

    def discard(self, number: int) -> None:
        user = self._user_of.pop(number)
        queue = self._queues[user]
        del queue[number]
        if not queue:
            del self._queues[user]

    def pop(self) -> int:
        """Remove and return the first entry of the user who is served next.

        Raises:
            ValueError: when the queues are empty.
        """
        user = min(self._queues, key=self._order.rank)
        number = next(iter(self._queues[user]))
        self.discard(number)
        self._order.served(user)
        return number
