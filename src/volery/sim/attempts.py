"""Attempts of tasks after the first: what the driver refuses, what it keeps of those before, and how they are ended."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from volery.core.component import Deployment
from volery.core.events import TaskFinished
from volery.core.model import NEVER, Task, TaskId, Time
from volery.core.records import LostAttempt
from volery.sim.execution import BrokenRule, LabPort

if TYPE_CHECKING:
    from volery.sim.kernel import Kernel


class Attempts:
    """Of a design that runs one attempt of a task at a time.

    Args:
        kernel: of the run.
        deployment: which says what is kept of an attempt.
    """

    def __init__(self, kernel: Kernel, deployment: Deployment) -> None:
        self._kernel = kernel
        self._records = kernel.records
        self._deployment = deployment
        self._died: set[tuple[TaskId, int]] = set()

    def relaunched(self, port: LabPort, task: Task, attempt: int) -> None:
        """A launch that is not the plain first one: refuse it, or keep the attempt that it follows.

        Raises:
            BrokenRule: when the design broke a rule that every design must keep.
        """
        what = f"task {task.id} (job {task.job}, attempt {attempt}) on {port.address} at {self._kernel.now} us"
        if port.machine < 0:
            raise BrokenRule(f"{what}: {port.address} stands on no machine")
        if port.idle <= 0:
            raise BrokenRule(f"{what}: no idle slot")
        if task.constraints & port.lacks:
            raise BrokenRule(f"{what}: the machine lacks constraints {task.constraints & port.lacks:#x}")
        records, number = self._records, task.id
        if records.start_us[number] == NEVER:
            records.attempt[number] = attempt
            return
        before = self.recorded(number)
        if not self._is_new(before, attempt) or not self._follows(before):
            raise BrokenRule(f"{what}: already started as attempt {before.attempt} on machine {before.worker}")
        records.attempt[number] = attempt

    def recorded(self, number: TaskId) -> LostAttempt:
        """The attempt of a task that stands in the table."""
        records = self._records
        return LostAttempt(
            number, records.attempt[number], records.worker[number], records.start_us[number], records.finish_us[number]
        )

    def _is_new(self, before: LostAttempt, attempt: int) -> bool:
        """Whether an attempt was never started before: they are numbered upwards."""
        return attempt > before.attempt

    def _follows(self, before: LostAttempt) -> bool:
        """Whether another attempt may start; then the one before is kept beside the table."""
        records, faulty = self._records, self._kernel.unreliable
        at = records.killed.get((before.task, before.attempt))
        if at is None and not (faulty and faulty.forgotten(before, self._kernel.now)):
            return False
        deployment = self._deployment
        if at is not None and (deployment.keeps_progress or deployment.checkpoint_us):
            before = msgspec.structs.replace(before, kept_us=self._kept_us(before, at - before.start_us))
            kernel = self._kernel
            done_us = kernel.pace.done_us(before.task, before.kept_us, before.worker)
            if kernel.preferred is not None:
                done_us = kernel.preferred.done_us(done_us, before.task)
            kernel.left_us[before.task] -= done_us
        records.lost.append(before)
        return True

    def _kept_us(self, before: LostAttempt, ran_us: Time) -> Time:
        """How much of what an attempt has done its task need not repeat."""
        deployment = self._deployment
        if deployment.keeps_progress and (before.task, before.attempt) not in self._died:
            return ran_us
        return ran_us - ran_us % deployment.checkpoint_us if deployment.checkpoint_us else 0

    def kill(self, port: LabPort, task: TaskId, attempt: int) -> None:
        """End an attempt that runs on this port's machine; anything else is ignored."""
        records = self._records
        runs_here = records.worker[task] == port.machine and records.finish_us[task] > self._kernel.now
        if not runs_here or records.attempt[task] != attempt or (task, attempt) in records.killed:
            return
        due = records.finish_us[task]
        records.finish_us[task] = NEVER
        self._end(port, task, attempt, due)

    def _end(self, port: LabPort, task: TaskId, attempt: int, due: Time) -> None:
        kernel = self._kernel
        self._records.killed[task, attempt] = kernel.now
        event = next(e for p, e in kernel.finishes[due] if p is port and e.task.id == task and e.attempt == attempt)
        kernel.killed.add((port.address, task, attempt))
        kernel.schedule(kernel.now, self._end_killed, port, event)

    def _end_killed(self, port: LabPort, event: TaskFinished, now: Time) -> None:
        port.idle += 1
        port.deliver(TaskFinished(event.task, event.attempt, "killed"), None, now)

    def died(self, event: TaskFinished, now: Time) -> None:
        """An attempt has died with its machine."""
        key = (event.task.id, event.attempt)
        self._records.killed[key] = now
        self._died.add(key)
        self._forget(*key)

    def _forget(self, task: TaskId, attempt: int) -> None:
        """It will not finish."""
        if self._records.attempt[task] == attempt:
            self._records.finish_us[task] = NEVER
