"""The targets of a cycle: the machines of a scheduler, or the local resource managers (LRMs) of a global one.

Andreadis et al., SC18, section III-D3: stages M2 to M6 at the upper level, R1 to R5 at the lower one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from random import Random
from typing import Any, NamedTuple, Protocol

from volery.architectures.pipeline.classes import ANYWHERE, EquivalenceClasses
from volery.architectures.pipeline.node import Launch, Pass
from volery.architectures.pipeline.policies import (
    Candidates,
    Choice,
    Kind,
    Manager,
    ManagerSuitability,
    Running,
    State,
    View,
    Waiting,
)
from volery.core.component import Sends, sent_to
from volery.core.model import SECOND, Address, Amounts, Cluster, Message, Task, Time
from volery.core.resources import Packing
from volery.policies.match import positions
from volery.policies.tags import TagIndex, concerns
from volery.roles.node import Kill


class MachineInventory(NamedTuple):
    """The machines that a scheduler manages.

    Args:
        cluster: Cluster of these machines alone.
        numbers: Numbers of the machines in the whole cluster.
    """

    cluster: Cluster
    nodes: Sequence[Address]
    numbers: Sequence[int]


class Targets(Protocol):
    """The places to which a cycle sends tasks, and the state that it keeps of them.

    Attributes:
        nodes: Address of each target.
        sends: The messages to targets.
        is_counted: Whether `count` has to be called.
    """

    state: State
    view: View
    nodes: Sequence[Address]
    sends: Sends
    is_counted: bool

    def fitting(self, waiting: Waiting, among: int) -> Any:
        """The targets of a vector that have room for a task; None: none has."""

    def select(self, waiting: Waiting, candidates: Any) -> int:
        """One of them; -1: the policy would rather wait."""

    def count(self, task: Task, target: int, sign: int) -> None:
        """Count a task that is given a target (1), or has left it (-1)."""

    def message(self, number: int, running: Running, incarnation: int) -> Message:
        """The message that hands a task over."""

    def check(self, blocked: Iterable[Kind], among: int) -> None:
        """Raise AssertionError where targets of a vector have room for a blocked class, or counts are wrong."""


class MachineTargets:
    """Machines: stages R1, R4 and R5, and how long files come in before (T5) and are deleted afterwards (T8).

    Args:
        policies: Policies by the id of their stage.
    """

    sends = sent_to("node", Launch, Kill)
    is_counted = False

    def __init__(self, inventory: MachineInventory, policies: dict[str, Any], stream: Random) -> None:
        self.nodes = inventory.nodes
        self.state = State(inventory.cluster, inventory.numbers, half_life_us(policies))
        self.view = View(self.state)
        self._policy = policies["R5"]
        self._stage_us = policies["T5"].stage_us
        self._clean_us = policies["T8"].clean_us
        self._stream = stream

    def fitting(self, waiting: Waiting, among: int) -> Candidates | None:
        """Stages R1 and R4."""
        candidates = Candidates(self.state, waiting, among)
        return candidates if candidates.vector else None

    def select(self, waiting: Waiting, candidates: Candidates) -> int:
        """Stage R5: the machine that the policy takes."""
        machine = self._policy.select(self.view, waiting, candidates, self._stream)

        # A policy that goes on where its last search stopped says where that was.
        if type(machine) is Choice:
            machine, self.state.resume = machine

        if machine is None:
            return -1

        if machine not in candidates:
            policy = type(self._policy).__name__
            raise ValueError(f"{policy} has selected machine {machine!r} for task {waiting.task.id}: no candidate")
        return int(machine)

    def count(self, task: Task, target: int, sign: int) -> None:
        pass

    def message(self, number: int, running: Running, incarnation: int) -> Launch:
        stage_us = self._stage_us(self.view, running.waiting)
        task = self.state.packing.naming(running.waiting.task, running.took)

        running.clean_us = self._clean_us(self.view, running.waiting)
        return Launch(number, task, running.attempt, stage_us, incarnation, running.clean_us)

    def check(self, blocked: Iterable[Kind], among: int) -> None:
        for kind in blocked:
            fitting = self.state.index.fitting(kind.need, kind.suitable & among)
            assert not fitting, f"machines {fitting:#x} have room for a class that is blocked"


class TaggedTargets:
    """Machines, of which tag constraints leave some to a task (stage R3).

    Args:
        machines: The machines, which it narrows.
    """

    sends = MachineTargets.sends
    is_counted = True

    def __init__(self, machines: MachineTargets) -> None:
        self._machines = machines
        self.nodes = machines.nodes
        self.state = machines.state
        self.view = machines.view

        self._index = TagIndex(machines.state.cluster)
        self._classes: EquivalenceClasses | None = None

        self.select = machines.select
        self.message = machines.message

    def fitting(self, waiting: Waiting, among: int) -> Candidates | None:
        tags = waiting.task.tags
        return self._machines.fitting(waiting, among if tags is None else among & self._index.allowed(tags))

    def watch(self, classes: EquivalenceClasses) -> None:
        """Unblock classes with tags from now on: a task for which they wait has come, or one with tags has left."""
        self._classes = classes

    def count(self, task: Task, target: int, sign: int) -> None:
        if task.tags is None:
            return
        self._index.add(target, task.tags, sign)

        classes = self._classes
        assert classes is not None, "nobody watches"

        for kind in list(classes.blocked):
            if concerns(kind.tags, task.tags, sign):
                classes.unblock(kind)

        # Such a class may fit on any machine now, not only where something was given back.
        for kind in classes.unblocked:
            if concerns(kind.tags, task.tags, sign):
                classes.unblocked[kind] = ANYWHERE

    def check(self, blocked: Iterable[Kind], among: int) -> None:
        for kind in blocked:
            self._machines.check([kind], among if kind.tags is None else among & self._index.allowed(kind.tags))

        runs = enumerate(self.state.on_machine)
        self._index.check(
            [
                (machine, run.task.tags)
                for machine, attempts in runs
                for run in attempts.values()
                if run.task.tags is not None
            ]
        )


class ManagerTargets:
    """Local resource managers: stages M2 to M6. All that is passed to a manager fits, and waits there.

    Args:
        inventories: The machines of each manager.
        policies: Policies by the id of their stage.
    """

    sends = sent_to("lrm", Pass, Kill)
    is_counted = True

    def __init__(
        self,
        inventories: Sequence[MachineInventory],
        managers: Sequence[Address],
        policies: dict[str, Any],
        stream: Random,
    ) -> None:
        parts = [State(inventory.cluster, inventory.numbers) for inventory in inventories]

        names = inventories[0].cluster.resources
        capacities = tuple([part.capacity for part in parts])
        count = len(parts)
        cluster = Cluster((0,) * count, (1,) * count, "managers", names or ("slots",), capacities)

        # A manager has no devices.
        packing = Packing(len(cluster.resources))

        self.nodes = managers
        self.state = State(cluster, (), half_life_us(policies), packing, ManagerSuitability(parts))
        self.view = View(self.state)

        self._machine_counts = [len(part.capacities) for part in parts]
        self._task_counts = [0] * count
        self._passed_amounts = [[0] * len(self.state.capacity) for _ in parts]
        self._usable = policies["M4"].usable
        self._policy = policies["M5"]
        self._stream = stream

    def _manager(self, number: int) -> Manager:
        capacity = self.state.capacities[number]
        free: Amounts = tuple(
            [amount - passed for amount, passed in zip(capacity, self._passed_amounts[number], strict=True)]
        )
        return Manager(number, capacity, free, self._task_counts[number], self._machine_counts[number])

    def fitting(self, waiting: Waiting, among: int) -> list[Manager] | None:
        """Stages M3 and M4: the usable managers among those that have a machine for the task."""
        suitable_managers = [self._manager(number) for number in positions(waiting.kind.suitable)]
        return [manager for manager in suitable_managers if self._usable(self.view, waiting, manager)] or None

    def select(self, waiting: Waiting, candidates: Sequence[Manager]) -> int:
        """Stage M5: the manager that the policy takes."""
        number: int = self._policy.select(self.view, waiting, candidates, self._stream)
        if all(number != manager.number for manager in candidates):
            policy = type(self._policy).__name__
            raise ValueError(f"{policy} has selected manager {number!r} for task {waiting.task.id}: no candidate")
        return number

    def count(self, task: Task, target: int, sign: int) -> None:
        """Stage M2: the task is that manager's from now on, or no longer."""
        self._task_counts[target] += sign
        passed_amounts = self._passed_amounts[target]

        for resource, amount in enumerate(task.request or (1,)):
            passed_amounts[resource] += sign * amount

    def message(self, number: int, running: Running, incarnation: int) -> Pass:
        """Stage M6: the message that passes a task."""
        return message_of(number, running.waiting)

    def check(self, blocked: Iterable[Kind], among: int) -> None:
        for number, task_count in enumerate(self._task_counts):
            assert task_count == len(self.state.on_machine[number]), "managers have other tasks than they were passed"


def message_of(number: int, waiting: Waiting) -> Pass:
    """The message that hands a task to a manager, or to the broker."""
    job = waiting.job
    return Pass(
        number,
        waiting.task,
        job.user,
        job.priority,
        job.deadline_us,
        job.submit_us,
        job.task_count,
        waiting.rank_us,
        waiting.came_us,
        job.limit_us,
    )


def half_life_us(policies: dict[str, Any]) -> Time:
    """The half-life of averages for which the order of tasks (T2) asks; 0: none."""
    return round(getattr(policies["T2"], "half_life_s", 0) * SECOND)
