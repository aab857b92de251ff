"""Protocol between a node host and its task supervisor, over a socket in the agent's state folder.

A message is its length (4 bytes, little endian) and MessagePack. Both sides are processes of one user on one machine
and of one version: a supervisor is started by the host that it serves, or was by its predecessor.
"""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import Any, Final

import msgspec

from volery.core.model import Address, Task, TaskId
from volery.live.messages import TaskReport

SOCKET: Final = "supervisor.sock"
CHUNK_BYTES: Final = 1 << 16
_LENGTH: Final = struct.Struct("<I")


class TakeOver(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor, first: the host that is served from now on. `AttemptInventory` answers.

    Args:
        lease_s: the supervisor ends what runs when no `KeepAlive` has come for so long; 0: never.
    """

    lease_s: float


class StartAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: start an attempt."""

    node: Address
    task: Task
    attempt: int
    note: bytes


class KillAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: end an attempt."""

    task: TaskId
    attempt: int


class ForgetAttempt(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: the end of this attempt is stored elsewhere."""

    task: TaskId
    attempt: int


class KeepAlive(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: the host runs."""


class Shutdown(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Host > supervisor: end all attempts and this process.

    Args:
        keep: go on while there are ends that are not written down elsewhere, for the host's next incarnation.
    """

    keep: bool


class SupervisedAttempt(msgspec.Struct, array_like=True):
    """An attempt in the supervisor; `task` without its payload, `begun` and `end` once that was reported."""

    node: Address
    task: Task
    attempt: int
    note: bytes
    end: TaskReport | None = None
    begun: TaskReport | None = None


class AttemptInventory(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Supervisor > host: all attempts.

    Args:
        attempts: that run, or have ended and were not forgotten.
        expired: the lease was over before the host came, and the attempts are void.
        held: what holds tasks to the amounts that they ask for, in words.
    """

    attempts: tuple[SupervisedAttempt, ...]
    expired: bool
    held: str = ""


class AttemptReport(msgspec.Struct, frozen=True, array_like=True, tag=True):
    """Supervisor > host: a start or an end."""

    report: TaskReport


FromHost = TakeOver | StartAttempt | KillAttempt | ForgetAttempt | KeepAlive | Shutdown
FromSupervisor = AttemptInventory | AttemptReport


class Channel(asyncio.BufferedProtocol):
    """One end of the socket.

    Args:
        kind: the messages of the other end.
        lost: is called when the other end is gone.
    """

    def __init__(self, kind: Any, take: Callable[[Channel, Any], None], lost: Callable[[Channel], None]) -> None:
        self._decode = msgspec.msgpack.Decoder(kind).decode
        self._encode = msgspec.msgpack.Encoder().encode
        self._take = take
        self._lost = lost
        self._chunk = bytearray(CHUNK_BYTES)
        self._waiting = bytearray()
        self._transport: Any = None  # uvloop's transports are no asyncio.Transport to isinstance

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def get_buffer(self, _: int) -> bytearray:
        return self._chunk

    def buffer_updated(self, byte_count: int) -> None:
        """Take all messages that are whole."""
        waiting, at, size = self._waiting, 0, _LENGTH.size
        waiting += memoryview(self._chunk)[:byte_count]
        while len(waiting) - at >= size:
            (length,) = _LENGTH.unpack_from(waiting, at)
            if len(waiting) - at - size < length:
                break
            message = self._decode(bytes(waiting[at + size : at + size + length]))
            at += size + length
            self._take(self, message)
        del waiting[:at]

    def connection_lost(self, _: Exception | None) -> None:
        self._transport = None
        self._lost(self)

    def send(self, message: FromHost | FromSupervisor) -> None:
        """Send a message; drop it where the other end is gone."""
        if self._transport is not None:
            encoded = self._encode(message)
            self._transport.write(_LENGTH.pack(len(encoded)) + encoded)

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


def socket_in(folder: int, connect: bool) -> socket.socket:
    """A socket in a folder, by its descriptor: the path of a socket may have 107 bytes only.

    Raises:
        OSError: no process listens there, or it cannot be made.
    """
    path = f"/proc/self/fd/{folder}/{SOCKET}"
    opened = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        if connect:
            opened.connect(path)
        else:
            opened.bind(path)
    except OSError:
        opened.close()
        raise
    opened.setblocking(False)
    return opened
