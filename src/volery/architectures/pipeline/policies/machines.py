"""Policies of machines: a user's (R2), near input (R3), the one to take (R5), to provision (R6), and how many (R7).

Andreadis et al., SC18, section III-D4. Ties that a policy of R5 does not decide go to the machine that meets the fewest
constraints: it is the least useful to others (minimum constraints, Thiyyakat et al., IoT 2023, section 4.3).

The autoscalers (R7) are those that Ilyushkin et al. compare (ICPE 2017; reference 14 of the reference architecture),
each reduced to its idea: parameters, and what is said to be ours, are our choice. Units are slots, or those of the
resource that counts processors: thousandths where it does. `PlanScaler` and `Token` look into workflows.
"""

from __future__ import annotations

import bisect
import heapq
import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from random import Random
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from volery.architectures.pipeline.policies.policy import Choice, Policy
from volery.architectures.pipeline.policies.state import Offer, Supply, Waiting
from volery.architectures.pipeline.policies.view import Candidates, View
from volery.core.bounds import Count, PositiveCount, PositiveRatio, Ratio, Seconds, param
from volery.core.model import SECOND, JobId, Task, TaskId, Time
from volery.core.records import HOUR
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


class AllOn(Policy, frozen=True):
    """Every machine is always on, and its cost is not counted: there is no stage R7."""

    def units(self, view: View, supply: Supply) -> int:
        return supply.whole


class Static(AllOn, frozen=True):
    """Every machine is on from beginning to end, and paid for: the baseline of autoscalers."""


class ScalingPolicy(Policy, frozen=True):
    """Base of the policies that change the number of units."""

    least: Count = param(0, "units that are always there")


class React(ScalingPolicy, frozen=True):
    """The present demand of running and waiting tasks, and some to spare (React; Chieu et al., ICEBE 2009)."""

    spare: Ratio = param(0.0, "of the demand, that there is more")

    def units(self, view: View, supply: Supply) -> int:
        """The demand of now."""
        return max(self.least, math.ceil(supply.demand * (1 + self.spare)))


class Thrift(React, frozen=True):
    """As react while machines are cheap; while they are dear, what runs keeps its machines, and the rest waits."""

    price_max: Ratio = param(1.0, "factor of the prices up to which machines are cheap")

    def units(self, view: View, supply: Supply) -> int:
        """The demand, or what is held."""
        return super().units(view, supply) if supply.price <= self.price_max else max(self.least, supply.held)


class Threshold(ScalingPolicy, frozen=True):
    """Steps up when more than a fraction is in use or tasks wait, down when less than another is, then pauses."""

    high: float = param(0.8, "fraction in use above which it steps up", gt=0, le=1)
    low: float = param(0.4, "fraction in use below which it steps down", ge=0, lt=1)
    step: PositiveRatio = param(0.25, "of what there is, at least one unit")
    pause_s: Seconds = param(300.0, "after a change nothing is changed for so long")

    def units(self, view: View, supply: Supply) -> int:
        present = supply.units
        step = max(1, round(present * self.step))

        if supply.changed_us >= 0 and view.now - supply.changed_us < self.pause_s * SECOND:
            units_wanted = present
        elif supply.asked or supply.held > self.high * present:
            units_wanted = present + step
        elif supply.held < self.low * present:
            units_wanted = present - step
        else:
            units_wanted = present

        return max(self.least, units_wanted)


class Hist(ScalingPolicy, frozen=True):
    """The demand of this hour on earlier days, or the present one if larger (Hist; Urgaonkar, TAAS 3(1), 2008)."""

    percentile: float = param(0.95, "of the peaks of that hour", gt=0, le=1)
    day_h: PositiveCount = param(24, "hours after which demand is expected to repeat")

    def units(self, view: View, supply: Supply) -> int:
        """The larger of prediction and demand: that the prediction is corrected at once is ours."""
        # What is decided now has to last until the machines of the next decision are on: that hour counts.
        hour = (view.now + supply.boot_us + supply.every_us) // HOUR

        peaks = sorted(supply.peaks[hour % self.day_h : hour : self.day_h])
        prediction = peaks[math.ceil(self.percentile * len(peaks)) - 1] if peaks else 0

        return max(self.least, prediction, supply.demand)


class InOrder(Policy, frozen=True):
    """The first in the order of machines; released are the last."""

    release_at: Literal["interval", "once"] = param(
        "interval", "interval: a machine stays until the time that it is paid for is about to end"
    )

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """The smallest is provisioned first, and released last."""
        return (offer.machine,)

    def provision(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> list[int]:
        """Machine after machine, until together they have the units."""
        chosen_machines: list[int] = []

        for offer in sorted(offers, key=self.rank):
            if units <= 0:
                break
            chosen_machines.append(offer.machine)
            units -= offer.units

        return chosen_machines

    def release(self, view: View, supply: Supply, offers: Sequence[Offer], units: int) -> list[int]:
        """Machine after machine, of those that have no more than what is left of the units."""
        next_decision_us = view.now + supply.every_us
        chosen_machines: list[int] = []

        for offer in sorted(offers, key=self.rank, reverse=True):
            if offer.units <= units and (self.release_at == "once" or offer.paid_until_us <= next_decision_us):
                chosen_machines.append(offer.machine)
                units -= offer.units

        return chosen_machines


class Cheapest(InOrder, frozen=True):
    """The one that costs the least for what it computes: price over processors times speed."""

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """By price per unit and speed, then in order."""
        return (offer.price / (max(offer.units, 1) * offer.speed), offer.machine)


class Biggest(InOrder, frozen=True):
    """The one with the most processors, so that few machines have to boot."""

    def rank(self, offer: Offer) -> tuple[float, ...]:
        """By units, then in order."""
        return (-offer.units, offer.machine)


Pool = list[tuple[Time, int]]


class Foreseeing(ScalingPolicy, frozen=True):
    """Base of the policies that look ahead in the workflows of waiting and running tasks."""

    foresees: ClassVar[bool] = True


class PlanScaler(Foreseeing, frozen=True):
    """The units that a plan by estimates uses until machines of the next decision could be on (Plan)."""

    def units(self, view: View, supply: Supply) -> int:
        """Place what runs, waits and becomes ready, on what there is first, and count."""
        plan = _Planning(view, supply)
        for running in view.running():
            plan.runs(running.task, max(running.expected_end_us, view.now))

        for waiting in view.waiting():
            plan.may_start(waiting.task, view.now)

        return max(self.least, plan.used())


class _Planning:
    """A plan in the making: units that have no machines, and are as fast as the reference machine.

    What is free from a time on is kept as (time, units): of those that have run something, and of those that have not.
    """

    def __init__(self, view: View, supply: Supply) -> None:
        self._view = view
        boot_end_us = view.now + supply.boot_us
        self._until = boot_end_us + supply.every_us
        idle = (view.now, max(supply.on - supply.held, 0))
        further_units = (boot_end_us, supply.whole - supply.units)

        self._pools: tuple[Pool, Pool] = [], sorted([idle, *supply.coming, further_units])
        self._queue: list[tuple[Time, int, Task]] = []
        self._missing_parents: dict[TaskId, tuple[int, Time]] = {}

        self._task_count = 0

    def runs(self, task: Task, end: Time) -> None:
        """Plan a task that has its units until `end`."""
        bisect.insort(self._pools[0], (end, self._view.units(task)))

        # A child becomes ready when the last task that it waits for ends, by the plan.
        for child, missing in self._view.ahead(task):
            missing_count, ready_us = self._missing_parents.get(child.id, (missing, end))
            self._missing_parents[child.id] = missing_count - 1, max(ready_us, end)
            if missing_count == 1:
                self.may_start(child, max(ready_us, end))

    def may_start(self, task: Task, ready_us: Time) -> None:
        """Queue a task in the plan that is ready at this time."""
        self._task_count += 1
        heapq.heappush(self._queue, (ready_us, self._task_count, task))

    def used(self) -> int:
        """Units that have something to run before the plan ends."""
        while self._queue and self._queue[0][0] < self._until and self._earliest() < self._until:
            ready_us, _, task = heapq.heappop(self._queue)
            start = self._take(self._view.units(task), ready_us)
            if start < self._until:
                self.runs(task, start + task.estimate_us)

        return sum([units for _, units in self._pools[0]])

    def _earliest(self) -> Time:
        return min([pool[0][0] for pool in self._pools if pool], default=self._until)

    def _take(self, count: int, ready_us: Time) -> Time:
        """Take `count` units at the earliest time, if that is before the plan ends; returns the time.

        Of those that are free by then the ones that have run something come first, and the latest of them; else the
        earliest.
        """
        chosen_units: list[tuple[int, Time, int]] = []
        units_left = count
        start = ready_us

        for pool_number, free_at, units in self._free(ready_us):
            if units_left <= 0:
                break
            chosen_units.append((pool_number, free_at, units))
            units_left -= units
            start = max(start, free_at)

        # Units that come too late for this plan would be machines that stand idle.
        if units_left > 0 or start >= self._until:
            return self._until

        for pool_number, free_at, units in chosen_units:
            del self._pools[pool_number][bisect.bisect_left(self._pools[pool_number], (free_at, units))]

        # The last pool entry gave more than was wanted.
        if units_left < 0:
            pool_number, free_at, _ = chosen_units[-1]
            bisect.insort(self._pools[pool_number], (free_at, -units_left))

        return start

    def _free(self, ready_us: Time) -> Iterator[tuple[int, Time, int]]:
        """The free units in the order in which they are taken: pool, time, units."""
        places = [bisect.bisect_right(pool, ready_us, key=lambda entry: entry[0]) for pool in self._pools]

        for pool_number, pool in enumerate(self._pools):
            for place in range(places[pool_number] - 1, -1, -1):
                yield pool_number, *pool[place]

        used_later, unused_later = [
            itertools.islice(pool, place, None) for pool, place in zip(self._pools, places, strict=True)
        ]
        tagged = heapq.merge(
            ((end, 0, units) for end, units in used_later), ((end, 1, units) for end, units in unused_later)
        )

        for end, pool_number, units in tagged:
            yield pool_number, end, units


class Token(Foreseeing, frozen=True):
    """The most that each workflow runs at once on its way there, were all its tasks of one length (Token)."""

    def units(self, view: View, supply: Supply) -> int:
        """Put a token on every task that runs or waits, move them down while the time lasts, and count."""
        ways: dict[JobId, list[Task]] = {}
        for task in [*[running.task for running in view.running()], *[waiting.task for waiting in view.waiting()]]:
            ways.setdefault(task.job, []).append(task)

        horizon_us = supply.boot_us + supply.every_us
        return max(self.least, sum([_widest(view, tasks, horizon_us) for tasks in ways.values()]))


def _widest(view: View, tasks: list[Task], horizon_us: Time) -> int:
    """The most units that the tasks of a workflow take that have a token at once; tokens move one step at least."""
    missing_parents: dict[TaskId, int] = {}
    widest = 0
    left_us = horizon_us

    while tasks:
        widest = max(widest, sum([view.units(task) for task in tasks]))

        if left_us <= 0:
            break

        left_us -= max(sum([task.estimate_us for task in tasks]) // len(tasks), SECOND // 1000)
        tasks = list(_below(view, tasks, missing_parents))

    return widest


def _below(view: View, tasks: Iterable[Task], missing_parents: dict[TaskId, int]) -> Iterable[Task]:
    """The tasks all of whose parents have had a token."""
    for task in tasks:
        for child, count in view.ahead(task):
            missing_count = missing_parents[child.id] = missing_parents.get(child.id, count) - 1
            if not missing_count:
                yield child
