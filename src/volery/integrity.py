"""Integrity of files on disk: seals of JSON files, and checksums, as `volery check` lists them.

A sealed JSON file ends with its own digest: that of all bytes before the last member. A file of an earlier version has
none, and is read as it is; so is one whose last member a person has removed, together with the comma before it.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable
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
