"""The write-ahead log of the store ends where SQLite ends it, and is damaged where complete changes follow."""

from __future__ import annotations

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from volery.core.errors import DamagedError
from volery.live.service.soundness import LogSoundness, log_soundness

FRAME_BYTES = 24 + 4096


class Logged:
    """A database with a log of which copies are made while it is written."""

    def __init__(self, folder: Path) -> None:
        self.path, self.copies = folder / "jobs.sqlite", folder / "copies"
        self.copies.mkdir()
        self._draw = random.Random(1)
        self.sql = sqlite3.connect(self.path, isolation_level=None)
        for words in ("journal_mode = WAL", "wal_autocheckpoint = 0", "cache_size = 4", "synchronous = OFF"):
            self.sql.execute(f"PRAGMA {words}")
        self.sql.execute("CREATE TABLE t (a INTEGER PRIMARY KEY, b BLOB)")
        self.add(3)

    def add(self, pages: int, end: str = "COMMIT") -> None:
        self.sql.execute("BEGIN")
        self.sql.executemany("INSERT INTO t (b) VALUES (?)", [(self._draw.randbytes(4000),) for _ in range(pages)])
        self.sql.execute(end)

    def copy(self) -> Path:
        """A copy as a crash leaves it; its log may be changed."""
        for name in ("jobs.sqlite", "jobs.sqlite-wal"):
            shutil.copy(self.path.with_name(name), self.copies / name)
        return self.copies / "jobs.sqlite-wal"

    def rows(self) -> tuple[int, LogSoundness]:
        """The rows that SQLite finds in the copy, and what we find in its log."""
        found = log_soundness(self.copies / "jobs.sqlite")
        with closing(sqlite3.connect(self.copies / "jobs.sqlite")) as sql:
            return sql.execute("SELECT count(*) FROM t").fetchone()[0], found


def replaced(log: Path, at: int, content: bytes) -> None:
    whole = log.read_bytes()
    log.write_bytes(whole[:at] + content + whole[at + len(content) :])


def test_a_crash_after_a_change_that_was_rolled_back_is_no_damage_of_the_log(tmp_path: Path) -> None:
    logged = Logged(tmp_path)
    logged.add(40, "ROLLBACK")  # it has been in the log for the most part
    log = logged.copy()
    left = (log.stat().st_size - 32) // FRAME_BYTES
    logged.add(1)
    logged.copy()
    rows, found = logged.rows()
    assert found.frames < left - 5, "frames of what was rolled back are behind"
    assert (rows, found.torn_at) == (4, 32 + found.frames * FRAME_BYTES)


@pytest.mark.parametrize("kept", [0, 8, 12, 16, 20, 24, 1000])
def test_a_last_frame_that_was_half_written_over_an_earlier_use_of_the_log_is_its_end(
    tmp_path: Path, kept: int
) -> None:
    logged = Logged(tmp_path)
    logged.add(60)
    log = logged.copy()
    before = log.read_bytes()
    logged.sql.execute("PRAGMA wal_checkpoint(RESTART)").fetchall()
    for _ in range(3):
        logged.add(1)
    logged.copy()
    _, whole = logged.rows()
    log = logged.copy()
    last = 32 + (whole.frames - 1) * FRAME_BYTES
    replaced(log, last + kept, before[last + kept : last + FRAME_BYTES])
    rows, found = logged.rows()
    assert (rows, found.frames) == (65, whole.frames - 1)
    assert found.torn_at in (None, last)


@pytest.mark.parametrize("kept", [0, 16, 24])
def test_a_frame_that_the_disk_never_had_ends_the_log_though_it_has_later_ones(tmp_path: Path, kept: int) -> None:
    logged = Logged(tmp_path)
    before = 32 + (logged.copy().stat().st_size - 32) // FRAME_BYTES * FRAME_BYTES
    logged.add(6)
    log = logged.copy()
    if kept < 24:
        replaced(log, before + FRAME_BYTES + kept, bytes(FRAME_BYTES - kept))
        assert logged.rows() == (3, LogSoundness(before // FRAME_BYTES + 1, before + FRAME_BYTES))
    else:
        # Its sums are there, and what follows continues them: nobody can tell this from a flipped bit.
        replaced(log, before + FRAME_BYTES + kept, bytes(FRAME_BYTES - kept))
        with pytest.raises(DamagedError, match=f"at byte {before + FRAME_BYTES}: later changes follow"):
            logged.rows()
