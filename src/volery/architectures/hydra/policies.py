"""The federation's policies: homes of jobs, splits of requests, weights of sub-clusters, guarantees of queues.

The policies are those of YARN Federation (Apache Hadoop 3, `yarn.server.federation.policies`); guarantees of queues are
our reading of what Hydra's central step does (NSDI 2019: the method is not in any text at hand).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from math import ceil
from random import Random
from typing import Literal
from zlib import crc32

from volery.architectures.hydra.layout import Layout
from volery.architectures.hydra.messages import Directory
from volery.policies.fairness.ledger import water_filling

Split = Literal["broadcast", "home", "weighted", "locality"]
WHOLE = 1000
"""A weight of 1, in permille."""
WEIGHED_DOWN_MAX = 3
"""So many of the sub-clusters with most waiting applications get less."""


def draw_weighted(candidates: Sequence[int], weights: Sequence[int], random: Random) -> int:
    """A random sub-cluster, each with a probability in proportion to its weight; all alike where all are 0."""
    total = sum(weights[sub] for sub in candidates)
    if not total:
        return candidates[int(random.random() * len(candidates))]
    left = int(random.random() * total)
    for sub in candidates:
        left -= weights[sub]
        if left < 0:
            return sub
    raise AssertionError("weights that do not add up")


def by_hash(candidates: Sequence[int], queue: str) -> int:
    """The same sub-cluster for all jobs of a queue, while the same are active."""
    return candidates[crc32(queue.encode()) % len(candidates)]


def proportional(
    count: int, candidates: Sequence[int], weights: Sequence[int], headroom: Mapping[int, int], alpha: Fraction
) -> dict[int, int]:
    """Containers to ask of each sub-cluster: ceil(n (a H + (1 - a) w)); at most one too many for each.

    Args:
        count: n, containers that are wanted.
        candidates: sub-clusters that may be asked.
        weights: w, per sub-cluster, in permille.
        headroom: free slots of the sub-clusters that have reported them.
        alpha: a; what headroom counts against weights.
    """
    known = [sub for sub in candidates if sub in headroom]
    free = sum(headroom[sub] for sub in known)
    total = sum(weights[sub] for sub in candidates)
    each = Fraction(1, len(candidates))
    asked = {}
    for sub in candidates:
        room = Fraction(headroom[sub] * len(known), free * len(candidates)) if free and sub in headroom else each
        weight = Fraction(weights[sub], total) if total else each
        part = ceil(count * (alpha * room + (1 - alpha) * weight))
        if part:
            asked[sub] = min(part, count)
    return asked


def load_weights(applications: Sequence[int], low: int, high: int) -> list[int]:
    """Weights by waiting applications, in permille: 1 up to `low`, then falling to 0 at `high`, for the three fullest.

    Where all would be 0, all are 1.
    """
    fullest = sorted(range(len(applications)), key=lambda sub: (-applications[sub], sub))[:WEIGHED_DOWN_MAX]
    weights = [WHOLE] * len(applications)
    for sub in fullest:
        above = min(max(applications[sub] - low, 0), high - low)
        weights[sub] = WHOLE * (high - low - above) // (high - low)
    return weights if any(weights) else [WHOLE] * len(applications)


def guarantees(
    demand: Mapping[str, Sequence[int]], weights: Mapping[str, int], slots: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Slots that each queue is guaranteed in each sub-cluster.

    Max-min fairness over the whole federation first; then what a queue is due is laid where it wants to run, as far as
    the sub-cluster has slots. Queues without any demand keep their part of every sub-cluster.

    Args:
        demand: per queue, containers used and wanted in each sub-cluster.
        weights: of queues; 1 for those that are not in it.
        slots: of each sub-cluster.
    """
    whole = max(1, sum(weights.values()))
    found = {name: tuple([size * weight // whole for size in slots]) for name, weight in weights.items()}
    names = [name for name in demand if sum(demand[name])]
    wishes = [Fraction(sum(demand[name])) for name in names]
    parts = water_filling(Fraction(sum(slots)), wishes, [weights.get(name, 1) for name in names])
    for name, wish, part in zip(names, wishes, parts, strict=True):
        laid = [min(part * wanted / wish, Fraction(size)) for wanted, size in zip(demand[name], slots, strict=True)]
        found[name] = tuple([int(amount) for amount in laid])
    return found


class Membership:
    """The sub-clusters as the state store last reported them to a router or proxy.

    Attributes:
        active: per sub-cluster, whether its resource manager answers.
        weights: set by the policy generator, in permille.
        headroom: free slots, of those that have reported them.
    """

    def __init__(self, count: int) -> None:
        self.active = [True] * count
        self.weights = [WHOLE] * count
        self.headroom: dict[int, int] = {}
        self._number = 0

    def update(self, message: Directory) -> tuple[list[int], list[int]]:
        """Take in a report; returns the sub-clusters that are lost by it, and those that are back."""
        if message.number <= self._number:
            return [], []
        self._number = message.number
        lost = [sub for sub, active in enumerate(message.active) if self.active[sub] and not active]
        back = [sub for sub, active in enumerate(message.active) if active and not self.active[sub]]
        self.active, self.weights = list(message.active), list(message.weights)
        self.headroom = {sub: free for sub, free in enumerate(message.free) if free >= 0}
        return lost, back

    def usable(self, candidates: Sequence[int]) -> Sequence[int]:
        """Those that are active and have a weight; else those that are active; else all of them."""
        active = [sub for sub in candidates if self.active[sub]]
        return [sub for sub in active if self.weights[sub]] or active or candidates


class Splitter:
    """Splits what a proxy requests over sub-clusters, by one policy.

    Args:
        layout: of the federation.
        membership: of a proxy.
        policy: which.
        alpha: what headroom counts against weights.

    Attributes:
        by_locality: whether it matters where input lies.
    """

    def __init__(self, layout: Layout, membership: Membership, policy: Split, alpha: Fraction) -> None:
        self._layout = layout
        self._membership = membership
        self._policy = policy
        self._alpha = alpha
        self.by_locality = policy == "locality"

    def split(self, mask: int, count: int, home: int, near: int = -1) -> dict[int, int]:
        """The number of containers to request of each sub-cluster, together at least as many as are wanted.

        Args:
            mask: constraint set; some sub-cluster has machines that satisfy it.
            count: containers that are wanted.
            home: sub-cluster of the application master.
            near: sub-cluster that holds the input; -1: none in particular.
        """
        reach, membership = self._layout.reach(mask), self._membership
        if self._policy == "home" and home in reach and membership.active[home]:
            return {home: count}
        if near >= 0 and membership.active[near]:
            return {near: count}
        candidates = membership.usable(reach)
        if self._policy == "broadcast":
            return dict.fromkeys(candidates, count)
        return proportional(count, candidates, membership.weights, membership.headroom, self._alpha)
