"""A worker process of the call executor: reads calls from a socket and answers them, one after the other.

python -m volery.live.node.worker, with the socket as its standard input; it ends when the socket does.

The called code may do anything to this process. An answer carries the number of its request, and is sent by this
process alone: a copy of it that a call has forked, and that comes back here, ends. The socket has a high number, which
code that closes "all" descriptors seldom reaches. `ProcessState` brings back what a call has changed, or gives the
reason why no further call can be made here.
"""

from __future__ import annotations

import fcntl
import gc
import os
import pickle
import resource
import signal
import struct
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from contextvars import copy_context
from typing import Any, Final, NoReturn

import msgspec

from volery.live.command import WORK, Raised
from volery.live.node.process_state import ProcessState, place, stop_timers
from volery.live.pickles import dumps

READY: Final = b"R"
"""The first bytes that a worker sends: from then on it takes calls."""
HEADER: Final = struct.Struct("<4sQI")
"""The header of a frame: `MAGIC`, the number of the request, and the length of the content."""
MAGIC: Final = b"VOLE"
RESULT_BYTES_MAX: Final = 512 * 1024
"""Largest result: results travel through the broker and the store of jobs; what is larger belongs into a file."""
TRACEBACK_MAX: Final = 20_000
"""Characters of a traceback that are kept, the last ones."""
REASON_MAX: Final = 2_000
"""Characters of a reason that are kept, the first ones."""
ANSWER_BYTES_MAX: Final = RESULT_BYTES_MAX + 64 * 1024
UNANSWERED: Final = 113
"""The exit code of a worker that cannot send its answer."""
_DESCRIPTOR_MAX: Final = 4_096
_DESCRIPTORS_ABOVE: Final = 16
_pid: Final = os.getpid
_enable, _disable, _collect = gc.enable, gc.disable, gc.collect
"""The functions as they were imported, since a call may replace them."""
_YOUNG: Final = 1
"""Generations of objects up to this one are collected after each call: collecting all takes longer than a call."""


class CallRequest(msgspec.Struct, frozen=True, array_like=True):
    """One call and the limits of its process.

    Args:
        pickled: pickled function and arguments.
        folder: folder of its attempt, for its output and its working folder.
        memory_mb: memory that this process may have meanwhile, in units of 2^20 bytes; 0: no limit.
        cpus: processors that it may run on meanwhile; none given: any.
    """

    pickled: bytes
    folder: str
    environment: dict[str, str]
    memory_mb: int = 0
    cpus: tuple[int, ...] = ()


class CallAnswer(msgspec.Struct, frozen=True, array_like=True):
    """The end of a call.

    Args:
        result: the pickled value, or the pickled exception where there is a reason.
        reason: reason why the call has failed.
        changed: lasting change of the process by the call, after which it makes no further call; empty: none.
        grown_mb: memory that the process has got since its start.
        begun: true if anything was called; else the reason is this process's own.
        lack: number of the operating system's error for which nothing was called; 0: it was none of those.
    """

    result: bytes
    reason: str = ""
    changed: str = ""
    grown_mb: int = 0
    begun: bool = True
    lack: int = 0


def frame(number: int, content: CallRequest | CallAnswer) -> bytes:
    """Header and content, ready to be written."""
    encoded_content = msgspec.msgpack.encode(content)
    return HEADER.pack(MAGIC, number, len(encoded_content)) + encoded_content


def answer(request: CallRequest) -> CallAnswer:
    """Make the call; whatever it raises is part of the answer. A process that the call has forked ends here."""
    own_pid = _pid()
    try:
        function, arguments, keywords = pickle.loads(request.pickled)  # noqa: S301 - running users' code is the purpose

        # The call runs with the collector as in any program; between calls it is off (see `serve`).
        was_enabled = gc.isenabled()
        _enable()
        try:
            value = copy_context().run(function, *arguments, **keywords)
        finally:
            (_enable if was_enabled else _disable)()
            stop_timers()

        result = dumps(value)
    except BaseException as error:  # SystemExit and KeyboardInterrupt are answers, too
        with suppress(BaseException):  # its standard error may be anything
            traceback.print_exc()
        if _pid() != own_pid:
            _end_copy(1)
        return CallAnswer(_pickled_error(error), _text(error))

    if _pid() != own_pid:
        _end_copy(0)

    if len(result) > RESULT_BYTES_MAX:
        problem = f"the result has {len(result)} bytes pickled, of at most {RESULT_BYTES_MAX}; write it to a file"
        return CallAnswer(_pickled_error(ValueError(problem)), problem)

    return CallAnswer(result)


def _end_copy(code: int) -> NoReturn:
    _flush()
    os._exit(code)


def _flush() -> None:
    """Write what the called code has printed; its streams may be of any kind, or closed."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(BaseException):
            stream.flush()


def _readable_text(error: BaseException) -> tuple[str, bool]:
    """The text of an exception, and whether it can be read."""
    try:
        return str(error)[:REASON_MAX], True
    except BaseException as problem:
        return f"its text cannot be read: {type(problem).__name__}", False


def _text(error: BaseException) -> str:
    """Class and text of an exception; what no UTF-8 has, as of a file's name that is not text, is escaped."""
    text = f"{type(error).__name__}: {_readable_text(error)[0]}"[:REASON_MAX]
    return text.encode(errors="backslashreplace").decode()


def _pickled_error(error: BaseException) -> bytes:
    """The exception with its traceback, pickled; where that would be of no use, its class is described."""
    call_traceback = error.__traceback__.tb_next if error.__traceback__ is not None else None

    text = _text(error)
    with suppress(BaseException):  # what it holds may be anything
        text = "".join(traceback.format_exception(type(error), error, call_traceback))[-TRACEBACK_MAX:]

    traceback.clear_frames(call_traceback)  # what they hold may be all the memory that there is

    message, can_be_read = _readable_text(error)

    pickled = b""
    if can_be_read:
        with suppress(BaseException):
            candidate = dumps(error)
            pickle.loads(candidate)  # noqa: S301 - our own bytes: many exceptions pickle but do not come back
            pickled = candidate

    wrapped = dumps(Raised(error, pickled, message, text))
    return wrapped if len(wrapped) <= RESULT_BYTES_MAX else dumps(Raised(error, b"", message, text))


def _begin(request: CallRequest) -> None:
    """Make what belongs into the attempt's folder; have what is printed go there, and work there."""
    place(0, os.devnull, os.O_RDONLY)
    os.chdir(request.folder)
    for descriptor, name in ((1, "stdout"), (2, "stderr")):
        place(descriptor, name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND)
    os.mkdir(WORK)  # noqa: PTH102 - each call waits for it
    os.chdir(WORK)
    os.environ.update(request.environment)


def _answer_in(request: CallRequest, state: ProcessState) -> CallAnswer:
    """Make the call in its attempt's folder, and bring this process back to what it was."""
    own_pid = _pid()
    try:
        _begin(request)
    except Exception as error:  # an earlier call may have put anything in the place of what it needs
        lack = (error.errno or 0) if isinstance(error, OSError) else 0
        return CallAnswer(b"", f"one could not begin a call: {_text(error)}", begun=False, lack=lack)

    with _limited(request.memory_mb, request.cpus):
        call_answer = answer(request)

    try:
        _collect(_YOUNG)  # a finalizer may fork, or do anything else: now, and not in the next call
        if _pid() != own_pid:
            os._exit(0)
        _flush()
        changed = state.restore()
    except BaseException as error:  # whatever the call has left, it has its result
        changed = f"it cannot be brought back: {_text(error)}"

    return msgspec.structs.replace(call_answer, changed=changed, grown_mb=state.grown_mb)


@contextmanager
def _limited(memory_mb: int, cpus: Iterable[int]) -> Iterator[None]:
    """Limit this process, and what it starts; an account may always lower its own limits."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)

    if memory_mb:
        resource.setrlimit(resource.RLIMIT_DATA, (memory_mb << 20, hard))

    if cpus:
        os.sched_setaffinity(0, cpus)

    try:
        yield
    finally:
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))


class CallSocket:
    """The end of the socket in this process, checked before each answer: calls may close and open descriptors."""

    def __init__(self, inherited: int) -> None:
        self._pid = _pid()
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        limit = _DESCRIPTOR_MAX if soft == resource.RLIM_INFINITY else min(soft, _DESCRIPTOR_MAX)
        self._descriptor = fcntl.fcntl(inherited, fcntl.F_DUPFD_CLOEXEC, max(limit - _DESCRIPTORS_ABOVE, 3))
        self._identity = self._file_identity()

    def _file_identity(self) -> tuple[int, int]:
        status = os.fstat(self._descriptor)
        return status.st_dev, status.st_ino

    def read(self, byte_count: int) -> bytes:
        """Read so many bytes, or fewer where the other end is closed."""
        content = bytearray()
        while len(content) < byte_count and (piece := os.read(self._descriptor, byte_count - len(content))):
            content += piece
        return bytes(content)

    def write(self, content: bytes) -> None:
        """Write all of it; a copy of this process ends instead, wherever in its call it was forked.

        Raises:
            OSError: a call has closed the descriptor, or opened something else there.
        """
        if _pid() != self._pid:
            _end_copy(0)
        if self._file_identity() != self._identity:
            raise OSError("its descriptor is another file now")

        remaining = memoryview(content)
        while remaining:
            remaining = remaining[os.write(self._descriptor, remaining) :]


def serve(calls: CallSocket) -> None:
    """Answer calls until there are no more."""
    decoder: Any = msgspec.msgpack.Decoder(CallRequest)
    _disable()  # between calls: a copy of this process that a finalizer forks there would read the next request
    state = ProcessState()

    calls.write(READY)

    while len(header := calls.read(HEADER.size)) == HEADER.size:
        _, number, length = HEADER.unpack(header)
        request = decoder.decode(calls.read(length))

        try:
            calls.write(frame(number, _answer_in(request, state)))
        except BaseException:  # nothing of this process can be relied on
            with suppress(BaseException):
                traceback.print_exc()
                _flush()
            os._exit(UNANSWERED)


def main() -> None:
    """Keep the socket for ourselves: what is called finds no input, and its output goes to files."""
    # A shell has its background jobs ignore it, and so would this process, whose agent may be one.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    calls = CallSocket(0)
    place(0, os.devnull, os.O_RDONLY)
    place(1, os.devnull, os.O_WRONLY)
    serve(calls)


if __name__ == "__main__":
    main()
