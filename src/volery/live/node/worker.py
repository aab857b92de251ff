"""A worker process of the call executor: reads calls on standard input, answers on what was its standard output.

python -m volery.live.node.worker; it ends when its input does.
"""

from __future__ import annotations

import os
import pickle
import resource
import struct
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any, BinaryIO, Final

import msgspec

from volery.live.command import Raised
from volery.live.pickles import dumps

LENGTH: Final = struct.Struct("<I")
RESULT_BYTES_MAX: Final = 512 * 1024
"""Results travel through the broker and the store of jobs; what is larger belongs into a file."""

TRACEBACK_MAX: Final = 20_000
"""Characters; the last ones count."""


class CallRequest(msgspec.Struct, frozen=True, array_like=True):
    """One call and the limits of its process.

    Args:
        pickled: what to call.
        folder: takes what it prints.
        memory_mb: what this process may have meanwhile, in units of 2^20 bytes; 0: no limit.
        cpus: where it may run meanwhile; nothing: anywhere.
    """

    pickled: bytes
    folder: str
    environment: dict[str, str]
    memory_mb: int = 0
    cpus: tuple[int, ...] = ()


class CallAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The end of a call: `result` is the pickled value, or the pickled exception where `reason` is not empty."""

    result: bytes
    reason: str = ""


def frame(content: CallRequest | CallAnswer) -> bytes:
    """Length and content, ready to be written."""
    encoded = msgspec.msgpack.encode(content)
    return LENGTH.pack(len(encoded)) + encoded


def answer(request: CallRequest) -> CallAnswer:
    """Make the call; whatever it raises is part of the answer."""
    os.environ.update(request.environment)
    try:
        function, arguments, named = pickle.loads(request.pickled)  # noqa: S301 - running users' code is the purpose
        result = dumps(function(*arguments, **named))
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers, too
        traceback.print_exc()
        return CallAnswer(_pickled_error(error), f"{type(error).__name__}: {error}")
    if len(result) > RESULT_BYTES_MAX:
        problem = f"the result has {len(result)} bytes pickled, of at most {RESULT_BYTES_MAX}; write it to a file"
        return CallAnswer(_pickled_error(ValueError(problem)), problem)
    return CallAnswer(result)


def _pickled_error(error: BaseException) -> bytes:
    """The exception pickled, or where it cannot be, one with the same text."""
    called = error.__traceback__.tb_next if error.__traceback__ is not None else None
    text = "".join(traceback.format_exception(type(error), error, called))[-TRACEBACK_MAX:]
    try:
        pickled: bytes = dumps(Raised(error, text))
        pickle.loads(pickled)  # noqa: S301 - our own bytes: many exceptions pickle but do not come back
    except Exception:
        pickled = dumps(RuntimeError(text))
    return pickled if len(pickled) <= RESULT_BYTES_MAX else dumps(RuntimeError(text[-1000:]))


def _answer_in(folder: str, request: CallRequest) -> CallAnswer:
    """Make the call with what it prints going to its attempt's folder."""
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        opened = os.open(f"{folder}/{name}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o644)
        os.dup2(opened, descriptor)
        os.close(opened)
    os.chdir(folder)
    try:
        with _held(request.memory_mb, request.cpus):
            return answer(request)
    finally:
        sys.stdout.flush()
        sys.stderr.flush()


@contextmanager
def _held(memory_mb: int, cpus: Iterable[int]) -> Iterator[None]:
    """Hold this process, and what it starts, to so much: as whoever it runs as may always do."""
    all_cpus = os.sched_getaffinity(0)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if memory_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, hard))
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))
        os.sched_setaffinity(0, all_cpus)


def serve(calls: BinaryIO, answers: BinaryIO) -> None:
    """Answer calls until there are no more."""
    decoder: Any = msgspec.msgpack.Decoder(CallRequest)
    while len(header := calls.read(LENGTH.size)) == LENGTH.size:
        (length,) = LENGTH.unpack(header)
        request = decoder.decode(calls.read(length))
        answers.write(frame(_answer_in(request.folder, request)))
        answers.flush()


def main() -> None:
    """Keep the two pipes for ourselves: what is called finds no input, and its output goes to files."""
    calls, answers = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    with os.fdopen(calls, "rb") as incoming, os.fdopen(answers, "wb") as outgoing:
        serve(incoming, outgoing)


if __name__ == "__main__":
    main()
