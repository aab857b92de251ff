"""Broken designs that get workflows wrong, and the sound one that takes them whole, of which some are made."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.mutation import HOP, assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import Address, Cluster, Task, TaskId, Time
from volery.core.streams import Streams
from volery.roles.node import Completed, Node


class Whole(Scheduler):
    """Takes workflows whole and holds tasks back itself."""

    __slots__ = ("_barred", "_ended", "_held", "_waits")

    def __init__(self, machines: SlotMachines) -> None:
        super().__init__(machines)
        self._waits: dict[TaskId, tuple[TaskId, ...]] = {}
        self._held: dict[TaskId, Task] = {}
        self._ended: set[TaskId] = set()
        self._barred: set[TaskId] = set()

    def _learn(self, tasks: Sequence[Task], parents: Sequence[tuple[TaskId, ...]]) -> None:
        if parents:
            self._waits.update({task.id: waits for task, waits in zip(tasks, parents, strict=True) if waits})

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._learn(message.job.tasks, message.job.parents)
        super().on_submit(message, source, now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._learn(message.tasks, message.parents)
        super().on_more_tasks(message, source, now)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            waits = self._waits.get(task.id, ())
            if self._barred.intersection(waits):
                self._barred.add(task.id)
                self._jobs.unsatisfiable(task.job)
            elif self._may_start(waits):
                if not self._machines.matches[task.constraints]:
                    self._barred.add(task.id)
                super()._schedule((task,))
            else:
                self._held[task.id] = task

    def _may_start(self, waits: Sequence[TaskId]) -> bool:
        return self._ended.issuperset(waits)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        self._ended.add(message.task)
        super().on_completed(message, source, now)
        for task in list(self._held.values()):
            del self._held[task.id]
            self._schedule((task,))

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        held = [task for task in self._held.values() if task.job == message.job]
        opened = self._jobs.is_open(message.job)
        super().on_cancel(message, source, now)
        for task in held if opened else ():
            del self._held[task.id]
            self._jobs.finished(task.job)


def build_whole(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """The sound one."""
    return assemble(cluster, Whole(SlotMachines(cluster)), Node, dict.fromkeys(HOP, 0))


@mutant("check_workflows", features={"constraints": "", "users": "order=drf|hdrf", "dependencies": ""})
def build_ignores_parents(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


class Hasty(Whole):
    """Starts a task when one of its parents has finished."""

    __slots__ = ()

    def _may_start(self, waits: Sequence[TaskId]) -> bool:
        return not waits or not self._ended.isdisjoint(waits)


@mutant("check_workflows", features={"constraints": "", "users": "order=drf|hdrf", "dependencies": ""})
def build_waits_for_one_parent(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Hasty(SlotMachines(cluster)), Node, {})


class Stubborn(Whole):
    """Takes the tasks below one that fits nowhere for tasks that can start."""

    __slots__ = ()

    def _may_start(self, waits: Sequence[TaskId]) -> bool:
        return self._ended.issuperset(set(waits) - self._barred)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        barred, self._barred = self._barred, set()
        super()._schedule(tasks)
        self._barred |= barred


@mutant("check_workflows", features={"constraints": "", "users": "order=drf|hdrf", "dependencies": ""})
def build_waits_for_what_never_runs(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Stubborn(SlotMachines(cluster)), Node, {})


class Deaf(Scheduler):
    """Takes a chunk for a repeated one when it comes after the tasks before it have ended."""

    __slots__ = ()

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        if self._running or self._machines.queue.length:
            super().on_more_tasks(message, source, now)


@mutant("check_workflows")
def build_forgets_what_comes_late(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Deaf(SlotMachines(cluster)), Node, {})
