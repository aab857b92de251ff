"""The tasks of the scheduler: those that wait, in lines, and those that have a slot of a machine.

A network holds of the waiting tasks only those that matter. No slot is promised twice.
"""

from __future__ import annotations

import bisect
from collections.abc import Callable, Mapping, Sequence

import msgspec

from volery.core.model import NEVER, Cluster, JobId, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX

Place = tuple[str | int, ...]
"""A node that tasks have arcs to: ("machine", m), ("rack", constraints, r), ("any", constraints) and the like."""

Entries = tuple[tuple[Place, int], ...]
"""Places that a task has arcs to, and their costs."""

MACHINE = "machine"
NOWHERE = -1
EVERY_JOB = -1
"""Stands for a job where lines are shared."""


class Item(msgspec.Struct, eq=False):
    """A task of the scheduler, from its arrival to its end.

    Args:
        entries: places that it has arcs to, with what they cost.
        holders: machines that hold its input.

    Attributes:
        since: arrival, later by the time that it has run: the time since then is its whole wait.
        waited_us: in all, when it was last launched.
        machine: on which it runs, or that it has been promised; NOWHERE: it waits.
        began_us: when it was launched; NEVER while it does not run.
        attempt: the one that runs, or the next.
    """

    task: Task
    entries: Entries
    holders: tuple[int, ...]
    since: Time
    waited_us: Time = 0
    machine: int = NOWHERE
    began_us: Time = NEVER
    attempt: int = 0


Group = tuple[Time, JobId]
"""Tasks of a job with the same arrival: their wait costs the same."""


class _WaitingLine:
    """The waiting tasks that have an arc to a place, for the same cost, the longest waiting first."""

    __slots__ = ("_groups", "_tasks")

    def __init__(self) -> None:
        self._groups: list[Group] = []
        self._tasks: dict[Group, list[TaskId]] = {}

    def add(self, item: Item) -> None:
        group, task = (item.since, item.task.job), item.task.id
        tasks = self._tasks.get(group)
        if tasks is None:
            self._tasks[group] = [task]
            bisect.insort(self._groups, group)
        elif tasks[-1:] < [task]:
            tasks.append(task)
        elif tasks[place := bisect.bisect_left(tasks, task)] != task:  # else it was taken, and is back
            tasks.insert(place, task)

    def first(self, items: Mapping[TaskId, Item], most: int, cost_of: Callable[[Time], int]) -> list[Item]:
        """The first tasks, and those whose wait costs as much as that of the last of them; at most so many of a job.

        Args:
            items: those that wait; others are cleared away.
            cost_of: the cost of a wait that began then.
        """
        found, taken, emptied = list[Item](), dict[JobId, int](), list[Group]()
        walked, last = 0, NEVER
        for group in self._groups:
            since, job = group
            if len(found) >= most and since != last and cost_of(since) != cost_of(last):
                break
            walked += 1
            before = taken.get(job, 0)
            ready = self._alive(group, items, most - before)
            taken[job] = before + len(ready)
            if not ready and not self._tasks[group]:
                emptied.append(group)
            if len(found) < most:
                last = since
            found += ready
        if emptied:
            for group in emptied:
                del self._tasks[group]
            self._groups[:walked] = [group for group in self._groups[:walked] if group in self._tasks]
        return found

    def _alive(self, group: Group, items: Mapping[TaskId, Item], most: int) -> list[Item]:
        """The first tasks of a group that wait."""
        tasks, since, ready, looked = self._tasks[group], group[0], list[Item](), 0
        for task in tasks:
            if len(ready) == most:
                break
            looked += 1
            item = items.get(task)
            if item is not None and item.since == since:
                ready.append(item)
        if looked > len(ready):
            tasks[:looked] = [item.task.id for item in ready]
        return ready

    def __bool__(self) -> bool:
        return bool(self._groups)


class WaitingItems:
    """The tasks that wait, per place and cost, the longest waiting first.

    Of the tasks that have an arc to a place, for the same cost, those that have waited longest gain most. So of each
    line as many matter as there are slots to be had in all: if one behind them had a slot through that place, one of
    them would have none, and would be as good there or better.

    Args:
        shared: lines are for tasks of all jobs, as nothing bounds what a job has; otherwise each job has its own.
    """

    def __init__(self, *, shared: bool = False) -> None:
        self.items: dict[TaskId, Item] = {}
        self.counts: dict[JobId, int] = {}
        self.kinds: dict[Entries, int] = {}
        self._shared = shared
        self._lines: dict[JobId, dict[tuple[Place, int], _WaitingLine]] = {}

    def __len__(self) -> int:
        return len(self.items)

    def add(self, item: Item) -> None:
        self.items[item.task.id] = item
        job = item.task.job
        self.counts[job] = self.counts.get(job, 0) + 1
        self.kinds[item.entries] = self.kinds.get(item.entries, 0) + 1
        lines = self._lines.setdefault(EVERY_JOB if self._shared else job, {})
        for entry in item.entries:
            line = lines.get(entry)
            if line is None:
                line = lines[entry] = _WaitingLine()
            line.add(item)

    def take(self, item: Item) -> None:
        """Remove a task; lines drop it when they are next read."""
        del self.items[item.task.id]
        self.counts[item.task.job] -= 1
        self.kinds[item.entries] -= 1
        if not self.kinds[item.entries]:
            del self.kinds[item.entries]

    def forget(self, job: JobId) -> None:
        self._lines.pop(job, None)
        self.counts.pop(job, None)

    def of_job(self, job: JobId) -> list[Item]:
        return [item for item in self.items.values() if item.task.job == job]

    def first(self, places: Callable[[Place], bool], most: int, cost_of: Callable[[Time], int]) -> list[Item]:
        """The tasks that matter: of each line to a place where there is room, the first ones.

        Where tasks have arcs to several places, those of each job: fewer would change the choice between equal flows.
        """
        if not self._shared:
            cost_of = _itself
        elif any(len(kind) > 1 for kind in self.kinds):
            cost_of = _equal
        found: dict[TaskId, Item] = {}
        for lines in self._lines.values():
            for entry in list(lines):
                if places(entry[0]):
                    for item in self._head(lines, entry, most, cost_of):
                        found[item.task.id] = item
        return sorted(found.values(), key=lambda item: (item.task.job, item.since, item.task.id))

    def first_of(self, job: JobId, entry: tuple[Place, int], most: int) -> list[Item]:
        """The first tasks of a job's own line."""
        lines = self._lines.get(job, {})
        return self._head(lines, entry, most, _itself) if entry in lines else []

    def _head(
        self,
        lines: dict[tuple[Place, int], _WaitingLine],
        entry: tuple[Place, int],
        most: int,
        cost_of: Callable[[Time], int],
    ) -> list[Item]:
        """The first tasks of a line, which goes when it is empty."""
        found = lines[entry].first(self.items, most, cost_of)
        if not lines[entry]:
            del lines[entry]
        return found


def _itself(since: Time) -> int:
    return since


def _equal(since: Time) -> int:
    """All waits are level: no task is behind those that matter."""
    return 0


class Room:
    """Keeps what each machine has left to give, and its load.

    Attributes:
        free: slots that a network may fill.
        used_mbps: what these are taken to read from elsewhere.
        open: the machines with free slots, as a bit vector.
    """

    __slots__ = ("free", "open", "tasks", "used_mbps")

    def __init__(self, machines: int) -> None:
        self.free = [0] * machines
        self.tasks = [0] * machines
        self.used_mbps = [0] * machines
        self.open = 0

    def fill(self, free: list[int]) -> None:
        self.free = free
        self.open = sum([1 << machine for machine, count in enumerate(free) if count])

    def change(self, machine: int, count: int) -> None:
        """Add slots of a machine, or take them away."""
        self.free[machine] += count
        if self.free[machine]:
            self.open |= 1 << machine
        else:
            self.open &= ~(1 << machine)

    def with_slots_of(self, items: Sequence[Item]) -> Room:
        """The room with the slots of these tasks beside what is free; of the same loads."""
        room = Room(0)
        room.free, room.open, room.tasks, room.used_mbps = list(self.free), self.open, self.tasks, self.used_mbps
        for item in items:
            room.change(item.machine, 1)
        return room


class Machines:
    """The slots, and the tasks that have some.

    A placed task is launched at once if a slot is idle, else when the task that has the promised slot has been stopped.
    A task that is moved has its new place before it has left the old one.

    Attributes:
        free: per machine, slots that no task has or was promised, and those of tasks that are being stopped.
        counts: tasks of each job that run, or will without a further decision.
        kinds: the arcs of tasks that run, and how many have them.
        running: attempts that have been launched, by task.
        stopping: those that are being stopped, with the tasks for which they are.
    """

    def __init__(self, cluster: Cluster, request_mbps: Callable[[Task, Sequence[int]], int]) -> None:
        self._slots = cluster.slots
        self._request = request_mbps
        self._idle = list(cluster.slots)
        self._promised: list[dict[TaskId, Item]] = [{} for _ in cluster.slots]
        self._moving: dict[TaskId, int] = {}
        self.room = Room(len(cluster.slots))
        self.room.fill(list(cluster.slots))
        self.counts: dict[JobId, int] = {}
        self.kinds: dict[Entries, int] = {}
        self.running: dict[TaskId, Item] = {}
        self.stopping: dict[TaskId, TaskId] = {}

    def movable(self) -> list[Item]:
        """Tasks that may be stopped or moved, in the order of their launch."""
        stopping = self.stopping
        return [item for task, item in self.running.items() if task not in stopping and item.attempt < ATTEMPT_MAX]

    @property
    def free(self) -> list[int]:
        return self.room.free

    def _count(self, item: Item, change: int) -> None:
        job = item.task.job
        self.counts[job] = self.counts.get(job, 0) + change
        if not self.counts[job]:
            del self.counts[job]

    def stop(self, item: Item, beneficiary: TaskId) -> None:
        """Note that a task is to stop: its slot can be promised."""
        self.stopping[item.task.id] = beneficiary
        self._count(item, -1)
        self.room.change(item.machine, 1)

    def place(self, item: Item, machine: int) -> None:
        """Promise a slot to a task that waits, or runs elsewhere and is to stop."""
        assert self.free[machine] > 0, f"machine {machine} has no slot to promise"
        if item.task.id in self.running:
            self._moving[item.task.id] = machine
        else:
            item.machine = machine
        self.room.change(machine, -1)
        self._promised[machine][item.task.id] = item
        self._count(item, 1)
        self._load(item, machine, 1)

    def _load(self, item: Item, machine: int, change: int) -> None:
        self.room.tasks[machine] += change
        self.room.used_mbps[machine] += change * self._request(item.task, item.holders)

    def start(self, machine: int, now: Time) -> list[Item]:
        """Start the promised tasks that have an idle slot of the machine, and return them."""
        promised, ready = self._promised[machine], list[Item]()
        for task, item in list(promised.items()):
            if self._idle[machine] and task not in self.running:
                self._idle[machine] -= 1
                del promised[task]
                item.began_us, item.waited_us = now, now - item.since
                self.running[task] = item
                self.kinds[item.entries] = self.kinds.get(item.entries, 0) + 1
                ready.append(item)
        return ready

    def end(self, task: TaskId) -> int:
        """Remove an ended attempt; returns its machine."""
        item = self.running.pop(task)
        machine = item.machine
        self._idle[machine] += 1
        self._load(item, machine, -1)
        self.kinds[item.entries] -= 1
        if not self.kinds[item.entries]:
            del self.kinds[item.entries]
        if self.stopping.pop(task, None) is None:
            self.room.change(machine, 1)
            self._count(item, -1)
        item.machine = self._moving.pop(task, NOWHERE)
        item.began_us = NEVER
        return machine

    def let_go(self, item: Item) -> None:
        """Give up the slot that a task was promised."""
        if item.machine != NOWHERE:
            del self._promised[item.machine][item.task.id]
            self._count(item, -1)
            self._load(item, item.machine, -1)
            self.room.change(item.machine, 1)
            item.machine = NOWHERE

    def promised_to(self, job: JobId) -> list[Item]:
        """Tasks of a job that have been promised a slot and run nowhere."""
        every = (item for promised in self._promised for item in promised.values())
        return [item for item in every if item.task.job == job and item.task.id not in self.running]

    def check(self) -> None:
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
        counts: dict[JobId, int] = {}
        kept = [item for task, item in self.running.items() if task not in self.stopping]
        for item in (*kept, *(item for promised in self._promised for item in promised.values())):
            counts[item.task.job] = counts.get(item.task.job, 0) + 1
        assert counts == self.counts, "tasks of jobs are counted wrongly"
        assert min(free) >= 0, "a slot is promised twice"
        assert self.room.open == sum(1 << machine for machine, count in enumerate(free) if count), "room is not open"
        for machine, promised in enumerate(self._promised):
            able = [task for task in promised if task not in self.running]
            assert not (able and idle[machine]), f"a slot of machine {machine} is idle and promised"
