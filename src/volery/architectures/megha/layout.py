"""How Megha divides the cluster: clusters under Local Masters, each cut into one partition per Global Master."""

from __future__ import annotations

from volery.core.errors import InputError
from volery.core.model import Cluster, split_evenly
from volery.policies.match import Anchors, Matches, fewest_constraints_first


class Layout:
    """Units, partitions and constraint vectors; a pure function of the cluster, shared by all components of a build.

    Partition `lm * gm_count + gm` is internal to that GM and external to the others. The units of a partition are its
    worker slots, machines with few constraints first.

    Args:
        cluster: machines in order; consecutive machines share a Local Master.
        gm_count: partitions per Local Master.
        lm_count: Local Masters.

    Attributes:
        bits: per position, the vector with this bit alone.
        machines, nodes, constraints: per partition, then per position.
        size: per partition.
        lm_of: per partition.
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
        self.machines: list[list[int]] = []
        for lm_machines in split_evenly(machine_count, lm_count):
            for piece in split_evenly(len(lm_machines), gm_count):
                ordered = fewest_constraints_first([lm_machines.start + i for i in piece], cluster.constraints)
                self.machines.append([machine for machine in ordered for _ in range(cluster.slots[machine])])
        names = [f"node/{machine}" for machine in range(machine_count)]
        self.nodes = [[names[machine] for machine in machines] for machines in self.machines]
        self.constraints = [[cluster.constraints[machine] for machine in machines] for machines in self.machines]
        self.size = [len(machines) for machines in self.machines]
        self.lm_of = [partition // gm_count for partition in range(len(self.size))]
        anchors = Anchors(cluster.constraints)
        self.matches = [Matches(constraints, anchors, len(self.size)) for constraints in self.constraints]
        self.bits = [1 << position for position in range(max(self.size))]

    def partitions_of_lm(self, lm: int) -> range:
        """The partitions that a Local Master is in charge of."""
        return range(lm * self.gm_count, (lm + 1) * self.gm_count)

    def whole(self, partition: int) -> int:
        """The vector in which every unit is free."""
        return self.matches[partition].every

    def search_orders(self, gm: int) -> dict[int, tuple[int, ...]]:
        """Per internal partition to start from: all partitions of the GM, internal ones first, round robin over LMs."""
        orders = {}
        for start in range(self.lm_count):
            lms = [(start + i) % self.lm_count for i in range(self.lm_count)]
            others = [(gm + i) % self.gm_count for i in range(self.gm_count)]
            order = tuple(lm * self.gm_count + other for other in others for lm in lms)
            orders[order[0]] = order
        return orders
