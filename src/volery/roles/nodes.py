"""The plain node: a machine that runs what its master tells it to, once, and reports the end.

It decides nothing: whoever launches on it keeps count of what is free there. Designs in which nodes queue, stage files,
keep results or obey several masters have nodes of their own (`slots`, `guarded`).
"""

from __future__ import annotations

from typing import Final

from volery.core.component import Component
from volery.core.events import TaskFinished
from volery.core.model import Address, Message, Task, TaskId, Time


class Launch(Message, frozen=True):
    """Master > node: run the task. Numbers grow, so that a repeated or overtaken launch is recognised."""

    number: int
    task: Task


class Kill(Message, frozen=True):
    """Master > node: end the task; Completed follows."""

    task: TaskId


class Completed(Message, frozen=True):
    """Node > master: the task has ended and what it took is free."""

    task: TaskId


PLAIN_NODE_MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Kill, Completed})


class Node(Component):
    """One worker machine.

    Args:
        master: who launches here, and is told.
    """

    __slots__ = ("_launched", "_master")

    def __init__(self, master: Address) -> None:
        self._master = master
        self._launched = 0

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task; a repeated or overtaken launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, 0)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, if it still runs."""
        self._port.kill(message.task, 0)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end."""
        self._port.send(self._master, Completed(event.task.id))

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base
