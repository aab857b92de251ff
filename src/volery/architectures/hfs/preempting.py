"""Preemption by timeouts: pools that have been short of their shares for long take slots from those that have more."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from fractions import Fraction
from typing import Any, Final

import msgspec

from volery.architectures.hfs.tracker import JobTracker, JobWork, Running
from volery.core.events import Preemption, TimerFired
from volery.core.model import NEVER, Address, Task, TaskId, Time
from volery.core.records import ATTEMPT_MAX
from volery.policies.fairness import Pool
from volery.roles.node import Completed, Kill

LOOK: Final = "shares"


class Timeouts(msgspec.Struct, frozen=True):
    """When pools take slots from others.

    Args:
        least_us: after so long below its minimum share; 0: never.
        half_us: after so long below half of its fair share; 0: never.
        every_us: within so long after a change shares are looked at, while tasks wait.
    """

    least_us: Time
    half_us: Time
    every_us: Time


class Shortage:
    """Since when pools have been short of something, as far as was seen.

    Args:
        timeout_us: how long they bear that; 0: for ever.
    """

    __slots__ = ("_since", "_timeout_us")

    def __init__(self, timeout_us: Time) -> None:
        self._timeout_us = timeout_us
        self._since: dict[Pool, Time] = {}

    def expires(self, pool: Pool, is_short: bool, now: Time) -> Time:
        """When the pool takes what it lacks; NEVER if it lacks nothing, or never does."""
        if not is_short:
            self._since.pop(pool, None)
        return self._since.setdefault(pool, now) + self._timeout_us if is_short and self._timeout_us else NEVER

    def gained(self, pool: Pool) -> None:
        """It has taken something, and waits anew."""
        self._since.pop(pool, None)


class PreemptingTracker(JobTracker):
    """Looks at shares from time to time, and kills the newest tasks of the pools that are farthest above theirs.

    Args:
        timeouts: when.
        arguments: as for `JobTracker`.
    """

    __slots__ = ("_dying", "_half", "_least", "_look_at", "_losing", "_stays", "_timeouts")

    def __init__(self, timeouts: Timeouts, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self._timeouts = timeouts
        self._stays: dict[Pool, dict[TaskId, None]] = {}
        self._dying: dict[TaskId, tuple[Task, Pool]] = {}
        self._losing: dict[Pool, int] = {}
        self._least = Shortage(timeouts.least_us)
        self._half = Shortage(timeouts.half_us)
        self._look_at: Time = NEVER

    def _launch(self, work: JobWork, task: Task, machine: int, now: Time) -> None:
        self._stays.setdefault(self._pools.pool_of(task.job), {})[task.id] = None
        super()._launch(work, task, machine, now)

    def _end(self, run: Running, ended: Completed, now: Time) -> None:
        task = run.task
        del self._stays[self._pools.pool_of(task.job)][task.id]
        winner = self._dying.pop(task.id, None)
        if winner is not None:
            self._losing[self._pools.pool_of(task.job)] -= 1
        if winner is not None and ended.killed and task.job not in self._jobs.cancelled:
            self._port.observe(Preemption(now, task.id, run.attempt, winner[0].id))
        super()._end(run, ended, now)

    def _arm(self, now: Time) -> None:
        super()._arm(now)
        if self._waiting:
            self._look_by(now + self._timeouts.every_us)

    def _look_by(self, at: Time) -> None:
        if self._look_at == NEVER or at < self._look_at:
            self._look_at = at
            self._port.set_timer(LOOK, at)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """A heartbeat is due, or a look at shares."""
        if event.key == LOOK:
            self._look_at = NEVER
            self._look(now)
        else:
            super().on_timer(event, source, now)

    def _look(self, now: Time) -> None:
        """Note who has what it is due, and let those who have not had it for too long take it."""
        due = self._pools.fair_shares(sum(self._slots))
        for pool, share in due.items():
            wanted = self._wanted(pool, share, now)
            for task in self._first_waiting(pool, wanted):
                run = self._victim(due)
                if run is None:
                    return
                self._dying[run.task.id] = (task, pool)
                self._losing[self._pools.pool_of(run.task.job)] += 1
                self._port.send(f"node/{run.machine}", Kill(run.task.id, run.attempt))
            if wanted:
                self._least.gained(pool)
                self._half.gained(pool)

    def _wanted(self, pool: Pool, share: Fraction, now: Time) -> int:
        """How many tasks others have to lose for this pool now, beside those that are dying for it already."""
        least, wanted = min(pool.least, pool.demand), 0
        for short, is_short, due in (
            (self._least, pool.running < least, least),
            (self._half, 2 * pool.running < share, int(share)),
        ):
            expires = short.expires(pool, is_short, now)
            if expires != NEVER and expires <= now:
                wanted = max(wanted, due - pool.running)
            elif expires != NEVER:
                self._look_by(expires)
        dying = sum(winner is pool for _, winner in self._dying.values()) if wanted > 0 else 0
        return max(0, wanted - dying)

    def _first_waiting(self, pool: Pool, count: int) -> list[Task]:
        """The tasks for which others are to end; those that have been promised something are left out."""
        promised = {task.id for task, _ in self._dying.values()} if count else set()
        waiting = (task for job in pool.ranking for task in self._work[job].placed.waiting.values())
        return list(itertools.islice((task for task in waiting if task.id not in promised), count))

    def _victim(self, due: Mapping[Pool, Fraction]) -> Running | None:
        """The newest task of the pool that is farthest above its share, and still has that without the task."""
        left = {pool: pool.running - self._losing.setdefault(pool, 0) for pool in due}
        above = [pool for pool, share in due.items() if left[pool] - 1 >= share]
        for pool in sorted(above, key=lambda pool: due[pool] - left[pool]):
            for task in reversed(self._stays[pool]):
                run = self._running[task]
                if task not in self._dying and run.attempt < ATTEMPT_MAX:
                    return run
        return None

    def check(self) -> None:
        """As without preemption; and who is to end still runs."""
        super().check()
        assert set(self._dying) <= set(self._running), "dead tasks that are to die"
        for pool, count in self._losing.items():
            losing = sum(self._pools.pool_of(self._running[task].task.job) is pool for task in self._dying)
            assert count == losing, f"pool {pool.name!r} is thought to lose {count} tasks, not {losing}"
