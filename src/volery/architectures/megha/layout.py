"""How Megha divides the cluster: clusters under Local Masters, each cut into one partition per Global Master."""

from __future__ import annotations

from volery.core.errors import InputError
from volery.core.model import Cluster, split_evenly
from volery.policies.match import Matches, fewest_constraints_first


class Layout:
    """Units, partitions and constraint vectors; a pure function of the cluster, shared by all components of a build.

    Partition `lm * gm_count + gm` is internal to that GM and external to the others. The units of a partition are
    numbered consecutively, machines with few constraints first.

    Args:
        cluster: machines in order; consecutive machines share a Local Master.
        gm_count: partitions per Local Master.
        lm_count: Local Masters.

    Attributes:
        partition_of, bit_of, constraints_of, machine_of, node_of: per unit.
        bits: per position.
        first_unit, size: per partition.
        matches: per partition, constraint set -> vector of its units.

    Raises:
        InputError: more partitions than machines.
    """

    def __init__(self, cluster: Cluster, gm_count: int, lm_count: int) -> None:
        machine_count = len(cluster.constraints)
        if gm_count * lm_count > machine_count:
            raise InputError(
                "megha",
                f"{gm_count} GMs x {lm_count} LMs make {gm_count * lm_count} partitions, more than {machine_count} "
                "workers; lower gms or lms, or add workers",
            )
        self.gm_count, self.lm_count = gm_count, lm_count
        self.partition_of: list[int] = []
        self.bit_of: list[int] = []
        self.constraints_of: list[int] = []
        self.machine_of: list[int] = []
        self.first_unit: list[int] = []
        self.size: list[int] = []
        self.matches: list[Matches] = []
        for lm_machines in split_evenly(machine_count, lm_count):
            for piece in split_evenly(len(lm_machines), gm_count):
                self._add_partition(cluster, [lm_machines.start + i for i in piece])
        self.node_of = [f"node/{machine}" for machine in self.machine_of]
        self.bits = bits = [1 << position for position in range(max(self.size))]
        self.bit_of = [bits[unit - self.first_unit[p]] for unit, p in enumerate(self.partition_of)]

    def _add_partition(self, cluster: Cluster, machines: list[int]) -> None:
        partition = len(self.first_unit)
        self.first_unit.append(len(self.machine_of))
        constraints = []
        for machine in fewest_constraints_first(machines, cluster.constraints):
            for _ in range(cluster.slots[machine]):
                self.machine_of.append(machine)
                self.partition_of.append(partition)
                constraints.append(cluster.constraints[machine])
        self.constraints_of += constraints
        self.size.append(len(constraints))
        self.matches.append(Matches(constraints))

    def partitions_of_lm(self, lm: int) -> range:
        """The partitions that a Local Master is in charge of."""
        return range(lm * self.gm_count, (lm + 1) * self.gm_count)

    def whole(self, partition: int) -> int:
        """The vector in which every unit is free."""
        return self.matches[partition].every

    def search_orders(self, gm: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Per Local Master to start from: the GM's internal partitions, then the external ones, round robin."""
        orders = []
        for start in range(self.lm_count):
            lms = [(start + i) % self.lm_count for i in range(self.lm_count)]
            internal = tuple(lm * self.gm_count + gm for lm in lms)
            others = [(gm + i) % self.gm_count for i in range(1, self.gm_count)]
            orders.append((internal, tuple(lm * self.gm_count + other for other in others for lm in lms)))
        return orders
