"""The oracle's scheduler, which places each task in the instant of its submission."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.architectures.oracle.machines import AmountMachines, Placed, SlotMachines
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, Counted, Measured, MoreTasks, Submit
from volery.core.model import Address, Task, TaskId, Time
from volery.roles.node import Completed, Kill, Launch
from volery.roles.submission import ANSWERS, JobLedger

ADDRESS: Final[Address] = "oracle/0"


class Scheduler(Component):
    """Schedules on an exact view of every machine, without any delay.

    Args:
        machines: these, with the queue.
    """

    __slots__ = ("_jobs", "_launches", "_machines", "_nodes", "_reservations", "_running")

    def __init__(self, machines: SlotMachines | AmountMachines) -> None:
        self._machines = machines
        self._nodes, self._reservations = machines.nodes, machines.reservations
        self._running: dict[TaskId, Placed] = {}
        self._launches = 0

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        if self._machines.fair is not None:
            self._machines.fair.belongs(message.job.id, message.job.user)
        self._reserve(now)
        queued = self._machines.queue.length
        self._port.observe(Measured("queued_tasks", queued))
        self._schedule(self._jobs.admit(message, source, queued))
        self._settle(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._reserve(now)
        self._schedule(self._jobs.more(message))
        self._settle(now)

    def _reserve(self, now: Time) -> None:
        if self._reservations is not None and self._reservations.begin(now):
            self._port.observe(Counted("reservations"))

    def _settle(self, now: Time) -> None:
        for placed in self._reservations.settle(now) if self._reservations is not None else ():
            self._launch(placed)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        found, impossible = self._machines.place(tasks)
        for placed in found:
            self._launch(placed)
        for task in impossible:
            self._jobs.unsatisfiable(task.job)

    def _launch(self, placed: Placed) -> None:
        task, unit = placed
        self._running[task.id] = placed
        self._launches += 1
        self._port.send(self._nodes[unit], Launch(self._launches, task))

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Give the task's unit to a waiting task at once."""
        if self._reservations is not None:
            self._reserve(now)
        ended = self._running.pop(message.task, None)
        if ended is not None:
            for placed in self._machines.reuse(ended):
                self._launch(placed)
            self._jobs.finished(ended[0].job)
        if self._reservations is not None:
            self._settle(now)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        self._reserve(now)
        if self._jobs.cancel(message, source):
            for task, unit in self._running.values():
                if task.job == message.job:
                    self._port.send(self._nodes[unit], Kill(task.id))
            if self._reservations is not None:
                self._reservations.dropped(message.job)
            dropped = self._machines.queue.remove(lambda task: task.job == message.job)
            if dropped:
                self._jobs.finished(message.job, len(dropped))
        self._settle(now)

    def check(self) -> None:
        self._machines.check()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill)
