"""The in-process transport: several hosts on one event loop, frames and codec and all, without a broker."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable

from volery.live.messages import HostName
from volery.live.transport.transport import KnownIncarnation, OnFrame, OnLater


class Memory:
    """The medium that the transports of one process share."""

    def __init__(self) -> None:
        self.doors: dict[HostName, OnFrame] = {}
        self.changed = asyncio.Event()

    def transport(self) -> MemoryTransport:
        """A transport for one more host."""
        return MemoryTransport(self)


class MemoryTransport:
    """Hands frames over on the loop's next turn."""

    def __init__(self, medium: Memory) -> None:
        self._medium = medium
        self._name = ""

    async def claim(self, name: HostName, incarnation: int = 0, peers: Collection[HostName] = ()) -> int:  # noqa: ARG002 - nobody else is asked
        """Return the incarnation as given: a name is taken once here."""
        return incarnation

    async def open(
        self, name: HostName, on_frame: OnFrame, known_incarnation: KnownIncarnation | None = None  # noqa: ARG002 - nobody asks
    ) -> None:  # fmt: skip
        assert name not in self._medium.doors, f"there are two hosts named {name}"
        self._name = name
        self._medium.doors[name] = on_frame
        self._medium.changed.set()

    async def meet(self, peers: Iterable[HostName]) -> None:
        wanted = set(peers)
        while not wanted <= self._medium.doors.keys():
            self._medium.changed.clear()
            await self._medium.changed.wait()

    def send(self, to: HostName, frame: bytes) -> None:
        """Hand the frame over soon; it is lost where the host has left."""
        asyncio.get_running_loop().call_soon(self._hand_over, to, frame)

    def _hand_over(self, to: HostName, frame: bytes) -> None:
        door = self._medium.doors.get(to)
        if door is not None:
            door(self._name, frame)

    def begun(self, incarnation: int, on_later: OnLater) -> None:
        """Do nothing: a name is taken once here, there is no other incarnation."""

    def doubt(self) -> None:
        """Do nothing: there is nobody to ask."""

    async def close(self) -> None:
        await asyncio.sleep(0)  # what was sent before is handed over on the loop's next turn
        self._medium.doors.pop(self._name, None)
