"""The machines of one federation, in order: what schedulers see of them, and what constraints in words mean there."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.model import Cluster
from volery.live.constraints import Condition, Vocabulary
from volery.live.machine import Machine


class Fleet:
    """Machines and slots; a machine's place in the order is its number.

    Args:
        machines: what each one is.
        slots: per machine, how many tasks it runs at once.

    Raises:
        InputError: the machines differ in more ways than a constraint set can tell.
        ValueError: no machine, or one without a slot.
    """

    def __init__(self, machines: Sequence[Machine], slots: Sequence[int], name: str = "federation") -> None:
        self.machines = tuple(machines)
        self.vocabulary = Vocabulary(self.machines)
        self.cluster = Cluster(tuple(self.vocabulary.offered(machine) for machine in machines), tuple(slots), name)
        self._kinds = sorted(set(self.cluster.constraints))

    def needed(self, conditions: Sequence[Condition]) -> tuple[int, str]:
        """The constraint set of a task, and why no machine meets it (empty where one does).

        Raises:
            InputError: a condition that cannot be judged.
        """
        return self.vocabulary.needed(conditions), self.vocabulary.obstacle(conditions, self._kinds)
