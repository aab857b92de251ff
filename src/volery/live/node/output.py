"""Output of tasks as files of this host: what may be opened, and how much is kept.

A folder's name comes from a node's report and a file's content from a task, which may have put a link in its place.
So a name counts only where it is ROOT/JOB/TASK.ATTEMPT, and no step on the way there follows a link.

A task writes straight into its files, always at their end. Where a file has grown beyond its bound, the blocks of its
oldest part are given back to the file system (a hole), and a line marks the place where the rest begins. Sizes and
offsets stay what they were, so that readers that follow an output need not change.
"""

from __future__ import annotations

import asyncio
import ctypes
import errno
import logging
import os
import re
import shutil
import stat
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from volery.live.clock import in_background
from volery.live.command import WORK
from volery.live.config.limits import OutputLimits
from volery.live.messages import OutputReply, OutputRequest

BLOCK_BYTES: Final = 1 << 16
OUTPUT_BYTES_MAX: Final = 64 << 20
"""Most bytes that one request is served; another one with an offset gets what follows."""
STREAMS: Final = ("stdout", "stderr")
_FOLDER: Final = re.compile(r"([0-9]{1,18})/([0-9]{1,18}\.[0-9]{1,18})")
_RANGE: Final = re.compile(r"bytes=([0-9]{0,18})-([0-9]{0,18})")
_DIRECTORY: Final = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_WRITE: Final = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
_FILE: Final = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_output(root: Path, folder: str, stream: str) -> int | None:
    """A descriptor of a task's output, which is empty where nothing was made yet; None where no such folder is here.

    Args:
        root: folder of the folders of attempts, resolved.
        folder: folder of the attempt, as its node has reported it.
        stream: one of `STREAMS`.
    """
    if stream not in STREAMS:
        return None

    match = _FOLDER.fullmatch(folder.removeprefix(f"{root}/"))
    if match is None:
        return None

    descriptors: list[int] = []
    try:
        with suppress(OSError):
            descriptors.append(os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))

            # Step by step, each by the descriptor of the one before: no name on the way can be made a link meanwhile.
            for name in match.groups():
                descriptors.append(os.open(name, _DIRECTORY, dir_fd=descriptors[-1]))

            try:
                file = os.open(stream, _FILE, dir_fd=descriptors[-1])
            except FileNotFoundError:  # the worker of a call that has just begun has not made it yet
                file = os.memfd_create(stream)

            if stat.S_ISREG(os.fstat(file).st_mode):
                return file

            os.close(file)
        return None
    finally:
        for descriptor in descriptors:
            os.close(descriptor)


def opened_outputs(folder: Path) -> list[int]:
    """Descriptors of the new, empty output of an attempt, in order of `STREAMS`.

    Raises:
        OSError: a file cannot be made; then none is open.
    """
    descriptors: list[int] = []
    try:
        for name in STREAMS:
            descriptors.append(os.open(folder / name, _WRITE, 0o644))  # noqa: PERF401 - what was opened gets closed
    except OSError:
        for descriptor in descriptors:
            os.close(descriptor)
        raise
    return descriptors


def input_file(content: bytes, path: Path | None) -> int:
    """A new file with this content, open for reading; in memory, where nobody has to find it under a path."""
    if path is None:
        memory = os.memfd_create("stdin")
        try:
            with os.fdopen(memory, "wb", closefd=False) as file:
                file.write(content)
            os.lseek(memory, 0, os.SEEK_SET)
        except OSError:
            os.close(memory)
            raise

        return memory

    with os.fdopen(os.open(path, _WRITE, 0o600), "wb") as file:
        file.write(content)

    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW)


def kept_from(descriptor: int) -> int:
    """The offset from which an output is kept; what was written before was dropped."""
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


def piece_from(output: Extent, offset: int) -> OutputPiece:
    """The piece of an output from an offset on; later output is left for the next request."""
    size, kept_offset = output
    start = max(offset, kept_offset)
    return OutputPiece(start, max(start, min(size, start + OUTPUT_BYTES_MAX)), size)


def piece_in(output: Extent, range_header: str) -> OutputPiece | None:
    """The piece that the header Range asks for, without dropped bytes (RFC 9110, 14.1.2); None: there is nothing of it.

    Raises:
        ValueError: it is not one range of bytes.
    """
    match = _RANGE.fullmatch(range_header.strip())
    if match is None or not (match[1] or match[2]):
        raise ValueError(range_header)

    size, kept_offset = output
    first = int(match[1]) if match[1] else max(size - int(match[2]), 0)
    end = min(int(match[2]) + 1, size) if match[1] and match[2] else size
    start = max(first, kept_offset)
    return OutputPiece(start, min(end, start + OUTPUT_BYTES_MAX), size) if start < end else None


async def blocks(descriptor: int, start: int, end: int) -> AsyncIterator[bytes]:
    """The content of a file between two offsets, in pieces; then the file is closed."""
    with os.fdopen(descriptor, "rb") as file:
        offset = start
        remaining = end - start
        file.seek(offset)
        while remaining > 0 and (block := await asyncio.to_thread(file.read, min(BLOCK_BYTES, remaining))):
            remaining -= len(block)
            yield block


PIECE_BYTES_MAX: Final = 256 << 10
"""Bytes of one answer: a quarter of what the broker takes in one message."""
READS_MAX: Final = 8
"""Reads at a time on one host; further requests are answered with "busy"."""


class OutputReader:
    """Reads outputs of this host for the submitter.

    Args:
        root: folder of the folders of attempts.
    """

    def __init__(self, root: Path, send: Callable[[OutputReply], None]) -> None:
        self._root = root
        self._send = send
        self._read_tasks: set[asyncio.Task[None]] = set()

    def asked(self, question: OutputRequest) -> None:
        """Read in a thread, and answer."""
        if len(self._read_tasks) >= READS_MAX:
            self._send(OutputReply(question.number, "busy"))
            return

        read_task = in_background(self._answer(question), f"the read of {question.folder}")
        self._read_tasks.add(read_task)
        read_task.add_done_callback(self._read_tasks.discard)

    async def _answer(self, question: OutputRequest) -> None:
        try:
            reply = await asyncio.to_thread(read, self._root, question)
        except RuntimeError:  # this process may have no further thread
            reply = OutputReply(question.number, "busy")
        self._send(reply)


def read(root: Path, question: OutputRequest) -> OutputReply:
    file = open_output(root, question.folder, question.stream)
    if file is None:
        return OutputReply(question.number, "not here")

    try:
        output = extent(file)
        limit = max(0, min(question.limit, PIECE_BYTES_MAX))
        piece = os.pread(file, limit, max(0, question.offset))
    except OSError:
        return OutputReply(question.number, "not here")
    finally:
        os.close(file)

    return OutputReply(question.number, "here", output.size, output.kept, piece)


MB: Final = 1 << 20
DAY_S: Final = 86_400.0
LOOK_S: Final = 2.0
"""Time between two checks of what running attempts have written."""
CLEAN_S: Final = 3600.0
"""Time between two searches for old folders."""
FRESH_S: Final = 2 * CLEAN_S
"""Time after its last use in which a folder may belong to an attempt that runs under another agent."""
HOLE_BYTES: Final = 1 << 16
"""Holes begin and end at multiples of it, as blocks of all common file systems do."""
SPARE_PARTS: Final = 8
"""Part of its bound, one in so many, by which an output may exceed it before it is cut."""
LINE_MAX: Final = 4096
_PUNCH_HOLE, _KEEP_SIZE = 2, 1
_OPEN: Final = os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_JOB: Final = re.compile(r"[0-9]{1,18}")
_ATTEMPT: Final = re.compile(r"[0-9]{1,18}\.[0-9]{1,18}")

log = logging.getLogger(__name__)


class OutputRotation:
    """Keeps the folders of attempts of one agent within limits.

    Args:
        root: folder of the folders of attempts.
    """

    def __init__(self, root: Path, policy: OutputLimits) -> None:
        self._root = root
        self._policy = policy
        self._user_of_folder: dict[str, int] = {}
        self._bound_timer: asyncio.TimerHandle | None = None
        self._clean_timer: asyncio.TimerHandle | None = None
        self._cleaner: asyncio.Future[int] | None = None

    def begin(self, folder: str, user: int) -> None:
        """Watch the folder of an attempt that writes as this user of the operating system."""
        self._user_of_folder[folder] = user
        if self._bound_timer is None and self._policy.stream_mb:
            self._bound_timer = asyncio.get_running_loop().call_later(LOOK_S, self._bound_all)
        if self._clean_timer is None and (self._policy.keep_days or self._policy.keep_mb):
            self._clean()

    def end(self, folder: str) -> None:
        user = self._user_of_folder.pop(folder, None)
        if user is not None:
            self._bound(folder, user)

    def _bound_all(self) -> None:
        self._bound_timer = None
        for folder, user in self._user_of_folder.items():
            self._bound(folder, user)
        if self._user_of_folder:
            self._bound_timer = asyncio.get_running_loop().call_later(LOOK_S, self._bound_all)

    def _bound(self, folder: str, user: int) -> None:
        keep = self._policy.stream_mb * MB
        for name in STREAMS if keep else ():
            path = f"{folder}/{name}"
            with suppress(OSError):
                if os.lstat(path).st_size > keep:
                    bound(path, user, keep)

    def _clean(self) -> None:
        """Look at old folders in a thread, and again in an hour."""
        loop = asyncio.get_running_loop()
        self._clean_timer = loop.call_later(CLEAN_S, self._clean)
        if self._cleaner is None or self._cleaner.done():
            running = frozenset(self._user_of_folder)
            try:
                self._cleaner = loop.run_in_executor(None, clean, self._root, self._policy, running)
            except RuntimeError as error:  # this process may have no further thread
                log.warning("old folders of attempts are looked at in an hour: %s", error)

    def close(self) -> None:
        for timer in (self._bound_timer, self._clean_timer):
            if timer is not None:
                timer.cancel()


def bound(path: str, user: int, keep: int) -> bool:
    """Remove the oldest part of an output; true if there was one.

    Args:
        path: path of the file; a file of another user, or with other links, is left alone: a task can put any there.
        user: user who writes it.
        keep: fewest bytes that stay.

    Raises:
        OSError: it cannot be opened.
    """
    file = os.open(path, _OPEN)
    try:
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode) or status.st_nlink != 1 or status.st_uid != user:
            return False

        end = (status.st_size - keep) // HOLE_BYTES * HOLE_BYTES
        if end <= 0 or end - kept_from(file) <= keep // SPARE_PARTS:
            return False

        _punch(file, end)
        mark = f"[volery: the first {end:,} bytes were dropped; the newest {keep // MB or 1:,} MB are kept]"
        os.pwrite(file, _line(mark.encode(), os.pread(file, LINE_MAX, end)), end)
        return True
    except OSError as error:
        if error.errno != errno.EOPNOTSUPP:
            raise
        log.warning("%s grows without bound: its file system cannot give back a part of a file", path)
        return False
    finally:
        os.close(file)


def _line(mark: bytes, content: bytes) -> bytes:
    """The line that marks a cut, padded to the bytes that it replaces."""
    end = content.find(b"\n", len(mark))
    return mark.ljust(end) + b"\n" if end >= 0 else mark + b"\n"


def _punch(file: int, end: int) -> None:
    """Release the blocks of a file up to an offset.

    Raises:
        OSError: the file system does not do that.
    """
    call = ctypes.CDLL(None, use_errno=True).fallocate
    if call(file, _PUNCH_HOLE | _KEEP_SIZE, ctypes.c_int64(0), ctypes.c_int64(end)):
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


class _OldFolder(NamedTuple):
    """A folder of an attempt that does not run: when it was last written, and its size on disk in bytes."""

    used_s: float
    path: str
    size: int


def clean(root: Path, policy: OutputLimits, running: frozenset[str] = frozenset(), fresh_s: float = FRESH_S) -> int:
    """Remove the folders of attempts that are too old, and the oldest of those that are too many.

    Args:
        root: folder of the folders of attempts.
        running: folders in use; they are marked as such for other agents.
        fresh_s: time after its last use in which a folder stays.

    Returns:
        The number of removed folders.
    """
    now = time.time()
    for folder in running:
        with suppress(OSError):
            os.utime(folder)

    folders = sorted(_folders(root, running, sizes=policy.keep_mb > 0))
    excess = sum(old_folder.size for old_folder in folders) - policy.keep_mb * MB if policy.keep_mb else 0
    oldest_s = now - policy.keep_days * DAY_S if policy.keep_days else float("-inf")

    removed = 0

    for old_folder in folders:
        if old_folder.used_s > now - fresh_s or (old_folder.used_s >= oldest_s and excess <= 0):
            break
        shutil.rmtree(old_folder.path, ignore_errors=True)
        excess -= old_folder.size
        removed += 1
        with suppress(OSError):
            os.rmdir(os.path.dirname(old_folder.path))  # noqa: PTH106, PTH120 - paths of a million folders are text here

    if removed:
        log.info("removed %d old folders of attempts in %s", removed, root)

    return removed


def _folders(root: Path, running: frozenset[str], sizes: bool) -> Iterator[_OldFolder]:
    for job in _directories(str(root), _JOB):
        for attempt in _directories(job, _ATTEMPT):
            if attempt not in running:
                yield _OldFolder(_used_s(attempt), attempt, _size(attempt) if sizes else 0)


def _directories(folder: str, named: re.Pattern[str]) -> Iterator[str]:
    with suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            if named.fullmatch(entry.name) and entry.is_dir(follow_symlinks=False):
                yield entry.path


def _used_s(attempt: str) -> float:
    """The time of the last write to an attempt's folders or output, seconds since 1970."""
    times = [0.0]
    for path in (attempt, *(f"{attempt}/{name}" for name in (*STREAMS, WORK))):
        with suppress(OSError):
            times.append(os.lstat(path).st_mtime)
    return max(times)


def _size(attempt: str) -> int:
    total = 0
    for folder, _, names in os.walk(attempt):
        for name in names:
            with suppress(OSError):
                total += os.lstat(f"{folder}/{name}").st_blocks * 512
    return total
