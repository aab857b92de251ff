"""A machine of the Hadoop Fair Scheduler: runs what it is given, and tells what has ended in heartbeats."""

from __future__ import annotations

from typing import Final

from volery.architectures.hfs.messages import Ended, Heartbeat, Kill, Launch
from volery.core.component import Component, sent_to
from volery.core.events import TaskFinished, TimerFired
from volery.core.model import Address, Time
from volery.policies.heartbeats import Heartbeats

TRACKER: Final = "jobtracker/0"
BEAT: Final = "heartbeat"


class Node(Component):
    """One worker machine.

    Args:
        seat: its place in the order of heartbeats.
        beats: when machines tell; None: at once, whenever an attempt ends (an out-of-band heartbeat).
    """

    __slots__ = ("_beats", "_ended", "_launched", "_seat")

    def __init__(self, seat: int, beats: Heartbeats | None) -> None:
        self._seat = seat
        self._beats = beats
        self._launched = 0
        self._ended: tuple[Ended, ...] = ()

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the attempt; a repeated or overtaken launch is ignored."""
        if message.number > self._launched:
            self._launched = message.number
            self._port.launch(message.task, message.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, if it still runs."""
        self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Tell, or keep for the next heartbeat."""
        ended = Ended(event.task.id, event.attempt, event.outcome == "finished")
        if self._beats is None:
            self._port.send(TRACKER, Heartbeat((ended,)))
            return
        if not self._ended:
            self._port.set_timer(BEAT, self._beats.after(self._seat, now))
        self._ended += (ended,)

    def on_beat(self, event: TimerFired, source: Address, now: Time) -> None:
        """Tell all that has ended since the last heartbeat."""
        self._port.send(TRACKER, Heartbeat(self._ended))
        self._ended = ()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: on_launch,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_beat,
    }
    sends = sent_to("jobtracker", Heartbeat)
