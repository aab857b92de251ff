"""Persistent incarnation number of a host: it is incremented and fsynced before the host sends anything."""

from __future__ import annotations

import fcntl
import os
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from volery.core.errors import InputError
from volery.live.files import opened_lock, replacing
from volery.live.runtime.journal import journalled_incarnation


@contextmanager
def host_lock(folder: Path, host: str) -> Iterator[None]:
    """Hold the lock of a host in a folder; the kernel releases it when the process ends.

    Raises:
        InputError: another process holds it, or it cannot be written.
    """
    path = folder / "lives" / f"{host}.lock"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        file = opened_lock(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}") from None
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            holder = os.read(file, 20).decode(errors="replace").strip()
            problem = f"process {holder or '?'} runs this host already; stop it, or give this one another folder"
            raise InputError(f"host {host} in {folder}", problem) from None
        except OSError as error:
            raise InputError(str(path), f"cannot be locked: {error.strerror}; use a file system with locks") from None
        # The number is for the message above alone; the kernel's lock decides.
        os.ftruncate(file, 0)
        os.write(file, f"{os.getpid()}\n".encode())
        yield
    finally:
        os.close(file)


def stored_incarnation(path: Path) -> int:
    """The number in a host's file; one that a person has written has no checksum.

    Raises:
        InputError: it is none, or has another checksum.
        OSError: the file cannot be read.
    """
    number, *checksum = path.read_bytes().split()[:2] or [b""]
    if number.isdigit() and (not checksum or checksum == [_checksum(number)]):
        return int(number)
    problem = "is damaged, or holds no number; write that of the host's last incarnation, or more, and nothing else"
    raise InputError(str(path), problem)


def _checksum(number: bytes) -> bytes:
    return b"%08x" % zlib.crc32(number)


def next_incarnation(folder: Path, host: str) -> int:
    """One more than the last incarnation of a host whose federation keeps its things in a folder; 1 for the first.

    Raises:
        InputError: what is written there is no number.
    """
    path = folder / "lives" / host
    try:
        number = stored_incarnation(path) if path.exists() else 0
        # The file may be lost or older than its folder: an incarnation that has a journal was used.
        return max(number + 1, journalled_incarnation(folder / "journal", host))
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None


def persist_incarnation(folder: Path, host: str, incarnation: int) -> None:
    """Store the number of an incarnation that begins.

    Raises:
        InputError: it cannot be written.
    """
    path = folder / "lives" / host
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as file:
            number = str(incarnation).encode()
            file.write(number + b" " + _checksum(number) + b"\n")
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror}") from None
