"""How Megha divides a cluster whose machines offer amounts of several resources; slots are one resource of them."""

from __future__ import annotations

import msgspec

from volery.architectures.megha.layout import Layout
from volery.core.devices import packing_of
from volery.core.model import Amounts, Cluster, Task
from volery.policies.capacity import CapacityIndex, Ladders


class VectorLayout(Layout):
    """A layout whose units are machines.

    Attributes:
        ladders: requests as the indices look for them.
        whole_index: per partition, everything free; to be copied.
        state_bytes: how many bytes one machine takes in a message.
        lm_of_address: number of a Local Master.
    """

    def __init__(self, cluster: Cluster, gm_count: int, lm_count: int) -> None:
        super().__init__(msgspec.structs.replace(cluster, slots=(1,) * len(cluster.slots)), gm_count, lm_count)
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.ladders = Ladders(capacities, packing_of(cluster))
        self.whole_index = [
            CapacityIndex([capacities[machine] for machine in machines], self.ladders) for machines in self.machines
        ]
        self.state_bytes = (self.ladders.packing.guards.bit_length() + 7) // 8
        self.lm_of_address = {f"lm/{lm}": lm for lm in range(lm_count)}
        self._possible: dict[tuple[int, Amounts], bool] = {}

    def fits_somewhere(self, task: Task) -> bool:
        """Whether some machine, empty, could run the task."""
        kind = (task.constraints, task.request)
        if kind not in self._possible:
            need = self.ladders[task.request]
            self._possible[kind] = any(
                index.fitting(need, matches[task.constraints])
                for index, matches in zip(self.whole_index, self.matches, strict=True)
            )
        return self._possible[kind]
