"""Files of live processes: locked, so that no other process uses the same folder, and replaced as a whole."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final


class AppendedFile:
    """A file that is written at its end, and loses nothing where the disk is full for a while.

    Args:
        descriptor: descriptor of the file, which is closed with the object.
    """

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._unwritten = bytearray()

    def write(self, content: bytes) -> None:
        """Note what `flush` is to write."""
        self._unwritten += content

    @property
    def unwritten_bytes(self) -> int:
        return len(self._unwritten)

    def flush(self) -> None:
        """Write all that is unwritten.

        Raises:
            OSError: a part could not be written; another call goes on where this one has ended.
        """
        while self._unwritten:
            del self._unwritten[: os.write(self._descriptor, self._unwritten)]

    def fileno(self) -> int:
        return self._descriptor

    def close(self) -> None:
        """Write what can be written, and close the file.

        Raises:
            OSError: a part could not be written.
        """
        try:
            self.flush()
        finally:
            os.close(self._descriptor)


UNFINISHED: Final = ".new"
"""The suffix of a file that will replace another."""


def opened_lock(path: Path) -> int:
    """Open a file to be locked, which no other account can open; a lock can be held by whoever can read its file.

    Returns:
        Its descriptor, which no child inherits.

    Raises:
        OSError: it cannot be opened.
    """
    lock = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600)
    try:
        os.fchmod(lock, 0o600)  # earlier versions let everybody read it
    except OSError:
        os.close(lock)
        raise
    return lock


def file_identity(file: Path | int) -> tuple[int, int] | None:
    """The device and the number of a file, by its path or a descriptor; None where there is none."""
    try:
        status = os.stat(file)  # noqa: PTH116 - of a descriptor, too
    except OSError:
        return None
    return status.st_dev, status.st_ino


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a new version of a file, which no other account can read; it replaces the old one when the context ends.

    The disk has it then. Until it is complete, and when something fails, the old one stays.

    Raises:
        OSError: it cannot be written.
    """
    new_path = path.with_suffix(UNFINISHED)
    descriptor = os.open(new_path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())
    new_path.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Have the names of a folder's files on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
