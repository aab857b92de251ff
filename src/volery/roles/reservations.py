"""Late binding: reservations hold no task, and a task is bound when a worker asks for it.

Every reservation has a number of its own, and so has every request of a worker, so that a repeated message is
recognised. A batch is what was probed for or placed together: tasks of a job that need the same constraints.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import ClassVar

from volery.core.component import Component
from volery.core.events import Counted, Measured
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
    """Worker > scheduler: the result. `blocked_us`: as in a request, where there was none."""

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


class Numbers:
    """The numbers of one sender's messages, of which no other sender of the deployment draws any.

    Args:
        first: First number.
        step: Distance to the next number: the count of senders.
    """

    __slots__ = ("_next", "step")

    def __init__(self, first: int, step: int) -> None:
        self._next, self.step = first, step

    def take(self, count: int = 1) -> int:
        """Use so many numbers up, each a step after the one before; returns the first."""
        first = self._next
        self._next = first + count * self.step
        return first


class ReservingScheduler(Component):
    """Leaves reservations at workers, knows where its tasks run, and counts what comes of them.

    Args:
        numbers: Numbers of its messages.
    """

    __slots__ = ("_blocked_us", "_jobs", "_numbers", "_probes", "_running", "_vain", "_withdrawn")

    FACTS: ClassVar[tuple[tuple[str, str], ...]] = (
        ("_probes", "probes"),
        ("_withdrawn", "withdrawn_probes"),
        ("_vain", "vain_requests"),
        ("_blocked_us", "blocked_us"),
    )
    """Fields with counts, each with the name under which its count is reported."""

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self._running: dict[JobId, dict[TaskId, Address]] = {}
        self._probes = self._withdrawn = self._vain = 0
        self._blocked_us: Time = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def _bind(self, tasks: list[Task], message: TaskRequest, source: Address) -> Task:
        """Take the next task for the worker that asks."""
        task = tasks.pop()
        running = self._running.get(task.job)
        if running is None:
            self._running[task.job] = {task.id: source}
            self._port.observe(Measured("queued_reservations", message.queued))
        else:
            running[task.id] = source
        return task

    def _refuse(self, message: TaskRequest, source: Address) -> None:
        """Answer a request in vain."""
        self._vain += 1
        self._port.send(source, NoTask(message.request))

    def _withdraw(self, first: int, nodes: Iterable[Address | None], served_node: Address = "") -> None:
        """Take the reservations of a batch back, in the order of their numbers, except from a worker just served."""
        number = first
        step = self._numbers.step
        send = self._port.send
        withdrawn = 0

        for node in nodes:
            # A worker just served has used its reservation up.
            if node is not None and node != served_node:
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

    def _kill(self, job: JobId, spared_node: Address = "") -> None:
        """Have the tasks of a job killed, except those at one address; their workers report the end."""
        for task, node in self._running.get(job, {}).items():
            if node != spared_node:
                self._port.send(node, Kill(task))

    def _finished(self, job: JobId, running: dict[TaskId, Address], count: int) -> None:
        if not running:
            del self._running[job]
            if not self._running:
                self._report_facts()
        if count:
            self._jobs.finished(job, count)

    def _report_facts(self) -> None:
        """Report the counts since the last report; once per job at most, and when all is done."""
        for field, name in self.FACTS:
            amount = getattr(self, field)
            if amount:
                self._port.observe(Counted(name, amount))
                setattr(self, field, 0)


class SlotKeeper(Component):
    """Counts the idle slots of a node with a queue, and the time for which long tasks have held all slots.

    This blocked time is `_blocked_us`, plus now while `_blocking`: short tasks that wait then are blocked at the head
    of the line.

    Args:
        slot_count: Count of the machine's slots.
    """

    __slots__ = ("_blocked_us", "_blocking", "_idle", "_long_running", "_slots")

    def __init__(self, slot_count: int) -> None:
        self._idle = self._slots = slot_count
        self._long_running = 0
        self._blocking = False
        self._blocked_us: Time = 0

    def _long_starts(self, now: Time) -> None:
        self._long_running += 1
        if self._long_running == self._slots:
            self._blocking = True
            self._blocked_us -= now

    def _long_ends(self, now: Time) -> None:
        self._long_running -= 1
        if self._blocking:
            self._blocking = False
            self._blocked_us += now
