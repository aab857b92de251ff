"""Soundness of the store of jobs: its log, its schema, its pages, and the checksums of its rows.

SQLite reads what it finds: a changed number in a row is a number to it, and a damaged log is a shorter one. So the
log's frames are followed here before SQLite opens the file, and rows are compared with their checksums.
"""

from __future__ import annotations

import logging
import re
import sqlite3
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from functools import cache, partial
from itertools import islice, takewhile
from operator import eq
from pathlib import Path
from typing import Any, BinaryIO, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from volery.core.errors import DamagedError, InputError
from volery.core.model import JobId
from volery.live.clock import unix_now_us
from volery.live.runtime.recordfile import OtherVersionError
from volery.live.service.checksums import CHECKED, damaged_rows, earlier_format, readable, schema_damage
from volery.live.service.rows import digest_of, reading

UNREADABLE: Final = (sqlite3.Error, UnicodeDecodeError)
"""Errors of a damaged database; the second, where the text of the first quotes a damaged statement."""
DAMAGES_MAX: Final = 100
"""Damages of a table, and of the pages, that are listed."""
START_BYTES: Final = 64 << 20
"""Size of a store up to which its pages are checked at each start, in some 0.3 s."""
_LOG_HEADER: Final = struct.Struct(">8I")
_FRAME_HEADER: Final = struct.Struct(">6I")
_LOG_MAGIC: Final = 0x377F0682
"""The last bit is set where the sums are over big-endian words; see https://sqlite.org/fileformat2.html#walformat."""

log = logging.getLogger(__name__)


class LogSoundness(NamedTuple):
    """The state of a write-ahead log.

    Args:
        frames: number of frames that SQLite will read.
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
    written = path.with_name(path.name + "-wal")
    try:
        with written.open("rb") as file:
            return _followed(file, written)
    except FileNotFoundError:
        return LogSoundness()
    except OSError as error:
        raise InputError(str(written), f"cannot be read: {error.strerror}") from None


def _followed(file: BinaryIO, written: Path) -> LogSoundness:
    header = file.read(_LOG_HEADER.size)
    if len(header) < _LOG_HEADER.size:
        return LogSoundness()

    magic, _, page_bytes, _, *salts, first, second = _LOG_HEADER.unpack(header)
    order = ">" if magic & 1 else "<"

    sums = _summed(header[:24], order, (0, 0))
    if magic | 1 != _LOG_MAGIC | 1 or sums != (first, second):
        # A log whose header was reset has no frames; one with frames behind a wrong header has lost them.
        if not any(file.read(_FRAME_HEADER.size)):
            return LogSoundness()
        raise DamagedError(str(written), "is damaged at byte 0: its header has another checksum; its changes are lost")

    frames = 0
    remaining = _frames(file, order, page_bytes)
    for frame in remaining:
        computed = frame.summed(sums)
        if frame.salts == salts and frame.sums == computed:
            frames = frames + 1
            sums = computed
            continue

        later = list(takewhile(lambda following: following.salts == salts, remaining))
        if _is_damage(frame, computed, later):
            problem = f"is damaged at byte {frame.at}: later changes follow, and `truncate -s {frame.at}` gives them up"
            raise DamagedError(str(written), problem)

        is_torn = bool(later) or any(map(eq, frame.salts, salts))
        return LogSoundness(frames, frame.at if is_torn else None)

    return LogSoundness(frames)


class _Frame(NamedTuple):
    """A frame of a write-ahead log.

    Args:
        at: place of the frame, bytes.
        is_last: true if the frame is the last of its change.
        salts, sums: salts and sums that the frame names.
        summed: (the sums before it) -> the sums of its content.
    """

    at: int
    is_last: bool
    salts: list[int]
    sums: tuple[int, int]
    summed: Callable[[tuple[int, int]], tuple[int, int]]


def _frames(file: BinaryIO, order: str, page_bytes: int) -> Iterator[_Frame]:
    """The frames of a log from the present place on, as far as they have their full length."""
    while len(frame := file.read(_FRAME_HEADER.size + page_bytes)) == _FRAME_HEADER.size + page_bytes:
        _, pages, *salts, first, second = _FRAME_HEADER.unpack_from(frame)
        summed = partial(_summed_frame, frame, order)
        yield _Frame(file.tell() - len(frame), pages > 0, salts, (first, second), summed)


def _is_damage(frame: _Frame, computed: tuple[int, int], later: Iterable[_Frame]) -> bool:
    """True if the frame at which SQLite ends the log had its place in front of a complete change.

    Args:
        computed: the sums of its content.
        later: frames behind it of the same use of the file.
    """
    # SQLite ends the log at the first frame that has other salts or does not continue the sums, which is right after a
    # crash. A change that was cut short or rolled back leaves frames of the present use behind later, shorter ones;
    # none of them is the last of its change. A machine without power keeps later frames without an earlier one that it
    # had not brought to the disk; they do not continue what is in its place. So it is a damage only if the next frame
    # continues the sums that this one names or has, and the end of a change is among those that go on from there. What
    # the disk had for sure is not lost so: a store that lacks it is behind its marks.
    possible_sums = {frame.sums, computed}
    for following in later:
        if following.sums not in map(following.summed, possible_sums):
            return False
        if frame.is_last or following.is_last:
            return True
        possible_sums = {following.sums}
    return False


@cache
def _weights(pairs: int) -> NDArray[np.uint32]:
    """The weights of the words, and of the two sums before them, in the two sums after so many pairs.

    A pair (x, y) makes of the sums (s, t) the sums s + t + x and t + y + (s + t + x), modulo 2 ** 32: linear steps,
    which one product of matrices takes at once.
    """
    step = np.array([[1, 1], [1, 2]], np.uint32)
    word = np.array([[1, 0], [1, 1]], np.uint32)
    weights = np.empty((2, 2 * pairs + 2), np.uint32)
    power = np.identity(2, np.uint32)
    for at in range(pairs - 1, -1, -1):
        weights[:, 2 * at + 2 : 2 * at + 4] = power @ word
        power = power @ step
    weights[:, :2] = power
    return weights


def _summed_frame(frame: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    return _summed(frame[24:], order, _summed(frame[:8], order, sums))


def _summed(content: bytes, order: str, sums: tuple[int, int]) -> tuple[int, int]:
    words = np.frombuffer(content, f"{order}u4").astype(np.uint32)
    first, second = (_weights(len(words) // 2) * np.concatenate((np.array(sums, np.uint32), words))).sum(1, np.uint32)
    return int(first), int(second)


def store_damage(path: Path) -> Iterator[str]:
    """All damages of a store of jobs, with their places; nothing is written.

    Raises:
        DamagedError: the log is damaged.
        OtherVersionError: an earlier version wrote it, without checksums.
        InputError: it cannot be read.
    """
    try:
        sql = opened_quietly(path)
        sql.text_factory = readable
    except sqlite3.Error as error:
        raise InputError(str(path), f"cannot be read: {error}") from None
    with closing(sql):
        try:
            version = sql.execute("PRAGMA user_version").fetchone()[0]
            if problem := earlier_format(sql, version):
                raise OtherVersionError(str(path), problem)
            if problem := schema_damage(sql, version):
                yield problem
            elif not version:
                yield "holds no table: it is empty, or new"
                return
        except UNREADABLE as error:
            yield str(error)

        yield from damage_of_pages(sql)
        for table in CHECKED:
            yield from islice(damage_of_table(sql, table), DAMAGES_MAX)


def opened_quietly(path: Path) -> sqlite3.Connection:
    """A database to be read, beside which nothing is made: where it has no log, nobody writes it, or it is a backup."""
    written, shared = (path.with_name(path.name + suffix) for suffix in ("-wal", "-shm"))
    has_log = written.exists() and (written.stat().st_size > 0 or shared.exists())
    return reading(path, "" if has_log else "&immutable=1")


def damage_of_pages(sql: sqlite3.Connection) -> Iterator[str]:
    """The damages of a database's pages and indices, as SQLite finds them."""
    try:
        for (problem,) in sql.execute(f"PRAGMA integrity_check({DAMAGES_MAX})"):
            if problem != "ok":
                yield f"its pages are damaged: {' '.join(problem.split())}"
    except UNREADABLE as error:
        yield f"its pages are damaged: {error}"


def damage_of_table(sql: sqlite3.Connection, table: str, condition: str = "1") -> Iterator[str]:
    """The damages of a table's rows, with their keys."""
    try:
        yield from (words for _, words in _damages(sql, table, condition))
    except (*UNREADABLE, OverflowError) as error:
        yield f"table {table} cannot be read to its end: {error}"


def _damages(sql: sqlite3.Connection, table: str, condition: str) -> Iterator[tuple[Any, str]]:
    yield from damaged_rows(sql, table, condition)
    if table == "descriptions":
        for number, digest, content in sql.execute(f"SELECT id, digest, content FROM descriptions WHERE {condition}"):  # noqa: S608 - ours
            if not isinstance(content, bytes) or digest_of(content) != digest:
                yield number, f"the content of the row of table descriptions with id {number} is damaged"


OPEN: Final = "SELECT id FROM jobs WHERE ended_us IS NULL"
_OF_JOBS: Final = {
    "jobs": "ended_us IS NULL",
    "tasks": f"job IN ({OPEN})",
    "usages": f"job IN ({OPEN})",
    "assignments": f"job IN ({OPEN})",
    "descriptions": "id IN (SELECT description FROM jobs WHERE ended_us IS NULL)",
}
"""Tables in which a damaged row concerns one job, or those of one description."""
_HISTORIES: Final = frozenset({"reweighs", "preemptions", "archived", "usages"})
"""Tables of what has been: a damaged row is left out, and named in lists."""
_INDEX_PROBLEM: Final = re.compile(
    r"(row \d+ missing from|wrong # of entries in|non-unique entry in) index (?P<index>\w+)"
    r"|(NULL|NUMERIC|TEXT|non-\w+) value in (?P<table>\w+)\.\w+"
)
"""Problems that SQLite finds where a value in a row or an index has changed, and the trees of both are sound."""


class StartDamage(NamedTuple):
    """Open jobs of which a start has found something damaged, each with the place.

    Args:
        rows: jobs whose own row is damaged.
        parts: jobs of which another row is damaged.
    """

    rows: dict[JobId, str]
    parts: dict[JobId, str]


def demand_sound(sql: sqlite3.Connection) -> StartDamage:
    """Refuse a store in which something is damaged that a start builds on for all jobs: its pages, numbers and orders.

    The pages of a large store are left out, which would take too long; a damage there shows when they are read. Rows of
    jobs that have ended are compared with their checksums when they are read. All other damages are logged.

    Raises:
        sqlite3.DatabaseError: something is.
    """
    sql.text_factory = readable

    _mend_indices(sql)
    damage = StartDamage({}, {})

    for table in CHECKED:
        for key, problem in _damages(sql, table, _OF_JOBS.get(table, "1")):
            # A start builds numbers and orders of all jobs on the rows of such a table.
            if table not in _HISTORIES and table not in _OF_JOBS:
                raise sqlite3.DatabaseError(problem)

            log.error("%s; `volery check` lists what is damaged", problem)
            if table == "descriptions":
                of_jobs = sql.execute("SELECT id FROM jobs WHERE description = ? AND ended_us IS NULL", (key,))
                damage.parts.update((number, problem) for (number,) in of_jobs)
            elif table not in _HISTORIES:
                (damage.rows if table == "jobs" else damage.parts).setdefault(key, problem)

    sql.text_factory = str
    return damage


def _mend_indices(sql: sqlite3.Connection) -> None:
    """Make indices again that do not fit their rows, where the pages are checked and otherwise sound.

    Raises:
        sqlite3.DatabaseError: something else is.
    """
    (pages,), (page_bytes,) = (sql.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "page_size"))
    problems = [*damage_of_pages(sql)] if pages * page_bytes <= START_BYTES else []

    tables = dict[str, None]()
    for problem in problems:
        match = _INDEX_PROBLEM.search(problem)
        if match is None:
            raise sqlite3.DatabaseError(problem)
        log.error("%s; indices are made again, and `volery check` lists damaged rows", problem)
        index = sql.execute("SELECT tbl_name FROM sqlite_schema WHERE name = ?", (match["index"],)).fetchone()
        tables[index[0] if index is not None else match["table"]] = None

    for table in tables:
        sql.execute(f"REINDEX {table}")


def set_aside(sql: sqlite3.Connection, job: JobId, revision: int) -> None:
    """End a job whose row is damaged, and leave its checksum wrong: every list shows it as damaged.

    Raises:
        sqlite3.DatabaseError: the pages of the store are damaged as well.
    """
    words = "UPDATE jobs SET ended_us = ?, revision = ? WHERE id = ?"
    values = (unix_now_us(), revision, job)
    try:
        sql.execute(words, values)
    except sqlite3.OperationalError:
        raise
    except sqlite3.DatabaseError:  # an index does not have the row as it is now
        sql.execute("REINDEX jobs")
        sql.execute(words, values)


def demand_sound_jobs(sql: sqlite3.Connection, jobs: Sequence[JobId]) -> None:
    """Refuse jobs of which a row is damaged.

    Raises:
        sqlite3.DatabaseError: a row is.
    """
    numbers = ", ".join(map(str, jobs))
    of_jobs = {
        "jobs": f"id IN ({numbers})",
        "tasks": f"job IN ({numbers})",
        "usages": f"job IN ({numbers})",
        "assignments": f"job IN ({numbers})",
        "descriptions": f"id IN (SELECT description FROM jobs WHERE id IN ({numbers}))",  # noqa: S608 - our numbers
    }
    for table, condition in of_jobs.items():
        for problem in damage_of_table(sql, table, condition):
            raise sqlite3.DatabaseError(problem)
