"""Machines that run what one scheduler tells them, whenever it does: their messages, and the machine."""

from __future__ import annotations

from typing import Final

from volery.core.component import Component, sent_to
from volery.core.events import TaskFinished
from volery.core.model import Address, Message, Task, TaskId, Time


class Launch(Message, frozen=True):
    """Scheduler > node: run the task; launches to a node are numbered."""

    number: int
    task: Task


class Completed(Message, frozen=True):
    """Node > scheduler: the task has ended."""

    task: TaskId


class Kill(Message, frozen=True):
    """Scheduler > node: end the task; Completed follows."""

    task: TaskId


MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Completed, Kill})
SCHEDULER: Final[Address] = "scheduler/0"


class Node(Component):
    """One worker machine."""

    __slots__ = ("_launched",)

    def __init__(self) -> None:
        self._launched = 0

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task; a repeated launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, 0)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, if it still runs."""
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end."""
        self._port.send(SCHEDULER, Completed(event.task.id))

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base
    sends = sent_to("scheduler", Completed)
