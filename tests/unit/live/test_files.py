"""A lock that no other account can hold; a file is replaced as a whole, or not at all."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

import pytest

from volery.live.files import AppendedFile, opened_lock, replacing


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


def test_a_file_is_replaced_as_a_whole_and_no_other_account_can_read_it(tmp_path: Path) -> None:
    path = tmp_path / "host"
    path.write_text("1\n")
    with replacing(path) as file:
        file.write(b"2\n")
        assert path.read_text() == "1\n", "until it is complete"
    assert path.read_text() == "2\n"
    assert path.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_stays_where_the_new_one_could_not_be_written(tmp_path: Path) -> None:
    path = tmp_path / "host"
    path.write_text("1\n")

    def write() -> None:
        with replacing(path) as file:
            file.write(b"2")
            raise OSError("the disk is full")

    with pytest.raises(OSError, match="disk is full"):
        write()
    assert path.read_text() == "1\n"


@pytest.mark.parametrize("room", [0, 1, 7, 8, 9, 15])
def test_a_file_that_met_a_full_disk_holds_all_in_order_once_there_is_room(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, room: int
) -> None:
    """A disk takes a part of a record before it is full; what comes later must follow the rest of it."""
    path, whole, left = tmp_path / "journal", os.write, room

    def short(file: int, content: bytes) -> int:
        nonlocal left
        if not left:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        written = whole(file, bytes(content[:left]))
        left -= written
        return written

    file = AppendedFile(os.open(path, os.O_WRONLY | os.O_CREAT))
    monkeypatch.setattr(os, "write", short)
    for record in (b"record 1", b"record 2", b"record 3"):
        file.write(record)
        with suppress(OSError):
            file.flush()
    assert path.read_bytes() == b"record 1record 2record 3"[:room]
    left = 100
    file.close()
    assert path.read_bytes() == b"record 1record 2record 3"
