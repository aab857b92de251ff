"""Bytes for frames: MessagePack, made from the messages that an architecture declares and the submitter's protocol.

A frame names the version of its format. Within a version, messages may gain fields at their end: a host without them
passes over them. A message of an unknown type is refused by name, and so is a frame of another version.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from volery.core.events import SUBMITTER_MESSAGES
from volery.core.model import Address, Message
from volery.live.messages import HOST_MESSAGES

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
