"""Integrity of files on disk: seals of JSON files, digests of tables and pages, and what `volery check` lists.

A sealed JSON file ends with its own digest: that of all bytes before the last member. A file of an earlier version has
none, and is read as it is; so is one whose last member a person has removed, together with the comma before it.

The digests of tables and pages of a results folder are in its file `SHA256SUMS`. It is removed before one of the others
is written, and made again when all are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import DamagedError, InputError

_SEAL: Final = re.compile(rb',\n  "sha256": "([0-9a-f]{64})"\n}\n\Z')


def sealed(text: bytes) -> bytes:
    """An indented JSON document with its digest as the last member; one that is no object, or empty, as it is."""
    content = text.rstrip()
    if not content.endswith(b"\n}"):
        return text
    content = content[: -len(b"\n}")]
    return content + f',\n  "sha256": "{hashlib.sha256(content).hexdigest()}"\n}}\n'.encode()


def unsealed(text: bytes, path: Path) -> bytes:
    """The document in a JSON file without its digest.

    Raises:
        DamagedError: it has another digest.
    """
    seal = _SEAL.search(text)
    if seal is None:
        return text
    content = text[: seal.start()]
    if hashlib.sha256(content).hexdigest() != seal[1].decode():
        raise DamagedError(str(path), "is damaged: it no longer has the digest that its last line names")
    return content + b"\n}\n"


def has_seal(text: bytes) -> bool:
    """True if a JSON file ends with a digest."""
    return _SEAL.search(text) is not None


SUMS: Final = "SHA256SUMS"
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


class CheckedFile(msgspec.Struct, frozen=True):
    """A file that was compared with its checksums.

    Args:
        damages: Damages, each with its place; empty where there is none.
        note: Remark about a file that is whole as far as is known, for example that a crash has left its last record
            torn.
    """

    path: str
    damages: tuple[str, ...] = ()
    note: str = ""


def checked(path: Path, check: Callable[[Path], str | Iterable[str]]) -> CheckedFile:
    """Compare a file with its checksums.

    Args:
        check: Returns a note, or the damages; an `InputError` or `OSError` of it is a damage.
    """
    try:
        outcome = check(path)
        if isinstance(outcome, str):
            return CheckedFile(str(path), (), outcome)
        return CheckedFile(str(path), tuple(outcome))
    except OSError as error:
        return CheckedFile(str(path), (f"cannot be read: {error.strerror}",))
    except InputError as error:
        # The line of a damage names the file already.
        return CheckedFile(str(path), (error.problem if error.place == str(path) else str(error),))
