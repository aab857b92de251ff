"""Jobs that leave the store for files: which of them are old enough, and what the store still knows of them afterwards.

A job that has left is a number, a user and the number of the file that has its record. The numbers and revisions that
were given once are never given again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Final, NamedTuple

from volery.core.model import JobId, TaskId, Time

TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS archived (
  job INTEGER PRIMARY KEY, user TEXT NOT NULL, file INTEGER NOT NULL, tasks INTEGER NOT NULL)
""",
    "CREATE INDEX IF NOT EXISTS archived_by_file ON archived (file)",
    "CREATE TABLE IF NOT EXISTS used (job INTEGER NOT NULL, task INTEGER NOT NULL, revision INTEGER NOT NULL)",
)
JOBS_PER_FILE: Final = 1_000
TASKS_PER_FILE: Final = 200_000
"""A file has one job more than fit into this at most."""
VACUUM_PAGES: Final = 500
"""Pages that are given back to the file system at a time, in some milliseconds."""
_ENDED: Final = "SELECT id, tasks FROM jobs INDEXED BY jobs_by_end WHERE ended_us IS NOT NULL "


class Archived(NamedTuple):
    """A job that has left the store."""

    user: str
    file: int


class Used(NamedTuple):
    """The first numbers, and the last revision, that jobs which have left the store cannot have had."""

    job: JobId = 0
    task: TaskId = 0
    revision: int = 0


class Retired:
    """The rows of a store about jobs that have left it.

    Args:
        sql: writes; begin and commit are the store's.
        read: sees what is committed.
    """

    def __init__(self, sql: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._sql = sql
        self._read = read

    def used(self) -> Used:
        """The numbers that are used up."""
        row = self._sql.execute("SELECT max(job), max(task), max(revision) FROM used").fetchone()
        return Used(*(value or 0 for value in row))

    def of(self, job: JobId) -> Archived | None:
        """Whose a job that has left was, and which file has it."""
        row = self._read.execute("SELECT user, file FROM archived WHERE job = ?", (job,)).fetchone()
        return Archived(*row) if row else None

    def last_file(self) -> int:
        """The number of the newest file that is complete; 0: none."""
        return int(self._read.execute("SELECT ifnull(max(file), 0) FROM archived").fetchone()[0])

    def due(self, before_us: Time | None, keep: int, recent_us: Time) -> list[JobId]:
        """Jobs for the next file, those that ended first before others.

        Args:
            before_us: jobs that ended earlier are due; None: their age does not matter.
            keep: of jobs that have ended, older ones than the newest so many are due; 0: their number does not matter.
            recent_us: jobs that ended later are not due.
        """
        found: dict[JobId, int] = {}
        if before_us is not None:
            query = _ENDED + "AND ended_us < ? ORDER BY ended_us, id LIMIT ?"
            found |= self._read.execute(query, (before_us, JOBS_PER_FILE)).fetchall()
        if keep and len(found) < JOBS_PER_FILE:
            (ended,) = self._read.execute("SELECT count(*) FROM jobs WHERE ended_us IS NOT NULL").fetchone()
            query = _ENDED + "AND ended_us < ? ORDER BY ended_us, id LIMIT ?"
            found |= self._read.execute(query, (recent_us, min(max(0, ended - keep), JOBS_PER_FILE))).fetchall()
        due, tasks = list[JobId](), 0
        for number, count in found.items():
            if tasks >= TASKS_PER_FILE:
                break
            due.append(number)
            tasks += count
        return due

    def leave(self, jobs: Sequence[JobId], file: int, used: Used) -> None:
        """Take the rows of jobs out, in the batch that is under way; those of their tasks follow by `clear`."""
        self._sql.execute("DELETE FROM used")
        self._sql.execute("INSERT INTO used VALUES (?, ?, ?)", used)
        for number in jobs:
            row = self._sql.execute("DELETE FROM jobs WHERE id = ? RETURNING user, tasks, description", (number,))
            ((user, tasks, description),) = row.fetchall()
            self._sql.execute("DELETE FROM assignments WHERE job = ?", (number,))
            self._sql.execute("INSERT INTO archived VALUES (?, ?, ?, ?)", (number, user, file, tasks))
            self._sql.execute(
                "DELETE FROM descriptions WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE description = ?1)",
                (description,),
            )

    def left(self, file: int) -> list[tuple[JobId, int]]:
        """The jobs of a file, each with the number of its tasks."""
        return self._read.execute("SELECT job, tasks FROM archived WHERE file = ?", (file,)).fetchall()

    def clear(self, job: JobId, first: int, end: int) -> None:
        """Take the rows of tasks of a job that has left out, from one place up to another."""
        for table in ("tasks", "usages"):
            words = f"DELETE FROM {table} WHERE job = ? AND place >= ? AND place < ?"  # noqa: S608 - ours
            self._sql.execute(words, (job, first, end))

    def shrink(self) -> bool:
        """Give some free pages back to the file system; whether there are more."""
        self._sql.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        automatic = self._sql.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
        return bool(automatic and self._sql.execute("PRAGMA freelist_count").fetchone()[0])
