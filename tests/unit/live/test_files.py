"""A lock of a federation that no other account can hold."""

from __future__ import annotations

import os
from pathlib import Path

from volery.live.files import opened_lock


def test_a_lock_that_others_could_hold_is_closed_to_them(tmp_path: Path) -> None:
    """Tasks of other accounts could keep a host from starting again by holding its lock."""
    path = tmp_path / "lock"
    path.touch()
    path.chmod(0o644)
    opened = opened_lock(path)
    try:
        assert path.stat().st_mode & 0o777 == 0o600
        assert not os.get_inheritable(opened)
    finally:
        os.close(opened)
