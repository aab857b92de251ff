"""Weighted Dominant Resource Fairness (Ghodsi et al., NSDI 2011, section 4): the poorest user whose next task fits.

Ties go to the user that was named, or came, first. Users are ranked among those whose next task asks for the same, so
that a decision looks at each *distinct* demand once and never at the users whose task does not fit: O(log n) where
demands are few, for slots above all.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from volery.policies.fairness.order import Accepts, Ranking
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
