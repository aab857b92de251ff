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
"""The job of lines that are shared."""


class Item(msgspec.Struct, eq=False):
    """A task of the scheduler, from its arrival to its end.

    Args:
        entries: Places that it has arcs to, with their costs.
        holders: Machines that hold its input.

    Attributes:
        since: Arrival, later by the time that it has run: the time since then is its whole wait.
        waited_us: Whole wait when it was last launched.
        machine: Machine on which it runs, or that it has been promised; NOWHERE: it waits.
        began_us: Time of its launch; NEVER while it does not run.
        attempt: The attempt that runs, or the next.
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
        group = (item.since, item.task.job)
        task = item.task.id

        tasks = self._tasks.get(group)
        if tasks is None:
            self._tasks[group] = [task]
            bisect.insort(self._groups, group)
        elif tasks[-1:] < [task]:
            tasks.append(task)
        # A task that was taken and is back may stand there still.
        elif tasks[place := bisect.bisect_left(tasks, task)] != task:
            tasks.insert(place, task)

    def first(self, items: Mapping[TaskId, Item], items_max: int, cost_of: Callable[[Time], int]) -> list[Item]:
        """The first tasks, and those whose wait costs as much as that of the last of them; at most so many of a job.

        Args:
            items: Waiting tasks; others are removed from the line.
            cost_of: The cost of a wait that began then.
        """
        first_items: list[Item] = []
        counts: dict[JobId, int] = {}
        empty_groups: list[Group] = []
        walked_count = 0
        last_since = NEVER

        for group in self._groups:
            since, job = group
            # All that cost as much as the last one count: which of them runs is for the network to decide.
            if len(first_items) >= items_max and since != last_since and cost_of(since) != cost_of(last_since):
                break

            walked_count += 1
            job_count = counts.get(job, 0)

            ready = self._waiting_in(group, items, items_max - job_count)
            counts[job] = job_count + len(ready)

            if not ready and not self._tasks[group]:
                empty_groups.append(group)

            if len(first_items) < items_max:
                last_since = since
            first_items += ready

        if empty_groups:
            for group in empty_groups:
                del self._tasks[group]
            # Only groups that were walked can have become empty.
            self._groups[:walked_count] = [group for group in self._groups[:walked_count] if group in self._tasks]

        return first_items

    def _waiting_in(self, group: Group, items: Mapping[TaskId, Item], items_max: int) -> list[Item]:
        """The first tasks of a group that wait."""
        tasks = self._tasks[group]
        since = group[0]
        ready: list[Item] = []
        walked_count = 0

        for task in tasks:
            if len(ready) == items_max:
                break
            walked_count += 1
            item = items.get(task)
            if item is not None and item.since == since:
                ready.append(item)

        if walked_count > len(ready):
            tasks[:walked_count] = [item.task.id for item in ready]

        return ready

    def __bool__(self) -> bool:
        return bool(self._groups)


class WaitingItems:
    """The tasks that wait, per place and cost, the longest waiting first.

    Of the tasks that have an arc to a place, for the same cost, those that have waited longest gain most. So of each
    line as many matter as there are slots to be had in all: if one behind them had a slot through that place, one of
    them would have none, and would be as good there or better.

    Args:
        shared: Whether lines are for tasks of all jobs, as nothing bounds what a job has; else each job has its own.
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

    def first(self, has_room: Callable[[Place], bool], items_max: int, cost_of: Callable[[Time], int]) -> list[Item]:
        """The tasks that matter: of each line to a place where there is room, the first ones.

        Where tasks have arcs to several places, those of each job: fewer would change the choice between equal flows.
        """
        if not self._shared:
            cost_of = _own_cost
        elif any(len(kind) > 1 for kind in self.kinds):
            cost_of = _equal_cost

        items: dict[TaskId, Item] = {}
        for lines in self._lines.values():
            for entry in list(lines):
                if has_room(entry[0]):
                    for item in self._head(lines, entry, items_max, cost_of):
                        items[item.task.id] = item

        return sorted(items.values(), key=lambda item: (item.task.job, item.since, item.task.id))

    def first_of(self, job: JobId, entry: tuple[Place, int], items_max: int) -> list[Item]:
        """The first tasks of a job's own line."""
        lines = self._lines.get(job, {})
        return self._head(lines, entry, items_max, _own_cost) if entry in lines else []

    def _head(
        self,
        lines: dict[tuple[Place, int], _WaitingLine],
        entry: tuple[Place, int],
        items_max: int,
        cost_of: Callable[[Time], int],
    ) -> list[Item]:
        """The first tasks of a line, which goes when it is empty."""
        first_items = lines[entry].first(self.items, items_max, cost_of)

        if not lines[entry]:
            del lines[entry]
        return first_items


def _own_cost(since: Time) -> int:
    return since


def _equal_cost(since: Time) -> int:
    """Treat all waits alike: no task is behind those that matter."""
    return 0


class Room:
    """Keeps what each machine has left to give, and its load.

    Attributes:
        free: Slots that a network may fill.
        used_mbps: Bandwidth that these are taken to read from elsewhere.
        open: The machines with free slots, as a bit vector.
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
        room.free = list(self.free)
        room.open = self.open
        room.tasks = self.tasks
        room.used_mbps = self.used_mbps

        for item in items:
            room.change(item.machine, 1)

        return room


class Machines:
    """The slots, and the tasks that have some.

    A placed task is launched at once if a slot is idle, else when the task that has the promised slot has been stopped.
    A task that is moved has its new place before it has left the old one.

    Attributes:
        free: Slots of each machine that no task has or was promised, and those of tasks that are being stopped.
        counts: Number of tasks of each job that run, or will without a further decision.
        kinds: Arcs of tasks that run, and how many have them.
        running: Launched attempts, by task.
        stopping: Tasks that are being stopped, with the tasks for which they are.
    """

    def __init__(self, cluster: Cluster, request_mbps: Callable[[Task, Sequence[int]], int]) -> None:
        self._slots = cluster.slots
        self._request = request_mbps
        self._idle = list(cluster.slots)
        self._promised: list[dict[TaskId, Item]] = [{} for _ in cluster.slots]
        self._destinations: dict[TaskId, int] = {}
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
        # It runs elsewhere until it is stopped: `end` gives it its new machine then.
        if item.task.id in self.running:
            self._destinations[item.task.id] = machine
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
        promised = self._promised[machine]
        ready: list[Item] = []

        for task, item in list(promised.items()):
            if self._idle[machine] and task not in self.running:
                self._idle[machine] -= 1
                del promised[task]
                item.began_us = now
                item.waited_us = now - item.since
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

        item.machine = self._destinations.pop(task, NOWHERE)
        item.began_us = NEVER
        return machine

    def release(self, item: Item) -> None:
        """Give up the slot that a task was promised."""
        if item.machine != NOWHERE:
            del self._promised[item.machine][item.task.id]
            self._count(item, -1)
            self._load(item, item.machine, -1)
            self.room.change(item.machine, 1)
            item.machine = NOWHERE

    def promised_to(self, job: JobId) -> list[Item]:
        """Tasks of a job that have been promised a slot and run nowhere."""
        promised_items = (item for promised in self._promised for item in promised.values())
        return [item for item in promised_items if item.task.job == job and item.task.id not in self.running]

    def check(self) -> None:
        idle = list(self._slots)
        for item in self.running.values():
            idle[item.machine] -= 1

        assert idle == self._idle, "slots neither idle nor taken"
        assert set(self.stopping) <= set(self.running), "tasks that do not run are to stop"
        assert set(self._destinations) <= set(self.stopping), "tasks are to move that are not to stop"

        free = [count - len(promised) for count, promised in zip(idle, self._promised, strict=True)]
        for task in self.stopping:
            free[self.running[task].machine] += 1

        assert free == self.free, "slots neither free nor promised"

        counts: dict[JobId, int] = {}
        unstopped_items = [item for task, item in self.running.items() if task not in self.stopping]
        for item in (*unstopped_items, *(item for promised in self._promised for item in promised.values())):
            counts[item.task.job] = counts.get(item.task.job, 0) + 1

        assert counts == self.counts, "tasks of jobs are counted wrongly"
        assert min(free) >= 0, "a slot is promised twice"
        assert self.room.open == sum(1 << machine for machine, count in enumerate(free) if count), "room is not open"

        for machine, promised in enumerate(self._promised):
            ready_tasks = [task for task in promised if task not in self.running]
            assert not (ready_tasks and idle[machine]), f"a slot of machine {machine} is idle and promised"
