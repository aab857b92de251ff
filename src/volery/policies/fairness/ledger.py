"""Entitlements, and the ledger of shares that selects the users whose tasks are preempted under contention.

Entitlements are the due shares of users, by water filling on the tree of weights: each node's part is dealt to its
children by weight; a child that wants less gets what it wants, and its siblings share the rest: what a node leaves goes
to its siblings first (the hierarchical share guarantee, Bhattacharya et al., SoCC 2013). The unit is the dominant share
of the whole capacity, and entitlements sum to at most 1. Where users need different resources, DRF and H-DRF give them
more than this; nobody who wants it gets less.

Megha's algorithm 2 (Thiyyakat et al., "Megha: Decentralized Global Fair Scheduling for Federated Clusters", section
IV-C) asks users in decreasing order of violation. A violation is the dominant share that a user has less what it is
due.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from volery.core.events import MILLIONTHS
from volery.policies.fairness.drf import Ranking
from volery.policies.fairness.shares import SHARE_BITS, Resources, Sharer, checked_capacity, dominant_share, minus, plus

NOTHING: Final = Fraction(0)
WHOLE: Final = Fraction(1)


def entitlements(tree: Sharer, wanted_shares: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """The dominant share that each user is due. Cost O(n log n).

    Args:
        tree: Tree of users and weights.
        wanted_shares: Dominant share of all that each user has and waits for; nothing where none is given.
    """
    due: dict[str, Fraction] = {}
    _deal(tree, _wishes(tree, wanted_shares), WHOLE, due)
    return due


class _Wish:
    """The share that a node wants, and the wishes of its members."""

    __slots__ = ("members", "share")

    def __init__(self, share: Fraction, members: tuple[_Wish, ...]) -> None:
        self.share, self.members = share, members


def _wishes(node: Sharer, wanted_shares: Mapping[str, Fraction]) -> _Wish:
    if not node.members:
        return _Wish(wanted_shares.get(node.name, NOTHING), ())
    members = tuple(_wishes(member, wanted_shares) for member in node.members)
    return _Wish(sum((wish.share for wish in members), NOTHING), members)


def _deal(node: Sharer, wish: _Wish, amount: Fraction, due: dict[str, Fraction]) -> None:
    """Enter what the users below are due of their node's amount."""
    if not node.members:
        due[node.name] = min(amount, wish.share)
        return

    parts = water_filling(amount, [member.share for member in wish.members], [member.weight for member in node.members])
    for member, inner, part in zip(node.members, wish.members, parts, strict=True):
        _deal(member, inner, part, due)


def water_filling(amount: Fraction, wishes: Sequence[Fraction], weights: Sequence[int]) -> list[Fraction]:
    """Deal an amount by weight to those who want some; what one leaves goes to the others, by weight again."""
    parts = [NOTHING] * len(wishes)
    wishing = [place for place, wish in enumerate(wishes) if wish]
    if len(wishing) == len(wishes) and sum(wishes) <= amount:
        return list(wishes)

    # Those who want little for their weight are filled first, so that one pass finds the level of all others.
    wishing.sort(key=lambda place: wishes[place] / weights[place])
    weight = sum(weights[place] for place in wishing)
    for rank, place in enumerate(wishing):
        if wishes[place] * weight > amount * weights[place]:
            level = amount / weight
            for remaining_place in wishing[rank:]:
                parts[remaining_place] = level * weights[remaining_place]
            break
        parts[place] = wishes[place]
        amount -= wishes[place]
        weight -= weights[place]
    return parts


class ShareLedger:
    """The used, wanted and due shares of all users that the tree names.

    What users are due is counted anew, O(n log n), only after a wish has crossed what its user was due or has changed
    below it: under contention most wishes are far above. All else is O(log n).

    Args:
        capacity: Units of each resource, from 0.
        tree: Tree of users and weights.

    Raises:
        ValueError: when there is no resource, or less than none of one.
    """

    def __init__(self, capacity: Sequence[int], tree: Sharer) -> None:
        self._capacity = checked_capacity(capacity)
        self._tree = tree
        self._names = [leaf.name for leaf in tree.leaves()]
        self._numbers = {user: number for number, user in enumerate(self._names)}

        no_resources: Resources = (0,) * len(self._capacity)
        self._used = [no_resources] * len(self._names)
        self._wanted_shares = [NOTHING] * len(self._names)
        self._due = [NOTHING] * len(self._names)
        self._ranking = Ranking()
        self._is_outdated = False

        for number in range(len(self._names)):
            self._rank(number)

    def reweigh(self, tree: Sharer) -> None:
        """The same users in the same order have other weights from now on."""
        self._tree = tree
        self._is_outdated = True

    def wants(self, user: str, total: Resources) -> None:
        """Set the total of what the user has and waits for."""
        number = self._numbers[user]
        wish = dominant_share(total, self._capacity)
        due = self._due[number]
        # A wish above what is due, before and after, changes no entitlement.
        if wish != self._wanted_shares[number] and (wish <= due or self._wanted_shares[number] <= due):
            self._is_outdated = True
        self._wanted_shares[number] = wish

    def launched(self, user: str, demand: Resources) -> None:
        """A task of the user takes this much from now on."""
        number = self._numbers[user]
        self._used[number] = plus(self._used[number], demand)
        self._rank(number)

    def ended(self, user: str, demand: Resources) -> None:
        """A task of the user has given this much back."""
        number = self._numbers[user]
        self._used[number] = minus(self._used[number], demand)
        self._rank(number)

    def _violation(self, number: int, used: Resources) -> Fraction:
        return dominant_share(used, self._capacity) - self._due[number]

    def _rank(self, number: int) -> None:
        violation = self._violation(number, self._used[number])
        self._ranking.place(number, -((violation.numerator << SHARE_BITS) // violation.denominator))

    def _settle(self) -> None:
        if self._is_outdated:
            self._is_outdated = False
            wanted_shares = dict(zip(self._names, self._wanted_shares, strict=True))
            due = entitlements(self._tree, wanted_shares)

            for number, user in enumerate(self._names):
                if due[user] != self._due[number]:
                    self._due[number] = due[user]
                    self._rank(number)

    def due(self, user: str) -> Fraction:
        """The dominant share that the user is entitled to now."""
        self._settle()
        return self._due[self._numbers[user]]

    def has(self, user: str) -> tuple[int, int]:
        """The due share of a user, and its dominant share: millionths of the whole, rounded down."""
        self._settle()
        number = self._numbers[user]
        due = self._due[number]
        share = dominant_share(self._used[number], self._capacity)
        return due.numerator * MILLIONTHS // due.denominator, share.numerator * MILLIONTHS // share.denominator

    def violation(self, user: str) -> Fraction:
        """The user's dominant share less its due share; below 0 where it is short of that."""
        self._settle()
        number = self._numbers[user]
        return self._violation(number, self._used[number])

    def may_claim(self, user: str, demand: Resources) -> bool:
        """True if the user, with this much more, would have no more than it is due."""
        self._settle()
        number = self._numbers[user]
        return self._violation(number, plus(self._used[number], demand)) <= 0

    def can_lose(self, user: str, losing: Resources) -> bool:
        """True if the user, with this much less, would still have all that it is due; so it cannot claim it back."""
        self._settle()
        number = self._numbers[user]
        remaining = minus(self._used[number], losing)
        return min(remaining) >= 0 and self._violation(number, remaining) >= 0

    def violators(self) -> Iterator[str]:
        """The users that have more than they are due, the largest violation first; ties as the tree names them."""
        self._settle()
        for number in self._ranking:
            if self._violation(number, self._used[number]) <= 0:
                return
            yield self._names[number]
