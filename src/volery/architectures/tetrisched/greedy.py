"""Deciding about one job at a time: the greedy form of alsched (SoCC 2012), and what fills a plan up.

A job takes the branch of its expression that is worth most of what others have left; of equal ones that which starts
first, then the leftmost. Machines come from the groups that fewest expressions ask for. The parts of a min take one
after the other, who has the least choice first; one may still take what another could not do without: not optimal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from operator import itemgetter

from volery.architectures.tetrisched.expressions import Barrier, Expression, LnCk, Max, Min, NCk, Scale, Sum, leaves
from volery.architectures.tetrisched.milp import Chosen
from volery.architectures.tetrisched.parts import Counts, Parts

Taken = list[tuple[int, NCk | LnCk, tuple[tuple[int, int], ...]]]
"""Number of a leaf in its expression, the leaf, and the amounts that it is given."""
Picked = tuple[float, Taken, int]
"""What it is worth, what it takes, and the number of leaves."""


class Greedy:
    """Gives each job in turn its best part of the machines that are left.

    Args:
        parts: the groups of machines.
    """

    def __init__(self, parts: Parts) -> None:
        self._parts = parts
        self._left: Counts = parts.available.copy()

    def take(self, leaf: NCk | LnCk, amounts: Sequence[tuple[int, int]], sign: int = 1) -> None:
        """Machines are given to a leaf; with sign -1 they are given back."""
        during = self._parts.during(leaf)
        for part, count in amounts:
            self._left[part, during.start : during.stop] -= sign * count

    def _free(self, leaf: NCk | LnCk, part: int) -> int:
        during = self._parts.during(leaf)
        return int(self._left[part, during.start : during.stop].min())

    def best(self, request: int, node: Expression, first: int = 0) -> list[Chosen]:
        """Give a job its best branch; nothing where none is worth anything.

        Args:
            request: the place of its expression.
            node: that, or a part of it.
            first: number of the first leaf of that part.
        """
        worth, taken, _ = self._pick(node, first)
        if worth <= 0:
            return []
        for _, leaf, amounts in taken:
            self.take(leaf, amounts)
        return [Chosen(request, number, amounts) for number, _, amounts in taken]

    def again(self, one: Chosen, leaf: NCk | LnCk) -> Chosen:
        """Give a leaf as many machines again as it has, of the groups that fewest ask for."""
        self.take(leaf, one.amounts, -1)
        left, amounts = sum(count for _, count in one.amounts), []
        for part in self._by_need(leaf):
            some = min(left, self._free(leaf, part))
            if some:
                amounts.append((part, some))
                left -= some
        self.take(leaf, amounts)
        return Chosen(one.request, one.leaf, tuple(amounts))

    def _by_need(self, leaf: NCk | LnCk) -> list[int]:
        return sorted(self._parts.of(leaf.where), key=self._parts.precious.__getitem__)

    def _pick(self, node: Expression, first: int) -> Picked:
        """The part that the node would take; nothing is taken yet. `first`: number of its first leaf."""
        match node:
            case NCk() | LnCk():
                return self._leaf(node, first)
            case Max():
                return self._branch(node, first)
            case Min() | Sum():
                return self._several(node, first)
            case Scale():
                worth, taken, end = self._pick(node.of, first)
                return node.factor * worth, taken, end
            case Barrier():
                worth, taken, end = self._pick(node.of, first)
                return (node.value, taken, end) if worth >= node.value else (0.0, [], end)

    def _choice(self, node: Expression) -> int:
        """The number of machines that the least of its leaves may choose among."""
        return min(sum(self._parts.at_start(leaf).values()) for leaf in leaves(node))

    def _leaf(self, node: NCk | LnCk, number: int) -> Picked:
        free = {part: self._free(node, part) for part in self._by_need(node)}
        count = min(node.k, sum(free.values()))
        if not count or (isinstance(node, NCk) and count < node.k):
            return 0.0, [], number + 1
        left, amounts = count, []
        for part, count_free in free.items():
            some = min(left, count_free)
            if some:
                amounts.append((part, some))
                left -= some
        worth = node.value if count == node.k else node.value * count / node.k
        return worth, [(number, node, tuple(amounts))], number + 1

    def _branch(self, node: Max, first: int) -> Picked:
        best: tuple[float, Taken] = (0.0, [])
        for each in node.of:
            worth, taken, first = self._pick(each, first)
            if taken and (worth, -_start(taken)) > (best[0], -_start(best[1])):
                best = (worth, taken)
        return *best, first

    def _several(self, node: Min | Sum, first: int) -> Picked:
        total: Taken = []
        worths = []
        parts = []
        for each in node.of:
            parts.append((self._choice(each), first, each))
            first += sum(1 for _ in leaves(each))
        for _, number, each in sorted(parts, key=itemgetter(0)):
            worth, taken, _ = self._pick(each, number)
            for _, leaf, amounts in taken:
                self.take(leaf, amounts)
            total += taken
            worths.append(worth)
        for _, leaf, amounts in total:
            self.take(leaf, amounts, -1)
        worth = min(worths) if isinstance(node, Min) else sum(worths)
        total.sort(key=itemgetter(0))
        return (worth, total, first) if worth > 0 else (0.0, [], first)


def most(node: Expression, parts: Parts) -> float:
    """An upper bound of the value of an expression: alone, with each of its leaves alone.

    Args:
        node: the expression.
        parts: the groups of machines.
    """
    match node:
        case NCk() | LnCk():
            count = min(node.k, sum(parts.at_start(node).values()))
            return node.value * count / node.k if count == node.k or isinstance(node, LnCk) else 0.0
        case Scale():
            return node.factor * most(node.of, parts)
        case Barrier():
            return node.value if most(node.of, parts) >= node.value else 0.0
    worths = [most(each, parts) for each in node.of]
    return max(worths) if isinstance(node, Max) else min(worths) if isinstance(node, Min) else sum(worths)


def earned(node: Expression, given: Mapping[int, int], first: int = 0) -> tuple[float, int]:
    """The value of the machines that leaves were given, and the number after its last leaf.

    Args:
        node: the expression.
        given: number of a leaf -> how many machines.
        first: number of its first leaf.
    """
    match node:
        case NCk():
            return (node.value if given.get(first) == node.k else 0.0), first + 1
        case LnCk():
            return node.value * given.get(first, 0) / node.k, first + 1
        case Scale():
            worth, end = earned(node.of, given, first)
            return node.factor * worth, end
        case Barrier():
            worth, end = earned(node.of, given, first)
            return (node.value if worth >= node.value else 0.0), end
    worths = []
    for each in node.of:
        worth, first = earned(each, given, first)
        worths.append(worth)
    if isinstance(node, Sum):
        return sum(worths), first
    return (max(worths) if isinstance(node, Max) else min(worths)), first


def _start(taken: Taken) -> int:
    """The start of its last leaf; one that takes nothing is later than all."""
    return max((leaf.start for _, leaf, _ in taken), default=1 << 62)
