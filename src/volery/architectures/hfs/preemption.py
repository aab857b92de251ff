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
        self._tasks_of: dict[Pool, dict[TaskId, None]] = {}
        self._evictions: dict[TaskId, tuple[Task, Pool]] = {}
        self._loss_count: dict[Pool, int] = {}
        self._min_share = Shortage(timeouts.least_us)
        self._half_share = Shortage(timeouts.half_us)
        self._look_at: Time = NEVER

    def launched(self, task: Task) -> None:
        self._tasks_of.setdefault(self._pools.pool_of(task.job), {})[task.id] = None

    def ended(self, task: Task) -> Task | None:
        """Forget a task that has ended; returns the task for which it was killed, if it was."""
        pool = self._pools.pool_of(task.job)
        del self._tasks_of[pool][task.id]

        eviction = self._evictions.pop(task.id, None)
        if eviction is None:
            return None

        self._loss_count[pool] -= 1
        return eviction[0]

    def arm(self, port: Port, now: Time) -> None:
        self._look_by(now + self._timeouts.every_us, port)

    def _look_by(self, due_us: Time, port: Port) -> None:
        if self._look_at == NEVER or due_us < self._look_at:
            self._look_at = due_us
            port.set_timer(LOOK, due_us)

    def look(
        self, slots: int, running: Mapping[TaskId, LaunchedAttempt], waiting: WaitingOf, port: Port, now: Time
    ) -> None:
        """Note the pools that have their due, and kill tasks for those that have not had it for too long."""
        self._look_at = NEVER

        shares = self._pools.fair_shares(slots)
        for pool, share in shares.items():
            missing_tasks = self._missing_count(pool, share, port, now)
            for task in self._first_waiting(pool, missing_tasks, waiting):
                run = self._choose_victim(shares, running)
                # A victim does not depend on the pool that gains: no other pool would find one.
                if run is None:
                    return
                self._evictions[run.task.id] = (task, pool)
                self._loss_count[self._pools.pool_of(run.task.job)] += 1
                port.send(f"node/{run.machine}", Kill(run.task.id, run.attempt))

            # It gets what was taken as soon as the tasks have ended; its time counts from now.
            if missing_tasks:
                self._min_share.gained(pool)
                self._half_share.gained(pool)

    def _missing_count(self, pool: Pool, share: Fraction, port: Port, now: Time) -> int:
        """The number of further tasks that others have to lose for this pool now."""
        min_slots = min(pool.least, pool.demand)
        missing_tasks = 0

        for shortage, is_short, target in (
            (self._min_share, pool.running < min_slots, min_slots),
            (self._half_share, 2 * pool.running < share, int(share)),
        ):
            expires = shortage.expires(pool, is_short, now)
            if expires != NEVER and expires <= now:
                missing_tasks = max(missing_tasks, target - pool.running)
            elif expires != NEVER:
                self._look_by(expires, port)

        # What is being taken for it comes off: it was counted as missing before.
        coming_tasks = sum(winner is pool for _, winner in self._evictions.values()) if missing_tasks > 0 else 0
        return max(0, missing_tasks - coming_tasks)

    def _first_waiting(self, pool: Pool, count: int, waiting: WaitingOf) -> list[Task]:
        """The tasks for which others are to end, except those for which others end already."""
        promised_tasks = {task.id for task, _ in self._evictions.values()} if count else set()
        tasks = (task for job in pool.ranking for task in waiting(job))
        return list(itertools.islice((task for task in tasks if task.id not in promised_tasks), count))

    def _choose_victim(
        self, shares: Mapping[Pool, Fraction], running: Mapping[TaskId, LaunchedAttempt]
    ) -> LaunchedAttempt | None:
        """The newest task of the pool that is farthest above its share, and still has that without the task."""
        remaining = {pool: pool.running - self._loss_count.setdefault(pool, 0) for pool in shares}
        # A pool may lose no task that it is due: it would take it back at once.
        pools_above = [pool for pool, share in shares.items() if remaining[pool] - 1 >= share]
        for pool in sorted(pools_above, key=lambda pool: shares[pool] - remaining[pool]):
            for task in reversed(self._tasks_of[pool]):
                run = running[task]
                if task not in self._evictions and run.attempt < ATTEMPT_MAX:
                    return run
        return None

    def check(self, running: Mapping[TaskId, LaunchedAttempt]) -> None:
        assert set(self._evictions) <= set(running), "tasks that have ended are to end"
        for pool, count in self._loss_count.items():
            losing = sum(self._pools.pool_of(running[task].task.job) is pool for task in self._evictions)
            assert count == losing, f"pool {pool.name!r} loses {losing} tasks, {count} are counted"
