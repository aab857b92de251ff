"""Amounts that the machines of a layout offer, and requests as indices look for them."""

from __future__ import annotations

from volery.architectures.megha.partitions import Layout
from volery.core.model import Amounts, Cluster, Task
from volery.core.resources import packing_of
from volery.policies.capacity import CapacityIndex, Ladders


class Capacities:
    """Amounts that the machines of a layout offer; slots are one resource of them.

    Args:
        layout: Layout of the cluster, by machine.

    Attributes:
        ladders: requests as the indices look for them.
        whole: per partition, everything free; to be copied.
        state_bytes: Number of bytes of one machine in a message.
    """

    def __init__(self, cluster: Cluster, layout: Layout) -> None:
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.ladders = Ladders(capacities, packing_of(cluster))
        self.whole = [
            CapacityIndex([capacities[machine] for machine in machines], self.ladders) for machines in layout.machines
        ]
        self.state_bytes = (self.ladders.packing.guards.bit_length() + 7) // 8
        self._matches = layout.matches
        self._possible: dict[tuple[int, Amounts], bool] = {}

    def fits_somewhere(self, task: Task) -> bool:
        """Find out whether some machine, empty, could run the task."""
        kind = (task.constraints, task.request)
        if kind not in self._possible:
            need = self.ladders[task.request]
            self._possible[kind] = any(
                index.fitting(need, matches[task.constraints])
                for index, matches in zip(self.whole, self._matches, strict=True)
            )
        return self._possible[kind]
