"""A machine of the Hadoop Fair Scheduler: it runs tasks, and reports their ends in heartbeats."""

from __future__ import annotations

from typing import Final

from volery.core.component import sent_to
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import Address, Message, Time
from volery.roles import node
from volery.roles.node import Completed, Heartbeats, Kill, Launch

TRACKER: Final[Address] = "jobtracker/0"
BEAT: Final = "heartbeat"


class Heartbeat(Message, frozen=True):
    """Node > job tracker: what has ended here since the last heartbeat."""

    ended: tuple[Completed, ...]


MESSAGES: Final[frozenset[type[Message]]] = frozenset({Launch, Kill, Heartbeat})


class Node(node.Node):
    """One worker machine.

    Args:
        beats: Heartbeats of machines; None: an end is reported at once (an out-of-band heartbeat).
    """

    __slots__ = ("_beats", "_seat", "_unreported_ends")

    def __init__(self, seat: int, beats: Heartbeats | None) -> None:
        super().__init__(TRACKER)
        self._seat = seat
        self._beats = beats
        self._unreported_ends: tuple[Completed, ...] = ()

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        completed = Completed(event.task.id, event.attempt, event.outcome == "killed")
        if self._beats is None:
            self._port.send(self._master, Heartbeat((completed,)))
            return

        # One timer for all ends until the next heartbeat.
        if not self._unreported_ends:
            self._port.set_timer(BEAT, self._beats.after(self._seat, now))
        self._unreported_ends += (completed,)

    def on_beat(self, event: TimerFired, source: Address, now: Time) -> None:
        self._port.send(self._master, Heartbeat(self._unreported_ends))
        self._unreported_ends = ()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: node.Node.on_launch,
        Kill: node.Node.on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_beat,
    }
    sends = sent_to("jobtracker", Heartbeat)
