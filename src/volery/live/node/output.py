"""Output of tasks as files of this host: what may be opened, and nothing else.

A folder's name comes from a node's report and a file's content from a task, which may have put a link in its place.
So a name counts only where it is ROOT/JOB/TASK.ATTEMPT, and no step on the way there follows a link.
"""

from __future__ import annotations

import asyncio
import os
import re
import stat
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from volery.live.messages import OutputReply, OutputRequest

BLOCK_BYTES: Final = 1 << 16
OUTPUT_BYTES_MAX: Final = 64 << 20
"""What one request is served; another one with an offset gets what follows."""
STREAMS: Final = ("stdout", "stderr")
_FOLDER: Final = re.compile(r"([0-9]{1,18})/([0-9]{1,18}\.[0-9]{1,18})")
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_output(root: Path, folder: str, stream: str) -> int | None:
    """A descriptor of a task's output; None where this host has no such file.

    Args:
        root: of the folders of attempts, resolved.
        folder: of the attempt, as its node has reported it.
        stream: one of `STREAMS`.
    """
    if stream not in STREAMS:
        return None
    found = _FOLDER.fullmatch(folder.removeprefix(f"{root}/"))
    if found is None:
        return None
    opened: list[int] = []
    try:
        with suppress(OSError):
            opened.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))
            for name in found.groups():
                opened.append(os.open(name, _DIRECTORY, dir_fd=opened[-1]))
            file = os.open(stream, _FILE, dir_fd=opened[-1])
            if stat.S_ISREG(os.fstat(file).st_mode):
                return file
            os.close(file)
        return None
    finally:
        for descriptor in opened:
            os.close(descriptor)


def kept_from(descriptor: int) -> int:
    """The offset from which an output is kept; what was written before was dropped (see `rotation`)."""
    try:
        return os.lseek(descriptor, 0, os.SEEK_DATA)
    except OSError:  # nothing is in it, or its file system has no holes
        return 0


class Extent(NamedTuple):
    """The size of an output, and the offset from which it is kept."""

    size: int
    kept: int


def extent(descriptor: int) -> Extent:
    return Extent(os.fstat(descriptor).st_size, kept_from(descriptor))


class OutputPiece(NamedTuple):
    """A piece of an output between two offsets, and the bytes that the output has now."""

    start: int
    end: int
    size: int


def piece_from(there: Extent, offset: int) -> OutputPiece:
    """The piece of an output from an offset on; later output is left for the next request."""
    size, kept = there
    start = max(offset, kept)
    return OutputPiece(start, max(start, min(size, start + OUTPUT_BYTES_MAX)), size)


def piece_in(there: Extent, wanted: str) -> OutputPiece | None:
    """The piece that the header Range asks for, without dropped bytes (RFC 9110, 14.1.2); None: there is nothing of it.

    Raises:
        ValueError: it is not one range of bytes.
    """
    found = _RANGE.fullmatch(wanted.strip())
    if found is None or not (found[1] or found[2]):
        raise ValueError(wanted)
    size, kept = there
    first = int(found[1]) if found[1] else max(size - int(found[2]), 0)
    end = min(int(found[2]) + 1, size) if found[1] and found[2] else size
    start = max(first, kept)
    return OutputPiece(start, min(end, start + OUTPUT_BYTES_MAX), size) if start < end else None


async def blocks(descriptor: int, start: int, end: int) -> AsyncIterator[bytes]:
    """The content of a file between two offsets, in pieces; then the file is closed."""
    with os.fdopen(descriptor, "rb") as file:
        offset, left = start, end - start
        file.seek(offset)
        while left > 0 and (block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, left))):
            left -= len(block)
            yield block


PIECE_BYTES_MAX: Final = 256 << 10
"""Of one answer: a quarter of what the broker takes in one message."""
READS_MAX: Final = 8
"""At a time on one host; further requests are answered with "busy"."""


class OutputReader:
    """Reads outputs of this host for the submitter.

    Args:
        root: the folder of the folders of attempts.
    """

    def __init__(self, root: Path, send: Callable[[OutputReply], None]) -> None:
        self._root = root
        self._send = send
        self._reading: set[asyncio.Task[None]] = set()

    def asked(self, question: OutputRequest) -> None:
        """Read in a thread, and answer."""
        if len(self._reading) >= READS_MAX:
            self._send(OutputReply(question.number, "busy"))
            return
        reading = asyncio.get_running_loop().create_task(self._answer(question))
        self._reading.add(reading)
        reading.add_done_callback(self._reading.discard)

    async def _answer(self, question: OutputRequest) -> None:
        self._send(await asyncio.to_thread(read, self._root, question))


def read(root: Path, question: OutputRequest) -> OutputReply:
    file = open_output(root, question.folder, question.stream)
    if file is None:
        return OutputReply(question.number, "not here")
    try:
        there = extent(file)
        limit = max(0, min(question.limit, PIECE_BYTES_MAX))
        piece = os.pread(file, limit, max(0, question.offset))
    except OSError:
        return OutputReply(question.number, "not here")
    finally:
        os.close(file)
    return OutputReply(question.number, "here", there.size, there.kept, piece)
