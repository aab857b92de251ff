"""Hierarchies that look fair and are not: the counter-examples of the H-DRF paper (Bhattacharya et al., SoCC 2013).

None is for use. Each fails on a published example, which the tests replay (docs/reference/fairness.md); the oracle has
the naive and the collapsed one as `hierarchy`, so that claims can be held against them.
"""

from __future__ import annotations

from fractions import Fraction
from math import lcm

from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.shares import Sharer


class NaiveHierarchy(HierarchicalDrf):
    """From the root down by real consumption: an organisation that uses two resources looks rich by the larger one.

    Under churn, the user of the other resource is never served again: it *starves*.
    """

    __slots__ = ()
    rescales = False


class BlindRescaling(HierarchicalDrf):
    """Rescaling that does not spare blocked nodes: one that cannot grow holds its organisation's share down.

    The organisation then looks poor and takes more than its part of what its other users need.
    """

    __slots__ = ()
    spares_blocked = False


def collapsed(tree: Sharer) -> dict[str, int]:
    """Weights of users without the tree: the product of the fractions on the way down, as whole numbers.

    Flat DRF with them breaks the hierarchical share guarantee: two users of one organisation that need different
    resources get half of its part each, where both could have the whole.
    """
    fractions: dict[str, Fraction] = {}
    pending = [(tree, Fraction(1))]
    while pending:
        node, part = pending.pop()
        total = sum(member.weight for member in node.members)
        pending += [(member, part * member.weight / total) for member in reversed(node.members)]
        if not node.members:
            fractions[node.name] = part

    common_denominator = lcm(*(part.denominator for part in fractions.values()))
    return {user: int(part * common_denominator) for user, part in fractions.items()}
