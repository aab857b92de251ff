"""Stage T1: which tasks of a workflow may start, because all that they wait for has finished."""

from __future__ import annotations

from collections.abc import Sequence

from volery.core.model import Task, TaskId, Time


class Workflow:
    """The tasks of one job that depend on each other, as far as they have come. Parents come before their children."""

    __slots__ = ("_children", "_finished_tasks", "_missing_parents", "_ranks", "_tasks", "never")

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Task] = {}
        self._children: dict[TaskId, list[TaskId]] = {}
        self._missing_parents: dict[TaskId, int] = {}
        self._finished_tasks: set[TaskId] = set()
        self._ranks: dict[TaskId, Time] = {}
        self.never: set[TaskId] = set()

    def add(self, tasks: Sequence[Task], parents: Sequence[Sequence[TaskId]], lost: set[TaskId]) -> list[Task]:
        """A chunk has come; returns those of its tasks that may start.

        Args:
            parents: Parents of each task; nothing where none waits for any.
            lost: Tasks of the chunk that no machine can run: they, and whatever is below them, are `never` ready.
        """
        # A new task may lengthen the chains of those above it.
        self._ranks.clear()

        ready = []
        for task, task_parents in zip(tasks, parents or ((),) * len(tasks), strict=True):
            self._tasks[task.id] = task
            if task.id in lost or not self.never.isdisjoint(task_parents):
                self.never.add(task.id)
                continue

            for parent in task_parents:
                self._children.setdefault(parent, []).append(task.id)

            if missing := sum(parent not in self._finished_tasks for parent in task_parents):
                self._missing_parents[task.id] = missing
            else:
                ready.append(task)
        return ready

    def finished(self, task: TaskId) -> list[Task]:
        """A task has finished; returns those that may start now."""
        if task in self._finished_tasks:
            return []
        self._finished_tasks.add(task)

        ready = []
        for child in self._children.get(task, ()):
            self._missing_parents[child] -= 1
            if not self._missing_parents[child]:
                del self._missing_parents[child]
                ready.append(self._tasks[child])
        return ready

    def ahead(self, task: TaskId) -> list[tuple[Task, int]]:
        """The tasks that wait for this one, each with its count of unfinished parents."""
        missing = self._missing_parents
        return [(self._tasks[child], missing[child]) for child in self._children.get(task, ()) if child in missing]

    @property
    def blocked(self) -> int:
        """Number of tasks that wait for others."""
        return len(self._missing_parents)

    def rank_us(self, task: TaskId) -> Time:
        """The longest chain of tasks that begins with this one, by estimates: HEFT's upward rank."""
        if not self._ranks:
            for number in reversed(self._tasks):
                below_us = max([self._ranks.get(child, 0) for child in self._children.get(number, ())], default=0)
                self._ranks[number] = self._tasks[number].estimate_us + below_us
        return self._ranks[task]
