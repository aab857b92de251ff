"""The machines as a planner knows them: units (slots) in sets, what is idle, and until when the others are held.

Machines that are in the same sets of all expressions are alike to the planner, which decides about counts of them:
the number of variables grows with the number of classes, not of machines (TetriSched, EuroSys 2016).
"""

from __future__ import annotations

import bisect
import collections
import itertools
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec
import numpy as np
import numpy.typing as npt

from volery.architectures.tetrisched.expressions import (
    NOW,
    Alternatives,
    Expression,
    LnCk,
    NCk,
    Sets,
    alternatives,
    members,
)
from volery.core.model import Cluster, Preference, Task, TaskId, Time
from volery.policies.match import Anchors, Matches, fewest_constraints_first

Counts = npt.NDArray[np.int64]


class MachineSupply(msgspec.Struct, frozen=True):
    """The machines that there are over time, as far as is known.

    Args:
        idle: Machines that are free now, as a bit vector.
        held: The quantum from which they are free, and those machines; in order of time.
    """

    idle: int
    held: tuple[tuple[int, int], ...] = ()


class Chosen(msgspec.Struct, frozen=True):
    """A leaf that is given machines.

    Args:
        request: The place of its expression.
        leaf: Number of the leaf in that, from left to right.
        amounts: Parts, and how many machines of each.
    """

    request: int
    leaf: int
    amounts: tuple[tuple[int, int], ...]


def partition(sets: Iterable[int]) -> list[int]:
    """The coarsest grouping of which every one of these sets of machines is a union.

    Returns:
        The groups, that with the lowest machine first.
    """
    groups: list[int] = []
    for machines in dict.fromkeys(sets):
        # What the groups so far leave of the set is a group of its own; each of them is cut in two by the set.
        rest_of_set = machines
        refined: list[int] = []

        for group in groups:
            inner = group & machines
            rest_of_set &= ~group
            refined += [piece for piece in (inner, group & ~machines) if piece]

        groups = refined + ([rest_of_set] if rest_of_set else [])

    return sorted(groups, key=lambda group: group & -group)


class Parts:
    """The groups of machines of some expressions.

    Attributes:
        groups: The machines of each group, as a bit vector.
        times: The quanta at which some leaf starts, in order.
        available: Number of free machines, per group and time.
        place: The place of each of these quanta in `times`.
        precious: Per group, in how many of the sets that were asked for it is.
        cheapest: The groups of each set, those first that fewest sets hold.

    Raises:
        InputError: an expression names a set that there is not.
    """

    def __init__(self, requests: Sequence[Expression], sets: Sets, supply: MachineSupply) -> None:
        masks: dict[tuple[str, ...], int] = {}

        starts: set[int] = {NOW}
        for request in requests:
            table = alternatives(request)
            starts |= table.starts
            for set_names in table.wheres:
                if set_names not in masks:
                    masks[set_names] = members(set_names, sets)

        self.groups = partition(masks.values())
        self.times = sorted(starts)

        self.place = {start: place for place, start in enumerate(self.times)}
        self._of = {
            set_names: tuple([part for part, group in enumerate(self.groups) if group & mask])
            for set_names, mask in masks.items()
        }

        set_counts = collections.Counter(itertools.chain.from_iterable(self._of.values()))
        self.precious = [set_counts[part] for part in range(len(self.groups))]
        self.cheapest = {
            set_names: tuple(sorted(parts, key=self.precious.__getitem__)) for set_names, parts in self._of.items()
        }

        self.available = np.zeros((len(self.groups), len(self.times)), dtype=np.int64)
        for part, group in enumerate(self.groups):
            self.available[part, :] = (group & supply.idle).bit_count()
            for first_quantum, machines in supply.held:
                # Counts at the time of a return and at all later ones: what is available only grows.
                self.available[part, bisect.bisect_left(self.times, first_quantum) :] += (group & machines).bit_count()

        self._counts: list[list[int]] = self.available.tolist()
        self._during: dict[tuple[int, int], range] = {}
        self._windows: dict[Alternatives, list[tuple[int, int]]] = {}
        self._totals: dict[tuple[tuple[str, ...], int], int] = {}

    def of(self, set_names: tuple[str, ...]) -> tuple[int, ...]:
        """The groups whose union a leaf's set is."""
        return self._of[set_names]

    def at_start(self, leaf: NCk | LnCk) -> dict[int, int]:
        """The machines of each group of a leaf's set when it starts: the fewest that there will be."""
        time = bisect.bisect_left(self.times, leaf.start)
        return {part: self._counts[part][time] for part in self._of[leaf.where]}

    def total(self, leaf: NCk | LnCk) -> int:
        """The number of machines of a leaf's set when it starts."""
        key = (leaf.where, leaf.start)
        if key not in self._totals:
            time = bisect.bisect_left(self.times, leaf.start)
            self._totals[key] = sum([self._counts[part][time] for part in self._of[leaf.where]])
        return self._totals[key]

    def windows(self, table: Alternatives) -> list[tuple[int, int]]:
        """The places of each leaf's first time with machines, and of its end."""
        if table not in self._windows:
            during = [self.during(leaf) for leaf in table.leaves]
            self._windows[table] = [(times.start, times.stop) for times in during]
        return self._windows[table]

    def during(self, leaf: NCk | LnCk) -> range:
        """The places of the times at which the leaf holds what it was given."""
        places = self._during.get((leaf.start, leaf.duration))
        if places is None:
            first = bisect.bisect_left(self.times, leaf.start)
            places = range(first, bisect.bisect_left(self.times, leaf.start + leaf.duration))
            self._during[leaf.start, leaf.duration] = places

        return places


SPEEDS_MAX: Final = 4
"""Number of classes of machines by speed that a job chooses among."""
SETS_MAX: Final = 4096
"""Number of sets that are remembered from cycle to cycle."""


class TimeGrid(msgspec.Struct, frozen=True):
    """Time as a planner sees it: now and some quanta ahead.

    Args:
        now_us: Beginning of quantum 0.
        ahead: The last quantum with which a job may be planned to start; 0: now or not at all.
        horizon_us: Time after submission at which best effort has come down to its floor.
    """

    now_us: Time
    quantum_us: Time
    ahead: int
    horizon_us: Time

    def quanta(self, length_us: Time) -> int:
        """The number of quanta, rounded up; at least 1."""
        return max(1, -(-length_us // self.quantum_us))

    def start_us(self, quantum: int) -> Time:
        return self.now_us + quantum * self.quantum_us


class Option(NamedTuple):
    """Machines that a job may be given, all of one set, and how long it runs there."""

    where: str
    length_us: Time


class RunningJob(msgspec.Struct, frozen=True):
    """A task on a unit, and when it should be over."""

    task: Task
    unit: int
    end_us: Time


class ClusterMachines:
    """Sets of units by name, and what runs where.

    Args:
        cluster: The machines; a slot is a unit. Machines that satisfy few constraints come first, so that planners,
            which take the first of what is alike to them, leave the others to those who need them.

    Attributes:
        idle: Units on which nothing runs, as a bit vector.
    """

    def __init__(self, cluster: Cluster) -> None:
        order = fewest_constraints_first(range(len(cluster.slots)), cluster.constraints)
        self.machine_of = [machine for machine in order for _ in range(cluster.slots[machine])]
        self._cluster = cluster

        constraints = [cluster.constraints[machine] for machine in self.machine_of]
        self._matches = Matches(constraints, Anchors(cluster.constraints))

        self.idle = self.every = self._matches.every
        self.running: dict[TaskId, RunningJob] = {}
        self.sets: dict[str, int] = {}
        self._options: dict[tuple[int, Preference, int, bool], list[tuple[str, int, int]]] = {}

    def forget(self) -> None:
        """Forget the sets, before a cycle, where too many have been named."""
        if len(self.sets) > SETS_MAX:
            self.sets.clear()
            self._options.clear()

    def fitting(self, constraints: int) -> int:
        return self._matches[constraints]

    def named(self, constraints: int, speed: int = 0) -> str:
        """The name of the set of units that satisfy constraints and have at least this speed."""
        name = f"c{constraints:x}" + (f".s{speed}" if speed else "")
        if name not in self.sets:
            # A speed of 0 asks for nothing: clusters without speeds have one class.
            self.sets[name] = self._fast(self.fitting(constraints), speed)
        return name

    def _fast(self, units: int, speed: int) -> int:
        if not speed:
            return units

        fast = [1 << unit for unit, machine in enumerate(self.machine_of) if self._cluster.speeds[machine] >= speed]
        return units & sum(fast)

    def options(self, k: int, constraints: int, wish: Preference, estimate_us: Time, *, blind: bool) -> list[Option]:
        """The sets on which k tasks with these constraints may run together, and their run times.

        Args:
            estimate_us: Run time on a preferred machine of the reference speed.
        """
        key = (constraints, wish, k, blind)
        if key not in self._options:
            self._options[key] = self._make_options(constraints, wish, k, blind)

        work = estimate_us * self._reference
        return [Option(name, -(-work * percent // (100 * speed))) for name, percent, speed in self._options[key]]

    @property
    def _reference(self) -> int:
        return self._cluster.reference_speed or 1

    def _make_options(self, constraints: int, wish: Preference, k: int, blind: bool) -> list[tuple[str, int, int]]:
        """(name of a set, duration in percent, least speed in it), no set with too few units."""
        options: list[tuple[str, int, int]] = []

        preferred = constraints | wish.constraints
        if not blind and (wish.constraints or wish.together):
            # Within any one rack the tasks are together: a set for each.
            bits = [1 << bit for bit in range(wish.together.bit_length()) if wish.together >> bit & 1]
            for bit in bits or [0]:
                options += [(name, 100, speed) for name, speed in self._by_speed(preferred | bit)]

        elsewhere_percent = wish.elsewhere_percent if wish.constraints or wish.together else 100
        classes = self._by_speed(constraints)
        # To a blind planner (NH) any machine is the slowest of its set.
        options += [(name, elsewhere_percent, speed) for name, speed in (classes[-1:] if blind else classes)]

        return [option for option in options if self.sets[option[0]].bit_count() >= k]

    def _by_speed(self, constraints: int) -> list[tuple[str, int]]:
        """Sets of units that satisfy constraints, by least speed: the fastest few first, all of them last."""
        if not self._cluster.speeds:
            return [(self.named(constraints), 1)]

        units = self.fitting(constraints)
        speeds = sorted(
            {self._cluster.speeds[machine] for unit, machine in enumerate(self.machine_of) if units >> unit & 1}
        )

        if not speeds:
            return [(self.named(constraints), self._reference)]
        # At most so many classes, cut at quantiles of the speeds that there are: each class is one more branch.
        least_speeds = {speeds[len(speeds) * part // SPEEDS_MAX] for part in range(SPEEDS_MAX)}
        return [(self.named(constraints, speed), speed) for speed in sorted(least_speeds, reverse=True)]

    def supply(self, grid: TimeGrid) -> MachineSupply:
        """The idle machines, and the estimated returns of the others; a task over its time has one more quantum."""
        units_by_return: dict[int, int] = {}
        for running in self.running.values():
            return_quantum = grid.quanta(running.end_us - grid.now_us)
            if return_quantum <= grid.ahead:
                units_by_return[return_quantum] = units_by_return.get(return_quantum, 0) | 1 << running.unit
        return MachineSupply(self.idle, tuple(sorted(units_by_return.items())))

    def start(self, task: Task, unit: int, end_us: Time) -> None:
        """A task is sent to an idle unit."""
        assert self.idle >> unit & 1, f"unit {unit} is taken"

        self.idle ^= 1 << unit
        self.running[task.id] = RunningJob(task, unit, end_us)

    def end(self, task: TaskId) -> Task | None:
        """A task has ended; None where it was known before."""
        ended = self.running.pop(task, None)
        if ended is None:
            return None

        self.idle |= 1 << ended.unit
        return ended.task

    def check(self) -> None:
        busy_units = [running.unit for running in self.running.values()]
        assert len(set(busy_units)) == len(busy_units), "a unit runs two tasks"
        assert sum(1 << unit for unit in busy_units) == self.every & ~self.idle, "units are neither idle nor running"
