"""Preemption by timeouts: pools that have been short of their shares for long take slots from those that have more."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping
from fractions import Fraction
from typing import Final, NamedTuple

import msgspec

from volery.architectures.hfs.pools import Pool, Pools
from volery.core.model import NEVER, JobId, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import ATTEMPT_MAX
from volery.roles.node import Kill

WaitingOf = Callable[[JobId], Iterable[Task]]
"""The waiting tasks of a job."""
LOOK: Final = "shares"


class Timeouts(msgspec.Struct, frozen=True):
    """The waits after which pools take slots from others."""

    least_us: Time
    half_us: Time
    every_us: Time


class Shortage:
    """Keeps the times since when pools have been short of a share."""

    def __init__(self, timeout_us: Time) -> None:
        self._timeout_us = timeout_us
        self._since: dict[Pool, Time] = {}

    def expires(self, pool: Pool, is_short: bool, now: Time) -> Time:
        """The time at which the pool takes what it lacks; NEVER if it lacks nothing, or has no timeout."""
        if not is_short:
            self._since.pop(pool, None)
        return self._since.setdefault(pool, now) + self._timeout_us if is_short and self._timeout_us else NEVER

    def gained(self, pool: Pool) -> None:
        """Let a pool that has taken something wait again."""
        self._since.pop(pool, None)


class LaunchedAttempt(NamedTuple):
    """An attempt on a machine."""

    task: Task
    attempt: int
    machine: int


class Preemptor:
    """Looks at shares from time to time, and kills the newest tasks of the pools that are farthest above theirs."""

    def __init__(self, timeouts: Timeouts, pools: Pools) -> None:
        self._timeouts = timeouts
        self._pools = pools
        self._stays: dict[Pool, dict[TaskId, None]] = {}
        self._leaving: dict[TaskId, tuple[Task, Pool]] = {}
        self._losing: dict[Pool, int] = {}
        self._least = Shortage(timeouts.least_us)
        self._half = Shortage(timeouts.half_us)
        self._look_at: Time = NEVER

    def launched(self, task: Task) -> None:
        self._stays.setdefault(self._pools.pool_of(task.job), {})[task.id] = None

    def ended(self, task: Task) -> Task | None:
        """Forget a task that has ended; returns the task for which it was killed, if it was."""
        pool = self._pools.pool_of(task.job)
        del self._stays[pool][task.id]
        winner = self._leaving.pop(task.id, None)
        if winner is None:
            return None
        self._losing[pool] -= 1
        return winner[0]

    def arm(self, port: Port, now: Time) -> None:
        self._look_by(now + self._timeouts.every_us, port)

    def _look_by(self, at: Time, port: Port) -> None:
        if self._look_at == NEVER or at < self._look_at:
            self._look_at = at
            port.set_timer(LOOK, at)

    def look(
        self, slots: int, running: Mapping[TaskId, LaunchedAttempt], waiting: WaitingOf, port: Port, now: Time
    ) -> None:
        """Note the pools that have their due, and kill tasks for those that have not had it for too long."""
        self._look_at = NEVER
        due = self._pools.fair_shares(slots)
        for pool, share in due.items():
            wanted = self._wanted(pool, share, port, now)
            for task in self._first_waiting(pool, wanted, waiting):
                run = self._victim(due, running)
                if run is None:
                    return
                self._leaving[run.task.id] = (task, pool)
                self._losing[self._pools.pool_of(run.task.job)] += 1
                port.send(f"node/{run.machine}", Kill(run.task.id, run.attempt))
            if wanted:
                self._least.gained(pool)
                self._half.gained(pool)

    def _wanted(self, pool: Pool, share: Fraction, port: Port, now: Time) -> int:
        """The number of further tasks that others have to lose for this pool now."""
        least, wanted = min(pool.least, pool.demand), 0
        for short, is_short, due in (
            (self._least, pool.running < least, least),
            (self._half, 2 * pool.running < share, int(share)),
        ):
            expires = short.expires(pool, is_short, now)
            if expires != NEVER and expires <= now:
                wanted = max(wanted, due - pool.running)
            elif expires != NEVER:
                self._look_by(expires, port)
        leaving = sum(winner is pool for _, winner in self._leaving.values()) if wanted > 0 else 0
        return max(0, wanted - leaving)

    def _first_waiting(self, pool: Pool, count: int, waiting: WaitingOf) -> list[Task]:
        """The tasks for which others are to end, except those for which others end already."""
        promised = {task.id for task, _ in self._leaving.values()} if count else set()
        tasks = (task for job in pool.ranking for task in waiting(job))
        return list(itertools.islice((task for task in tasks if task.id not in promised), count))

    def _victim(
        self, due: Mapping[Pool, Fraction], running: Mapping[TaskId, LaunchedAttempt]
    ) -> LaunchedAttempt | None:
        """The newest task of the pool that is farthest above its share, and still has that without the task."""
        left = {pool: pool.running - self._losing.setdefault(pool, 0) for pool in due}
        above = [pool for pool, share in due.items() if left[pool] - 1 >= share]
        for pool in sorted(above, key=lambda pool: due[pool] - left[pool]):
            for task in reversed(self._stays[pool]):
                run = running[task]
                if task not in self._leaving and run.attempt < ATTEMPT_MAX:
                    return run
        return None

    def check(self, running: Mapping[TaskId, LaunchedAttempt]) -> None:
        assert set(self._leaving) <= set(running), "tasks that have ended are to end"
        for pool, count in self._losing.items():
            losing = sum(self._pools.pool_of(running[task].task.job) is pool for task in self._leaving)
            assert count == losing, f"pool {pool.name!r} loses {losing} tasks, {count} are counted"
