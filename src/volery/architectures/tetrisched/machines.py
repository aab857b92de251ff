"""The machines as a planner knows them: units (slots) in sets, what is idle, and until when the others are held."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from volery.architectures.tetrisched.parts import MachineSupply
from volery.core.model import Cluster, Preference, Task, TaskId, Time
from volery.policies.match import Anchors, Matches, fewest_constraints_first

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
