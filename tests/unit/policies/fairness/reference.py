"""H-DRF as its description says it, in rational numbers and from scratch at each decision; and work for any order."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from random import Random

from volery.policies.fairness.drf import FairOrder, filling
from volery.policies.fairness.shares import Resources, Sharer

Vector = list[Fraction]


def churned(
    order: FairOrder, demands: Mapping[str, Resources], rounds: int, pick: Callable[[int], int] | None = None
) -> tuple[Counter[str], Counter[str]]:
    """What runs after filling, and after so many times ending one task and filling again: random ones by default."""
    stream = Random(7)
    running = list(filling(order, demands))
    first = Counter(running)
    for _ in range(rounds):
        user = running.pop(pick(len(running)) if pick else stream.randrange(len(running)))
        order.ended(user, demands[user])
        running += filling(order, demands)
    order.check()
    return first, Counter(running)


class Reference:
    """Blocked nodes, saturated resources and rescaling to the minimum node, recomputed bottom-up."""

    def __init__(self, capacity: Sequence[int], tree: Sharer) -> None:
        self.capacity, self.tree = tuple(capacity), tree
        self.used = {leaf.name: [0] * len(self.capacity) for leaf in tree.leaves()}
        self.demand: dict[str, Resources | None] = dict.fromkeys(self.used)

    def free(self) -> list[int]:
        return [whole - sum(u[j] for u in self.used.values()) for j, whole in enumerate(self.capacity)]

    def fits(self, demand: Resources) -> bool:
        return all(a <= b for a, b in zip(demand, self.free(), strict=True))

    def share_of(self, demand: Resources, resource: int) -> Fraction:
        return Fraction(demand[resource], self.capacity[resource])

    def open_resources(self) -> list[int]:
        waiting = [demand for demand in self.demand.values() if demand is not None]
        every = range(len(self.capacity))
        need = [[demand for demand in waiting if demand[j]] for j in every]
        mainly = [[d for d in need[j] if self.share_of(d, j) == max(self.share_of(d, k) for k in every)] for j in every]
        least = [min((d[j] for d in mainly[j] or need[j]), default=1) for j in every]
        return [j for j in every if self.free()[j] >= least[j]] or list(every)

    def measured(self, node: Sharer) -> tuple[bool, Vector, Fraction]:
        """Blocked, vector of shares, share."""
        if not node.members:
            demand = self.demand[node.name]
            vector = [Fraction(u, whole) for u, whole in zip(self.used[node.name], self.capacity, strict=True)]
            blocked = demand is None or not self.fits(demand)
        else:
            found = [(member.weight, *self.measured(member)) for member in node.members]
            blocked = all(b for _, b, _, _ in found)
            least = min((share / w for w, b, _, share in found if not b), default=Fraction(0))
            vector = [Fraction(0)] * len(self.capacity)
            for w, b, amounts, share in found:
                factor = Fraction(1) if b else least * w / share if share else Fraction(0)
                vector = [a + factor * c for a, c in zip(vector, amounts, strict=True)]
        return blocked, vector, max(vector[j] for j in self.open_resources())

    def choose(self) -> str | None:
        node = self.tree
        if self.measured(node)[0]:
            return None
        while node.members:
            candidates = [(self.measured(m), m) for m in node.members]
            node = min(((s / m.weight, i, m) for i, ((b, _, s), m) in enumerate(candidates) if not b))[2]
        return node.name
