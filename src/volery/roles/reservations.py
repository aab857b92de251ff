"""What designs with late binding share: reservations that hold no task, and tasks that are bound when a worker asks.

Every reservation has a number of its own, and so has every request of a worker, so that a repeated message is
recognised. A batch is what was probed for or placed together: tasks of a job that need the same constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from volery.core.component import Component
from volery.core.events import Counted
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.roles.submission import JobLedger


class TaskRequest(Message, frozen=True):
    """Worker > scheduler: a slot is kept for this reservation.

    `queued` others wait there; this one has waited `blocked_us` while long tasks held every slot.
    """

    batch: int
    number: int
    request: int
    queued: int
    blocked_us: Time = 0


class NoTask(Message, frozen=True):
    """Scheduler > worker: nothing is left to run for this reservation."""

    request: int


class Withdraw(Message, frozen=True):
    """Scheduler > worker: drop the reservation if it still waits (proactive cancellation)."""

    number: int


class Kill(Message, frozen=True):
    """Scheduler > worker: end the task or drop it from the queue; Completed follows."""

    task: TaskId


class Completed(Message, frozen=True):
    """Worker > scheduler: the result. `blocked_us`, where no request has told it: as in a request."""

    task: TaskId
    job: JobId
    blocked_us: Time = 0


def by_needs(tasks: Sequence[Task]) -> dict[int, list[Task]]:
    """Tasks by constraint set; last first, groups and tasks, so that the next task is popped from a group's end."""
    groups: dict[int, list[Task]] = {}
    for task in reversed(tasks):
        group = groups.get(task.constraints)
        if group is None:
            groups[task.constraints] = [task]
        else:
            group.append(task)
    return groups


class ReservingScheduler(Component):
    """Leaves reservations at workers, knows where its tasks run, and counts what comes of them.

    Args:
        numbering: first number of its messages and the step to the next, so that the numbers of all schedulers differ.
    """

    __slots__ = ("_blocked_us", "_jobs", "_number", "_probes", "_running", "_step", "_vain", "_withdrawn")

    FACTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("_probes", "probes"),
        ("_withdrawn", "withdrawn_probes"),
        ("_vain", "vain_requests"),
        ("_blocked_us", "blocked_us"),
    )
    """What is counted in which field, and the name under which it is reported."""

    def __init__(self, numbering: tuple[int, int]) -> None:
        self._number, self._step = numbering
        self._running: dict[JobId, dict[TaskId, Address]] = {}
        self._probes = self._withdrawn = self._vain = 0
        self._blocked_us: Time = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def _next_number(self) -> int:
        number = self._number
        self._number = number + self._step
        return number

    def _withdraw(self, first: int, nodes: Iterable[Address | None], served: Address = "") -> None:
        """Take the reservations of a batch back, in the order of their numbers, except from a worker just served."""
        number, step, send, withdrawn = first, self._step, self._port.send, 0
        for node in nodes:
            if node is not None and node != served:
                withdrawn += 1
                send(node, Withdraw(number))
            number += step
        self._withdrawn += withdrawn

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Count the result; a repeated one is ignored."""
        running = self._running.get(message.job)
        if running is not None and running.pop(message.task, None) is not None:
            if message.blocked_us:
                self._blocked_us += message.blocked_us
            self._finished(message.job, running, 1)

    def _finished(self, job: JobId, running: dict[TaskId, Address], count: int) -> None:
        if not running:
            del self._running[job]
            if not self._running:
                self._report_facts()
        if count:
            self._jobs.finished(job, count)

    def _report_facts(self) -> None:
        """Tell what has been counted since the last time; once per job at most, and when all is done."""
        for field, name in self.FACTS:
            amount = getattr(self, field)
            if amount:
                self._port.observe(Counted(name, amount))
                setattr(self, field, 0)
