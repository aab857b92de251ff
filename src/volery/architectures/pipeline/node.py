"""The machine's side: stages files in, runs tasks and reports their ends."""

from __future__ import annotations

from volery.architectures.pipeline.messages import Completed, Kill, Launch
from volery.core.component import Component, sent_to
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time


class Node(Component):
    """One machine.

    Args:
        manager: who launches here.
    """

    __slots__ = ("_launched", "_manager", "_staging")

    def __init__(self, manager: Address) -> None:
        self._manager = manager
        self._launched = 0
        self._staging: dict[TaskId, Launch] | None = None

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task, once its files are here; a repeated or overtaken launch is ignored."""
        if message.number <= self._launched:
            return
        self._launched = message.number
        if not message.stage_us:
            self._port.launch(message.task, message.attempt)
            return
        if self._staging is None:
            self._staging = {}
        self._staging[message.task.id] = message
        self._port.set_timer(message.task.id, now + message.stage_us)

    def on_staged(self, event: TimerFired, source: Address, now: Time) -> None:
        """Start the task whose files have come."""
        assert self._staging is not None and isinstance(event.key, int)  # noqa: PT018 - one condition: what was set
        message = self._staging.pop(event.key)
        self._port.launch(message.task, message.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the task, if it still runs or waits for its files."""
        if self._staging and message.task in self._staging and self._staging[message.task].attempt == message.attempt:
            del self._staging[message.task]
            self._port.cancel_timer(message.task)
            self._port.send(self._manager, Completed(message.task, message.attempt, killed=True))
            return
        self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report the end."""
        self._port.send(self._manager, Completed(event.task.id, event.attempt, event.outcome == "killed"))

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: on_launch,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_staged,
    }
    sends = sent_to("scheduler", Completed)
