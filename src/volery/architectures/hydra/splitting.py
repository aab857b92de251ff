"""Of which sub-clusters a proxy asks containers: the policies of the AM-RM proxy, and what it knows of sub-clusters."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction
from typing import Literal

from volery.architectures.hydra.layout import Layout
from volery.architectures.hydra.messages import Directory
from volery.architectures.hydra.weighing import WHOLE, proportional

Split = Literal["broadcast", "home", "weighted", "locality"]


class View:
    """What routers and proxies know of sub-clusters, as the state store has told last.

    Attributes:
        active: per sub-cluster, whether its resource manager is heard of.
        weights: set by the policy generator, in permille.
        headroom: free slots, of those that have said so.
    """

    def __init__(self, count: int) -> None:
        self.active = [True] * count
        self.weights = [WHOLE] * count
        self.headroom: dict[int, int] = {}
        self._heard = 0

    def hear(self, message: Directory) -> tuple[list[int], list[int]]:
        """Take note of the store's news; returns the sub-clusters that are lost by it, and those that are back."""
        if message.number <= self._heard:
            return [], []
        self._heard = message.number
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
    """One policy.

    Args:
        layout: of the federation.
        view: of a proxy.
        policy: which.
        alpha: what headroom counts against weights.

    Attributes:
        by_locality: whether it matters where input lies.
    """

    def __init__(self, layout: Layout, view: View, policy: Split, alpha: Fraction) -> None:
        self._layout = layout
        self._view = view
        self._policy = policy
        self._alpha = alpha
        self.by_locality = policy == "locality"

    def split(self, mask: int, count: int, home: int, near: int = -1) -> dict[int, int]:
        """How many containers to ask of each sub-cluster; together at least as many as are wanted.

        Args:
            mask: constraint set; some sub-cluster has machines that satisfy it.
            count: containers that are wanted.
            home: sub-cluster of the application master.
            near: sub-cluster that holds the input; -1: none in particular.
        """
        reach, view = self._layout.reach(mask), self._view
        if self._policy == "home" and home in reach and view.active[home]:
            return {home: count}
        if near >= 0 and view.active[near]:
            return {near: count}
        candidates = view.usable(reach)
        if self._policy == "broadcast":
            return dict.fromkeys(candidates, count)
        return proportional(count, candidates, view.weights, view.headroom, self._alpha)
