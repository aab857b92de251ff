"""The ways into the components of a live host, and the timers that come through them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from volery.core.component import Component
from volery.core.events import Event, Outcome, TaskFinished
from volery.core.model import Address, Key, Task, Time

if TYPE_CHECKING:
    from volery.live.hosts.host import Host

Handle = Callable[[Event, Address, Time], None]


class Alarm:
    """A timer; it fires only while it is the one of its key, wherever it is on its way."""

    __slots__ = ("handle", "key")

    def __init__(self, key: Key) -> None:
        self.key = key
        self.handle: asyncio.TimerHandle | None = None


class Door:
    """The way into one component, and its timers."""

    __slots__ = ("address", "handle", "host", "journalled", "timers")

    def __init__(self, host: Host, address: Address, component: Component, journalled: bool) -> None:
        self.host = host
        self.address = address
        self.handle: Handle = component.handle
        self.journalled = journalled
        self.timers: dict[Key, Alarm] = {}

    def ended(self, task: Task, attempt: int, outcome: Outcome) -> None:
        """What executors call when an attempt has ended."""
        host = self.host
        if host.recorder is not None:
            host.recorder.ended(self.address, task, attempt, outcome, host.now())
        host.inbox.append((self, TaskFinished(task, attempt, outcome), self.address))
        host.wake()
