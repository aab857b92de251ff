"""Weighted Dominant Resource Fairness (Ghodsi et al., NSDI 2011, section 4): the poorest user whose next task fits.

Ties go to the user that was named, or came, first. Users are ranked among those whose next task asks for the same, so
that a decision looks at each *distinct* demand once and never at the users whose task does not fit: O(log n) where
demands are few, for slots above all. `FairOrder` is the interface of all fair orders, with progressive filling by any.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left, insort
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Protocol

from volery.policies.fairness.shares import (
    Resources,
    checked_capacity,
    checked_demand,
    dominant_share,
    fits,
    minus,
    plus,
    share_key,
)

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


def _head(ranking: Ranking) -> tuple[int, int]:
    return ranking.entries()[0]


def _checked(user: str, weight: int) -> int:
    if weight < 1:
        raise ValueError(f"the weight of {user!r} is {weight}; it has to be at least 1")
    return weight


class WeightedDrf:
    """Users by ascending dominant share over weight; see `order.FairOrder`.

    Args:
        capacity: Units of each resource, from 0.
        weights: Weights by user, in the order in which ties are decided; others have weight 1 and come behind.
        stops_at_poorest: True if nobody is served while the poorest user's task does not fit, as in the paper's
            algorithm 1, where the capacity is that of one machine. Else the next poorest is tried, so that no resource
            idles that is wanted.

    Raises:
        ValueError: when there is no resource, or less than none of one.
    """

    __slots__ = (
        "_capacity",
        "_demand",
        "_free",
        "_names",
        "_no_resources",
        "_numbers",
        "_stops",
        "_total",
        "_used",
        "_waiting",
        "_weights",
    )

    def __init__(
        self, capacity: Sequence[int], weights: Mapping[str, int] | None = None, stops_at_poorest: bool = False
    ) -> None:
        self._capacity = self._total = self._free = checked_capacity(capacity)
        self._no_resources: Resources = (0,) * len(self._capacity)
        self._stops = stops_at_poorest
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._weights: list[int] = []
        self._used: list[Resources] = []
        self._demand: list[Resources | None] = []
        self._waiting: dict[Resources, Ranking] = {}
        for user, weight in (weights or {}).items():
            self._join(user, weight)

    def reweigh(self, user: str, weight: int) -> None:
        """Give a user another weight from now on.

        Raises:
            ValueError: it is below 1.
        """
        number = self._number(user)
        self._weights[number] = _checked(user, weight)
        demand = self._demand[number]
        if demand is not None:
            self._rank(number, demand)

    def _join(self, user: str, weight: int) -> int:
        _checked(user, weight)
        number = self._numbers[user] = len(self._names)
        self._names.append(user)
        self._weights.append(weight)
        self._used.append(self._no_resources)
        self._demand.append(None)
        return number

    def _number(self, user: str) -> int:
        number = self._numbers.get(user)
        return self._join(user, 1) if number is None else number

    def _rank(self, number: int, demand: Resources) -> None:
        self._waiting[demand].place(number, self._key(number))

    def _key(self, number: int) -> int:
        return share_key(self._used[number], self._capacity, self._weights[number])

    def wants(self, user: str, demand: Resources | None) -> None:
        number = self._number(user)
        previous = self._demand[number]
        if demand == previous:
            return

        if demand is not None:
            if demand not in self._waiting:
                self._waiting[checked_demand(demand, self._capacity)] = Ranking()
            self._rank(number, demand)

        if previous is not None:
            self._waiting[previous].remove(number)
            if not self._waiting[previous]:
                del self._waiting[previous]
        self._demand[number] = demand

    def choose(self, accepts: Accepts | None = None) -> str | None:
        """The poorest user whose next task fits, and is accepted."""
        rankings = [ranking.entries() for demand, ranking in self._waiting.items() if fits(demand, self._free)]
        if not rankings or (self._stops and min(self._waiting.values(), key=_head).entries() not in rankings):
            return None

        if accepts is None:
            return self._names[min(rankings)[0][1]]
        poorest: Iterable[tuple[int, int]] = rankings[0] if len(rankings) == 1 else heapq.merge(*rankings)
        return next((name for _, number in poorest if accepts(name := self._names[number])), None)

    def launched(self, user: str, demand: Resources) -> None:
        number = self._number(user)
        self._free = minus(self._free, demand)
        self._used[number] = plus(self._used[number], demand)

        next_demand = self._demand[number]
        if next_demand is not None:
            self._rank(number, next_demand)

    def ended(self, user: str, demand: Resources) -> None:
        number = self._number(user)
        self._free = plus(self._free, demand)
        self._used[number] = minus(self._used[number], demand)

        next_demand = self._demand[number]
        if next_demand is not None:
            self._rank(number, next_demand)

    def share(self, user: str) -> Fraction:
        return dominant_share(self._used[self._number(user)], self._capacity)

    def check(self) -> None:
        """Raise AssertionError unless every unit is used or free, and waiting users are ranked by what they use."""
        total = self._free
        for number, used in enumerate(self._used):
            assert min(used) >= 0, f"{self._names[number]} uses {used}"
            total = plus(total, used)
            demand = self._demand[number]
            if demand is not None:
                assert self._waiting[demand].key(number) == self._key(number), self._names[number]

        waiting = sum(demand is not None for demand in self._demand)
        assert sum(map(len, self._waiting.values())) == waiting, "somebody is ranked twice or who wants nothing"
        assert total == self._total, f"{total} in all, of {self._total}"
