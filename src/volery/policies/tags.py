"""Machines that tag constraints leave to a task, from the tags of the tasks that a scheduler has placed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volery.core.model import Cluster, NodeGroup, Tags
from volery.core.tags import NODE_GROUPS, exceeded, lacking, node_sets


class TagIndex:
    """Counts the tags of placed tasks by machine and by rack.

    A look costs as much as there are node sets with tagged tasks, times their different tags; it is kept until
    something changes.

    Args:
        sets: by group of node sets, the number of each machine's; see `volery.core.tags.node_sets`.
    """

    def __init__(self, sets: Mapping[NodeGroup, Sequence[int]]) -> None:
        self._sets = sets
        self._every = (1 << len(sets["node"])) - 1
        self._vectors: dict[NodeGroup, dict[int, int]] = {group: {} for group in NODE_GROUPS}
        for group in NODE_GROUPS:
            for machine, number in enumerate(sets[group]):
                self._vectors[group][number] = self._vectors[group].get(number, 0) | 1 << machine
        self._held: dict[NodeGroup, dict[int, dict[Tags, int]]] = {group: {} for group in NODE_GROUPS}
        self._everywhere: dict[Tags, int] = {}
        self._known: dict[Tags, int] = {}

    @staticmethod
    def of(cluster: Cluster) -> TagIndex:
        """The index of a cluster on which nothing runs."""
        return TagIndex(node_sets(cluster))

    def copy(self) -> TagIndex:
        """Another index with the same tasks."""
        other = TagIndex.__new__(TagIndex)
        other._sets, other._every, other._vectors = self._sets, self._every, self._vectors
        other._held = {
            group: {number: dict(held) for number, held in sets.items()} for group, sets in self._held.items()
        }
        other._everywhere, other._known = dict(self._everywhere), dict(self._known)
        return other

    def add(self, machine: int, tags: Tags, count: int = 1) -> None:
        """Count tasks with these tags on a machine; a negative count takes them away."""
        self._known.clear()
        for group in NODE_GROUPS:
            sets, number = self._held[group], self._sets[group][machine]
            held = sets.setdefault(number, {})
            _add(held, tags, count)
            if not held:
                del sets[number]
        _add(self._everywhere, tags, count)

    def on(self, machine: int) -> tuple[tuple[Tags, int], ...]:
        """The tags on a machine, each with the number of its tasks."""
        return tuple(self._held["node"].get(machine, {}).items())

    def set(self, machine: int, held: Sequence[tuple[Tags, int]]) -> None:
        """Replace all that is counted on a machine."""
        for tags, count in self.on(machine):
            self.add(machine, tags, -count)
        for tags, count in held:
            self.add(machine, tags, count)

    def allows(self, machine: int, tags: Tags) -> bool:
        """True if a task with these tags may start on a machine."""
        for group in NODE_GROUPS:
            held = self._held[group].get(self._sets[group][machine], {})
            if lacking(tags, held, self._everywhere, group) or exceeded(tags, held, group):
                return False
        return True

    def allowed(self, tags: Tags) -> int:
        """The vector of the machines on which a task with these tags may start."""
        found = self._known.get(tags)
        if found is None:
            found = self._every
            for group in NODE_GROUPS:
                found &= self._allowed(tags, group)
            self._known[tags] = found
        return found

    def _allowed(self, tags: Tags, group: NodeGroup) -> int:
        vectors, everywhere = self._vectors[group], self._everywhere
        found = self._every if lacking(tags, {}, everywhere, group) is None else 0
        for number, held in self._held[group].items():
            found &= ~vectors[number]
            if lacking(tags, held, everywhere, group) is None and exceeded(tags, held, group) is None:
                found |= vectors[number]
        return found

    def check(self, placed: Sequence[tuple[int, Tags]]) -> None:
        """Raise AssertionError where others than these tasks, with their machines, are counted."""
        other = TagIndex(self._sets)
        for machine, tags in placed:
            other.add(machine, tags)
        assert other._held == self._held, "tags are counted of tasks that are not placed, or not of some that are"
        assert other._everywhere == self._everywhere


def _add(held: dict[Tags, int], tags: Tags, count: int) -> None:
    total = held.get(tags, 0) + count
    assert total >= 0, "more tasks leave than have come"
    if total:
        held[tags] = total
    else:
        held.pop(tags, None)
