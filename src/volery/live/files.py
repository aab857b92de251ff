"""Files that a process locks so that no other uses the same folder."""

from __future__ import annotations

import os
from pathlib import Path


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
