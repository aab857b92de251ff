"""Policies of machines: those that a user may have (R2), their distance from input (R3), and the one to take (R5).

Andreadis et al., SC18, section III-D4. Ties that a policy of R5 does not decide go to the machine that meets the fewest
constraints: it is the least useful to others (minimum constraints, Thiyyakat et al., IoT 2023, section 4.3).
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.policies.policy import Choice, Policy
from volery.architectures.pipeline.policies.records import Waiting
from volery.architectures.pipeline.policies.view import Candidates, View
from volery.core.bounds import PositiveCount, Ratio, Seconds, param
from volery.core.model import SECOND, Time
from volery.policies.match import nth_position, positions

Scores = npt.NDArray[np.float64]


class FirstFit(Policy, frozen=True):
    """The first machine that fits, by number."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        return machines.first()


class BestFit(Policy, frozen=True):
    """The machine with the least free of the resource of which the task takes the largest share."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        return machines.least()


class WorstFit(Policy, frozen=True):
    """The machine with the most free of the resource of which the task takes the largest share."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        return machines.most()


class RandomFit(Policy, frozen=True):
    """A random machine, each with the same probability."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        """Each with the same probability."""
        return nth_position(machines.vector, int(draw.random() * len(machines)))


class MinimumConstraints(Policy, frozen=True):
    """The machine that meets the fewest constraints."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        """Ties go to the lowest number."""
        return machines.fewest_constraints()


class Fastest(Policy, frozen=True):
    """The machine with the highest speed; the first where the cluster gives no speeds."""

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        """Ties go to the lowest number."""
        speeds = view.cluster.speeds
        return max(machines, key=speeds.__getitem__) if speeds else machines.first()


class Kubernetes(Policy, frozen=True):
    """Kubernetes' scoring: some feasible nodes, each with a weighted sum of scores from 0 to 100, and the best of them.

    Published (kubernetes.io, "Scheduler Performance Tuning"; the public code): how many nodes are looked for, that the
    next search goes on where the last one stopped, least allocated = mean of 100 * (capacity - requested) / capacity,
    balanced = 100 * (1 - standard deviation of the fractions requested), most allocated, and ties at random. The
    other score plugins read what our tasks do not have: affinities, taints, images, topology.
    """

    least_allocated: Ratio = param(1, "weight of NodeResourcesFit, LeastAllocated")
    balanced: Ratio = param(1, "weight of NodeResourcesBalancedAllocation")
    most_allocated: Ratio = param(0, "weight of NodeResourcesFit, MostAllocated")
    percentage: int = param(0, "of nodes to find before scoring; 0: 50 - nodes / 125, 5 at least", ge=0, le=100)

    def nodes_to_find(self, count: int) -> int:
        """The number of feasible nodes that are enough among so many."""
        if count < 100:
            return count
        percentage = self.percentage or max(5, 50 - count // 125)
        return max(100, count * percentage // 100)

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> Choice:
        count = view.machine_count
        start = view.resume % count

        nodes = from_on(machines.vector, start, self.nodes_to_find(count))
        # The fractions that are left with the task, as both plugins score the node after the placement.
        capacity, free = _after(view, task, nodes)

        fractions_left = free / np.maximum(capacity, 1)
        scores = self.least_allocated * (100 * fractions_left).mean(axis=1) + self.most_allocated * (
            100 * (1 - fractions_left)
        ).mean(axis=1)

        scores += self.balanced * 100 * (1 - fractions_left.std(axis=1))
        # Scores that differ by rounding alone are ties.
        best_places = np.flatnonzero(scores >= scores.max() - 1e-9)

        node = nodes[int(best_places[int(draw.random() * len(best_places))])]
        return Choice(node, (nodes[-1] + 1) % count)


class Borg(Policy, frozen=True):
    """Borg's scoring: least stranded resources, spread of a job, and packing, over enough feasible machines.

    Published (Verma et al., EuroSys 2015, 3.2 and 3.4): a hybrid that reduces stranded resources, those that cannot be
    used because another one of the machine is exhausted; spreading; packing; and relaxed randomisation, which looks at
    machines in a random order until enough are feasible. Our choice: the weights, the formulas and what is enough.
    """

    stranded: Ratio = param(1, "weight: largest less smallest fraction left")
    packing: Ratio = param(0.5, "weight: mean of the fractions left")
    spread: Ratio = param(0.1, "weight: tasks of the same job on the machine")
    enough: PositiveCount = param(10, "feasible machines, or 5 %, whichever is more")

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        """The lowest penalty; ties go to the machine that was looked at first."""
        count = view.machine_count
        machines_found = from_on(machines.vector, int(draw.random() * count), max(self.enough, count // 20))
        capacity, free = _after(view, task, machines_found)

        fractions_left = free / np.maximum(capacity, 1)
        penalties: Scores = self.stranded * (
            fractions_left.max(axis=1) - fractions_left.min(axis=1)
        ) + self.packing * fractions_left.mean(axis=1)

        if self.spread and task.job.running:
            job = task.job
            penalties += self.spread * np.array([sum(r.job is job for r in view.running_on(m)) for m in machines_found])

        return machines_found[int(penalties.argmin())]


class RankedMatch(Policy, frozen=True):
    """HTCondor's match: the machine that the job ranks highest, then as NEGOTIATOR_PRE_JOB_RANK would, then at random.

    Published (its manual): candidates meet the requirements of both sides and are sorted by ranks. A job's Rank reads
    what our tasks have: speed, or what is free. Our choice: by default the fastest, then the one that meets the fewest
    constraints.
    """

    rank: str = param("speed", "speed, free or none", pattern="^(speed|free|none)$")

    def select(self, view: View, task: Waiting, machines: Candidates, draw: Random) -> int:
        if self.rank == "free":
            return machines.most()
        ranked = list(machines)
        speeds = view.cluster.speeds

        if self.rank == "speed" and speeds:
            best_speed = max(speeds[machine] for machine in ranked)
            ranked = [machine for machine in ranked if speeds[machine] == best_speed]

        constraints = view.cluster.constraints
        constraints_min = min(constraints[machine].bit_count() for machine in ranked)
        ranked = [machine for machine in ranked if constraints[machine].bit_count() == constraints_min]

        return ranked[int(draw.random() * len(ranked))]


def from_on(vector: int, start: int, count: int) -> list[int]:
    """The first positions of a vector from a start on, round the end; at most `count`."""
    # The part of the vector from the start on comes first, then what is before it.
    high = vector >> start << start

    places = positions(high)[:count]
    if len(places) < count:
        places += positions(vector ^ high)[: count - len(places)]

    return places


def _after(view: View, task: Waiting, machines: list[int]) -> tuple[Scores, Scores]:
    """The capacity of these machines, and their free units with the task: a row each."""
    request = np.array(task.task.request or (1,), dtype=np.float64)
    capacity = np.array([view.capacity(machine) for machine in machines], dtype=np.float64)
    return capacity, view.free_table()[machines] - request


class Everybody(Policy, frozen=True):
    """Every user may have every machine."""

    def machines(self, view: View, user: str) -> Iterable[int] | None:
        return None


class AccessList(Policy, frozen=True):
    """Users that are listed may have the machines beside their name and no others."""

    users: str = param("", "who may have what, as ann=0-9+bob=3+bob=20-29")
    others: bool = param(True, "whether users that are not listed may have all")

    def __post_init__(self) -> None:
        """Refuse what is no list.

        Raises:
            ValueError: naming the entry.
        """
        self._machines_of_users()

    def _machines_of_users(self) -> dict[str, list[int]]:
        machines_of: dict[str, list[int]] = {}
        for entry in filter(None, self.users.split("+")):
            user, equals, machines = entry.partition("=")
            low, _, high = machines.partition("-")
            if not (equals and low.isdigit() and (high or low).isdigit() and int(low) <= int(high or low)):
                raise ValueError(f"{entry!r} is not USER=MACHINE or USER=FIRST-LAST")

            machines_of.setdefault(user, []).extend(range(int(low), int(high or low) + 1))

        return machines_of

    def machines(self, view: View, user: str) -> Iterable[int] | None:
        """Those of the list."""
        machines_of = self._machines_of_users()
        if user in machines_of:
            return machines_of[user]
        return None if self.others else ()


class AnyDistance(Policy, frozen=True):
    """The location of input does not matter."""

    def waits_us(self) -> tuple[Time, Time] | None:
        """There is nothing to wait for."""
        return None


class Delay(Policy, frozen=True):
    """Delay scheduling: machines that hold input, after a while racks that do, then any; of these the nearest.

    Zaharia et al., EuroSys 2010, with times (section 4). The defaults are those of `hfs`.
    """

    node_wait_s: Seconds = param(4.5, "W1, for machines that hold input of a job")
    rack_wait_s: Seconds = param(4.5, "W2, after that, for racks that do")

    def waits_us(self) -> tuple[Time, Time] | None:
        return round(self.node_wait_s * SECOND), round(self.rack_wait_s * SECOND)
