"""Digests of the tables and pages of a results folder, in its file `SHA256SUMS`.

The file is removed before one of the others is written, and made again when all are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

from volery.core.errors import DamagedError
from volery.report.schema import SUMS

_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^/\n]+)")
_FILES: Final = ("*.parquet", "*.html")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_sums(folder: Path) -> None:
    """Remove the digests of a folder, a file of which is about to be written."""
    (folder / SUMS).unlink(missing_ok=True)


def sums_of(folder: Path) -> str:
    """The lines for all tables and pages of a folder, as the program sha256sum prints them."""
    paths = sorted(path for pattern in _FILES for path in folder.glob(pattern))
    return "".join(f"{file_digest(path)}  {path.name}\n" for path in paths)


def recorded_sums(folder: Path) -> dict[str, str]:
    """The digests in a folder's `SHA256SUMS`, by file name; empty where there is none.

    Raises:
        DamagedError: A line has no digest with the name of a file.
    """
    path = folder / SUMS

    try:
        lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}

    sums = {}
    for number, line in enumerate(lines, 1):
        words = _LINE.fullmatch(line)
        if words is None:
            raise DamagedError(f"{path}:{number}", "is damaged: it is no digest with the name of a file")
        sums[words[2]] = words[1]
    return sums


def demand_digest(path: Path) -> None:
    """Refuse a table that has another digest than when it was written; one without a recorded digest is taken.

    Raises:
        DamagedError: it has, or `SHA256SUMS` is damaged.
        OSError: it cannot be read.
    """
    recorded = recorded_sums(path.parent).get(path.name)
    if recorded is None:
        return
    state = path.stat()
    if _digest_of_state(path, state.st_mtime_ns, state.st_size, state.st_ino) != recorded:
        raise DamagedError(str(path), f"is damaged: its digest is another than in {SUMS}")


@lru_cache(maxsize=64)
def _digest_of_state(path: Path, _mtime_ns: int, _size: int, _inode: int) -> str:
    return file_digest(path)


def damaged_files(folder: Path) -> Iterator[DamagedError]:
    """The files of a folder that are missing, cannot be read, or have another digest than in `SHA256SUMS`.

    Raises:
        DamagedError: that file itself is damaged.
    """
    for name, recorded in recorded_sums(folder).items():
        path = folder / name
        try:
            if file_digest(path) != recorded:
                yield DamagedError(str(path), f"is damaged: its digest is another than in {SUMS}")
        except FileNotFoundError:
            yield DamagedError(str(path), f"is missing, but {SUMS} names it")
        except OSError as error:
            yield DamagedError(str(path), f"cannot be read: {error.strerror}")
