"""Machines that tag constraints leave to a task, from the tags of the tasks that a scheduler has placed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from volery.core.model import UNLIMITED, Cluster, NodeGroup, Tags
from volery.core.tags import NODE_GROUPS, exceeded, has, lacking, node_sets


class TagIndex:
    """Counts the tags of placed tasks by machine and by rack.

    A look costs as much as there are node sets with tagged tasks that have changed since the last one for the same
    tags, times the different tags on them. Tasks that gather look at all of them.

    Args:
        sets: by group of node sets, the number of each machine's; see `volery.core.tags.node_sets`. Slots may stand for
            machines: then several have the node set of their machine.
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
        self._known: dict[Tags, tuple[dict[NodeGroup, int], int]] = {}
        self._changes: list[int] = []

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
        other._everywhere = dict(self._everywhere)
        other._known = {tags: (dict(found), since) for tags, (found, since) in self._known.items()}
        other._changes = self._changes.copy()
        return other

    def add(self, machine: int, tags: Tags, count: int = 1) -> None:
        """Count tasks with these tags on a machine; a negative count takes them away."""
        if len(self._changes) > len(self._sets["node"]):
            self._changes.clear()
            self._known.clear()
        self._changes.append(machine)
        for group in NODE_GROUPS:
            sets, number = self._held[group], self._sets[group][machine]
            held = sets.setdefault(number, {})
            _add(held, tags, count)
            if not held:
                del sets[number]
        _add(self._everywhere, tags, count)

    def on(self, machine: int) -> tuple[tuple[Tags, int], ...]:
        """The tags on a machine, each with the number of its tasks."""
        return tuple(self._held["node"].get(self._sets["node"][machine], {}).items())

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
        found, since = self._known.get(tags, (None, 0))
        if found is None or any(has(tags, one.target) for one in tags.constraints if one.least):
            found = {group: self._anew(tags, group) for group in NODE_GROUPS}
        elif since < len(self._changes):
            changed = self._changes[since:]
            for group in NODE_GROUPS:
                sets = dict.fromkeys([self._sets[group][machine] for machine in changed])
                found[group] = self._updated(tags, group, found[group], sets)
        self._known[tags] = found, len(self._changes)
        vector = self._every
        for group in NODE_GROUPS:
            vector &= found[group]
        return vector

    def _anew(self, tags: Tags, group: NodeGroup) -> int:
        found = self._every if lacking(tags, {}, self._everywhere, group) is None else 0
        return self._updated(tags, group, found, self._held[group])

    def _updated(self, tags: Tags, group: NodeGroup, found: int, sets: Iterable[int]) -> int:
        """The vector with another look at some node sets."""
        vectors, everywhere = self._vectors[group], self._everywhere
        for number in sets:
            held = self._held[group].get(number, {})
            if lacking(tags, held, everywhere, group) is None and exceeded(tags, held, group) is None:
                found |= vectors[number]
            else:
                found &= ~vectors[number]
        return found

    def check(self, placed: Sequence[tuple[int, Tags]]) -> None:
        """Raise AssertionError where others than these tasks, with their machines, are counted."""
        other = TagIndex(self._sets)
        for machine, tags in placed:
            other.add(machine, tags)
        assert other._held == self._held, "tags are counted of tasks that are not placed, or not of some that are"
        assert other._everywhere == self._everywhere


def concerns(waiting: Tags | None, other: Tags, sign: int) -> bool:
    """True if a task with tags may start where it could not before another came (1), or left (-1)."""
    if waiting is None:
        return False
    if sign > 0:
        return any(has(other, one.target) for one in waiting.constraints if one.least)
    if not set(waiting.names).isdisjoint(other.names):  # both may be targets of a third one that runs there
        return True
    bounds = [(one, other) for one in waiting.constraints] + [(one, waiting) for one in other.constraints]
    return any(one.most != UNLIMITED and has(tags, one.target) for one, tags in bounds)


def _add(held: dict[Tags, int], tags: Tags, count: int) -> None:
    total = held.get(tags, 0) + count
    assert total >= 0, "more tasks leave than have come"
    if total:
        held[tags] = total
    else:
        held.pop(tags, None)
