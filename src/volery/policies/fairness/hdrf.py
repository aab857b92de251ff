"""Hierarchical DRF: a tree of weighted organisations and users (Bhattacharya et al., SoCC 2013).

From the root, the non-blocked child of the lowest share over weight is followed down to a user, who launches one task.
What an organisation's children use counts towards its share after *rescaling to the minimum node*: as if each
non-blocked child had only as much as the poorest of them, for its weight. A node is *blocked* when nothing below it
waits, or when what waits needs a saturated resource; it counts as it is. Without these two rules, users starve
(`NaiveHierarchy`). The counter-examples of the paper are at the end. None is for use: each fails on a published
example, which the tests replay (docs/reference/fairness.md). The oracle has two of them as `hierarchy`, so that claims
can be held against them.

Sums per organisation are kept from step to step, so that a decision costs O(depth log fanout) and one look at each
distinct demand that waits. Where a decision finds that another demand has begun or ceased to fit, all users who wait
with it are counted anew; where another set of resources is saturated, the whole tree is. With one resource of which all
tasks take as much, slots above all, neither happens: that is O(log n).

Shares are whole numbers of 2^-128; they are compared after rounding to 2^-64, so that what the roundings of division
leave does not decide between equals. Ties go to who was named, or came, first. `tests/unit/policies/fairness` holds the
algorithm in rational numbers against this one.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from fractions import Fraction
from math import lcm
from typing import ClassVar, Final

from volery.policies.fairness.drf import Accepts, Ranking
from volery.policies.fairness.shares import (
    SHARE_BITS,
    Resources,
    Sharer,
    checked_capacity,
    checked_demand,
    dominant_resources,
    dominant_share,
    fits,
    minus,
    plus,
)

TIE_BITS: Final = 64
_HALF: Final = 1 << (TIE_BITS - 1)

Amounts = list[int]
"""Per resource, in shares of the capacity as whole numbers of 2^-128."""


class TreeNode:
    """A user or an organisation, and what counts of it.

    Args:
        number: Place in the order of ties.
        name: Name of a user, as in `Job.user`, or of an organisation.
        weight: Weight against its siblings.
        parent: Organisation above it; None: the root.
        width: Count of the resources.
    """

    __slots__ = (
        "amounts",
        "as_is",
        "blocked",
        "children",
        "demand",
        "is_passed_over",
        "name",
        "number",
        "open_count",
        "parent",
        "per_minimum",
        "rank",
        "scaled",
        "share",
        "used",
        "weight",
    )

    def __init__(self, number: int, name: str, weight: int, parent: TreeNode | None, width: int) -> None:
        self.number, self.name, self.weight, self.parent = number, name, weight, parent
        self.children: list[TreeNode] = []
        self.used: Resources = (0,) * width
        self.demand: Resources | None = None
        self.is_passed_over = False
        self.share = 0
        self.blocked = True
        self.amounts: Amounts = [0] * width
        self.scaled: Amounts | None = None
        self.as_is: Amounts = [0] * width
        self.per_minimum: Amounts = [0] * width
        self.open_count = 0
        self.rank = Ranking()


class HierarchicalDrf:
    """The next user to serve, from the root down; see `order.FairOrder`.

    Args:
        capacity: Units of each resource, from 0.
        tree: Tree of sharers; name and weight of its root do not matter.

    Raises:
        ValueError: when there is no resource, or less than none of one.
    """

    __slots__ = (
        "_capacity",
        "_dominant",
        "_fitting",
        "_free",
        "_least",
        "_leaves",
        "_nodes",
        "_root",
        "_saturated",
        "_seen_free",
        "_stale",
        "_total",
        "_waiting",
    )

    rescales: ClassVar[bool] = True
    """Children count as if each had as much as the poorest of them."""
    spares_blocked: ClassVar[bool] = True
    """Blocked children are no minimum and are not rescaled; saturated resources do not count for shares."""

    def __init__(self, capacity: Sequence[int], tree: Sharer | None = None) -> None:
        self._capacity = self._total = self._free = checked_capacity(capacity)
        self._nodes: list[TreeNode] = []
        self._leaves: dict[str, TreeNode] = {}
        self._waiting: dict[Resources, dict[int, None]] = {}
        self._dominant: dict[Resources, list[int]] = {}
        self._fitting: dict[Resources, bool] = {}
        self._saturated = (False,) * len(self._capacity)
        self._seen_free: Resources | None = None
        self._least: Resources | None = None
        self._stale: dict[int, None] = {}

        self._root = self._node("", 1, None)
        self._grow(self._root, tree.members if tree is not None else ())
        self._count_all()

    def _node(self, name: str, weight: int, parent: TreeNode | None) -> TreeNode:
        node = TreeNode(len(self._nodes), name, weight, parent, len(self._capacity))
        self._nodes.append(node)
        if parent is not None:
            parent.children.append(node)
        return node

    def _grow(self, node: TreeNode, members: Iterable[Sharer]) -> None:
        for member in members:
            child = self._node(member.name, member.weight, node)
            if member.members:
                self._grow(child, member.members)
            else:
                self._leaves[member.name] = child

    def _leaf(self, user: str) -> TreeNode:
        leaf = self._leaves.get(user)
        if leaf is None:
            leaf = self._leaves[user] = self._node(user, 1, self._root)
        return leaf

    def wants(self, user: str, demand: Resources | None) -> None:
        leaf = self._leaf(user)
        if demand == leaf.demand:
            return

        if leaf.demand is not None:
            alike = self._waiting[leaf.demand]
            del alike[leaf.number]
            if not alike:
                del self._waiting[leaf.demand], self._dominant[leaf.demand], self._fitting[leaf.demand]
                self._seen_free = self._least = None

        leaf.demand = demand
        if demand is not None:
            if demand not in self._waiting:
                self._waiting[checked_demand(demand, self._capacity)] = {}
                self._dominant[demand] = dominant_resources(demand, self._capacity)
                self._fitting[demand] = False
                self._seen_free = self._least = None
            self._waiting[demand][leaf.number] = None
        self._stale[leaf.number] = None

    def launched(self, user: str, demand: Resources) -> None:
        leaf = self._leaf(user)
        self._free = minus(self._free, demand)
        leaf.used = plus(leaf.used, demand)
        self._stale[leaf.number] = None

    def ended(self, user: str, demand: Resources) -> None:
        leaf = self._leaf(user)
        self._free = plus(self._free, demand)
        leaf.used = minus(leaf.used, demand)
        self._stale[leaf.number] = None

    def share(self, user: str) -> Fraction:
        return dominant_share(self._leaf(user).used, self._capacity)

    def choose(self, accepts: Accepts | None = None) -> str | None:
        """Follow the non-blocked child of the lowest share over weight; who is not accepted counts as blocked."""
        if not self._settle():
            return None

        passed_leaves: list[TreeNode] = []
        user = None

        while user is None and not self._root.blocked:
            leaf = self._descend()
            if accepts is None or accepts(leaf.name):
                user = leaf.name
            else:
                leaf.is_passed_over = True
                self._count((leaf.number,))
                passed_leaves.append(leaf)

        # Passed over in this decision only: they are counted as what they are before the next.
        for leaf in passed_leaves:
            leaf.is_passed_over = False
            self._stale[leaf.number] = None
        return user

    def _descend(self) -> TreeNode:
        node = self._root
        while node.children:
            # The paper's H-DRF, down from the root: the lowest share over weight that is not blocked.
            node = next(child for number in node.rank if not (child := self._nodes[number]).blocked)
        return node

    def _settle(self) -> bool:
        """Count what has changed since the last decision; False when nothing that waits fits."""
        if self._free != self._seen_free:
            fitting = {demand: fits(demand, self._free) for demand in self._waiting}
            if not any(fitting.values()):
                return False

            fitting_before, self._fitting = self._fitting, fitting
            saturated = self._saturation()
            # Saturation decides which resources count, for every node of the tree.
            if saturated != self._saturated:
                self._saturated = saturated
                self._stale.clear()
                self._count_all()
            else:
                for demand, fit in fitting.items():
                    if fit != fitting_before[demand]:
                        self._stale.update(self._waiting[demand])
            self._seen_free = self._free

        self._count(self._stale)
        self._stale.clear()
        return not self._root.blocked

    def _saturation(self) -> tuple[bool, ...]:
        """Per resource, whether those who wait for it can have no more of it; where nobody does, whether none is left.

        The paper's resource is used up to the last crumb. Here the crumbs that whole tasks leave do not count as room:
        it is for those whose *dominant* resource it is that there has to be some. Else whoever wants a little of it
        beside another would keep it unsaturated, and the use of those who are blocked would count against him.
        """
        if self._least is None:
            self._least = self._least_wanted()
        return tuple([free_units < units for free_units, units in zip(self._free, self._least, strict=True)])

    def _least_wanted(self) -> Resources:
        """The least waiting demand on each resource of those for whom it is dominant, else of all on it, else 1."""
        least = [0] * len(self._capacity)
        for demand, dominant_places in self._dominant.items():
            for j in dominant_places:
                if not least[j] or demand[j] < least[j]:
                    least[j] = demand[j]

        return tuple(
            [
                units or min([demand[j] for demand in self._waiting if demand[j]], default=1)
                for j, units in enumerate(least)
            ]
        )

    def _count_all(self) -> None:
        """Count the whole tree, children first: they have the higher numbers."""
        for node in self._nodes:
            node.rank = Ranking()
            node.scaled = None
            node.blocked = True
            node.open_count = 0
            node.as_is = [0] * len(self._capacity)
            node.per_minimum = [0] * len(self._capacity)
        for node in reversed(self._nodes):
            self._measure(node)
            if node.parent is not None:
                self._enter(node.parent, node)

    def _count(self, leaves: Iterable[int]) -> None:
        """Count users and the organisations above them, each once and as far up as anything changes."""
        pending = sorted({-number for number in leaves})  # children before parents, who have the lower numbers
        queued_nodes = set(pending)
        while pending:
            node = self._nodes[-heapq.heappop(pending)]
            was_blocked, was_share, was_amounts = node.blocked, node.share, node.amounts

            self._measure(node)
            if node.parent is None:
                return

            # Nothing that the parent sums has changed, so the organisations above are as they were.
            if node.scaled is not None:
                if (node.blocked, node.share, node.amounts) == (was_blocked, was_share, was_amounts):
                    continue
                self._leave(node.parent, node, was_blocked)
            self._enter(node.parent, node)

            if -node.parent.number not in queued_nodes:
                queued_nodes.add(-node.parent.number)
                heapq.heappush(pending, -node.parent.number)

    def _measure(self, node: TreeNode) -> None:
        """The use of a node in shares, its own share, and its state, blocked or not."""
        if node.children:
            node.blocked = not node.open_count
            node.amounts = list(node.as_is)
            # Rescaling to the minimum node: each non-blocked child counts as if it had as much as the poorest, for
            # its weight.
            if self.rescales and len(node.rank):
                poorest = self._nodes[node.rank.first()]
                for j, sum_of in enumerate(node.per_minimum):
                    node.amounts[j] += (sum_of * poorest.share // poorest.weight) >> SHARE_BITS
        else:
            node.blocked = node.demand is None or node.is_passed_over or not self._fitting[node.demand]
            node.amounts = [
                (units << SHARE_BITS) // total if total else 0
                for units, total in zip(node.used, self._capacity, strict=True)
            ]

        counted_amounts = node.amounts
        # A saturated resource cannot be given to anyone: the shares of the others decide.
        if self.rescales and self.spares_blocked:
            counted_amounts = [units for units, full in zip(node.amounts, self._saturated, strict=True) if not full]
        node.share = max(counted_amounts or node.amounts)

    def _rescaled(self, child: TreeNode) -> bool:
        return self.rescales and not (child.blocked and self.spares_blocked)

    def _enter(self, parent: TreeNode, child: TreeNode) -> None:
        """Add a child to its organisation's sums, as it is or per unit of the poorest child's share."""
        if self._rescaled(child):
            share = child.share
            child.scaled = [(child.weight * units << SHARE_BITS) // share if share else 0 for units in child.amounts]
            parent.per_minimum = [a + b for a, b in zip(parent.per_minimum, child.scaled, strict=True)]
        else:
            child.scaled = child.amounts
            parent.as_is = [a + b for a, b in zip(parent.as_is, child.scaled, strict=True)]

        if not child.blocked:
            parent.open_count += 1
        if not child.blocked or not self.spares_blocked:
            parent.rank.place(child.number, self._key(child))

    def _key(self, node: TreeNode) -> int:
        return (node.share // node.weight + _HALF) >> TIE_BITS

    def _leave(self, parent: TreeNode, child: TreeNode, was_blocked: bool) -> None:
        """Take a child out of its organisation's sums, as it was entered."""
        assert child.scaled is not None
        if self.rescales and not (was_blocked and self.spares_blocked):
            parent.per_minimum = [a - b for a, b in zip(parent.per_minimum, child.scaled, strict=True)]
        else:
            parent.as_is = [a - b for a, b in zip(parent.as_is, child.scaled, strict=True)]

        if not was_blocked:
            parent.open_count -= 1
        parent.rank.remove(child.number)

    def check(self) -> None:
        """Raise AssertionError unless every unit is used or free, and the sums are what a fresh count gives."""
        total = self._free
        for leaf in self._leaves.values():
            assert min(leaf.used) >= 0, f"{leaf.name} uses {leaf.used}"
            total = plus(total, leaf.used)
        assert total == self._total, f"{total} in all, of {self._total}"

        self._count(self._stale)
        self._stale.clear()
        maintained = [(node.blocked, node.share, node.amounts, list(node.rank)) for node in self._nodes]
        self._count_all()
        fresh = [(node.blocked, node.share, node.amounts, list(node.rank)) for node in self._nodes]
        for node, maintained_state, fresh_state in zip(self._nodes, maintained, fresh, strict=True):
            assert maintained_state == fresh_state, (
                f"{node.name or node.number}: {maintained_state} is kept, {fresh_state} counted"
            )


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
