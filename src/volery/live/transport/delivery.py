"""Frames between hosts: their bytes, their numbers, and their repetition until they are acknowledged.

A frame is MessagePack and names the version of its format. Within a version, messages may gain fields at their end: a
host without them passes over them. A message of an unknown type is refused by name, as is a frame of another version.

A transport may lose what it carries: a broker that was restarted forgets what it held. What one host sends another is
handed over there once and in order while both run. A frame names the incarnations of both hosts; what was sent to an
earlier one, or by an earlier one, is void. Acknowledgements ride on frames the other way, or come alone after a pause.
See docs/decisions/0019.
"""

from __future__ import annotations

import asyncio
import functools
import logging
import operator
from collections import deque
from collections.abc import Callable, Collection, Iterable, Sequence
from itertools import islice
from typing import Any, Final

import msgspec

from volery.core.events import SUBMITTER_MESSAGES
from volery.core.model import Address, Message
from volery.live.messages import HOST_MESSAGES, HostName

ACKNOWLEDGE_S: Final = 0.02
RETRY_S: Final = 0.2
"""A host that is slow because it is busy is given twice the time that it last took to acknowledge."""
RETRY_MAX_S: Final = 2.0
CORRECT_S: Final = 1.0
"""Between two answers to a host whose frames are of an earlier incarnation than one that was met."""
AGAIN_MAX: Final = 256
"""Frames that are sent again at once; the others follow as those are acknowledged."""
EARLY_MAX: Final = 4096
"""Frames that wait for one that was lost; what is beyond is sent again, too."""
KEPT_BYTES_MAX: Final = 256 << 20
"""Of frames for one host that does not answer; the oldest are given up beyond that."""

log = logging.getLogger(__name__)


class LaterIncarnation(ValueError):  # noqa: N818 - it names a claim
    """A frame is for a later incarnation of this host than its present one, by what its sender has met.

    Attributes:
        incarnation: that later one.
    """

    def __init__(self, incarnation: int, present: int) -> None:
        super().__init__(f"it has met incarnation {incarnation} of this host, which runs as incarnation {present}")
        self.incarnation = incarnation


class _Line:
    """The state of the link to one peer.

    Attributes:
        incarnation: of the peer; 0 until a frame came.
        sent: what is not acknowledged, with its number; kept_bytes: how much that is.
        number: of the last frame sent.
        heard: up to which all frames have come.
        early: frames that came before their turn.
        owes: an acknowledgement.
        retry_s, again_at: when what is not acknowledged is sent again, by the loop's clock.
        corrected_at: when the peer was last answered that a later incarnation of it was met, by the loop's clock.
        again, until: number of the last frame that was sent again, and of the last that may have to be.
    """

    __slots__ = (
        "again",
        "again_at",
        "corrected_at",
        "early",
        "heard",
        "incarnation",
        "kept_bytes",
        "number",
        "owes",
        "retry_s",
        "sent",
        "until",
    )

    def __init__(self) -> None:
        self.incarnation = 0
        self.sent: deque[tuple[int, float, bytes]] = deque()
        self.again = self.until = self.kept_bytes = 0
        self.number = self.heard = 0
        self.early: dict[int, HostFrame] = {}
        self.owes = False
        self.retry_s = RETRY_S
        self.again_at = 0.0
        self.corrected_at = -CORRECT_S

    def begin_anew(self, incarnation: int) -> None:
        """Begin with a new incarnation of the peer; what is on its way to the one before is void."""
        if self.incarnation:
            self.sent.clear()
            self.number = self.kept_bytes = self.again = self.until = 0
        self.incarnation, self.heard, self.retry_s = incarnation, 0, RETRY_S
        self.early.clear()


class Delivery:
    """The links of one host to its peers.

    Args:
        incarnation: which incarnation of this host it is, from 1.
        send: hands bytes to the transport.
        take: takes a peer's parcels, in order, with its name.
        hear: takes parcels that were sent aside (see `aside`), with their sender.
        meet: is called for each incarnation of a peer, before its frames: its name, and if an earlier one was known.
    """

    def __init__(
        self,
        incarnation: int,
        codec: Codec,
        send: Callable[[HostName, bytes], None],
        take: Callable[[HostName, Collection[Parcel]], None],
        hear: Callable[[HostName, Iterable[Parcel]], None],
        meet: Callable[[HostName, bool], None],
    ) -> None:
        self._incarnation = incarnation
        self._codec = codec
        self._send = send
        self._take = take
        self._hear = hear
        self._meet = meet
        self._lines: dict[HostName, _Line] = {}
        self._loop = asyncio.get_running_loop()
        self._acknowledging: asyncio.TimerHandle | None = None
        self._retrying: asyncio.TimerHandle | None = None

    def close(self) -> None:
        for timer in (self._acknowledging, self._retrying):
            if timer is not None:
                timer.cancel()

    def send(self, to: HostName, parcels: list[Parcel]) -> None:
        """Send a frame, and keep it."""
        line = self._line(to)
        line.number += 1
        oldest = line.sent[0][0] if line.sent else line.number
        encoded = self._codec.encode(
            HostFrame(self._incarnation, line.number, parcels, line.incarnation, line.heard, oldest)
        )
        now = self._loop.time()
        if not line.sent:
            line.again_at = now + line.retry_s
            self._retry_soon(line.retry_s)
        line.sent.append((line.number, now, encoded))
        line.kept_bytes += len(encoded)
        line.owes = False
        if line.kept_bytes > KEPT_BYTES_MAX:
            self._give_up_oldest(line, to)
        self._send(to, encoded)

    def numbers(self, peer: HostName) -> tuple[int, int]:
        """Of the last frame that was sent to a peer, and of the last up to which all of its frames have come."""
        line = self._line(peer)
        return line.number, line.heard

    def known_incarnation(self, peer: HostName) -> int:
        """The latest incarnation of a peer that was met; 0: none."""
        line = self._lines.get(peer)
        return line.incarnation if line is not None else 0

    def aside(self, to: HostName, parcels: list[Parcel]) -> None:
        """Send messages that are not repeated when they are lost."""
        line = self._line(to)
        line.owes = False
        self._send(to, self._codec.encode(HostFrame(self._incarnation, 0, parcels, line.incarnation, line.heard)))

    def arrived(self, sender: HostName, encoded: bytes) -> None:
        """Take a frame in.

        Raises:
            CodecError: it cannot be understood.
            LaterIncarnation: the sender has met a later incarnation of this host; the frame is not for this one.
        """
        frame = self._codec.decode(encoded)
        line = self._line(sender)
        if frame.incarnation < line.incarnation:
            self._correct(line, sender)
            return
        if frame.to > self._incarnation:
            raise LaterIncarnation(frame.to, self._incarnation)
        if frame.incarnation > line.incarnation:
            known = line.incarnation > 0
            line.begin_anew(frame.incarnation)
            self._meet(sender, known)
        if frame.to == self._incarnation:
            self._acknowledged(line, frame.heard, sender)
            if not frame.number:
                self._hear(sender, frame.parcels)
        if not frame.number:
            return
        if not line.owes:
            line.owes = True
            if self._acknowledging is None:
                self._acknowledging = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge)
        if frame.to in (0, self._incarnation):
            self._in_order(line, frame, sender)

    def _correct(self, line: _Line, peer: HostName) -> None:
        """Answer an earlier incarnation with the one that was met, so that it can log it."""
        now = self._loop.time()
        if now >= line.corrected_at + CORRECT_S:
            line.corrected_at = now
            self._send(peer, self._codec.encode(HostFrame(self._incarnation, 0, [], line.incarnation, line.heard)))

    def _in_order(self, line: _Line, frame: HostFrame, sender: HostName) -> None:
        if frame.oldest > line.heard + 1:
            log.error("%d frames of host %s are lost for good", frame.oldest - line.heard - 1, sender)
            line.heard = frame.oldest - 1
        if frame.number == line.heard + 1:
            line.heard += 1
            self._take(sender, frame.parcels)
        elif frame.number > line.heard and len(line.early) < EARLY_MAX:
            line.early[frame.number] = frame
        while line.early and (early := line.early.pop(line.heard + 1, None)) is not None:
            line.heard += 1
            self._take(sender, early.parcels)

    def _line(self, peer: HostName) -> _Line:
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = _Line()
        return line

    def _acknowledged(self, line: _Line, heard: int, peer: HostName) -> None:
        sent, number, now = line.sent, 0, self._loop.time()
        while sent and sent[0][0] <= heard:
            number, at, encoded = sent.popleft()
            line.kept_bytes -= len(encoded)
        if number:
            if number > line.again:
                line.retry_s = min(max(RETRY_S, 2 * (now - at)), RETRY_MAX_S)
            else:  # which of the two sendings has come is not known: it may have been lost, or slow
                line.retry_s = max(RETRY_S, 0.75 * line.retry_s)
            line.again_at = now + line.retry_s
            if line.again < line.until:
                self._send_again(line, peer)

    def _acknowledge(self) -> None:
        self._acknowledging = None
        for peer, line in self._lines.items():
            if line.owes:
                self.aside(peer, [])

    def _retry_soon(self, after_s: float) -> None:
        if self._retrying is None:
            self._retrying = self._loop.call_later(after_s, self._retry)

    def _retry(self) -> None:
        """Send again what is due; one timer for all peers, and none while nothing is outstanding."""
        self._retrying = None
        now, next_s = self._loop.time(), 0.0
        for peer, line in self._lines.items():
            if not line.sent:
                continue
            if now >= line.again_at:
                line.again, line.until = line.sent[0][0] - 1, line.number
                self._send_again(line, peer)
                line.retry_s = min(2 * line.retry_s, RETRY_MAX_S)
                line.again_at = now + line.retry_s
            next_s = min(next_s or RETRY_MAX_S, line.again_at - now)
        if next_s:
            self._retry_soon(next_s)

    def _send_again(self, line: _Line, peer: HostName) -> None:
        """Send again the frames of the window that may be lost."""
        if line.sent:
            oldest = line.sent[0][0]
            line.again = max(line.again, oldest - 1)
            last = min(line.until, oldest + AGAIN_MAX - 1)
            for _, _, encoded in islice(line.sent, line.again + 1 - oldest, max(0, last + 1 - oldest)):
                self._send(peer, encoded)
            line.again = max(line.again, last)

    def _give_up_oldest(self, line: _Line, peer: HostName) -> None:
        log.error("host %s does not answer; the oldest frames for it are given up", peer)
        while line.kept_bytes > KEPT_BYTES_MAX // 2:
            line.kept_bytes -= len(line.sent.popleft()[2])


VERSION: Final = 3
_VERSION_BYTE: Final = bytes([VERSION])

Parcel = tuple[Address, Address, Message]
"""Receiver, sender, message."""


class CodecError(ValueError):
    """Bytes that this version of this federation does not understand."""


class HostFrame(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The messages of one host for another after a turn.

    Args:
        incarnation: of the sender, so that a restart is seen.
        number: of this sender's frames for this receiver, from 1, so that a loss is seen; 0: never sent again.
        parcels: in the order of sending.
        to: the incarnation of the receiver that is meant; 0: the sender has not met it yet.
        heard: all the receiver's frames up to this number have come.
        oldest: number of the oldest frame that the sender can still send again.
    """

    incarnation: int
    number: int
    parcels: Sequence[Parcel]
    to: int = 0
    heard: int = 0
    oldest: int = 0


class Codec:
    """Encodes and decodes frames.

    Args:
        messages: what the architecture declares; messages between hosts are added.

    Raises:
        TypeError: two messages have the same name.
    """

    def __init__(self, messages: Iterable[type[Message]]) -> None:
        known: list[type] = sorted({*messages, *SUBMITTER_MESSAGES, *HOST_MESSAGES}, key=_name)
        self._names = [kind.__name__ for kind in known]
        carried = union(known)
        self._decoder = msgspec.msgpack.Decoder(
            tuple[int, int, list[tuple[Address, Address, carried]], int, int, int]  # type: ignore[valid-type] # made at run time
        )
        self._encoder = msgspec.msgpack.Encoder()

    def encode(self, frame: HostFrame) -> bytes:
        return _VERSION_BYTE + self._encoder.encode(frame)

    def decode(self, encoded: bytes) -> HostFrame:
        """The frame that these bytes are.

        Raises:
            CodecError: another version, an unknown message, or no frame at all.
        """
        if encoded[:1] != _VERSION_BYTE:
            found = f"version {encoded[0]}" if encoded else "nothing"
            raise CodecError(f"a frame of {found} arrived, this host speaks version {VERSION}; update the older host")
        try:
            return HostFrame(*self._decoder.decode(memoryview(encoded)[1:]))
        except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            raise CodecError(f"a frame cannot be read ({error}); known messages are {', '.join(self._names)}") from None


def _name(kind: type) -> str:
    return kind.__name__


def union(types: Iterable[type]) -> Any:
    """The union of message types, as a decoder wants it.

    Raises:
        TypeError: two of them have the same name.
    """
    listed = list(types)
    names = [kind.__name__ for kind in listed]
    twice = {name for name in names if names.count(name) > 1}
    if twice:
        raise TypeError(f"two messages are named {', '.join(sorted(twice))}; names tell messages apart on the wire")
    return functools.reduce(operator.or_, listed)
