"""Format 1 of the store of jobs, brought to format 2: descriptions leave the rows of jobs for a table of their own."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from typing import Final

import msgspec

from volery.live.jobs import JobDescription, merged
from volery.live.service.rows import digest_of, encoded

_KEPT: Final = (
    "id, key, first_task, answered, cancelling, name, user, state, reason, tasks, running, finished, failed, killed, "
    "unsatisfiable, submitted_us, started_us, ended_us, revision"
)
_MOVE: Final = f"INSERT INTO jobs (description, {_KEPT}) SELECT ?, {_KEPT} FROM jobs_before WHERE id = ?"  # noqa: S608 - ours


def migrate(sql: sqlite3.Connection, tables: Sequence[str], version: int) -> None:
    """Bring a file from format 1 to format 2, in one transaction; then give the room that became free back.

    Args:
        sql: the one connection to it.
        tables: statements that make the new tables `jobs` and `descriptions` with their indices.
        version: of the new format.

    Raises:
        sqlite3.Error: the disk is full, for example; the file is as it was.
    """
    sql.execute("BEGIN IMMEDIATE")
    try:
        sql.execute("ALTER TABLE jobs RENAME TO jobs_before")
        for index in ("jobs_by_revision", "jobs_by_user", "jobs_open"):
            sql.execute(f"DROP INDEX IF EXISTS {index}")
        for statement in tables:
            sql.execute(statement)
        decode = msgspec.json.Decoder(JobDescription).decode
        for number, content in sql.execute("SELECT id, description FROM jobs_before ORDER BY id"):
            with suppress(msgspec.MsgspecError):  # what is not understood any more stays as it is
                content = encoded(merged(decode(content)))
            sql.execute(_MOVE, (described(sql, content), number))
        sql.execute("DROP TABLE jobs_before")
        sql.execute(f"PRAGMA user_version = {version}")
        sql.execute("COMMIT")
    except BaseException:
        sql.execute("ROLLBACK")
        raise
    with suppress(sqlite3.OperationalError):  # it needs as much room again; without, the file keeps its size
        sql.execute("PRAGMA auto_vacuum = INCREMENTAL")
        sql.execute("VACUUM")


def described(sql: sqlite3.Connection, content: bytes) -> int:
    """The number of an encoded description among those of the store, into which it is written if it is new."""
    digest = digest_of(content)
    row = sql.execute("SELECT id FROM descriptions WHERE digest = ?", (digest,)).fetchone()
    if row is None:
        row = sql.execute(
            "INSERT INTO descriptions (digest, content) VALUES (?, ?) RETURNING id", (digest, content)
        ).fetchone()
    return int(row[0])
