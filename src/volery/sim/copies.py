"""Several attempts of one task at once, for designs that replicate: the first to finish is the task's.

The table holds one attempt per task: the latest, until one finishes. The others are kept here while they run, and
beside the table when they have ended. Runs of designs that do not replicate never come here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import msgspec

from volery.core.component import Deployment
from volery.core.events import TaskFinished
from volery.core.model import NEVER, Address, Task, TaskId, Time
from volery.core.records import LostAttempt
from volery.sim.attempts import Attempts
from volery.sim.execution import Door, LabPort

if TYPE_CHECKING:
    from volery.sim.kernel import Kernel


class Copies(Attempts):
    """As `Attempts`, of a design that declares how many attempts of a task it runs at once."""

    def __init__(self, kernel: Kernel, deployment: Deployment) -> None:
        super().__init__(kernel, deployment)
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
        if running >= self._deployment.copies:
            return False
        if not won:
            self._beside[number, before.attempt] = before, self._records.path[number]
        return True

    def launched(self, number: TaskId) -> None:
        """An attempt was launched: where another has finished, which nobody had heard of yet, the table stays its."""
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
        """End an attempt that runs on this port's machine; anything else is ignored."""
        found = self._beside.get((task, attempt))
        if found is None:
            super().kill(port, task, attempt)
        elif found[0].worker == port.machine and found[0].finish_us > self._kernel.now:
            self._end(port, task, attempt, found[0].finish_us)
            self._forget(task, attempt)

    def _forget(self, task: TaskId, attempt: int) -> None:
        found = self._beside.pop((task, attempt), None)
        if found is None:
            super()._forget(task, attempt)
        else:
            self._records.lost.append(msgspec.structs.replace(found[0], finish_us=NEVER))


class CopyPort(LabPort):
    """A port that tells of ends; the rest is up to the class that follows in line.

    Attributes:
        copies: of the run.
    """

    __slots__ = ()
    copies: Copies
    _heard: Callable[..., None]

    def __init__(self, address: Address, door: Door) -> None:
        super().__init__(address, door)
        self._heard = self.finished
        self.finished = self._tell_copies

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        """Launch, beside other attempts of the task."""
        super().launch(task, attempt, waited_us, note)
        self.copies.launched(task.id)

    def _tell_copies(self, owner: object, event: TaskFinished, source: Address, now: Time) -> None:
        self.copies.finished(event.task.id, event.attempt)
        self._heard(owner, event, source, now)


def copy_port_class(base: type[LabPort], copies: Copies) -> type[LabPort]:
    """The ports of one role in a run of a design that replicates.

    Args:
        base: what would be the ports of this role without.
        copies: of the run.
    """
    return type("CopyRolePort", (CopyPort, base), {"__slots__": ("_heard",), "copies": copies})
