"""Machines that tag constraints leave to a task, from the tags of the tasks that a scheduler has placed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from volery.core.model import UNLIMITED, Cluster, NodeGroup, Tags
from volery.core.tags import NODE_GROUPS, exceeded, has, lacking, node_sets


class TagIndex:
    """Counts the tags of placed tasks by machine and by rack.

    A look costs as much as there are node sets with tagged tasks that have changed since the last one for the same
    tags, times the different tags on them. Tasks that gather look at all of them.

    Args:
        cluster: The cluster, on which nothing runs.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        sets = self._sets = node_sets(cluster)
        self._all_machines = (1 << len(sets["node"])) - 1
        self._vectors: dict[NodeGroup, dict[int, int]] = {group: {} for group in NODE_GROUPS}
        for group in NODE_GROUPS:
            for machine, number in enumerate(sets[group]):
                self._vectors[group][number] = self._vectors[group].get(number, 0) | 1 << machine
        self._counts: dict[NodeGroup, dict[int, dict[Tags, int]]] = {group: {} for group in NODE_GROUPS}
        self._cluster_counts: dict[Tags, int] = {}
        self._known_vectors: dict[Tags, tuple[dict[NodeGroup, int], int]] = {}
        self._changes: list[int] = []

    def copy(self) -> TagIndex:
        """Another index with the same tasks."""
        twin = TagIndex.__new__(TagIndex)
        twin._cluster = self._cluster
        twin._sets, twin._all_machines, twin._vectors = self._sets, self._all_machines, self._vectors
        twin._counts = {
            group: {number: dict(counts) for number, counts in sets.items()} for group, sets in self._counts.items()
        }
        twin._cluster_counts = dict(self._cluster_counts)
        twin._known_vectors = {tags: (dict(vectors), since) for tags, (vectors, since) in self._known_vectors.items()}
        twin._changes = self._changes.copy()
        return twin

    def add(self, machine: int, tags: Tags, count: int = 1) -> None:
        """Count tasks with these tags on a machine; a negative count takes them away."""
        # The list of changes would grow without end; a fresh look at all node sets costs no more than so many
        # changes.
        if len(self._changes) > len(self._sets["node"]):
            self._changes.clear()
            self._known_vectors.clear()
        self._changes.append(machine)

        for group in NODE_GROUPS:
            sets, number = self._counts[group], self._sets[group][machine]
            counts = sets.setdefault(number, {})
            _add(counts, tags, count)
            if not counts:
                del sets[number]
        _add(self._cluster_counts, tags, count)

    def on(self, machine: int) -> tuple[tuple[Tags, int], ...]:
        """The tags on a machine, each with the number of its tasks."""
        return tuple(self._counts["node"].get(self._sets["node"][machine], {}).items())

    def set(self, machine: int, tag_counts: Sequence[tuple[Tags, int]]) -> None:
        """Replace all that is counted on a machine."""
        for tags, count in self.on(machine):
            self.add(machine, tags, -count)
        for tags, count in tag_counts:
            self.add(machine, tags, count)

    def allows(self, machine: int, tags: Tags) -> bool:
        """True if a task with these tags may start on a machine."""
        for group in NODE_GROUPS:
            counts = self._counts[group].get(self._sets[group][machine], {})
            if lacking(tags, counts, self._cluster_counts, group) or exceeded(tags, counts, group):
                return False
        return True

    def allowed(self, tags: Tags) -> int:
        """The vector of the machines on which a task with these tags may start."""
        vectors, since = self._known_vectors.get(tags, (None, 0))
        # What runs anywhere decides whether a gathering task may start here: no vector of it stays valid.
        if vectors is None or any(has(tags, constraint.target) for constraint in tags.constraints if constraint.least):
            vectors = {group: self._vector_of_all(tags, group) for group in NODE_GROUPS}
        elif since < len(self._changes):
            changed = self._changes[since:]
            for group in NODE_GROUPS:
                sets = dict.fromkeys([self._sets[group][machine] for machine in changed])
                vectors[group] = self._updated(tags, group, vectors[group], sets)
        self._known_vectors[tags] = vectors, len(self._changes)

        vector = self._all_machines
        for group in NODE_GROUPS:
            vector &= vectors[group]
        return vector

    def _vector_of_all(self, tags: Tags, group: NodeGroup) -> int:
        vector = self._all_machines if lacking(tags, {}, self._cluster_counts, group) is None else 0
        return self._updated(tags, group, vector, self._counts[group])

    def _updated(self, tags: Tags, group: NodeGroup, vector: int, sets: Iterable[int]) -> int:
        """The vector with another look at some node sets."""
        vectors = self._vectors[group]
        cluster_counts = self._cluster_counts
        for number in sets:
            counts = self._counts[group].get(number, {})
            if lacking(tags, counts, cluster_counts, group) is None and exceeded(tags, counts, group) is None:
                vector |= vectors[number]
            else:
                vector &= ~vectors[number]
        return vector

    def check(self, placed: Sequence[tuple[int, Tags]]) -> None:
        """Raise AssertionError where others than these tasks, with their machines, are counted."""
        recount = TagIndex(self._cluster)

        for machine, tags in placed:
            recount.add(machine, tags)
        assert recount._counts == self._counts, "tags are counted of tasks that are not placed, or not of some that are"
        assert recount._cluster_counts == self._cluster_counts


def concerns(waiting: Tags | None, moved_tags: Tags, sign: int) -> bool:
    """True if a task with tags may start where it could not before another task came (1), or left (-1)."""
    if waiting is None:
        return False
    if sign > 0:
        return any(has(moved_tags, constraint.target) for constraint in waiting.constraints if constraint.least)
    if not set(waiting.names).isdisjoint(moved_tags.names):  # both may be targets of a third one that runs there
        return True
    bounds = [(constraint, moved_tags) for constraint in waiting.constraints] + [
        (constraint, waiting) for constraint in moved_tags.constraints
    ]
    return any(constraint.most != UNLIMITED and has(tags, constraint.target) for constraint, tags in bounds)


def _add(counts: dict[Tags, int], tags: Tags, count: int) -> None:
    total = counts.get(tags, 0) + count
    assert total >= 0, "more tasks leave than have come"
    if total:
        counts[tags] = total
    else:
        counts.pop(tags, None)
