"""Transports carry frames between hosts: their interface, and one for several hosts on one event loop.

A frame holds the messages of the components of one host to those of another after one turn. A transport handles
hosts and bytes; what is in a frame is the codec's business.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from typing import Final, Protocol

from volery.live.clock import is_set_within
from volery.live.messages import HostName

OnFrame = Callable[[HostName, bytes], None]
"""Takes a frame and the name of the host that it comes from, on the event loop's thread; it only notes it down."""

OnLater = Callable[[int], None]
"""Takes the number of a later incarnation."""

KnownIncarnation = Callable[[HostName], int]
"""Gives the latest incarnation of another host that this host has met; 0: none."""


class Transport(Protocol):
    """The connection of one host to all others; frames from one host arrive in the order in which they were sent."""

    async def claim(
        self, name: HostName, incarnation: int = 0, peers: Collection[HostName] = (), patient: bool = False
    ) -> int:
        """Connect under a name that no other process uses, before this host sends or receives any frame.

        Args:
            incarnation: the incarnation that the host is about to begin, as stored on its own disk.
            peers: the hosts that may have met a later one.
            patient: wait some seconds for all peers, whatever the incarnation: they may keep marks of this host.

        Returns:
            That incarnation, or the one after the latest that a peer has met.

        Raises:
            InputError: there is nothing to connect to, or another process uses the name.
        """

    async def open(self, name: HostName, on_frame: OnFrame, known_incarnation: KnownIncarnation | None = None) -> None:
        """Receive frames from now on, under a name that is claimed first where it is not yet.

        Args:
            known_incarnation: answers other hosts that claim their names.

        Raises:
            InputError: as `claim`.
        """

    async def meet(self, peers: Collection[HostName], limit_s: float) -> frozenset[HostName]:
        """Wait until all these hosts can be sent to, at most so long; those that cannot are returned."""

    def send(self, to: HostName, frame: bytes) -> None:
        """Send a frame; never waits. Order is kept per receiver."""

    def begun(self, incarnation: int, on_later: OnLater) -> None:
        """Announce under this host's own name that its incarnation runs.

        Args:
            incarnation: incarnation of this host, from 1.
            on_later: is called when a later incarnation of the host announces itself, in another process.
        """

    def announce(self, mark: bytes) -> None:
        """Have the other hosts keep a mark of this host, in place of the one before, as long as they run."""

    @property
    def kept_marks(self) -> Mapping[HostName, bytes]:
        """The marks of this host that other hosts keep, of an earlier incarnation, by host."""

    def doubt(self) -> None:
        """Ask under this host's own name for a later incarnation; another host's word is no proof."""

    async def close(self) -> None:
        """Send what is queued, and disconnect."""


FIRST_SLICE_S: Final = 0.2
"""Time of the first wait: hosts that run have answered by then, as a rule."""
MEETING_SLICE_S: Final = 1.0


async def absent_peers(
    transport: Transport, peers: Collection[HostName], limit_s: float
) -> AsyncIterator[frozenset[HostName]]:
    """Wait for peers, at most so long; yield those that are not there, now and then and at the end."""
    loop = asyncio.get_running_loop()
    absent_hosts = frozenset(peers)
    until = loop.time() + limit_s
    slice_s = FIRST_SLICE_S
    while absent_hosts and (left_s := until - loop.time()) > 0:
        absent_hosts = await transport.meet(absent_hosts, min(left_s, slice_s))
        slice_s = MEETING_SLICE_S
        yield absent_hosts


class Memory:
    """The medium that the transports of one process share."""

    def __init__(self) -> None:
        self.receivers: dict[HostName, OnFrame] = {}
        self.changed = asyncio.Event()

    def transport(self) -> MemoryTransport:
        """A transport for one more host."""
        return MemoryTransport(self)


class MemoryTransport:
    """Hands frames over on the loop's next turn."""

    def __init__(self, medium: Memory) -> None:
        self._medium = medium
        self._name = ""

    async def claim(
        self,
        name: HostName,  # noqa: ARG002 - no other host shares the transport
        incarnation: int = 0,
        peers: Collection[HostName] = (),  # noqa: ARG002 - nobody else is asked
        patient: bool = False,  # noqa: ARG002 - nobody else is asked
    ) -> int:
        """Return the incarnation as given: a name is taken once here."""
        return incarnation

    async def open(
        self,
        name: HostName,
        on_frame: OnFrame,
        known_incarnation: KnownIncarnation | None = None,  # noqa: ARG002 - nobody asks
    ) -> None:
        assert name not in self._medium.receivers, f"there are two hosts named {name}"
        self._name = name
        self._medium.receivers[name] = on_frame
        self._medium.changed.set()

    async def meet(self, peers: Collection[HostName], limit_s: float) -> frozenset[HostName]:
        loop = asyncio.get_running_loop()
        until = loop.time() + limit_s
        while (absent_hosts := frozenset(peers) - self._medium.receivers.keys()) and (
            left_s := until - loop.time()
        ) > 0:
            self._medium.changed.clear()
            await is_set_within(self._medium.changed, left_s)
        return absent_hosts

    def send(self, to: HostName, frame: bytes) -> None:
        """Hand the frame over soon; it is lost where the host has left."""
        asyncio.get_running_loop().call_soon(self._hand_over, to, frame)

    def _hand_over(self, to: HostName, frame: bytes) -> None:
        receiver = self._medium.receivers.get(to)
        if receiver is not None:
            receiver(self._name, frame)

    def begun(self, incarnation: int, on_later: OnLater) -> None:
        """Do nothing: a name is taken once here, there is no other incarnation."""

    def announce(self, mark: bytes) -> None:
        """Do nothing: hosts of one process end together."""

    @property
    def kept_marks(self) -> Mapping[HostName, bytes]:
        return {}

    def doubt(self) -> None:
        """Do nothing: there is nobody to ask."""

    async def close(self) -> None:
        await asyncio.sleep(0)  # what was sent before is handed over on the loop's next turn
        self._medium.receivers.pop(self._name, None)
