"""Tokens, the right to run a task: some are guaranteed to jobs; what is idle beyond that is spare."""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Iterator

from volery.core.model import Cluster, JobId, Task, TaskId, Time
from volery.policies.match import Anchors, Matches, fewest_constraints_first

Key = tuple[bool, int, int]


class TokenHolder:
    """A job as tokens see it.

    Args:
        job: its number.
        place: in the order of arrival.
        capped: whether it may run no more than is guaranteed to it.

    Attributes:
        guaranteed: tokens that it has before anybody is given a spare one.
        running: tasks.
        waiting: tasks that are ready.
        key: among those who wait; None: it does not.
    """

    __slots__ = ("_lines", "capped", "guaranteed", "job", "key", "place", "running", "waiting")

    def __init__(self, job: JobId, place: int, *, capped: bool) -> None:
        self.job = job
        self.capped = capped
        self.place = place
        self.guaranteed = 0
        self.running = 0
        self.waiting = 0
        self.key: Key | None = None
        self._lines: dict[int, deque[tuple[int, Task]]] = {}

    def push(self, number: int, task: Task) -> None:
        """A task is ready; they are numbered in the order in which they have become so."""
        self._lines.setdefault(task.constraints, deque()).append((number, task))
        self.waiting += 1

    def first_fitting(self, idle: int, matches: Matches) -> tuple[Task, int] | None:
        """Take the first ready task that some idle unit satisfies, with the first such unit; None: there is none."""
        fitting = [(line[0][0], mask) for mask, line in self._lines.items() if matches[mask] & idle]
        if not fitting:
            return None
        _, mask = min(fitting)
        _, task = self._lines[mask].popleft()
        if not self._lines[mask]:
            del self._lines[mask]
        self.waiting -= 1
        units = matches[mask] & idle
        return task, (units & -units).bit_length() - 1

    def drop(self) -> int:
        """Forget all ready tasks; returns how many there were."""
        dropped, self.waiting, self._lines = self.waiting, 0, {}
        return dropped


class Tokens:
    """Keeps the tokens of jobs and the slots of their tasks; a slot is a token.

    Jobs that run less than is guaranteed to them come first, then those that run least, by arrival where they are
    equal. A job of which no idle machine satisfies any ready task is passed over, and asked again whenever tokens are
    handed out.

    Args:
        cluster: the machines. Those that satisfy few constraints are used first.
    """

    def __init__(self, cluster: Cluster) -> None:
        order = fewest_constraints_first(range(len(cluster.slots)), cluster.constraints)
        self._machine_of = [machine for machine in order for _ in range(cluster.slots[machine])]
        constraints = [cluster.constraints[machine] for machine in self._machine_of]
        self._matches = Matches(constraints, Anchors(cluster.constraints))
        self._idle = self._matches.every
        self._running: dict[TaskId, tuple[Task, TokenHolder, int, Time]] = {}
        self._turns: list[tuple[Key, TokenHolder]] = []
        self._ready_count = 0

    @property
    def running(self) -> int:
        """The number of running tasks."""
        return len(self._running)

    def possible(self, task: Task) -> bool:
        """True if some machine satisfies the task's constraints."""
        return bool(self._matches[task.constraints])

    def guarantee(self, holder: TokenHolder, tokens: int) -> None:
        """Set the tokens that a job has before spare ones are given."""
        holder.guaranteed = tokens
        self._queue(holder)

    def ready(self, holder: TokenHolder, tasks: list[Task]) -> None:
        """Queue tasks of a job that may start."""
        for task in tasks:
            self._ready_count += 1
            holder.push(self._ready_count, task)
        self._queue(holder)

    def _queue(self, holder: TokenHolder) -> None:
        short = holder.running < holder.guaranteed
        key = (not short, holder.running, holder.place) if holder.waiting and (short or not holder.capped) else None
        if key != holder.key:
            holder.key = key
            if key is not None:
                heapq.heappush(self._turns, (key, holder))

    def handed_out(self, now: Time) -> Iterator[tuple[Task, int]]:
        """Tasks that start now, each with the number of its machine."""
        passed_over = []
        while self._idle and self._turns:
            key, holder = heapq.heappop(self._turns)
            if holder.key is not key:
                continue
            found = holder.first_fitting(self._idle, self._matches)
            if found is None:
                passed_over.append((key, holder))
                continue
            task, unit = found
            self._idle ^= 1 << unit
            self._running[task.id] = (task, holder, unit, now)
            holder.running += 1
            self._queue(holder)
            yield task, self._machine_of[unit]
        for turn in passed_over:
            heapq.heappush(self._turns, turn)

    def end(self, task: TaskId) -> tuple[Task, TokenHolder, Time] | None:
        """A task has ended: it, whose it is, and when it was sent to its machine; None: that was known before."""
        found = self._running.pop(task, None)
        if found is None:
            return None
        ended, holder, unit, since_us = found
        self._idle |= 1 << unit
        holder.running -= 1
        self._queue(holder)
        return ended, holder, since_us

    def drop(self, holder: TokenHolder) -> int:
        """Forget the ready tasks of a job; returns how many there were."""
        dropped = holder.drop()
        self._queue(holder)
        return dropped

    def machines_of(self, holder: TokenHolder) -> list[tuple[TaskId, int]]:
        """Running tasks of a job, with their machines."""
        return [(task.id, self._machine_of[unit]) for task, owner, unit, _ in self._running.values() if owner is holder]

    def check(self) -> None:
        """Raise AssertionError where units are neither idle nor run exactly one task."""
        taken = sum([1 << unit for _, _, unit, _ in self._running.values()])
        assert taken.bit_count() == len(self._running), "two tasks run on one unit"
        assert not taken & self._idle, "an idle unit runs a task"
        assert taken | self._idle == self._matches.every, "a unit is lost"
