"""Equivalence classes of machines, and what is available of each when (TetriSched, EuroSys 2016).

Machines that are in the same sets of all expressions are alike to the planner, which decides about counts of them:
the number of variables grows with the number of classes, not of machines.
"""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterable, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from volery.architectures.tetrisched.alternatives import Alternatives, alternatives
from volery.architectures.tetrisched.expressions import NOW, Expression, LnCk, NCk, Sets, members

Counts = npt.NDArray[np.int64]


class MachineSupply(msgspec.Struct, frozen=True):
    """The machines that there are over time, as far as is known.

    Args:
        idle: Machines that are free now, as a bit vector.
        held: The quantum from which they are free, and those machines; in order of time.
    """

    idle: int
    held: tuple[tuple[int, int], ...] = ()


class Chosen(msgspec.Struct, frozen=True):
    """A leaf that is given machines.

    Args:
        request: The place of its expression.
        leaf: Number of the leaf in that, from left to right.
        amounts: Parts, and how many machines of each.
    """

    request: int
    leaf: int
    amounts: tuple[tuple[int, int], ...]


def partition(sets: Iterable[int]) -> list[int]:
    """The coarsest grouping of which every one of these sets of machines is a union.

    Returns:
        The groups, that with the lowest machine first.
    """
    groups: list[int] = []
    for machines in dict.fromkeys(sets):
        # What the groups so far leave of the set is a group of its own; each of them is cut in two by the set.
        rest_of_set = machines
        refined: list[int] = []

        for group in groups:
            inner = group & machines
            rest_of_set &= ~group
            refined += [piece for piece in (inner, group & ~machines) if piece]

        groups = refined + ([rest_of_set] if rest_of_set else [])

    return sorted(groups, key=lambda group: group & -group)


class Parts:
    """The groups of machines of some expressions.

    Attributes:
        groups: The machines of each group, as a bit vector.
        times: The quanta at which some leaf starts, in order.
        available: Number of free machines, per group and time.
        place: The place of each of these quanta in `times`.
        precious: Per group, in how many of the sets that were asked for it is.
        cheapest: The groups of each set, those first that fewest sets hold.

    Raises:
        InputError: an expression names a set that there is not.
    """

    def __init__(self, requests: Sequence[Expression], sets: Sets, supply: MachineSupply) -> None:
        masks: dict[tuple[str, ...], int] = {}

        starts: set[int] = {NOW}
        for request in requests:
            table = alternatives(request)
            starts |= table.starts
            for set_names in table.wheres:
                if set_names not in masks:
                    masks[set_names] = members(set_names, sets)

        self.groups = partition(masks.values())
        self.times = sorted(starts)

        self.place = {start: place for place, start in enumerate(self.times)}
        self._of = {
            set_names: tuple([part for part, group in enumerate(self.groups) if group & mask])
            for set_names, mask in masks.items()
        }

        set_counts = collections.Counter(itertools.chain.from_iterable(self._of.values()))
        self.precious = [set_counts[part] for part in range(len(self.groups))]
        self.cheapest = {
            set_names: tuple(sorted(parts, key=self.precious.__getitem__)) for set_names, parts in self._of.items()
        }

        self.available = np.zeros((len(self.groups), len(self.times)), dtype=np.int64)
        for part, group in enumerate(self.groups):
            self.available[part, :] = (group & supply.idle).bit_count()
            for first_quantum, machines in supply.held:
                # Counts at the time of a return and at all later ones: what is available only grows.
                self.available[part, bisect.bisect_left(self.times, first_quantum) :] += (group & machines).bit_count()

        self._counts: list[list[int]] = self.available.tolist()
        self._during: dict[tuple[int, int], range] = {}
        self._windows: dict[Alternatives, list[tuple[int, int]]] = {}
        self._totals: dict[tuple[tuple[str, ...], int], int] = {}

    def of(self, set_names: tuple[str, ...]) -> tuple[int, ...]:
        """The groups whose union a leaf's set is."""
        return self._of[set_names]

    def at_start(self, leaf: NCk | LnCk) -> dict[int, int]:
        """The machines of each group of a leaf's set when it starts: the fewest that there will be."""
        time = bisect.bisect_left(self.times, leaf.start)
        return {part: self._counts[part][time] for part in self._of[leaf.where]}

    def total(self, leaf: NCk | LnCk) -> int:
        """The number of machines of a leaf's set when it starts."""
        key = (leaf.where, leaf.start)
        if key not in self._totals:
            time = bisect.bisect_left(self.times, leaf.start)
            self._totals[key] = sum([self._counts[part][time] for part in self._of[leaf.where]])
        return self._totals[key]

    def windows(self, table: Alternatives) -> list[tuple[int, int]]:
        """The places of each leaf's first time with machines, and of its end."""
        if table not in self._windows:
            during = [self.during(leaf) for leaf in table.leaves]
            self._windows[table] = [(times.start, times.stop) for times in during]
        return self._windows[table]

    def during(self, leaf: NCk | LnCk) -> range:
        """The places of the times at which the leaf holds what it was given."""
        places = self._during.get((leaf.start, leaf.duration))
        if places is None:
            first = bisect.bisect_left(self.times, leaf.start)
            places = range(first, bisect.bisect_left(self.times, leaf.start + leaf.duration))
            self._during[leaf.start, leaf.duration] = places

        return places
