"""Lines of several users at one worker: who is served next, by strict priority or by weighted fair shares.

Sparrow applies such policies at each worker alone, so that shares over the cluster hold in expectation only
(Ousterhout et al., SOSP 2013, section 4.2).
"""

from __future__ import annotations

from collections.abc import Mapping


class Lines:
    """One first-come-first-served line per user; what waits is known by a number."""

    __slots__ = ("_of", "_user_of")

    def __init__(self) -> None:
        self._of: dict[str, dict[int, None]] = {}
        self._user_of: dict[int, str] = {}

    def __len__(self) -> int:
        """How many wait."""
        return len(self._user_of)

    def push(self, number: int, user: str) -> None:
        """Join at the tail of the user's line."""
        line = self._of.get(user)
        if line is None:
            line = self._of[user] = {}
            self._opened(user)
        line[number] = None
        self._user_of[number] = user

    def discard(self, number: int) -> None:
        """Leave the line."""
        user = self._user_of.pop(number)
        line = self._of[user]
        del line[number]
        if not line:
            del self._of[user]

    def pop(self) -> int:
        """Take the first of the line that is served next.

        Raises:
            ValueError: when nothing waits.
        """
        user = min(self._of, key=self._rank)
        number = next(iter(self._of[user]))
        self.discard(number)
        self._served(user)
        return number

    def _rank(self, user: str) -> float:
        """The line with the smallest rank is served next; of equal ones, that which has been open longest."""
        raise NotImplementedError

    def _opened(self, user: str) -> None:
        """A user who had nothing waiting has again."""

    def _served(self, user: str) -> None:
        """One of the user's was taken."""


class PriorityLines(Lines):
    """Strict priority, smallest number first; without preemption.

    Args:
        priorities: per user; others come last.
    """

    __slots__ = ("_priorities",)

    def __init__(self, priorities: Mapping[str, int]) -> None:
        super().__init__()
        self._priorities = priorities

    def _rank(self, user: str) -> float:
        return self._priorities.get(user, float("inf"))


class FairLines(Lines):
    """Weighted fair shares of the starts: next is the user with the fewest starts per weight.

    A user who comes back does not make up for the time away: the count of starts is raised to the least that the
    waiting users have.

    Args:
        weights: per user, above 0; others have weight 1.
    """

    __slots__ = ("_started", "_weights")

    def __init__(self, weights: Mapping[str, float]) -> None:
        super().__init__()
        self._weights = weights
        self._started: dict[str, float] = {}

    def _rank(self, user: str) -> float:
        return self._started[user]

    def _opened(self, user: str) -> None:
        others = [self._started[other] for other in self._of if other != user]
        self._started[user] = max(self._started.get(user, 0.0), min(others, default=0.0))

    def _served(self, user: str) -> None:
        self._started[user] += 1.0 / self._weights.get(user, 1.0)
