"""Standard output and error of commands: a disk that is full, a reader that is gone, a terminal without UTF-8."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from volery.core.errors import InputError

STANDARD_OUTPUT: Final = "standard output"
_NAMES: Final = ("stdin", "stdout", "stderr")


class PipeClosedError(Exception):
    """The reader of the output has stopped."""


class _Descriptor(io.FileIO):
    """A standard stream; its first failure is raised, and what is written after that is dropped.

    Args:
        is_output: it holds answers; of messages no failure is raised.
        is_closed: whoever has started the command has closed it.
    """

    def __init__(self, number: int, *, is_output: bool, is_closed: bool) -> None:
        super().__init__(number, "w", closefd=False)
        self._is_output = is_output
        self._is_closed = is_closed
        self._has_failed = False

    def write(self, content: Any, /) -> int:
        size = memoryview(content).nbytes
        # The first failure is told once; what is written to a closed standard error has no reader.
        if self._has_failed or (self._is_closed and not self._is_output):
            return size
        if not self._is_closed:
            try:
                return super().write(content)
            except BrokenPipeError:
                problem = None
            except OSError as error:
                problem = f"cannot be written: {error.strerror}; make room, or send it elsewhere"
        else:
            problem = "is closed; send it to a file, or to /dev/null"

        self._has_failed = True
        if not self._is_output:
            return size
        if problem is None:
            raise PipeClosedError
        raise InputError(STANDARD_OUTPUT, problem)


class _AsciiWriter(io.TextIOWrapper):
    """The text of a stream without UTF-8: characters beyond ASCII are replaced, as no terminal shows them all."""

    def write(self, text: str, /) -> int:
        return super().write(text.encode("ascii", "replace").decode())


@contextmanager
def guarded_streams() -> Iterator[None]:
    """Write both streams so that they fail in words, and replace characters that a terminal does not have.

    The streams of a test stay as they are.

    Raises:
        InputError: the output could not be written, at the latest at the end.
        PipeClosedError: the reader of the output has stopped.
    """
    closed = _filled()
    streams_before = sys.stdout, sys.stderr

    for number, name in ((1, "stdout"), (2, "stderr")):
        stream = getattr(sys, name)
        if number in closed or (stream is not None and stream is getattr(sys, f"__{name}__")):
            setattr(sys, name, _guarded(number, stream, number in closed))

    try:
        yield
    finally:
        try:
            if sys.stdout is not None:
                sys.stdout.flush()
        finally:
            sys.stdout, sys.stderr = streams_before


def _filled() -> set[int]:
    """Open the null device in place of standard streams that are closed, before a file or a socket takes their number.

    Returns:
        The descriptors that were closed.
    """
    closed = set[int]()
    for number in range(len(_NAMES)):
        try:
            os.fstat(number)
        except OSError:
            closed.add(number)
            null = os.open(os.devnull, os.O_RDWR)
            if null != number:
                os.dup2(null, number)
                os.close(null)
            os.set_inheritable(number, True)

    return closed


def _guarded(number: int, stream: Any, is_closed: bool) -> io.TextIOWrapper:
    descriptor = _Descriptor(number, is_output=number == 1, is_closed=is_closed)
    errors = "backslashreplace" if number == 2 else "replace"
    is_drawn = number == 2 or (not is_closed and os.isatty(number))
    encoding = stream.encoding if stream is not None else "utf-8"
    if encoding.lower().startswith("utf"):
        return io.TextIOWrapper(io.BufferedWriter(descriptor), encoding, errors, line_buffering=is_drawn)
    # Under the name of ASCII, click takes the encoding for a mistake and writes UTF-8 all the same.
    return _AsciiWriter(io.BufferedWriter(descriptor), "latin-1", errors, line_buffering=is_drawn)
