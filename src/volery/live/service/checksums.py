"""Checksums of the rows of the store: each row has one, written in the transaction that writes the row.

A checksum is the CRC-32 of a row's columns as a MessagePack array, in the order of `CHECKED`. The rows of jobs, tasks
and usages, which change with each report, bring theirs along; for all other writes a trigger adds it. The triggers
exist in the connection of the store alone, so that a program that writes around the store leaves rows without it.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import msgspec

COLUMN: Final = "checksum"
CHECKED: Final[dict[str, tuple[str, ...]]] = {
    "jobs": (
        "id", "key", "description", "first_task", "answered", "cancelling", "name", "user", "state", "reason", "tasks",
        "running", "finished", "failed", "killed", "unsatisfiable", "submitted_us", "started_us", "ended_us",
        "revision",
    ),
    "tasks": (
        "job", "place", "state", "reason", "attempt", "node", "exit_code", "started_us", "ended_us", "folder",
        "revision", "result", "launched",
    ),
    "usages": ("job", "place", "attempt", "cpu_us", "memory_peak_bytes", "out_of_memory", "held"),
    "descriptions": ("id", "digest"),
    "drained": ("node",),
    "reweighs": ("number", "name", "weight", "was", "by", "at_us"),
    "preemptions": (
        "number", "at_us", "by", "reason", "task", "job", "place", "attempt", "user", "for_job", "for_place",
        "for_user", "loss_due", "loss_before", "loss_after", "gain_due", "gain_before", "gain_after",
    ),
    "moves": ("epoch", "origin", "heir", "at_us"),
    "assignments": ("job", "entry", "epoch", "note"),
    "archived": ("job", "user", "file", "tasks"),
    "used": ("job", "task", "revision"),
    "formats": ("format", "tables"),
    "store": ("name",),
}  # fmt: skip
"""The columns under the checksum of each table; the first ones are its key."""
FORECASTS: Final = "forecasts"
_COLUMNS: Final = CHECKED | {
    FORECASTS: ("id", "made_us", "next_job", "user", "description", "moments", "job", "delay_us", "came")
}
"""The same, with the table of forecasts, which has a file of its own."""
_KEYS: Final = {"tasks": ("job", "place"), "usages": ("job", "place"), "drained": ("node",)}
"""The keys of tables whose rows have no number."""
_WRITERS: Final = frozenset({"jobs", "tasks", "usages"})
"""Tables whose inserted rows bring their checksums along: a trigger would double the cost of a report."""
_UPDATED: Final = {
    "jobs": ("key", "description", "first_task", "name", "user", "tasks", "unsatisfiable", "submitted_us")
}
"""Columns whose change has a trigger compute a row's checksum; changes of the others bring it along."""
FORMATS_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS formats (format INTEGER PRIMARY KEY, tables INTEGER NOT NULL, checksum INTEGER)"
)
"""The format of the file once more, where a checksum protects it, and the checksum of all statements of its schema."""

CHECKED_SINCE: Final = 3
"""The first format with checksums; the earlier ones are read no more, and have no damage that could be told."""

_encode: Final = msgspec.msgpack.Encoder().encode


class RowDamageError(sqlite3.DatabaseError):
    """A row has another checksum than its content; other rows may be read and written.

    Args:
        job: number of the job that the row belongs to; None: it belongs to no job.
    """

    def __init__(self, problem: str, job: int | None = None) -> None:
        super().__init__(problem)
        self.job = job


def row_checksum(row: Sequence[Any]) -> int:
    """The checksum of a row: integers, texts, bytes and None as SQLite returns them, so that True is 1.

    Returns:
        -1, which is no checksum, for a text that is no UTF-8: see `readable`.
    """
    try:
        return zlib.crc32(_encode(row))
    except UnicodeEncodeError:
        return -1


def check_row(table: str, row: Sequence[Any]) -> None:
    """Compare the columns of `CHECKED` with the checksum after them.

    Raises:
        RowDamageError: the row is damaged.
    """
    if row_checksum(row[:-1]) != row[-1]:
        raise RowDamageError(damage_of(table, row), row[0] if _COLUMNS[table][0] == "job" or table == "jobs" else None)


def damage_of(table: str, row: Sequence[Any]) -> str:
    """The place of a damaged row."""
    names = _KEYS.get(table, _COLUMNS[table][:1])
    keys = " and ".join(f"{name} {value!r}" for name, value in zip(names, row, strict=False))
    return f"the row of table {table} with {keys} is damaged"


def _function(*row: Any) -> int:
    return row_checksum(row)


def add_triggers(sql: sqlite3.Connection, tables: Iterable[str] = CHECKED) -> None:
    """Have a connection add the checksum to every row that is written without one.

    A changed row gets another checksum only if its last one was right, so that no change hides a damage.
    """
    sql.create_function("row_checksum", -1, _function, deterministic=True)
    for table in tables:
        columns = _COLUMNS[table]
        is_same_row = " AND ".join(f"{key} = new.{key}" for key in _KEYS.get(table, ("rowid",)))
        words = f"UPDATE {table} SET {COLUMN} = {_computed(columns, 'new.')} WHERE {is_same_row}"  # noqa: S608 - ours

        if table not in _WRITERS:
            sql.execute(f"CREATE TEMP TRIGGER {table}_inserted AFTER INSERT ON {table} BEGIN {words}; END")

        watched_columns = ", ".join(_UPDATED.get(table, columns))
        was_sound = f"old.{COLUMN} IS {_computed(columns, 'old.')}"
        sql.execute(
            f"CREATE TEMP TRIGGER {table}_updated AFTER UPDATE OF {watched_columns} ON {table} "
            f"WHEN {was_sound} BEGIN {words}; END"
        )


def _computed(columns: Sequence[str], prefix: str = "") -> str:
    return f"row_checksum({', '.join(prefix + name for name in columns)})"


def damaged_rows(sql: sqlite3.Connection, table: str, condition: str = "1") -> Iterator[tuple[Any, str]]:
    """The damaged rows of a table: the first column of each, and its place in words.

    Args:
        sql: returns texts as `readable` does.

    Raises:
        sqlite3.DatabaseError: the table cannot be read to its end.
    """
    for row in sql.execute(f"SELECT {', '.join(_COLUMNS[table])}, {COLUMN} FROM {table} WHERE {condition}"):  # noqa: S608 - ours
        if row_checksum(row[:-1]) != row[-1]:
            yield row[0], damage_of(table, row)


def readable(text: bytes) -> str:
    """A text of the database; bytes that are no UTF-8 become surrogates, for which there is no checksum."""
    return text.decode("utf-8", "surrogateescape")


def fetched(sql: sqlite3.Connection, query: str, values: Sequence[Any] = ()) -> list[Any]:
    """All rows of a query; a text that is no UTF-8 damages its own row, and hides no other."""
    try:
        return sql.execute(query, values).fetchall()
    except sqlite3.OperationalError as error:
        if "UTF-8" not in str(error):
            raise

    sql.text_factory = readable  # not always: it would cost half a microsecond per row

    try:
        return sql.execute(query, values).fetchall()
    finally:
        sql.text_factory = str


def schema_checksum(sql: sqlite3.Connection) -> int:
    """The checksum of all statements of a database's schema, in the order of their names."""
    rows = sql.execute("SELECT type, name, tbl_name, sql FROM sqlite_schema ORDER BY type, name").fetchall()
    return row_checksum([list(row) for row in rows])


def earlier_format(sql: sqlite3.Connection, version: int) -> str:
    """An earlier version that wrote a database, in words; empty where this one did, or it is damaged.

    Args:
        version: its format by the header of the file.
    """
    is_earlier = 0 < version < CHECKED_SINCE
    if not is_earlier or sql.execute("SELECT 1 FROM sqlite_schema WHERE name = 'formats'").fetchone():
        return ""
    return f"it was written by an earlier version (format {version}), which this one does not read"


def schema_damage(sql: sqlite3.Connection, version: int) -> str:
    """The damage of a database's format and schema, in words; empty where there is none.

    Args:
        version: its format by the header of the file.
    """
    names = {name for (name,) in sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    if not version and "formats" not in names:
        return "it has tables, but its header names no format: the header is damaged" if names else ""
    if "formats" not in names:
        return f"its header names format {version}, but the table formats is missing: the file is damaged"

    rows = sql.execute("SELECT format, tables, checksum FROM formats").fetchall()
    if not rows or any(row_checksum(row[:-1]) != row[-1] for row in rows):
        return "its table formats is damaged"

    stored_version, tables, _ = max(rows)
    if stored_version != version:
        return (
            f"its header names format {version}, its table formats {stored_version}: the header is damaged at byte 60"
        )

    return "" if tables == schema_checksum(sql) else "its schema is damaged: a statement in sqlite_schema has changed"
