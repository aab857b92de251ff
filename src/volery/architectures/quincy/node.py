"""A machine of Quincy: runs what it is told and says when it has ended."""

from __future__ import annotations

from typing import Final

from volery.architectures.quincy.messages import Ended, Kill, Launch
from volery.core.component import Component, sent_to
from volery.core.events import TaskFinished
from volery.core.model import Address, Time

SCHEDULER: Final[Address] = "scheduler/0"


class Node(Component):
    """One worker machine."""

    __slots__ = ("_launched",)

    def __init__(self) -> None:
        self._launched = 0

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the attempt; a repeated launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, message.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, if it still runs."""
        self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end."""
        self._port.send(SCHEDULER, Ended(event.task.id, event.attempt, event.outcome == "finished"))

    receives = {Launch: on_launch, Kill: on_kill, TaskFinished: on_task_finished}  # noqa: RUF012 - replaced by the base
    sends = sent_to("scheduler", Ended)
