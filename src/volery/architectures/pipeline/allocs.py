"""Allocs: room of a task that has ended, kept for further tasks of its job (Verma et al., EuroSys 2015, section 2.4).

"An alloc is a reserved set of resources on a machine in which one or more tasks can be run; the resources remain
assigned whether or not they are used." Here a job reserves nothing beforehand: its first tasks make the allocs, and an
alloc that is not used for a while is given back, so that two jobs cannot wait for each other's.

The room of a master is an alloc, too: that of the first task of a managed job, given back when the job is done, and not
used by its other tasks (Andreadis et al., SC18, section II-A).
"""

from __future__ import annotations

from collections import deque
from typing import Final

from volery.architectures.pipeline.attempts import Placements
from volery.architectures.pipeline.monitor import Monitor, reserving_room
from volery.architectures.pipeline.policies import Kind, Running, Waiting
from volery.core.events import Counted
from volery.core.model import JobId, Key, Time

ALLOCS: Final = "allocs"


class Allocs:
    """The allocs of the jobs of a cycle.

    Args:
        kept_us: Time after which an alloc that is not used is given back; 0: there are masters alone.
        has_masters: Whether the first task of a job is its master.
        monitor: The monitor, which must not give away the room of an alloc; None: there is none.
    """

    __slots__ = ("_cycle", "_due", "_has_masters", "_kept_us", "_monitor", "_of_job", "_queued")
    _cycle: Placements

    def __init__(self, kept_us: Time, monitor: Monitor | None = None, *, has_masters: bool = False) -> None:
        self._kept_us = kept_us
        self._has_masters = has_masters
        self._monitor = monitor
        self._of_job: dict[JobId, list[Running]] = {}
        self._due: deque[tuple[Time, Running]] = deque()
        # Some of these tasks have started since they were queued.
        self._queued: dict[JobId, dict[Kind, deque[Waiting]]] = {}

    def attach(self, cycle: Placements) -> None:
        """Work for a cycle."""
        self._cycle = cycle

    def keep(self, running: Running, now: Time) -> bool:
        """Keep the room of a task that has ended, or start another of its job there; False: its job has no others."""
        job = running.job
        # The work of the task that has ended counts among what is left until its files are deleted.
        left_us = job.left_us if running.cleaning else job.left_us - running.waiting.work_us
        if running.reclaimed or left_us <= 0 or job.id not in self._cycle.state.jobs:
            return False

        if self._is_master(running):
            running.ending = running.cleaning = True
            self._of_job.setdefault(job.id, []).append(running)
            self._cycle.port.observe(Counted("masters"))
            return True
        if not self._kept_us:
            return False

        waiting = self._next(running)
        if waiting is not None and self._cycle.state.online >> running.machine & 1:
            self._start(running, waiting, now)
            return True

        # An alloc is an attempt that has ended and whose room is not given back.
        running.ending = running.cleaning = True
        self._of_job.setdefault(running.job.id, []).append(running)

        # One timer, for the alloc that is to be given back next.
        if not self._due:
            self._cycle.port.set_timer(ALLOCS, now + self._kept_us)
        self._due.append((now + self._kept_us, running))
        return True

    def take(self, waiting: Waiting) -> bool:
        """Start a task that was queued in an alloc of its job; False: none has its size."""
        if not self._kept_us:
            return False

        state = self._cycle.state
        for running in self._of_job.get(waiting.job.id, ()):
            if self._is_master(running):
                continue
            if running.waiting.kind is waiting.kind and state.online >> running.machine & 1:
                self.forget(running)
                self._start(running, waiting, state.now)
                return True

        self._queued.setdefault(waiting.job.id, {}).setdefault(waiting.kind, deque()).append(waiting)
        return False

    def _is_master(self, running: Running) -> bool:
        return self._has_masters and running.task.id == running.job.master

    def _start(self, running: Running, waiting: Waiting, now: Time) -> None:
        with reserving_room(self._monitor, running.machine, now):
            self._cycle.release(running, now)
            self._cycle.submit_task(waiting, running.machine, now)
        self._cycle.port.observe(Counted("alloc_starts"))

    def _next(self, running: Running) -> Waiting | None:
        """The task of the same job and size that was queued first, and waits."""
        waiting_tasks = self._cycle.state.waiting
        queued = self._queued.get(running.job.id, {}).get(running.waiting.kind)

        while queued:
            if waiting_tasks.get(queued[0].task.id) is queued[0]:
                return queued[0]
            queued.popleft()
        return None

    def _give_back(self, running: Running, now: Time) -> None:
        self.forget(running)
        self._cycle.release(running, now)

    def forget(self, running: Running) -> None:
        """Drop an alloc whose room is given back, or whose machine has failed."""
        other_allocs = [alloc for alloc in self._of_job.get(running.job.id, ()) if alloc is not running]
        if other_allocs:
            self._of_job[running.job.id] = other_allocs
        else:
            self._of_job.pop(running.job.id, None)

    def done(self, job: JobId, now: Time) -> None:
        """Give all allocs of a job back."""
        self._queued.pop(job, None)
        for running in self._of_job.pop(job, ()):
            self._cycle.release(running, now)

    def on_timer(self, key: Key, now: Time) -> bool:
        """Give allocs back that were not used for a while; False: another timer."""
        if key != ALLOCS:
            return False
        is_returned = False

        while self._due and self._due[0][0] <= now:
            _, running = self._due.popleft()
            # It may have been used, or its machine may have failed, since.
            if any(alloc is running for alloc in self._of_job.get(running.job.id, ())):
                self._give_back(running, now)
                is_returned = True

        if self._due:
            self._cycle.port.set_timer(ALLOCS, self._due[0][0])

        if is_returned:
            self._cycle.changed(now)
        return True

    def check(self) -> None:
        """Raise AssertionError where an alloc has no room."""
        for allocs in self._of_job.values():
            assert all(self._cycle.state.running.get(alloc.task.id) is alloc and alloc.cleaning for alloc in allocs)
