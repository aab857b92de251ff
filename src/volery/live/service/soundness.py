"""Soundness of the store of jobs: its log, its schema, its pages, and the checksums of its rows.

SQLite reads what it finds: a changed number in a row is a number to it, and a damaged log is a shorter one. So the
log's frames are followed here before SQLite opens the file, and rows are compared with their checksums.
"""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cache
from itertools import islice
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volery.core.errors import DamagedError, InputError
from volery.core.model import JobId
from volery.live.runtime.recordfile import OtherVersionError
from volery.live.service.checksums import CHECKED, CHECKED_SINCE, damaged_rows, readable, schema_damage
from volery.live.service.rows import digest_of, reading

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a damaged database; the second, where the text of the first quotes a damaged statement."""
DAMAGES_MAX: Final = 100
"""Damages of a table, and of the pages, that are listed."""
START_BYTES: Final = 64 << 20
"""The pages of a store up to this size are checked at each start, in some 0.3 s."""
_LOG_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_LOG_MAGIC: Final = 0x377F0682
"""The last bit is set where the sums are over big-endian words; see https://sqlite.org/fileformat2.html#walformat."""


class LogSoundness(NamedTuple):
    """The state of a write-ahead log.

    Args:
        frames: that SQLite will read.
        torn_at: the place of a last frame that a crash has left incomplete; None: there is none.
    """

    frames: int = 0
    torn_at: int | None = None


def log_soundness(path: Path) -> LogSoundness:
    """Follow the frames of the write-ahead log beside a database.

    Behind the last frame lie frames of earlier uses of the file, which have other salts.

    Raises:
        DamagedError: frames of this use follow a damaged one: SQLite would end there without an error.
        InputError: the log cannot be read.
    """
    log = path.with_name(path.name + "-wal")
    try:
        with log.open("rb") as file:
            return _followed(file, log)
    except FileNotFoundError:
        return LogSoundness()
    except OSError as error:
        raise InputError(str(log), f"cannot be read: {error.strerror}") from None


def _followed(file: BinaryIO, log: Path) -> LogSoundness:
    header = file.read(_LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return LogSoundness()
    magic, _, page_bytes, _, *salts, first, second = _LOG_HEADER.unpack(header)
    order = ">" if magic & 1 else "<"
    sums = _summed(header[:24], order, (0, 0))
    if magic | 1 != _LOG_MAGIC | 1 or sums != (first, second):
        if not any(file.read(_FRAME_HEADER.size)):
            return LogSoundness()
        raise DamagedError(str(log), "is damaged at byte 0: its header has another checksum; its changes are lost")

    frames, broken = 0, -1
    while len(frame := file.read(_FRAME_HEADER.size + page_bytes)) == _FRAME_HEADER.size + page_bytes:
        at = file.tell() - len(frame)
        *_, salt, other_salt, first, second = _FRAME_HEADER.unpack_from(frame)
        is_own = [salt, other_salt] == salts
        if broken < 0:
            sums = _summed(frame[24:], order, _summed(frame[:8], order, sums))
            if is_own and sums == (first, second):
                frames += 1
                continue
            # one salt alone is that of the header: a frame of an earlier use has two others
            if not is_own and salt != salts[0] and other_salt != salts[1]:
                break
            broken = at
        elif is_own:
            problem = f"is damaged at byte {broken}: later changes follow, and `truncate -s {broken}` gives them up"
            raise DamagedError(str(log), problem)
    return LogSoundness(frames, None if broken < 0 else broken)


@cache
def _weights(pairs: int) -> NDArray[np.uint32]:
    """The weight of each word, and of the two sums before, in the two sums after so many pairs of words.

    A pair (x, y) makes of the sums (s, t) the sums s + t + x and t + y + (s + t + x), modulo 2 ** 32: linear steps,
    which one product of matrices takes at once.
    """
    step, word = np.array([[1, 1], [1, 2]], np.uint32), np.array([[1, 0], [1, 1]], np.uint32)
    weights, power = np.empty((2, 2 * pairs + 2), np.uint32), np.identity(2, np.uint32)
    for at in range(pairs - 1, -1, -1):
        weights[:, 2 * at + 2 : 2 * at + 4] = power @ word
        power = power @ step
    weights[:, :2] = power
    return weights


def _summed(content: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    words = np.frombuffer(content, f"{order}u4").astype(np.uint32)
    first, second = (_weights(len(words) // 2) * np.concatenate((np.array(sums, np.uint32), words))).sum(1, np.uint32)
    return int(first), int(second)


def store_damage(path: Path) -> Iterator[str]:
    """All damages of a store of jobs, with their places; nothing is written.

    Raises:
        DamagedError: the log is damaged.
        OtherVersionError: it is of an earlier version, whose rows have no checksums.
        InputError: it cannot be read.
    """
    try:
        sql = _opened(path)
        sql.text_factory = readable
    except sqlite3.Error as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    with closing(sql):
        try:
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            if problem := schema_damage(sql, version):
                yield problem
            elif not version:
                yield "holds no table: it is empty, or new"
                return
            elif version < CHECKED_SINCE:
                problem = "is of an earlier version, without checksums; start the federation once, which adds them"
                raise OtherVersionError(str(path), problem)
        except UNREADABLE as error:
            yield str(error)
        yield from damage_of_pages(sql)
        for table in CHECKED:
            yield from islice(damage_of_table(sql, table), DAMAGES_MAX)


def _opened(path: Path) -> sqlite3.Connection:
    """A store to be read, also one without a log in a folder where SQLite can make no file beside it: a backup."""
    sql = reading(path)
    try:
        sql.execute("PRAGMA user_version").fetchone()
    except sqlite3.OperationalError:
        log = path.with_name(path.name + "-wal")
        if not log.exists() or not log.stat().st_size:
            sql.close()
            return reading(path, "&immutable=1")
    except sqlite3.DatabaseError:
        pass  # listed as a damage
    return sql


def damage_of_pages(sql: sqlite3.Connection) -> Iterator[str]:
    """The damages of a database's pages and indices, as SQLite finds them."""
    try:
        for (problem,) in sql.execute(f"PRAGMA integrity_check({DAMAGES_MAX})"):
            if problem != "ok":
                yield f"its pages are damaged: {' '.join(problem.split())}"
    except UNREADABLE as error:
        yield f"its pages are damaged: {error}"


def damage_of_table(sql: sqlite3.Connection, table: str, where: str = "1") -> Iterator[str]:
    """The damages of a table's rows, with their keys."""
    try:
        yield from damaged_rows(sql, table, where)
        if table == "descriptions":
            for number, digest, content in sql.execute(f"SELECT id, digest, content FROM descriptions WHERE {where}"):  # noqa: S608 - ours
                if not isinstance(content, bytes) or digest_of(content) != digest:
                    yield f"the content of the row of table descriptions with id {number} is damaged"
    except (*UNREADABLE, OverflowError) as error:
        yield f"table {table} cannot be read to its end: {error}"


OPEN: Final = "SELECT id FROM jobs WHERE ended_us IS NULL"


def demand_sound(sql: sqlite3.Connection) -> None:
    """Refuse a store in which something is damaged that a start builds on: jobs that have not ended, and ledgers.

    The pages of a large store are left out, which would take too long; a damage there shows when they are read. Rows of
    jobs that have ended are compared with their checksums when they are read.

    Raises:
        sqlite3.DatabaseError: so it is.
    """
    of_jobs = {
        "jobs": "ended_us IS NULL", "tasks": f"job IN ({OPEN})", "usages": f"job IN ({OPEN})",
        "descriptions": "id IN (SELECT description FROM jobs WHERE ended_us IS NULL)",
    }  # fmt: skip
    (pages,), (page_bytes,) = (sql.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    if pages * page_bytes <= START_BYTES:
        for problem in damage_of_pages(sql):
            raise sqlite3.DatabaseError(problem)
    for table in CHECKED:
        for problem in damage_of_table(sql, table, of_jobs.get(table, "1")):
            raise sqlite3.DatabaseError(problem)


def demand_sound_jobs(sql: sqlite3.Connection, jobs: Sequence[JobId]) -> None:
    """Refuse jobs of which a row is damaged.

    Raises:
        sqlite3.DatabaseError: so it is.
    """
    numbers = ", ".join(map(str, jobs))
    of_jobs = {
        "jobs": f"id IN ({numbers})", "tasks": f"job IN ({numbers})", "usages": f"job IN ({numbers})",
        "assignments": f"job IN ({numbers})",
        "descriptions": f"id IN (SELECT description FROM jobs WHERE id IN ({numbers}))",  # noqa: S608 - our numbers
    }  # fmt: skip
    for table, where in of_jobs.items():
        for problem in damage_of_table(sql, table, where):
            raise sqlite3.DatabaseError(problem)
