"""Partitions of Megha: clusters under Local Masters, each cut into one partition per Global Master."""

from __future__ import annotations

from volery.core.errors import InputError
from volery.core.model import Cluster, split_evenly
from volery.policies.match import Anchors, Matches, fewest_constraints_first


class Layout:
    """Units, partitions and constraint vectors; a pure function of the cluster, shared by all components of a build.

    Partition `lm * gm_count + gm` is internal to that GM and external to the others. The units of a partition are its
    worker slots, or its machines where tasks ask for amounts, those with few constraints first, or in order.

    Args:
        cluster: machines in order; consecutive machines share a Local Master.
        gm_count: partitions per Local Master.
        lm_count: Local Masters.
        by_machine: Whether units are machines.
        in_order: Whether units stand in the order of machines.

    Attributes:
        bits: per position, the vector with this bit alone.
        machines, nodes, constraints: per partition, then per position.
        size: per partition.
        lm_of: per partition.
        matches: per partition, constraint set -> vector of its units.

    Raises:
        InputError: more partitions than machines.
    """

    def __init__(
        self, cluster: Cluster, gm_count: int, lm_count: int, *, by_machine: bool = False, in_order: bool = False
    ) -> None:
        machine_count = len(cluster.constraints)
        if gm_count * lm_count > machine_count:
            raise InputError(
                "megha",
                f"{gm_count} GMs x {lm_count} LMs make {gm_count * lm_count} partitions, more than {machine_count} "
                "workers; lower gms or lms, or add workers",
            )
        self.gm_count, self.lm_count = gm_count, lm_count
        units = (1,) * machine_count if by_machine else cluster.slots
        self.machines: list[list[int]] = []
        for lm_machines in split_evenly(machine_count, lm_count):
            for piece in split_evenly(len(lm_machines), gm_count):
                ordered = [lm_machines.start + i for i in piece]
                if not in_order:
                    ordered = fewest_constraints_first(ordered, cluster.constraints)
                self.machines.append([machine for machine in ordered for _ in range(units[machine])])
        names = [f"node/{machine}" for machine in range(machine_count)]
        self.nodes = [[names[machine] for machine in machines] for machines in self.machines]
        self.constraints = [[cluster.constraints[machine] for machine in machines] for machines in self.machines]
        self.size = [len(machines) for machines in self.machines]
        self.lm_of = [partition // gm_count for partition in range(len(self.size))]
        anchors = Anchors(cluster.constraints)
        self.matches = [Matches(constraints, anchors, len(self.size)) for constraints in self.constraints]
        self.bits = [1 << position for position in range(max(self.size))]

    def units(self) -> dict[int, list[tuple[int, int]]]:
        """Per machine, partition and position of each of its units."""
        units: dict[int, list[tuple[int, int]]] = {}
        for partition, machines in enumerate(self.machines):
            for position, machine in enumerate(machines):
                units.setdefault(machine, []).append((partition, position))
        return units

    def partitions_of_lm(self, lm: int) -> range:
        """The partitions that a Local Master is in charge of."""
        return range(lm * self.gm_count, (lm + 1) * self.gm_count)

    def whole(self, partition: int) -> int:
        """The vector in which every unit is free."""
        return self.matches[partition].every


class SearchOrder:
    """The order in which a Global Master searches partitions: internal ones first, round robin over Local Masters.

    Attributes:
        gm: Number of the Global Master.
        orders: per internal partition to start from, all partitions.
        first: the internal partition that the first task starts from.
        after: per partition, the internal one that the next task starts from.
        external: per partition, whether it is.
    """

    def __init__(self, layout: Layout, gm: int) -> None:
        self.gm = gm
        self.orders: dict[int, tuple[int, ...]] = {}
        for start in range(layout.lm_count):
            lms = [(start + i) % layout.lm_count for i in range(layout.lm_count)]
            others = [(gm + i) % layout.gm_count for i in range(layout.gm_count)]
            order = tuple(lm * layout.gm_count + other for other in others for lm in lms)
            self.orders[order[0]] = order
        internal = list(self.orders)
        following = dict(zip(internal, internal[1:] + internal[:1], strict=True))
        self.first = internal[gm % layout.lm_count]
        self.after = [following[lm * layout.gm_count + gm] for lm in layout.lm_of]
        self.external = [partition not in following for partition in range(len(layout.size))]
