"""The node manager: runs what is started in good containers, tells proxies of results and its manager in heartbeats.

A restarted resource manager knows nothing, and a restarted node runs nothing. In both cases the node registers: it says
what runs, and from then on only containers that were given since are good. So nothing that was given before, and is
still under way, can take a slot twice, and what runs goes on while its resource manager is down.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from volery.architectures.hydra.messages import (
    Completed,
    Held,
    Kill,
    Reborn,
    Refused,
    Register,
    Start,
    Vacated,
    Welcome,
)
from volery.core.component import Component, sent_to
from volery.core.events import PeerBack, PeerLost, TaskFinished, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.roles.heartbeats import Heartbeats
from volery.roles.recovery.channel import Renewed

BEAT: Final = "heartbeat"
EXPIRY: Final = "expiry"
NO_TERM: Final = -1
"""Registered anew, and not welcome yet."""


class Node(Component):
    """One worker machine.

    Args:
        rm: its resource manager.
        seat: its place in the order of heartbeats.
        beats: when it tells what has ended; None: at once.
    """

    __slots__ = ("_beats", "_heard", "_rm", "_running", "_seat", "_vacated")

    def __init__(self, rm: Address, seat: int, beats: Heartbeats | None) -> None:
        self._rm = rm
        self._seat = seat
        self._beats = beats
        self._running: dict[TaskId, tuple[Start, Address]] = {}
        self._heard: dict[Address, int] = {}
        self._vacated: tuple[int, ...] = ()

    def on_start(self, message: Start, source: Address, now: Time) -> None:
        """Start the task; a repeated or overtaken message is ignored."""
        if message.number > self._heard.get(source, 0):
            self._heard[source] = message.number
            self._begin(message, source)

    def _begin(self, message: Start, proxy: Address) -> None:
        self._running[message.task.id] = (message, proxy)
        self._port.launch(message.task, message.attempt)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, if it still runs."""
        running = self._running.get(message.task)
        if running is not None and running[0].attempt == message.attempt:
            self._port.kill(message.task, message.attempt)

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        """Tell the proxy at once, and the resource manager in the next heartbeat."""
        start, proxy = self._running.pop(event.task.id)
        self._port.send(proxy, Completed(event.task.job, event.task.id, event.attempt, event.outcome == "killed"))
        self._vacated += (start.container.id,)
        if self._beats is None:
            self._tell()
        elif len(self._vacated) == 1:
            self._port.set_timer(BEAT, self._beats.after(self._seat, now))

    def _tell(self) -> None:
        self._port.send(self._rm, Vacated(self._vacated))
        self._vacated = ()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The heartbeat is due."""
        self._tell()

    def check_rest(self) -> None:
        """Nothing runs, and nothing is left to be told."""
        assert not self._running, f"{len(self._running)} tasks run"
        assert not self._vacated, "containers that the resource manager was not told of"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Start: on_start,
        Kill: on_kill,
        TaskFinished: on_task_finished,
        TimerFired: on_timer,
    }
    sends = sent_to("proxy", Completed) | sent_to("rm", Vacated)


class MortalNode(Node):
    """A machine that may die, and whose resource manager may.

    Args:
        rm, seat, beats: see `Node`.
        proxies: all of them: what it ran for whom is forgotten when it dies.
        expiry_us: told that its resource manager is lost, it goes on for so long; then it ends all that runs.
        incarnation: of this component.
    """

    __slots__ = ("_expiry_us", "_incarnation", "_proxies", "_registrations", "_term", "_unbegun")

    def __init__(
        self,
        rm: Address,
        seat: int,
        beats: Heartbeats | None,
        proxies: Sequence[Address],
        expiry_us: Time,
        incarnation: int,
    ) -> None:
        super().__init__(rm, seat, beats)
        self._proxies = proxies
        self._expiry_us = expiry_us
        self._incarnation = incarnation
        self._term = 0
        self._registrations = 0
        self._unbegun: list[tuple[Start, Address]] = []

    def start(self, now: Time) -> None:
        """After a restart: nothing runs here, and nobody may think that something does."""
        if self._incarnation:
            self._register()
            for proxy in self._proxies:
                self._port.send(proxy, Reborn())

    def _register(self) -> None:
        self._term = NO_TERM
        self._registrations += 1
        held = [Held(start.container, proxy, start.user) for start, proxy in self._running.values()]
        self._port.send(self._rm, Register(self._registrations, tuple(held)))

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """The resource manager has begun anew and knows nothing."""
        if message.peer == self._rm:
            self._vacated = ()
            self._register()

    def on_reborn(self, message: Reborn, source: Address, now: Time) -> None:
        """The link has told it already."""

    def on_welcome(self, message: Welcome, source: Address, now: Time) -> None:
        """The last registration is known: from now on containers of its term are good."""
        if message.number == self._registrations:
            self._term = message.term
            unbegun, self._unbegun = self._unbegun, []
            for start, proxy in unbegun:
                self._begin(start, proxy)

    def _begin(self, message: Start, proxy: Address) -> None:
        """Wait for the term; refuse what was given under an earlier one."""
        if self._term == NO_TERM:
            self._unbegun.append((message, proxy))
        elif message.container.term != self._term:
            self._port.send(proxy, Refused(message.task.job, message.task.id, message.attempt))
        else:
            super()._begin(message, proxy)

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        """End the attempt, or do not begin it."""
        for place, (start, proxy) in enumerate(self._unbegun):
            if (start.task.id, start.attempt) == (message.task, message.attempt):
                del self._unbegun[place]
                self._port.send(proxy, Refused(start.task.job, message.task, message.attempt))
                return
        super().on_kill(message, source, now)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """Without its resource manager it goes on for a while."""
        self._port.set_timer(EXPIRY, now + self._expiry_us)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """All is well."""
        self._port.cancel_timer(EXPIRY)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Heartbeat; or the resource manager has been away for too long and will take the machine for dead."""
        if event.key == BEAT:
            if self._vacated:
                self._tell()
            return
        for start, _ in self._running.values():
            self._port.kill(start.task.id, start.attempt)
        self._term = NO_TERM
        self._registrations += 1
        self._port.send(self._rm, Register(self._registrations, ()))

    def check(self) -> None:
        """What waits for a term waits for a welcome."""
        assert not self._unbegun or self._term == NO_TERM, "something waits that could begin"

    def check_rest(self) -> None:
        """Also nothing waits to begin."""
        super().check_rest()
        assert not self._unbegun, "something waits to begin"
        assert self._term != NO_TERM, "never welcome"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **Node.receives,
        Welcome: on_welcome,
        Reborn: on_reborn,
        Renewed: on_renewed,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
    }
    sends = Node.sends | sent_to("proxy", Reborn, Refused) | sent_to("rm", Register)
