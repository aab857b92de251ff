"""The node manager: runs what is started in valid containers, reports results to proxies and ends in heartbeats."""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from volery.architectures.hydra.messages import Completed, Kill, Reborn, Start, Vacated, Welcome
from volery.architectures.hydra.recovery import EXPIRY, Registration
from volery.core.component import Component, Sends, sent_to
from volery.core.events import Event, PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.core.port import Port
from volery.roles.node import Heartbeats
from volery.roles.recovery.channel import Renewed

BEAT: Final = "heartbeat"


class Node(Component):
    """Runs tasks in containers that its resource manager has granted, and reports their ends.

    Args:
        beats: Times at which it reports ends to its resource manager; None: at once.
        registration: Registration with a resource manager that may restart, as the node may; None: neither does.
    """

    __slots__ = ("_beats", "_last_number_of", "_registration", "_rm", "_seat", "_vacated", "running")

    def __init__(
        self, rm: Address, seat: int, beats: Heartbeats | None, registration: Registration | None = None
    ) -> None:
        self._rm = rm
        self._seat = seat
        self._beats = beats
        self._registration = registration
        self.running: dict[TaskId, tuple[Start, Address]] = {}
        self._last_number_of: dict[Address, int] = {}
        self._vacated: tuple[int, ...] = ()

    def bind(self, port: Port) -> None:
        super().bind(port)
        if self._registration is not None:
            self._registration.bind(self, port)

    def takes(self) -> Collection[type]:
        if self._registration is not None:
            return self.receives.keys()
        return self.receives.keys() - Registration.receives.keys()

    def emits(self) -> Sends:
        return self.sends if self._registration is not None else self.sends - Registration.sends

    def start(self, now: Time) -> None:
        if self._registration is not None:
            self._registration.start()

    def on_start(self, message: Start, source: Address, now: Time) -> None:
        """Start the task, if its container is valid; a repeated or overtaken message is ignored."""
        if message.number > self._last_number_of.get(source, 0):
            self._last_number_of[source] = message.number
            if self._registration is None or self._registration.admits(message, source):
                self.launch(message, source)

    def launch(self, start: Start, proxy: Address) -> None:
        self.running[start.task.id] = (start, proxy)
        self._port.launch(start.task, start.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, if it still runs, or do not begin it."""
        # A task that waits for the registration is taken back instead, and never begins.
        if self._registration is not None and self._registration.refuses(message):
            return

        running = self.running.get(message.task)
        if running is not None and running[0].attempt == message.attempt:
            self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Report to the proxy at once, and to the resource manager in the next heartbeat."""
        start, proxy = self.running.pop(event.task.id)
        self._port.send(proxy, Completed(event.task.job, event.task.id, event.attempt, event.outcome == "killed"))

        self._vacated += (start.container.id,)
        if self._beats is None:
            self._report()
        # One timer for all ends until the next heartbeat.
        elif len(self._vacated) == 1:
            self._port.set_timer(BEAT, self._beats.after(self._seat, now))

    def _report(self) -> None:
        self._port.send(self._rm, Vacated(self._vacated))
        self._vacated = ()

    def forget_vacated(self) -> None:
        self._vacated = ()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Send the heartbeat, or end all: the resource manager has been away for too long."""
        if event.key == EXPIRY:
            assert self._registration is not None, "it alone sets this timer"
            self._registration.expire()
        elif self._vacated:
            self._report()

    def on_recovery(self, event: Event, source: Address, now: Time) -> None:
        assert self._registration is not None, "nothing restarts"
        self._registration.handle(event, source, now)

    def check(self) -> None:
        if self._registration is not None:
            self._registration.check()

    def check_rest(self) -> None:
        assert not self.running, f"{len(self.running)} tasks run"
        assert not self._vacated, "containers that were not reported to the resource manager"
        if self._registration is not None:
            self._registration.check_rest()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Start: on_start,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
        Welcome: on_recovery,
        Reborn: on_recovery,
        Renewed: on_recovery,
        PeerLost: on_recovery,
        PeerBack: on_recovery,
    }
    sends = sent_to("proxy", Completed) | sent_to("rm", Vacated) | Registration.sends
