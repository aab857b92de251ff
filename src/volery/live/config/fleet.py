"""The machines of one federation, in order: what schedulers see of them, and what constraints in words mean there."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volery.core.errors import InputError, suggestion
from volery.core.misses import nearest_miss
from volery.core.model import Amounts, Cluster
from volery.live.config.constraints import MachineCondition, Vocabulary
from volery.live.config.machine import Machine


class Fleet:
    """Machines and slots; a machine's place in the order is its number.

    Args:
        machines: what each one is.
        slots: per machine, how many tasks it runs at once.
        name: of the federation.
        capacities: per machine, what it offers instead of slots, by name; all offer the same resources.

    Raises:
        InputError: the machines differ in more ways than a constraint set can tell.
        ValueError: no machine, one without a slot, or an amount out of range.
    """

    def __init__(
        self,
        machines: Sequence[Machine],
        slots: Sequence[int],
        name: str = "federation",
        capacities: Sequence[Mapping[str, int]] = (),
    ) -> None:
        self.machines = tuple(machines)
        self.vocabulary = Vocabulary(self.machines)
        names = tuple(capacities[0]) if capacities else ()
        amounts = tuple([tuple([offered[name] for name in names]) for offered in capacities])
        offers = tuple(self.vocabulary.offered(machine) for machine in machines)
        self.cluster = Cluster(offers, tuple(slots), name, names, amounts)
        self._kinds = sorted(set(self.cluster.constraints))

    def needed(self, conditions: Sequence[MachineCondition], request: Amounts = ()) -> tuple[int, str]:
        """The constraint set of a task, and why no machine can run it (empty where one can).

        Raises:
            InputError: a condition that cannot be judged.
        """
        mask, obstacle = self.vocabulary.needed(conditions), self.vocabulary.obstacle(conditions, self._kinds)
        if request and not obstacle:
            obstacle = nearest_miss(self.cluster, mask, request, ", ".join(map(str, conditions)))
        return mask, obstacle

    def request(self, asked: Mapping[str, int], place: str) -> Amounts:
        """The request of a task, in the cluster's order of resources; 0 where it names none.

        Raises:
            InputError: at `place`, a resource that machines do not offer, or none at all where they offer some.
        """
        names = self.cluster.resources
        if bool(asked) != bool(names):
            fix = f"write how much of {', '.join(names)}" if names else "machines have slots here; leave it out"
            raise InputError(place, fix)
        for name in asked:
            if name not in names:
                raise InputError(f"{place}.{name}", f"no machine offers it{suggestion(name, names)}")
        return tuple([asked.get(name, 0) for name in names])
