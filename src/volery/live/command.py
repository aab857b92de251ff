"""Payloads of tasks: a command to run, or a Python callable to call.

Schedulers never look into it: it is `Task.payload`, opaque bytes.
"""

from __future__ import annotations

import builtins
import importlib
import pickle
from collections.abc import Callable
from contextlib import suppress
from operator import attrgetter
from typing import Final

import msgspec

from volery.core.model import TaskId

GRACE_S: Final = 5.0
JOB_VARIABLE: Final = "VOLERY_JOB"
INDEX_VARIABLE: Final = "VOLERY_INDEX"
API_VARIABLE: Final = "VOLERY_API"
TOKEN_VARIABLE: Final = "VOLERY_TOKEN"  # noqa: S105 - the name of a variable
WORK: Final = "work"
"""The working folder of a task, in the folder of its attempt, which holds the output beside it."""


class Command(msgspec.Struct, frozen=True, array_like=True, tag="command"):
    """A process to run.

    Args:
        argv: program and arguments; the program is looked for on the PATH of its environment.
        first: number of the first task of its job: the place of a task, VOLERY_INDEX, is its number less this. So
            equal tasks carry equal payloads.
        env: variables added to the node agent's own environment.
        cwd: absolute path of the directory to run in; empty: a new folder of the attempt's own.
        stdin: content of its standard input; empty: none.
        timeout_s: seconds after which it is ended and has failed; 0: never.
        grace_s: seconds between SIGTERM and SIGKILL.
        outputs: files, relative to the directory it runs in, without which a success is none.
        user: user of the federation that its job belongs to.
        memory_mb: memory that it asks for, in units of 2^20 bytes, and is held to; 0: none.
        cpu_milli: thousandths of a processor that it asks for, and is held to; 0: none.
        gpus: number of GPUs that it is given; None where they are not counted.
        attempts: attempts of the task that had begun when it was submitted, before the last restart.
        launched: the scheduler's number of the last of them; -1: there was none.
        token: token for requests to the API as its user; empty: none.
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
    token: str = ""


class Call(msgspec.Struct, frozen=True, array_like=True, tag="call"):
    """A Python callable to call on the node.

    Args:
        pickled: (function, arguments, named arguments), pickled by the client.
        timeout_s: seconds after which it has failed; 0: never.
        first, user, memory_mb, cpu_milli, gpus, attempts, launched, token: as in `Command`.
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
    token: str = ""


class RemoteTraceback(Exception):  # noqa: N818 - it is no error, and the cause of one
    """The traceback of a callable in its worker process, as text: the cause of the exception that comes back."""

    def __init__(self, text: str) -> None:
        super().__init__(text)

    def __str__(self) -> str:
        return f"\n\n{self.args[0]}"


class Raised:
    """An exception on its way to the caller; unpickled, it is the exception itself, with its traceback as the cause.

    Args:
        pickled: the exception; empty: it cannot be pickled, and one of a class of the same name takes its place.
        message: text of the exception.
        text: text of its traceback.
    """

    def __init__(self, error: BaseException, pickled: bytes, message: str, text: str) -> None:
        kind = type(error)
        builtin = next(base.__name__ for base in kind.__mro__ if base.__module__ == "builtins")
        self._reduced_state = pickled, (kind.__module__, kind.__qualname__, builtin), message, text

    def __reduce__(self) -> tuple[Callable[..., BaseException], tuple[object, ...]]:
        return _raised, self._reduced_state


def _raised(pickled: bytes, kind: tuple[str, str, str], message: str, text: str) -> BaseException:
    error = None
    with suppress(Exception):  # its class may not be here, or its pickle be wrong
        error = pickle.loads(pickled)  # noqa: S301 - the exception of our own callable
    return _caused(error if isinstance(error, BaseException) else _stand_in(kind, message), text)


def _stand_in(kind: tuple[str, str, str], message: str) -> BaseException:
    """An exception of a class with the same name and text, derived from the class itself where that can be imported."""
    module, name, builtin = kind
    builtin_class = getattr(builtins, builtin, Exception)

    base_class: object = builtin_class
    with suppress(Exception):
        base_class = attrgetter(name)(importlib.import_module(module))

    if not (isinstance(base_class, type) and issubclass(base_class, BaseException)):
        base_class = builtin_class

    content = {"__module__": module, "__qualname__": name, "__str__": lambda _: message}

    for base in (base_class, Exception):
        with suppress(Exception):  # some cannot be made without arguments of their own
            error: BaseException = base.__new__(type(name.rpartition(".")[2], (base,), content), message)
            error.args = (message,)
            return error

    raise AssertionError("an Exception can be made")


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
        decoded_payload: Payload = _decoder.decode(payload)
    except msgspec.MsgspecError as error:
        problem = f"its {len(payload)} bytes of payload do not decode ({error})" if payload else "it carries no payload"
        raise ValueError(f"the task holds nothing that can be run: {problem}") from None
    return decoded_payload
