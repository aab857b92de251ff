"""The slots of machines: their tasks, those that are to stop, and the tasks that come after; none is promised twice."""

from __future__ import annotations

from collections.abc import Callable

from volery.architectures.quincy.flow.costs import Room
from volery.architectures.quincy.flow.items import NOWHERE, Item
from volery.core.model import NEVER, Cluster, JobId, TaskId, Time
from volery.core.records import ATTEMPT_MAX


class Machines:
    """The slots, and the tasks that have some.

    A placed task is launched at once if a slot is idle, else when the task that has the promised slot has been stopped.
    A task that is moved has its new place before it has left the old one.

    Args:
        cluster: the machines.
        request_mbps: of a task.

    Attributes:
        free: per machine, slots that no task has or was promised, and those of tasks that are being stopped.
        room: of the machines, as a network is drawn from it.
        running: attempts that have been launched, by task.
        stopping: those that are being stopped, with the tasks for which they are.
    """

    def __init__(self, cluster: Cluster, request_mbps: Callable[[Item], int]) -> None:
        self._slots = cluster.slots
        self._request = request_mbps
        self._idle = list(cluster.slots)
        self._promised: list[dict[TaskId, Item]] = [{} for _ in cluster.slots]
        self._moving: dict[TaskId, int] = {}
        self.free = list(cluster.slots)
        self.room = Room(len(cluster.slots))
        self.running: dict[TaskId, Item] = {}
        self.stopping: dict[TaskId, TaskId] = {}

    def movable(self) -> list[Item]:
        """Tasks that may be stopped or moved, in the order of their launch."""
        stopping = self.stopping
        return [item for task, item in self.running.items() if task not in stopping and item.attempt < ATTEMPT_MAX]

    def open_room(self, movable: list[Item]) -> Room:
        """The room that a network may fill, the slots of these tasks included."""
        free = list(self.free)
        for item in movable:
            free[item.machine] += 1
        self.room.fill(free)
        return self.room

    def counts(self) -> dict[JobId, int]:
        """The number of tasks of each job that run, or will without a further decision."""
        found: dict[JobId, int] = {}
        kept = [item for task, item in self.running.items() if task not in self.stopping]
        for item in (*kept, *(item for promised in self._promised for item in promised.values())):
            found[item.task.job] = found.get(item.task.job, 0) + 1
        return found

    def stop(self, item: Item, beneficiary: TaskId) -> None:
        """Note that a task is to stop: its slot can be promised."""
        self.stopping[item.task.id] = beneficiary
        self.free[item.machine] += 1

    def place(self, item: Item, machine: int) -> None:
        """Promise a slot to a task that waits, or runs elsewhere and is to stop."""
        assert self.free[machine] > 0, f"machine {machine} has no slot to promise"
        if item.task.id in self.running:
            self._moving[item.task.id] = machine
        else:
            item.machine = machine
        self.free[machine] -= 1
        self._promised[machine][item.task.id] = item
        self._load(item, machine, 1)

    def _load(self, item: Item, machine: int, change: int) -> None:
        self.room.tasks[machine] += change
        self.room.used_mbps[machine] += change * self._request(item)

    def start(self, machine: int, now: Time) -> list[Item]:
        """Start the promised tasks that have an idle slot of the machine, and return them."""
        promised, ready = self._promised[machine], list[Item]()
        for task, item in list(promised.items()):
            if self._idle[machine] and task not in self.running:
                self._idle[machine] -= 1
                del promised[task]
                item.began_us, item.waited_us = now, now - item.since
                self.running[task] = item
                ready.append(item)
        return ready

    def end(self, task: TaskId) -> int:
        """Remove an ended attempt; returns its machine."""
        item = self.running.pop(task)
        machine = item.machine
        self._idle[machine] += 1
        self._load(item, machine, -1)
        if self.stopping.pop(task, None) is None:
            self.free[machine] += 1
        item.machine = self._moving.pop(task, NOWHERE)
        item.began_us = NEVER
        return machine

    def let_go(self, item: Item) -> None:
        """Give up the slot that a task was promised."""
        if item.machine != NOWHERE:
            del self._promised[item.machine][item.task.id]
            self._load(item, item.machine, -1)
            self.free[item.machine] += 1
            item.machine = NOWHERE

    def promised_to(self, job: JobId) -> list[Item]:
        """Tasks of a job that have been promised a slot and run nowhere."""
        every = (item for promised in self._promised for item in promised.values())
        return [item for item in every if item.task.job == job and item.task.id not in self.running]

    def check(self) -> None:
        """Raise AssertionError where a slot is lost, or has two owners."""
        idle = list(self._slots)
        for item in self.running.values():
            idle[item.machine] -= 1
        assert idle == self._idle, "slots neither idle nor taken"
        assert set(self.stopping) <= set(self.running), "tasks that do not run are to stop"
        assert set(self._moving) <= set(self.stopping), "tasks are to move that are not to stop"
        free = [count - len(promised) for count, promised in zip(idle, self._promised, strict=True)]
        for task in self.stopping:
            free[self.running[task].machine] += 1
        assert free == self.free, "slots neither free nor promised"
        assert min(free) >= 0, "a slot is promised twice"
        for machine, promised in enumerate(self._promised):
            able = [task for task in promised if task not in self.running]
            assert not (able and idle[machine]), f"a slot of machine {machine} is idle and promised"
