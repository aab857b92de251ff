"""The machine's side: stages files in, runs tasks, reports their ends, and is switched on and off."""

from __future__ import annotations

from volery.architectures.pipeline.messages import Launch, Ready, Restarted, SwitchOff, SwitchOn
from volery.core.component import Component, Sends, role_of, sent_to
from volery.core.events import PeerBack, PeerLost, Switched, TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.roles.node import Completed, Kill

BOOT = "boot"


class Node(Component):
    """One machine.

    Args:
        manager: the component that launches here.
        incarnation: 0 is the first; messages for others are refused.
        rented: number of the machine in the whole cluster where it is switched on and off; -1: it is always on.
        on: whether a rented machine is on when the run begins.
    """

    __slots__ = ("_incarnation", "_launched", "_manager", "_on", "_rented", "_staging")

    def __init__(self, manager: Address, incarnation: int = 0, rented: int = -1, *, on: bool = False) -> None:
        self._manager = manager
        self._incarnation = incarnation
        self._rented = rented
        self._on = on
        self._launched = 0
        self._staging: dict[TaskId, Launch] | None = None

    def start(self, now: Time) -> None:
        """Announce a new incarnation, and observe a machine that is on."""
        if self._incarnation:
            self._port.send(self._manager, Restarted(self._incarnation))
        if self._on:
            self._port.observe(Switched(now, self._rented, "on"))

    def _is_new(self, message: Launch | SwitchOn | SwitchOff) -> bool:
        """True for a message that is meant for this incarnation, and neither repeated nor overtaken."""
        if message.incarnation != self._incarnation or message.number <= self._launched:
            return False
        self._launched = message.number
        return True

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        """Start the task, once its files are here."""
        if not self._is_new(message):
            return
        if not message.stage_us:
            self._port.launch(message.task, message.attempt)
            return
        if self._staging is None:
            self._staging = {}
        self._staging[message.task.id] = message
        self._port.set_timer(message.task.id, now + message.stage_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Start the task whose files have come, or report that the machine has booted."""
        if isinstance(event.key, tuple):
            self._port.observe(Switched(now, self._rented, "on"))
            self._port.send(self._manager, Ready(int(event.key[1])))
            return
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
        self._port.send(self._manager, Completed(event.task.id, event.attempt, event.outcome == "killed"))

    def on_switch_on(self, message: SwitchOn, source: Address, now: Time) -> None:
        if self._is_new(message):
            self._port.observe(Switched(now, self._rented, "booting"))
            self._port.set_timer((BOOT, message.number), now + message.boot_us)

    def on_switch_off(self, message: SwitchOff, source: Address, now: Time) -> None:
        """Switch off; the manager knows that no task runs."""
        if self._is_new(message):
            self._port.observe(Switched(now, self._rented, "off"))

    def on_peer(self, event: PeerLost | PeerBack, source: Address, now: Time) -> None:
        """The manager does not fail."""

    def emits(self) -> Sends:
        ready = (Ready,) if self._rented >= 0 else ()
        return sent_to(role_of(self._manager), Completed, Restarted, *ready)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Launch: on_launch,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
        SwitchOn: on_switch_on,
        SwitchOff: on_switch_off,
        PeerLost: on_peer,
        PeerBack: on_peer,
    }
    sends = frozenset().union(*(sent_to(role, Completed, Restarted, Ready) for role in ("scheduler", "lrm", "broker")))
