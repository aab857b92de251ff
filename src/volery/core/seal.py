"""Seals: a JSON file of this program ends with its own digest.

The digest is that of all bytes before the last member. A file of an earlier version has none, and is read as it is; so
is one whose last member a person has removed, together with the comma before it.
"""

from __future__ import annotations

import hashlib
import re
from pathlib import Path
from typing import Final

from volery.core.errors import DamagedError

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
