"""Messages that leave a host: one frame per receiving host and turn; coalescable messages join the next frame.

Messages are `coalescable` where nobody waits for them. They are sent with the next frame for their host, before what
that frame is for, so that the order of each link holds; if there is none for a while, in a frame of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from volery.core.model import COALESCE_US, SECOND, Address, Message
from volery.live.messages import HostName
from volery.live.transport.codec import Parcel

Send = Callable[[HostName, list[Parcel]], None]


class Outbox:
    """Collects a turn's messages for other hosts."""

    def __init__(self) -> None:
        self._going: dict[HostName, list[Parcel]] = {}
        self._waiting: dict[HostName, list[Parcel]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def put(self, host: HostName, to: Address, source: Address, message: Message) -> None:
        """Take a message; it leaves with the next `release`, or a little later."""
        going = self._going.get(host)
        if going is not None:
            going.append((to, source, message))
        elif message.coalescable:
            self._waiting.setdefault(host, []).append((to, source, message))
        else:
            self._going[host] = going = self._waiting.pop(host, [])
            going.append((to, source, message))

    def release(self, send: Send) -> None:
        """Send the messages of a turn that is committed, one frame per host."""
        if self._going:
            going, self._going = self._going, {}
            for host, parcels in going.items():
                send(host, parcels)
        if self._waiting and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(COALESCE_US / SECOND, self.release_all, send)

    def release_all(self, send: Send) -> None:
        """Send the committed messages that wait for company; messages of the next turn stay."""
        self._stop_waiting()
        waiting, self._waiting = self._waiting, {}
        for host, parcels in waiting.items():
            send(host, parcels)

    def drop(self) -> None:
        """Forget all messages."""
        self._stop_waiting()
        self._going, self._waiting = {}, {}

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
