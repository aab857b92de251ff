"""Several attempts of one task at once, for designs that replicate: the first to finish is the task's.

The table holds one attempt per task: the latest, until one finishes. The others are kept here while they run, and
beside the table when they have ended. Runs of designs that do not replicate never come here.
"""

from __future__ import annotations

import msgspec

from volery.core.capabilities import Replication, Resumption
from volery.core.events import TaskFinished
from volery.core.model import NEVER, Task, TaskId, Time
from volery.core.records import LostAttempt
from volery.sim.execution import Attempts, LabPort, LaunchRule, ProgressOf
from volery.sim.lab import Lab


class Copies(Attempts):
    """Attempts of a design that declares how many attempts of a task it runs at once."""

    def __init__(self, lab: Lab, resumption: Resumption, replication: Replication, progress: ProgressOf) -> None:
        super().__init__(lab, resumption, progress)
        self._attempts_max = replication.attempts_max
        self._beside: dict[tuple[TaskId, int], tuple[LostAttempt, int]] = {}
        self._started: dict[TaskId, set[int]] = {}
        self._won: dict[TaskId, tuple[LostAttempt, int]] = {}

    def _is_new(self, before: LostAttempt, attempt: int) -> bool:
        """Of attempts that run at once the later ones may start first."""
        started = self._started.setdefault(before.task, {before.attempt})
        if attempt in started:
            return False
        started.add(attempt)
        return True

    def _follows(self, before: LostAttempt) -> bool:
        number = before.task
        won = number in self._won
        if not won and super()._follows(before):
            return True
        running = sum(task == number for task, _ in self._beside) + (not won)
        if running >= self._attempts_max:
            return False
        if not won:
            self._beside[number, before.attempt] = before, self._records.path[number]
        return True

    def launched(self, number: TaskId) -> None:
        """An attempt was launched: one that has finished before it, and is not reported yet, stays in the table."""
        if number in self._won:
            one = self.recorded(number)
            self._beside[number, one.attempt] = one, self._records.path[number]
            self._put(*self._won[number])

    def finished(self, task: TaskId, attempt: int) -> None:
        """An attempt has finished: it is the task's, unless another has finished before."""
        records, found = self._records, self._beside.pop((task, attempt), None)
        if task in self._won:
            if found is not None:
                records.lost.append(found[0])
            return
        if found is not None:
            other = self.recorded(task)
            if (task, other.attempt) in records.killed:
                records.lost.append(other)
            else:
                self._beside[task, other.attempt] = other, records.path[task]
            self._put(*found)
        self._won[task] = self.recorded(task), records.path[task]

    def _put(self, one: LostAttempt, path: int) -> None:
        records, task = self._records, one.task
        records.start_us[task], records.finish_us[task] = one.start_us, one.finish_us
        records.worker[task], records.attempt[task], records.path[task] = one.worker, one.attempt, path

    def kill(self, port: LabPort, task: TaskId, attempt: int) -> None:
        found = self._beside.get((task, attempt))
        if found is None:
            super().kill(port, task, attempt)
        elif found[0].worker == port.machine and found[0].finish_us > self._lab.now:
            self._end(port, task, attempt, found[0].finish_us)
            self._forget(task, attempt)

    def _forget(self, task: TaskId, attempt: int) -> None:
        found = self._beside.pop((task, attempt), None)
        if found is None:
            super()._forget(task, attempt)
        else:
            self._records.lost.append(msgspec.structs.replace(found[0], finish_us=NEVER))


class CopyRule(LaunchRule):
    """Reports launches and ends of attempts to `Copies`."""

    def __init__(self, copies: Copies) -> None:
        self._copies = copies

    def after(self, port: LabPort, task: Task, attempt: int) -> None:  # noqa: ARG002 - every launch rule has it
        """Put the attempt beside another that has finished."""
        self._copies.launched(task.id)

    def finished(self, port: LabPort, event: TaskFinished, now: Time) -> None:  # noqa: ARG002 - every launch rule has it
        """Give the task its first attempt to finish."""
        self._copies.finished(event.task.id, event.attempt)
