"""The ways into the components of a live host: who may say what to them, and the timers that come through them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING

from volery.core.component import Component
from volery.core.events import Event, Outcome, TaskFinished
from volery.core.model import Address, Key, Message, Task, Time
from volery.live.messages import HostName
from volery.live.transport.codec import Parcel

if TYPE_CHECKING:
    from volery.live.runtime.host import Host

Handle = Callable[[Event, Address, Time], None]

log = logging.getLogger(__name__)


class Alarm:
    """A timer; it fires only while it is the one of its key, wherever it is on its way."""

    __slots__ = ("handle", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.handle: asyncio.TimerHandle | None = None


class Door:
    """The way into one component, and its timers."""

    __slots__ = ("address", "handle", "host", "journalled", "takes", "timers")

    def __init__(self, host: Host, address: Address, component: Component, journalled: bool) -> None:
        self.host = host
        self.address = address
        self.handle: Handle = component.handle
        self.takes = component.takes()
        self.journalled = journalled
        self.timers: dict[Key, Alarm] = {}

    def ended(self, task: Task, attempt: int, outcome: Outcome) -> None:
        """What executors call when an attempt has ended."""
        host = self.host
        if host.recorder is not None:
            host.recorder.ended(self.address, task, attempt, outcome, host.now())
        host.inbox.append((self, TaskFinished(task, attempt, outcome), self.address))
        host.wake()

    def set_timer(self, key: Key, at: Time, now: Time) -> None:
        """Let a timer fire at a time, in the place of the one that has this key."""
        self.drop_timer(key)
        alarm = self.timers[key] = Alarm(key)
        if at <= now:
            self.host.inbox.append((self, alarm, self.address))
        else:
            self._arm(alarm, at, now)

    def drop_timer(self, key: Key) -> None:
        """Let the timer of this key, if there is one, not fire."""
        alarm = self.timers.pop(key, None)
        if alarm is not None and alarm.handle is not None:
            alarm.handle.cancel()

    def close(self) -> None:
        """Let no timer fire."""
        for key in list(self.timers):
            self.drop_timer(key)

    def _arm(self, alarm: Alarm, at: Time, now: Time) -> None:
        # Loops know milliseconds and round to the nearest: whoever asks for less is called early, again and again.
        delay_s = -((now - at) // 1000) / 1000
        alarm.handle = asyncio.get_running_loop().call_later(delay_s, self._due, alarm, at)

    def _due(self, alarm: Alarm, at: Time) -> None:
        now = self.host.now()
        if now < at:
            self._arm(alarm, at, now)  # the loop's clock is coarser than ours
            return
        alarm.handle = None
        self.host.inbox.append((self, alarm, self.address))
        self.host.wake()


class Doorkeeper:
    """Lets in what components of this host take, from those who stand where it comes from, and refuses all else.

    A host with a certificate may be out of its mind, or in strange hands: it is believed of its own components, and
    nothing that it says stops this host.

    Args:
        name: of this host.
        doors: by address.
        where: address of every component elsewhere -> its host.

    Attributes:
        refused: how many frames and messages were.
    """

    def __init__(self, name: HostName, doors: Mapping[Address, Door], where: Mapping[Address, HostName]) -> None:
        self.refused = 0
        self._name = name
        self._doors = doors
        self._where = where
        self._known: set[HostName] = set()

    def admitted(self, sender: HostName, parcels: Collection[Parcel]) -> list[tuple[Door, Message, Address]]:
        """What may go to the inbox, in order."""
        doors, where = self._doors, self._where
        admitted = [
            (door, message, source)
            for to, source, message in parcels
            if (door := doors.get(to)) is not None and type(message) in door.takes and where.get(source) == sender
        ]
        if len(admitted) < len(parcels):
            for to, source, message in parcels:
                found = doors.get(to)
                if found is None:
                    self.refuse(sender, f"{to} is not on this host")
                elif where.get(source) != sender:
                    self.refuse(sender, f"{source} is not on that host")
                elif type(message) not in found.takes:
                    self.refuse(sender, f"{to} takes no {type(message).__name__}")
        return admitted

    def refuse(self, sender: HostName, problem: object) -> None:
        """Count it, and say so once per sender: whoever is out of its mind must not fill the log as well."""
        self.refused += 1
        if sender not in self._known:
            self._known.add(sender)
            log.error("host %s refuses what host %s says, and will not say so again: %s", self._name, sender, problem)
