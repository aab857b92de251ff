"""Fair orders of users: their interface, progressive filling by any of them, and the sorted members that they keep."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Protocol

from volery.policies.fairness.shares import Resources

Accepts = Callable[[str], bool]
"""True if a user's next task can be placed; it may place it."""


class FairOrder(Protocol):
    """An order of users: it selects the user to serve next. Its owner reports launches and ends.

    Users that no tree names join it beside the topmost ones, with weight 1, in the order in which they come.
    """

    def wants(self, user: str, demand: Resources | None) -> None:
        """Set the request of the user's next task; None: nothing waits.

        Raises:
            ValueError: it has not as many amounts as there are resources, or a negative one.
        """

    def choose(self, accepts: Accepts | None = None) -> str | None:
        """The user to serve next among those who want something that is free; None when there is none.

        Args:
            accepts: Called for each user in turn, best first; one who is refused is passed over this time.
        """

    def launched(self, user: str, demand: Resources) -> None:
        """A task of the user takes this much from now on."""

    def ended(self, user: str, demand: Resources) -> None:
        """A task of the user has given this much back."""

    def share(self, user: str) -> Fraction:
        """The user's dominant share of the whole capacity."""

    def check(self) -> None:
        """Raise AssertionError where what is kept from step to step is not what a fresh count gives."""


def filling(
    order: FairOrder, demands: Mapping[str, Resources], tasks: Mapping[str, int] | None = None
) -> Iterator[str]:
    """Progressive filling with indivisible tasks: launch for whoever is next until nothing fits.

    Args:
        order: Order that decides; what it has launched before stays.
        demands: Amounts that each task of a user takes. Orders whose ties go to who came first see them in this order.
        tasks: Count of each user's waiting tasks; None: no end of them.

    Raises:
        ValueError: when a task takes nothing: there would be no end.
    """
    for user, demand in demands.items():
        if not any(demand):
            raise ValueError(f"the tasks of {user!r} take nothing; filling would never end")

    tasks_left = dict(tasks) if tasks is not None else None
    for user, demand in demands.items():
        order.wants(user, demand if tasks_left is None or tasks_left.get(user) else None)

    for user in iter(order.choose, None):
        assert user is not None
        order.launched(user, demands[user])

        if tasks_left is not None:
            tasks_left[user] -= 1
            if not tasks_left[user]:
                order.wants(user, None)
        yield user


class Ranking:
    """Members by ascending key; equal keys by the members' own numbers.

    A sorted list: O(log n) comparisons and one move of 8 bytes per member behind, which for ten thousand members is
    quicker than a heap whose outdated entries have to be skipped, and it can be read in order.
    """

    __slots__ = ("_keys", "_sorted")

    def __init__(self) -> None:
        self._sorted: list[tuple[int, int]] = []
        self._keys: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sorted)

    def __iter__(self) -> Iterator[int]:
        """The members, lowest key first."""
        for _, member in self._sorted:
            yield member

    def __reversed__(self) -> Iterator[int]:
        """The members, highest key first."""
        for _, member in reversed(self._sorted):
            yield member

    def __bool__(self) -> bool:
        return bool(self._sorted)

    def entries(self) -> list[tuple[int, int]]:
        """(key, member), lowest first: the list itself, not to be changed."""
        return self._sorted

    def first(self) -> int:
        """The member of the lowest key; there has to be one."""
        return self._sorted[0][1]

    def key(self, member: int) -> int | None:
        """The member's key, None where it is not ranked."""
        return self._keys.get(member)

    def place(self, member: int, key: int) -> None:
        """Rank a member, anew where it is ranked already."""
        old = self._keys.get(member)
        if old == key:
            return
        if old is not None:
            del self._sorted[bisect_left(self._sorted, (old, member))]
        self._keys[member] = key
        insort(self._sorted, (key, member))

    def remove(self, member: int) -> None:
        """Take a member out, if it is in."""
        old = self._keys.pop(member, None)
        if old is not None:
            del self._sorted[bisect_left(self._sorted, (old, member))]
