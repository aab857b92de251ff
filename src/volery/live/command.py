"""Payloads of tasks: a command to run, or a Python callable to call.

Schedulers never look into it: it is `Task.payload`, opaque bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

import msgspec

from volery.core.model import TaskId

GRACE_S: Final = 5.0
WORK: Final = "work"
"""The working folder of a task, in the folder of its attempt, which holds the output beside it."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag="command"):
    """A process to run.

    Args:
        argv: program and arguments; the program is looked for on the PATH of its environment.
        first: number of the first task of its job: the place of a task, VOLERY_INDEX, is its number less this. So
            equal tasks carry equal payloads.
        env: added to the node agent's own environment.
        cwd: absolute path of the directory to run in; empty: a new folder of the attempt's own.
        stdin: what it reads; empty: nothing.
        timeout_s: seconds after which it is ended and has failed; 0: never.
        grace_s: seconds between SIGTERM and SIGKILL.
        outputs: files, relative to the directory it runs in, without which a success is none.
        user: of the federation, whose job it is of.
        memory_mb: memory that it asks for, in units of 2^20 bytes, and is held to; 0: none.
        cpu_milli: thousandths of a processor that it asks for, and is held to; 0: none.
        gpus: how many GPUs it is given; None where nobody counts them.
        attempts: how many attempts of the task had begun when it was submitted, before the last restart.
        launched: the scheduler's number of the last of them; -1: there was none.
    """

    argv: tuple[str, ...]
    first: TaskId = 0
    env: dict[str, str] = {}
    cwd: str = ""
    stdin: bytes = b""
    timeout_s: float = 0.0
    grace_s: float = GRACE_S
    outputs: tuple[str, ...] = ()
    user: str = ""
    memory_mb: int = 0
    cpu_milli: int = 0
    gpus: int | None = None
    attempts: int = 0
    launched: int = -1


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """A Python callable to call on the node.

    Args:
        pickled: (function, arguments, named arguments), pickled by the client.
        timeout_s: seconds after which it has failed; 0: never.
        first, user, memory_mb, cpu_milli, gpus, attempts, launched: as in `Command`.
    """

    pickled: bytes
    first: TaskId = 0
    timeout_s: float = 0.0
    user: str = ""
    memory_mb: int = 0
    cpu_milli: int = 0
    gpus: int | None = None
    attempts: int = 0
    launched: int = -1


class RemoteTraceback(Exception):  # noqa: N818 - it is no error, and the cause of one
    """The traceback of a callable in its worker process, as text: the cause of the exception that comes back."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Raised:
    """An exception on its way to the caller; unpickled, it is the exception itself, with its traceback as the cause."""

    def __init__(self, error: BaseException, text: str) -> None:
        self._error = error
        self._text = text

    def __reduce__(self) -> tuple[Callable[[BaseException, str], BaseException], tuple[BaseException, str]]:
        return _caused, (self._error, self._text)


def _caused(error: BaseException, text: str) -> BaseException:
    error.__cause__ = RemoteTraceback(text)
    return error


Payload = Command | Call

_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(Payload)


def encode_payload(payload: Payload) -> bytes:
    return _encoder.encode(payload)


def decode_payload(payload: bytes) -> Payload:
    """The payload that these bytes encode.

    Raises:
        ValueError: the bytes are no payload of this version.
    """
    try:
        decoded: Payload = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        found = f"its {len(payload)} bytes of payload do not decode ({error})" if payload else "it carries no payload"
        raise ValueError(f"the task holds nothing that can be run: {found}") from None
    return decoded
