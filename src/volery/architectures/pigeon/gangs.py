"""Gangs in Pigeon: a distributor chooses a group that holds a gang, and the group's master starts it whole.

A gang is one entry of the queue of its type, and counts as one task there. When its turn comes, or when it arrives and
a worker that suits it is idle, it keeps the idle workers that suit it, and those that become idle, until they are
enough; tasks that other workers may run go on. So it starts at the latest when all that ran in its group at its turn
has ended. Several gangs keep workers in the order of their turns: the first gets all that suit it. Reserved workers run
members of short gangs alone, and are taken last.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import reduce
from operator import and_
from random import Random
from typing import Protocol

import msgspec

from volery.architectures.pigeon.groups import Group
from volery.core.capabilities import ClusterParts, GangPlacement
from volery.core.model import Cluster, Gang, Job, Task, TaskId, Time
from volery.core.resources import REMEMBERED_MAX
from volery.policies.gangs import UnitGangs
from volery.policies.match import positions

GangKind = tuple[tuple[tuple[int, int], ...], Gang, bool]
"""Constraint sets of a gang's members with their counts, its shape, and whether it is short."""


class GangSupply:
    """The groups that hold a gang: a pure function of the groups, shared inside one build."""

    def __init__(self, groups: Sequence[Group]) -> None:
        self._groups = groups
        self._units = [UnitGangs(group.matches, group.machines) for group in groups]
        self._known: dict[GangKind, tuple[list[int], list[int]]] = {}

    def draw(self, tasks: Sequence[Task], gang: Gang, short: bool, stream: Random) -> int:
        """A random group that holds the gang, weighted by the workers that suit a member; -1: none does."""
        counts = Counter([task.constraints for task in tasks])
        kind = tuple(sorted(counts.items())), gang, short
        if kind not in self._known:
            if len(self._known) >= REMEMBERED_MAX:
                self._known.clear()
            self._known[kind] = self._holding(list(counts.elements()), gang, short)
        groups, weights = self._known[kind]
        return stream.choices(groups, weights)[0] if groups else -1

    def _holding(self, needs: Sequence[int], gang: Gang, short: bool) -> tuple[list[int], list[int]]:
        usable = [group.matches.every & ~(0 if short else group.reserved) for group in self._groups]
        groups = [number for number, units in enumerate(self._units) if units.choose(needs, gang, usable[number])]
        return groups, [(self._units[number].suitable(needs) & usable[number]).bit_count() for number in groups]


def placement_in(groups: Sequence[Group], cutoff_us: Time) -> GangPlacement:
    """The capability of starting gangs inside groups; long ones without reserved workers."""
    every, unreserved = (
        ClusterParts(tuple([_machines(group, group.matches.every & ~(group.reserved * is_long)) for group in groups]))
        for is_long in (False, True)
    )

    def parts(job: Job) -> ClusterParts:
        return every if job.estimate_us <= cutoff_us else unreserved

    remedy = "give fewer or larger groups (groups, group_sizes), or for long jobs fewer reserved workers (reserved)"
    return GangPlacement(parts=parts, remedy=remedy)


def _machines(group: Group, units: int) -> Cluster:
    """The machines of some units of a group, as a cluster."""
    slots = Counter([group.machines[unit] for unit in positions(units)])
    constraints = dict(zip(group.machines, group.constraints, strict=True))
    return Cluster(tuple([constraints[machine] for machine in slots]), tuple(slots.values()), "group")


class GroupGang(msgspec.Struct, eq=False):
    """A gang that a master has not started.

    Attributes:
        tasks: Members that have not finished.
        kind: The type of its job.
        usable_units: Units that may run some member.
        kept_units: Those that are kept for it.
    """

    tasks: tuple[Task, ...]
    kind: int
    gang: Gang
    usable_units: int
    kept_units: int = 0


class GangMaster(Protocol):
    """A master, as the gangs of its group call it."""

    free: int

    def push(self, task: Task, kind: int) -> None: ...
    def next_task(self, unit: int) -> Task | None: ...
    def launch(self, task: Task, unit: int) -> None: ...


class GroupGangs:
    """The gangs that wait in a group; from the first one on, units are served here.

    Args:
        group: The group.
        master: Its master.
    """

    def __init__(self, group: Group, master: GangMaster) -> None:
        self._group = group
        self._master = master
        self._units = UnitGangs(group.matches, group.machines)
        self._queued: dict[TaskId, GroupGang] = {}
        self._turns: list[GroupGang] = []

    @property
    def kept_units(self) -> int:
        """All units that are kept for gangs."""
        return sum([gang.kept_units for gang in self._turns])

    def add(self, tasks: tuple[Task, ...], kind: int, gang: Gang) -> None:
        """Keep the idle units that suit a gang, or let it wait for its turn where there is none."""
        group, needs = self._group, [task.constraints for task in tasks]
        usable_units = self._units.suitable(needs) & ~(group.reserved if kind else 0)
        waiting = GroupGang(tasks, kind, gang, usable_units)

        # In the queue its first member stands for all: any unit that suits a member gives it its turn.
        common = reduce(and_, needs)
        if self._master.free & group.matches[common] & ~(group.reserved if kind else 0):
            self._begin(waiting)
        else:
            self._queued[tasks[0].id] = waiting
            self._master.push(msgspec.structs.replace(tasks[0], constraints=common), kind)

    def _begin(self, gang: GroupGang) -> None:
        self._turns.append(gang)
        gang.kept_units = self._master.free & gang.usable_units
        self._master.free ^= gang.kept_units
        self._start(gang)

    def _start(self, gang: GroupGang) -> None:
        """Launch all members, if the units that are kept are enough; the others serve the queues."""
        if gang.kept_units.bit_count() < len(gang.tasks):
            return
        needs = [task.constraints for task in gang.tasks]
        units = self._units.choose(needs, gang.gang, gang.kept_units, self._group.reserved)
        if not units:
            return

        self._turns.remove(gang)
        for task, unit in zip(gang.tasks, units, strict=True):
            gang.kept_units ^= 1 << unit
            self._master.launch(task, unit)
        for unit in positions(gang.kept_units):
            self.serve(unit)

    def serve(self, unit: int) -> None:
        """Keep an idle unit for the first gang that waits for such a one, or give it the next task."""
        for gang in self._turns:
            if gang.usable_units >> unit & 1:
                gang.kept_units |= 1 << unit
                self._start(gang)
                return

        task = self._master.next_task(unit)
        if task is None:
            self._master.free |= 1 << unit
        elif task.id in self._queued:
            self._begin(self._queued.pop(task.id))
            self.serve(unit)
        else:
            self._master.launch(task, unit)

    def lose(self, units: int) -> None:
        """Keep units of a lost machine no longer."""
        for gang in self._turns:
            gang.kept_units &= ~units

    def withdraw(self, tasks: frozenset[TaskId], removed: Sequence[TaskId]) -> list[TaskId]:
        """Drop gangs with members among these tasks.

        Args:
            tasks: Tasks that are not wanted.
            removed: Those that were removed from the queues.

        Returns:
            The removed tasks, with all members of the gangs.
        """
        gangs = [self._queued.pop(task) for task in removed if task in self._queued]
        in_turn = [gang for gang in self._turns if gang.tasks[0].id in tasks]
        dropped = {task.id: None for gang in (*gangs, *in_turn) for task in gang.tasks}

        self._turns = [gang for gang in self._turns if gang not in in_turn]
        for gang in in_turn:
            for unit in positions(gang.kept_units):
                self.serve(unit)
        return [*dropped, *[task for task in removed if task not in dropped]]

    def clear(self) -> None:
        """Forget what waits, as another master leads the group."""
        self._queued.clear()
        self._turns.clear()

    def check(self) -> None:
        """Raise AssertionError where units are kept twice, or enough are kept for a gang that has not started."""
        every = 0
        for gang in self._turns:
            assert not every & gang.kept_units, "a unit is kept for two gangs"
            every |= gang.kept_units
            needs = [task.constraints for task in gang.tasks]
            assert not self._units.choose(needs, gang.gang, gang.kept_units), "a gang waits with all that it needs"

    def check_rest(self) -> None:
        """Raise AssertionError where a gang is left."""
        assert not self._turns, "gangs are left"
        assert not self._queued, "gangs are left in queues"
