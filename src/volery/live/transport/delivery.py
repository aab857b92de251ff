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
"""Shortest time before frames are sent again; a busy host has twice the time that it last took to acknowledge."""
RETRY_MAX_S: Final = 2.0
CORRECT_S: Final = 1.0
"""Time between two answers to a host whose frames are of an earlier incarnation than one that was met."""
AGAIN_MAX: Final = 256
"""Frames that are sent again at once; the others follow as those are acknowledged."""
EARLY_MAX: Final = 4096
"""Frames that wait for one that was lost; further ones are sent again, too."""
KEPT_BYTES_MAX: Final = 256 << 20
"""Bytes of frames for one host that does not answer; beyond them the oldest are given up."""

log = logging.getLogger(__name__)


class LaterIncarnation(ValueError):  # noqa: N818 - it names a claim
    """A frame is for a later incarnation of this host than its present one, by what its sender has met.

    Attributes:
        incarnation: number of the later incarnation.
    """

    def __init__(self, incarnation: int, present: int) -> None:
        super().__init__(f"it has met incarnation {incarnation} of this host, which runs as incarnation {present}")
        self.incarnation = incarnation


class _Line:
    """The state of the link to one peer.

    Attributes:
        incarnation: incarnation of the peer; 0 until a frame came.
        sent: frames that are not acknowledged (number, time, bytes); kept_bytes: the sum of these bytes.
        number: number of the last frame sent.
        received: number up to which all frames have come.
        early: frames that came before their turn.
        owes_answer: true if the peer waits for an acknowledgement.
        retry_s, resend_at: pause, and next time, of sending again what is not acknowledged, by the loop's clock.
        corrected_at: time of the last answer to the peer that a later incarnation of it was met, by the loop's clock.
        resent, resend_end: number of the last frame that was sent again, and of the last that may have to be.
    """

    __slots__ = (
        "corrected_at",
        "early",
        "incarnation",
        "kept_bytes",
        "number",
        "owes_answer",
        "received",
        "resend_at",
        "resend_end",
        "resent",
        "retry_s",
        "sent",
    )

    def __init__(self) -> None:
        self.incarnation = 0
        self.sent: deque[tuple[int, float, bytes]] = deque()
        self.resent = self.resend_end = self.kept_bytes = 0
        self.number = self.received = 0
        self.early: dict[int, HostFrame] = {}
        self.owes_answer = False
        self.retry_s = RETRY_S
        self.resend_at = 0.0
        self.corrected_at = -CORRECT_S

    def restart(self, incarnation: int) -> None:
        """Begin with a new incarnation of the peer; what is on its way to the one before is void."""
        if self.incarnation:
            self.sent.clear()
            self.number = self.kept_bytes = self.resent = self.resend_end = 0
        self.incarnation, self.received, self.retry_s = incarnation, 0, RETRY_S
        self.early.clear()


class Delivery:
    """The links of one host to its peers.

    Args:
        incarnation: incarnation of this host, from 1.
        send: hands bytes to the transport.
        take: takes a peer's parcels, in order, with its name.
        take_aside: takes parcels that were sent aside (see `aside`), with their sender.
        meet: is called for each incarnation of a peer, before its frames: its name, and if an earlier one was known.
    """

    def __init__(
        self,
        incarnation: int,
        codec: Codec,
        send: Callable[[HostName, bytes], None],
        take: Callable[[HostName, Collection[Parcel]], None],
        take_aside: Callable[[HostName, Iterable[Parcel]], None],
        meet: Callable[[HostName, bool], None],
    ) -> None:
        self._incarnation = incarnation
        self._codec = codec
        self._send = send
        self._take = take
        self._take_aside = take_aside
        self._meet = meet
        self._lines: dict[HostName, _Line] = {}
        self._loop = asyncio.get_running_loop()
        self._acknowledge_timer: asyncio.TimerHandle | None = None
        self._retry_timer: asyncio.TimerHandle | None = None

    def close(self) -> None:
        for timer in (self._acknowledge_timer, self._retry_timer):
            if timer is not None:
                timer.cancel()

    def send(self, to: HostName, parcels: list[Parcel]) -> None:
        """Send a frame, and keep it."""
        line = self._line(to)
        line.number += 1
        oldest = line.sent[0][0] if line.sent else line.number
        encoded = self._codec.encode(
            HostFrame(self._incarnation, line.number, parcels, line.incarnation, line.received, oldest)
        )

        now = self._loop.time()
        if not line.sent:
            line.resend_at = now + line.retry_s
            self._retry_soon(line.retry_s)

        line.sent.append((line.number, now, encoded))
        line.kept_bytes += len(encoded)
        line.owes_answer = False
        if line.kept_bytes > KEPT_BYTES_MAX:
            self._give_up_oldest(line, to)

        self._send(to, encoded)

    def numbers(self, peer: HostName) -> tuple[int, int]:
        """The number of the last frame sent to a peer, and the number up to which all of its frames have come."""
        line = self._line(peer)
        return line.number, line.received

    def known_incarnation(self, peer: HostName) -> int:
        """The latest incarnation of a peer that was met; 0: none."""
        line = self._lines.get(peer)
        return line.incarnation if line is not None else 0

    def aside(self, to: HostName, parcels: list[Parcel]) -> None:
        """Send messages that are not repeated when they are lost."""
        line = self._line(to)
        line.owes_answer = False
        self._send(to, self._codec.encode(HostFrame(self._incarnation, 0, parcels, line.incarnation, line.received)))

    def arrived(self, sender: HostName, encoded: bytes) -> None:
        """Take a frame in.

        Raises:
            CodecError: it cannot be understood.
            LaterIncarnation: the sender has met a later incarnation of this host; the frame is not for this one.
        """
        frame = self._codec.decode(encoded)

        line = self._line(sender)

        # A frame may travel for long: the peer has restarted, and its frames have begun to count again.
        if frame.incarnation < line.incarnation:
            self._correct(line, sender)
            return
        if frame.to > self._incarnation:
            raise LaterIncarnation(frame.to, self._incarnation)

        if frame.incarnation > line.incarnation:
            has_predecessor = line.incarnation > 0
            line.restart(frame.incarnation)
            self._meet(sender, has_predecessor)

        if frame.to == self._incarnation:
            self._acknowledged(line, frame.received, sender)
            if not frame.number:
                self._take_aside(sender, frame.parcels)

        if not frame.number:
            return

        if not line.owes_answer:
            line.owes_answer = True
            if self._acknowledge_timer is None:
                self._acknowledge_timer = self._loop.call_later(ACKNOWLEDGE_S, self._acknowledge)

        if frame.to in (0, self._incarnation):
            self._in_order(line, frame, sender)

    def _correct(self, line: _Line, peer: HostName) -> None:
        """Answer an earlier incarnation with the one that was met, so that it can log it."""
        now = self._loop.time()
        if now >= line.corrected_at + CORRECT_S:
            line.corrected_at = now
            self._send(peer, self._codec.encode(HostFrame(self._incarnation, 0, [], line.incarnation, line.received)))

    def _in_order(self, line: _Line, frame: HostFrame, sender: HostName) -> None:
        # The sender has given up older frames (see `KEPT_BYTES_MAX`): to wait for them would block the link for ever.
        if frame.oldest > line.received + 1:
            log.error("%d frames of host %s are lost for good", frame.oldest - line.received - 1, sender)
            line.received = frame.oldest - 1

        if frame.number == line.received + 1:
            line.received += 1
            self._take(sender, frame.parcels)
        elif frame.number > line.received and len(line.early) < EARLY_MAX:
            line.early[frame.number] = frame

        while line.early and (early_frame := line.early.pop(line.received + 1, None)) is not None:
            line.received += 1
            self._take(sender, early_frame.parcels)

    def _line(self, peer: HostName) -> _Line:
        line = self._lines.get(peer)
        if line is None:
            line = self._lines[peer] = _Line()
        return line

    def _acknowledged(self, line: _Line, received: int, peer: HostName) -> None:
        unacknowledged, number, now = line.sent, 0, self._loop.time()
        while unacknowledged and unacknowledged[0][0] <= received:
            number, sent_at, encoded = unacknowledged.popleft()
            line.kept_bytes -= len(encoded)

        if number:
            if number > line.resent:
                line.retry_s = min(max(RETRY_S, 2 * (now - sent_at)), RETRY_MAX_S)
            else:  # which of the two sendings has come is not known: it may have been lost, or slow
                line.retry_s = max(RETRY_S, 0.75 * line.retry_s)
            line.resend_at = now + line.retry_s
            if line.resent < line.resend_end:
                self._send_again(line, peer)

    def _acknowledge(self) -> None:
        self._acknowledge_timer = None
        for peer, line in self._lines.items():
            if line.owes_answer:
                self.aside(peer, [])

    def _retry_soon(self, after_s: float) -> None:
        if self._retry_timer is None:
            self._retry_timer = self._loop.call_later(after_s, self._retry)

    def _retry(self) -> None:
        """Send again what is due; one timer for all peers, and none while nothing is outstanding."""
        self._retry_timer = None
        now, next_s = self._loop.time(), 0.0
        for peer, line in self._lines.items():
            if not line.sent:
                continue
            if now >= line.resend_at:
                # From the oldest on: what came behind a lost frame waits at the receiver, and is passed over there.
                line.resent = line.sent[0][0] - 1
                line.resend_end = line.number
                self._send_again(line, peer)
                line.retry_s = min(2 * line.retry_s, RETRY_MAX_S)
                line.resend_at = now + line.retry_s
            next_s = min(next_s or RETRY_MAX_S, line.resend_at - now)

        if next_s:
            self._retry_soon(next_s)

    def _send_again(self, line: _Line, peer: HostName) -> None:
        """Send again the frames of the window that may be lost."""
        if line.sent:
            oldest = line.sent[0][0]
            line.resent = max(line.resent, oldest - 1)
            last = min(line.resend_end, oldest + AGAIN_MAX - 1)
            for _, _, encoded in islice(line.sent, line.resent + 1 - oldest, max(0, last + 1 - oldest)):
                self._send(peer, encoded)
            line.resent = max(line.resent, last)

    def _give_up_oldest(self, line: _Line, peer: HostName) -> None:
        log.error("host %s does not answer; the oldest frames for it are given up", peer)
        # Down to the half, so that not each further frame meets the bound.
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
        incarnation: incarnation of the sender, so that a restart is seen.
        number: number among the sender's frames for the receiver, from 1, which shows a loss; 0: never sent again.
        parcels: parcels in the order of sending.
        to: the incarnation of the receiver that is meant; 0: the sender has not met it yet.
        received: all the receiver's frames up to this number have come.
        oldest: number of the oldest frame that the sender can still send again.
    """

    incarnation: int
    number: int
    parcels: Sequence[Parcel]
    to: int = 0
    received: int = 0
    oldest: int = 0


class Codec:
    """Encodes and decodes frames.

    Args:
        messages: messages that the architecture declares; messages between hosts are added.

    Raises:
        TypeError: two messages have the same name.
    """

    def __init__(self, messages: Iterable[type[Message]]) -> None:
        kinds: list[type] = sorted({*messages, *SUBMITTER_MESSAGES, *HOST_MESSAGES}, key=_name)
        self._names = [kind.__name__ for kind in kinds]
        message_union = union(kinds)
        self._decoder = msgspec.msgpack.Decoder(
            tuple[int, int, list[tuple[Address, Address, message_union]], int, int, int]  # type: ignore[valid-type] # made at run time
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
            version = f"version {encoded[0]}" if encoded else "nothing"
            raise CodecError(f"a frame of {version} arrived, this host speaks version {VERSION}; update the older host")
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
    duplicate_names = {name for name in names if names.count(name) > 1}
    if duplicate_names:
        raise TypeError(
            f"two messages are named {', '.join(sorted(duplicate_names))}; names tell messages apart on the wire"
        )
    return functools.reduce(operator.or_, listed)
