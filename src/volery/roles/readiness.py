"""Stage T1: which tasks of a workflow may start, because all that they wait for has finished."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.model import Task, TaskId, Time


class Workflow:
    """The tasks of one job that depend on each other, as far as they have come. Parents come before their children."""

    __slots__ = ("_children", "_finished", "_missing", "_ranks", "_tasks", "never")

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Task] = {}
        self._children: dict[TaskId, list[TaskId]] = {}
        self._missing: dict[TaskId, int] = {}
        self._finished: set[TaskId] = set()
        self._ranks: dict[TaskId, Time] = {}
        self.never: set[TaskId] = set()

    def add(self, tasks: Sequence[Task], parents: Sequence[Sequence[TaskId]], lost: set[TaskId]) -> list[Task]:
        """A chunk has come; returns those of its tasks that may start.

        Args:
            parents: of each; nothing where none waits for any.
            lost: those of the chunk that no machine can run: they, and whatever is below them, are `never` ready.
        """
        self._ranks.clear()
        ready = []
        for task, waits_for in zip(tasks, parents or ((),) * len(tasks), strict=True):
            self._tasks[task.id] = task
            if task.id in lost or not self.never.isdisjoint(waits_for):
                self.never.add(task.id)
                continue
            for parent in waits_for:
                self._children.setdefault(parent, []).append(task.id)
            if missing := sum(parent not in self._finished for parent in waits_for):
                self._missing[task.id] = missing
            else:
                ready.append(task)
        return ready

    def finished(self, task: TaskId) -> list[Task]:
        """A task has finished; returns those that may start now."""
        if task in self._finished:
            return []
        self._finished.add(task)
        ready = []
        for child in self._children.get(task, ()):
            self._missing[child] -= 1
            if not self._missing[child]:
                del self._missing[child]
                ready.append(self._tasks[child])
        return ready

    def ahead(self, task: TaskId) -> list[tuple[Task, int]]:
        """The tasks that wait for this one, each with how many it waits for in all."""
        missing = self._missing
        return [(self._tasks[one], missing[one]) for one in self._children.get(task, ()) if one in missing]

    @property
    def blocked(self) -> int:
        """Number of tasks that wait for others."""
        return len(self._missing)

    def rank_us(self, task: TaskId) -> Time:
        """The longest chain of tasks that begins with this one, by estimates: HEFT's upward rank."""
        if not self._ranks:
            for number in reversed(self._tasks):
                below = max([self._ranks.get(child, 0) for child in self._children.get(number, ())], default=0)
                self._ranks[number] = self._tasks[number].estimate_us + below
        return self._ranks[task]
