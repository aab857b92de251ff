"""Entitlements: the due share of each user of a contended cluster, by water filling on the tree of weights.

The unit is the dominant share of the whole capacity, and entitlements sum to at most 1. Each node's part is dealt to
its children by weight; a child that wants less gets what it wants, and its siblings share the rest: what a node leaves
goes to its siblings first (the hierarchical share guarantee, Bhattacharya et al., SoCC 2013). Where users need
different resources, DRF and H-DRF give them more than this; nobody who wants it gets less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final

from volery.policies.fairness.tree import Sharer

NOTHING: Final = Fraction(0)
WHOLE: Final = Fraction(1)


def entitlements(tree: Sharer, wanted: Mapping[str, Fraction]) -> dict[str, Fraction]:
    """Per user, the dominant share that it is due. Cost O(n log n).

    Args:
        tree: of users and weights.
        wanted: per user, the dominant share of all that it has and waits for; nothing where nothing is said.
    """
    due: dict[str, Fraction] = {}
    _deal(tree, _wishes(tree, wanted), WHOLE, due)
    return due


class _Wish:
    """The share that a node wants, and the wishes of its members."""

    __slots__ = ("members", "share")

    def __init__(self, share: Fraction, members: tuple[_Wish, ...]) -> None:
        self.share, self.members = share, members


def _wishes(node: Sharer, wanted: Mapping[str, Fraction]) -> _Wish:
    if not node.members:
        return _Wish(wanted.get(node.name, NOTHING), ())
    members = tuple(_wishes(member, wanted) for member in node.members)
    return _Wish(sum((wish.share for wish in members), NOTHING), members)


def _deal(node: Sharer, wish: _Wish, amount: Fraction, due: dict[str, Fraction]) -> None:
    """Write down what the users below are due of their node's amount."""
    if not node.members:
        due[node.name] = min(amount, wish.share)
        return
    parts = water_filling(amount, [member.share for member in wish.members], [member.weight for member in node.members])
    for member, inner, part in zip(node.members, wish.members, parts, strict=True):
        _deal(member, inner, part, due)


def water_filling(amount: Fraction, wishes: Sequence[Fraction], weights: Sequence[int]) -> list[Fraction]:
    """Deal an amount by weight to those who want some; what one leaves goes to the others, by weight again."""
    parts = [NOTHING] * len(wishes)
    thirsty = [place for place, wish in enumerate(wishes) if wish]
    if len(thirsty) == len(wishes) and sum(wishes) <= amount:
        return list(wishes)
    thirsty.sort(key=lambda place: wishes[place] / weights[place])
    weight = sum(weights[place] for place in thirsty)
    for first, place in enumerate(thirsty):
        if wishes[place] * weight > amount * weights[place]:
            level = amount / weight
            for other in thirsty[first:]:
                parts[other] = level * weights[other]
            break
        parts[place] = wishes[place]
        amount -= wishes[place]
        weight -= weights[place]
    return parts
