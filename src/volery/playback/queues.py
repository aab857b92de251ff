"""Queues of tasks, read from the messages that components receive."""

from __future__ import annotations

import functools
import inspect
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from volery.core.component import role_of
from volery.core.model import Address, Job, JobId, Message, Task, TaskId

_WORDS: Final = re.compile(r"\w+")


class Queues:
    """Counts tasks that wait; a task waits at the component that last received it, until it starts."""

    def __init__(self, bins: int) -> None:
        self._bins, self._bin = bins, 0
        self._at: dict[TaskId, Address | None] = {}
        self._job_of: dict[TaskId, JobId] = {}
        self._of_job: dict[JobId, set[TaskId]] = {}
        self._now: Counter[Address] = Counter()
        self._role_now: Counter[str] = Counter()
        self._most: dict[str, list[int]] = {}
        self._busiest: dict[str, list[int]] = {}

    def begin(self, at: int) -> None:
        """Begin an interval with the tasks that wait now."""
        self._bin = at
        busiest: dict[str, int] = {}
        for address, count in self._now.items():
            role = role_of(address)
            busiest[role] = max(count, busiest.get(role, 0))
        for role, counts in self._most.items():
            counts[at] = self._role_now[role]
            self._busiest[role][at] = busiest.get(role, 0)

    def received(self, address: Address, message: Message) -> None:
        """Move the tasks that a message names to its receiver."""
        for name, whole in task_fields(type(message)):
            for found in flat(getattr(message, name)):
                if isinstance(found, Job):
                    for task in found.tasks:
                        self._put(task, address)
                elif isinstance(found, Task):
                    self._put(found, address)
                elif not whole and found in self._at:
                    self._move(found, address)

    def _put(self, task: Task, address: Address) -> None:
        if task.id not in self._job_of:
            self._job_of[task.id] = task.job
            self._of_job.setdefault(task.job, set()).add(task.id)
            self._at[task.id] = None
        if task.id in self._at:
            self._move(task.id, address)

    def _move(self, task: TaskId, address: Address | None) -> None:
        before = self._at[task]
        if before == address:
            return
        self._at[task] = address
        if before is not None:
            self._now[before] -= 1
            self._role_now[role_of(before)] -= 1
        if address is not None:
            role = role_of(address)
            self._now[address] += 1
            self._role_now[role] += 1
            if role not in self._most:
                self._most[role], self._busiest[role] = [0] * self._bins, [0] * self._bins
            self._most[role][self._bin] = max(self._most[role][self._bin], self._role_now[role])
            self._busiest[role][self._bin] = max(self._busiest[role][self._bin], self._now[address])

    def started(self, task: TaskId) -> None:
        """Remove a task that has started from its queue."""
        if task in self._at:
            self._move(task, None)
            del self._at[task]

    def lost(self, task: TaskId) -> None:
        """Have a task wait again after a lost attempt, at the next component that receives it."""
        if task in self._job_of:
            self._at[task] = None

    def forget(self, job: JobId) -> None:
        """Remove all tasks of a job that is done or cancelled."""
        for task in self._of_job.pop(job, ()):
            self.started(task)
            del self._job_of[task]

    def of(self, role: str) -> tuple[list[int], list[int]]:
        """The longest queue in each interval: of all components of a role together, and of one."""
        nothing = [0] * self._bins
        return self._most.get(role, nothing), self._busiest.get(role, nothing)


@functools.cache
def task_fields(kind: type[Message]) -> tuple[tuple[str, bool], ...]:
    """The fields of a message that name tasks or a job by their declared types; True: whole tasks, False: numbers."""
    found = []
    for base in kind.__mro__:
        for name, declared in inspect.get_annotations(base).items():
            words = set(_WORDS.findall(str(declared)))
            if words & {"Task", "Job", "TaskId"} and "ClassVar" not in words:
                found.append((name, "TaskId" not in words))
    return tuple(found)


def flat(found: Any) -> Iterator[Any]:
    """The items of nested tuples."""
    if isinstance(found, tuple):
        for one in found:
            yield from flat(one)
    elif found is not None:
        yield found
