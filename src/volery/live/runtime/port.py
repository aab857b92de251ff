"""The live port collects a component's effects; the host applies them after the handler, a replay compares them.

An effect is a tuple, so that all effects of an event are encoded in one call: a message is (receiver, message),
anything else begins with the number of its kind.
"""

from __future__ import annotations

import pickle
import zlib
from collections.abc import Callable
from typing import Any, Final

import msgspec

from volery.core.events import Fact
from volery.core.model import Address, Key, Message, Task, TaskId, Time
from volery.core.port import Problem

SET_TIMER: Final = 0
CANCEL_TIMER: Final = 1
LAUNCH: Final = 2
KILL: Final = 3
COMPUTE: Final = 4
OBSERVE: Final = 5

Effect = tuple[Any, ...]


class LivePort:
    """Collects effects in the order of the calls.

    Args:
        effects: List to which effects are added; components of one host share it, because they run one after the other.
    """

    __slots__ = ("_add", "address")
    is_reliable = True  # frames are numbered and sent again, see `volery.live.transport.delivery`

    def __init__(self, address: Address, effects: list[Effect]) -> None:
        self.address = address
        self._add: Callable[[Effect], None] = effects.append

    def send(self, to: Address, message: Message) -> None:
        self._add((to, message))

    def set_timer(self, key: Key, at: Time) -> None:
        self._add((SET_TIMER, key, at))

    def cancel_timer(self, key: Key) -> None:
        self._add((CANCEL_TIMER, key))

    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None:
        self._add((LAUNCH, task, attempt, waited_us, note) if note else (LAUNCH, task, attempt, waited_us))

    def kill(self, task: TaskId, attempt: int) -> None:
        self._add((KILL, task, attempt))

    def compute(self, key: Key, problem: Problem) -> None:
        self._add((COMPUTE, key, problem))

    def observe(self, fact: Fact) -> None:
        self._add((OBSERVE, fact))


def _encodable(part: object) -> object:
    """A problem's function by name, its argument by value."""
    return f"{part.__module__}.{part.__qualname__}" if callable(part) else pickle.dumps(part)  # type: ignore[attr-defined]  # functions have names


_encode: Final = msgspec.msgpack.Encoder(enc_hook=_encodable).encode
_crc32: Final = zlib.crc32


def checksum(effects: list[Effect]) -> int:
    """CRC-32 of effects, destinations included; 0 when there is none."""
    return _crc32(_encode(effects)) if effects else 0
