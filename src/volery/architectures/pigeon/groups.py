"""The groups of workers into which Pigeon divides the cluster, and the supply of each by constraint set."""

from __future__ import annotations

from array import array
from collections.abc import Sequence
from itertools import accumulate
from math import gcd
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from volery.core.errors import InputError
from volery.core.model import Cluster, split_evenly
from volery.policies.match import Anchors, Matches, fewest_constraints_first

ConstraintCounting = Literal["exact", "published-code"]
Power = Literal["workers", "speed"]

MEMO_NUMBERS_MAX = 8_000_000
"""Limit of the weights that are kept, four bytes each: enough for 8,000 distinct constraint sets at 1,000 groups."""
INT32_BITS = 31
TOTAL_MAX = (1 << INT32_BITS) - 1
"""Processing power of all groups together: running totals are 32-bit integers."""


Column = npt.NDArray[np.integer[Any]]


class Group:
    """The units of one group, machines with few constraints first.

    Attributes:
        reserved: Bit vector of the units that run short tasks only.
        constraints, node_of, bits, speeds: Constraints, node, bit and speed of each unit.
        matches: Constraint set -> bit vector of units.
    """

    def __init__(
        self, cluster: Cluster, machines: Sequence[int], reserved: int, anchors: Anchors, group_count: int
    ) -> None:
        in_order = list(machines)
        reserved_machines = set(in_order[:reserved])

        self.machines: list[int] = []
        self.constraints: list[int] = []
        self.reserved = 0
        for machine in fewest_constraints_first(in_order, cluster.constraints):
            for _ in range(cluster.slots[machine]):
                if machine in reserved_machines:
                    self.reserved |= 1 << len(self.machines)
                self.machines.append(machine)
                self.constraints.append(cluster.constraints[machine])

        self.in_order = [cluster.constraints[m] for m in in_order for _ in range(cluster.slots[m])]
        self.in_order_for_long = [cluster.constraints[m] for m in in_order[reserved:] for _ in range(cluster.slots[m])]

        self.node_of = [f"node/{machine}" for machine in self.machines]
        self.speeds = [cluster.speeds[machine] if cluster.speeds else 1 for machine in self.machines]
        self.matches = Matches(self.constraints, anchors, group_count)
        self.bits = [1 << unit for unit in range(len(self.machines))]

    def powers(self) -> list[int]:
        """The processing power of each machine: its slots times their speed."""
        powers: dict[int, int] = {}

        for machine, speed in zip(self.machines, self.speeds, strict=True):
            powers[machine] = powers.get(machine, 0) + speed

        return list(powers.values())


class MasterHosts(NamedTuple):
    """The workers that masters run on, and that therefore run no tasks (section 4.1).

    Args:
        masters: Number of masters of neighbouring groups that share a worker; 0: masters take no worker.
        pairs: Whether every group has a second master, on another worker than the first (section 6.1).
    """

    masters: int = 0
    pairs: bool = False

    def left(self, ranges: list[range]) -> list[range]:
        """The machines of each group that are left: the first of the groups that share gives its last ones.

        Raises:
            InputError: a group would have no machine left.
        """
        if not self.masters:
            return ranges

        workers_of_masters = 1 + self.pairs
        # Only the first of the groups that share a worker gives it up; the others lose nothing.
        machines_of_groups = [
            machines[:-workers_of_masters] if not group % self.masters else machines
            for group, machines in enumerate(ranges)
        ]

        if not all(machines_of_groups):
            raise InputError(
                "pigeon:masters_per_worker",
                f"its masters take {workers_of_masters} workers of a group, and one group has no more; "
                "give larger groups, or 0",
            )

        return machines_of_groups


NO_HOSTS = MasterHosts()


def divide(
    cluster: Cluster, group_count: int, group_sizes: Sequence[int], reserved: int, hosts: MasterHosts = NO_HOSTS
) -> list[Group]:
    """Cut the cluster into groups of consecutive machines.

    Args:
        group_sizes: Machines per group, for unequal groups; they must add up to all machines.

    Raises:
        InputError: more groups than machines, sizes that do not add up, or a group with nothing but reserved machines,
            or with none that its masters leave.
    """
    machine_count = len(cluster.constraints)

    if group_sizes:
        if sum(group_sizes) != machine_count or min(group_sizes) < 1:
            raise InputError(
                "pigeon:group_sizes",
                f"the sizes {tuple(group_sizes)} add up to {sum(group_sizes)}, but there are {machine_count} workers; "
                "give positive sizes that add up",
            )
        ends = list(accumulate(group_sizes))
        ranges = [range(end - size, end) for end, size in zip(ends, group_sizes, strict=True)]
    elif group_count > machine_count:
        raise InputError(
            "pigeon:groups", f"{group_count} groups are more than {machine_count} workers; lower groups or add workers"
        )
    else:
        ranges = split_evenly(machine_count, group_count)

    ranges = hosts.left(ranges)

    smallest = min(len(machines) for machines in ranges)
    if reserved >= smallest:
        raise InputError(
            "pigeon:reserved",
            f"{reserved} reserved workers leave none for long tasks in a group of {smallest}; lower reserved",
        )

    anchors = Anchors(cluster.constraints)
    return [Group(cluster, machines, reserved, anchors, len(ranges)) for machines in ranges]


class GroupSupply:
    """Per constraint set, how many units of each group satisfy it: the weights of PigeonC's random choice of a master.

    With power "speed" a unit counts by the speed of its machine (Pigeon, section 6.2).
    With counting "published-code" a group's units are merged as the public code of PigeonC merges them: in machine
    order, a unit whose constraints are contained in sets already listed counts for every one of those sets and not for
    its own, so that weak units count as strong ones. A pure function of the groups, shared inside one build.

    Attributes:
        known: For long tasks, then for short ones: constraint set -> the answer of `cumulative`.
    """

    def __init__(self, groups: Sequence[Group], counting: ConstraintCounting, power: Power = "workers") -> None:
        scale = gcd(*(speed for group in groups for speed in group.speeds)) if power == "speed" else 0
        sets: list[int] = []
        counts: list[int] = []
        long_counts: list[int] = []
        starts: list[int] = []

        for group in groups:
            starts.append(len(sets))
            if counting == "exact":
                sets += group.constraints
                units = [speed // scale for speed in group.speeds] if scale else [1] * len(group.constraints)
                counts += units
                long_counts += [0 if group.reserved >> unit & 1 else count for unit, count in enumerate(units)]
            else:
                listed = published_occurrences(group.in_order)
                for_long = published_occurrences(group.in_order_for_long)
                sets += [*listed, *for_long]
                counts += [*listed.values(), *[0] * len(for_long)]
                long_counts += [*[0] * len(listed), *for_long.values()]

        _check_power(power, counting, sum(counts))

        width = max(sets).bit_length()
        self._sets: Column = np.array(sets, dtype=np.int32 if width < INT32_BITS else np.int64)
        self._within = (1 << width) - 1
        self._counts = np.array([long_counts, counts], dtype=np.int32)
        self._group = np.repeat(np.arange(len(groups), dtype=np.int32), np.diff([*starts, len(sets)]))
        self._anchors = Anchors(sets)
        self._counts_are_ones = (min(counts) == max(counts) == 1, min(long_counts) == max(long_counts) == 1)
        self._anchored: dict[int, tuple[Column, Column, Column]] = {}
        self.known: tuple[dict[int, array[int]], dict[int, array[int]]] = ({}, {})
        self.group_count = len(groups)

    def cumulative(self, mask: int, short: bool) -> array[int]:
        """Running totals over groups of the units that satisfy the set; long tasks may not use reserved units.

        Only the units that satisfy the set's two rarest constraints are looked at.
        """
        totals = array("i", [0]) * self.group_count
        # A constraint that no unit has cannot be compared in the arrays' integer width, and nothing satisfies it.
        if not mask & ~self._within:
            sets, group, units = self._units(self._anchors[mask])
            required = np.array(mask, dtype=self._sets.dtype)
            fitting = ((sets & required) == required).nonzero()[0]

            # Counts of one need no weights: bincount then stays in integers and is twice as fast.
            weights = None if self._counts_are_ones[not short] else self._counts[int(short)][units[fitting]]
            counts = np.bincount(group[fitting], weights, self.group_count)
            totals = array("i", counts.cumsum().astype(np.int32).tobytes())

        if len(self.known[short]) * self.group_count < MEMO_NUMBERS_MAX:
            self.known[short][mask] = totals
        return totals

    def _units(self, anchor: int) -> tuple[Column, Column, Column]:
        """Constraint sets, groups and numbers of the units that satisfy an anchor."""
        anchored_units = self._anchored.get(anchor)
        if anchored_units is None:
            required = np.array(anchor, dtype=self._sets.dtype)
            units = ((self._sets & required) == required).nonzero()[0].astype(np.int32)
            anchored_units = self._anchored[anchor] = (self._sets[units], self._group[units], units)

        return anchored_units


def _check_power(power: Power, counting: ConstraintCounting, total: int) -> None:
    if power == "speed" and counting == "published-code":
        raise InputError(
            "pigeon:power", "the published code counts constraint sets, which have no speed; give power=workers"
        )
    if total > TOTAL_MAX:
        raise InputError(
            "pigeon:power", f"the speeds of all workers add up to {total}, over {TOTAL_MAX}; give them in a larger unit"
        )


def published_occurrences(constraints: Sequence[int]) -> dict[int, int]:
    """Occurrences of constraint sets as the public code counts them (distributor set-up of PigeonC's simulator)."""
    listed: dict[int, int] = {}
    for mask in constraints:
        containing = [listed_mask for listed_mask in listed if mask & ~listed_mask == 0]
        for listed_mask in containing:
            listed[listed_mask] += 1

        if not containing:
            listed[mask] = 1

    return listed
