"""Ledgers beside the jobs of the store: weights and preemptions, moves between schedulers, and archived jobs.

Weights and preemptions are histories: nothing in them is ever changed or deleted. A damaged row of them is named where
it is listed, and counts nowhere. A job that has left for the archive is a number, a user and the number of the file
that has its record; its number and revisions are never given again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from volery.core.assignment import Owner
from volery.core.events import Reassignment, ShareChange
from volery.core.model import JobId, TaskId, Time
from volery.live.messages import PreemptionReport
from volery.live.service.checksums import CHECKED, RowDamageError, check_row, damaged_rows, fetched, row_checksum
from volery.live.service.rows import JobListings
from volery.live.status import PreemptionStatus, SharePart, WeightChange

_SHARES: Final = """
CREATE TABLE IF NOT EXISTS reweighs (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, weight INTEGER NOT NULL, was INTEGER NOT NULL, by TEXT NOT NULL,
  at_us INTEGER NOT NULL, checksum INTEGER);
CREATE INDEX IF NOT EXISTS reweighs_by_name ON reweighs (name, number);
CREATE TABLE IF NOT EXISTS preemptions (
  number INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL, task INTEGER NOT NULL,
  job INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL, user TEXT NOT NULL,
  for_job INTEGER NOT NULL, for_place INTEGER NOT NULL, for_user TEXT NOT NULL,
  loss_due INTEGER, loss_before INTEGER, loss_after INTEGER, gain_due INTEGER, gain_before INTEGER, gain_after INTEGER,
  checksum INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS preemptions_of_task ON preemptions (task, attempt, at_us);
CREATE INDEX IF NOT EXISTS preemptions_of_job ON preemptions (job, number);
CREATE INDEX IF NOT EXISTS preemptions_of_place ON preemptions (job, place);
CREATE INDEX IF NOT EXISTS preemptions_for_job ON preemptions (for_job, number);
CREATE INDEX IF NOT EXISTS preemptions_of_user ON preemptions (user, number);
CREATE INDEX IF NOT EXISTS preemptions_for_user ON preemptions (for_user, number)
"""
_NOTED: Final = CHECKED["preemptions"][1:]
_NOTE: Final = (
    f"INSERT OR IGNORE INTO preemptions ({', '.join(_NOTED)}) "  # noqa: S608 - ours
    f"SELECT {', '.join(f'?{at}' for at in range(1, len(_NOTED) + 1))} "
    "WHERE NOT EXISTS (SELECT 1 FROM preemptions WHERE task = ?4 AND at_us = ?1)"
)
_LISTED: Final = f"SELECT {', '.join(CHECKED['preemptions'])}, checksum FROM preemptions"  # noqa: S608 - ours
_CHANGES: Final = f"SELECT {', '.join(CHECKED['reweighs'])}, checksum FROM reweighs"  # noqa: S608 - ours
_ARCHIVED: Final = f"SELECT {', '.join(CHECKED['archived'])}, checksum FROM archived"  # noqa: S608 - ours
NOBODY: Final = -1
CONTINUED: Final = "a newer store, which is lost"
"""The author of changes of which only the outcome is known."""


class ShareHistory:
    """The histories of weights and of preemptions, in the database of jobs.

    Args:
        write: the connection whose transaction the caller begins and commits.
        read: connection that sees what is committed.
    """

    def __init__(self, write: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._write = write
        self._read = read
        damaged_numbers = (number for number, _ in damaged_rows(read, "reweighs"))
        self._sound = f"number NOT IN ({', '.join(map(str, damaged_numbers))})"

    def weights(self, sql: sqlite3.Connection | None = None) -> tuple[int, dict[str, int]]:
        """The number of changes, and the present weights by name, in the rows that a connection sees.

        Args:
            sql: connection to read by; None: the one that writes.
        """
        sql = sql or self._write
        number = sql.execute("SELECT coalesce(max(number), 0) FROM reweighs").fetchone()[0]
        clause = f"WHERE {self._sound} GROUP BY name ORDER BY name"
        rows = sql.execute(f"SELECT name, weight, max(number) FROM reweighs {clause}")  # noqa: S608 - our numbers
        return number, {name: weight for name, weight, _ in rows}

    def reweigh(self, name: str, weight: int, was: int, by: str, at_us: Time) -> int:
        """Note that somebody, by his name, has given a user or an organisation another weight; returns its number."""
        row = self._write.execute(
            "INSERT INTO reweighs (name, weight, was, by, at_us) VALUES (?, ?, ?, ?, ?)", (name, weight, was, by, at_us)
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def continue_from(self, reweighs: int, weights: Mapping[str, int], at_us: Time) -> None:
        """Take over the weights of a newer store, after so many changes; who made those is lost."""
        number, own = self.weights()
        if reweighs > number:
            rows = [
                (reweighs + offset, name, weight, own.get(name, weight), CONTINUED, at_us)
                for offset, (name, weight) in enumerate(sorted(weights.items()), 1)
            ]
            query = "INSERT INTO reweighs (number, name, weight, was, by, at_us) VALUES (?, ?, ?, ?, ?, ?)"
            self._write.executemany(query, rows)

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """Changes of weights, or of one, the last one first."""
        clause = "WHERE ?1 IS NULL OR name = ?1 ORDER BY number DESC LIMIT ?2"
        return [_weight_change(row) for row in fetched(self._read, f"{_CHANGES} {clause}", (name, limit))]

    def note(self, report: PreemptionReport) -> None:
        """Note a preemption; one that was reported before is noted once."""
        fact = report.fact
        job, place, user = self._place(fact.task)
        for_job, for_place, for_user = self._place(fact.beneficiary)
        attempt = self._number_of(fact.attempt, job, place)

        row = (
            report.at_unix_us,
            report.by,
            fact.reason,
            fact.task,
            job,
            place,
            attempt,
            user,
            for_job,
            for_place,
            for_user,
            *_parts(fact.loser),
            *_parts(fact.winner),
        )
        self._write.execute(_NOTE, row)

    def _number_of(self, launched: int, job: JobId, place: int) -> int:
        """The number for people of an attempt, by what was reported of the task's last one."""
        query = "SELECT attempt, launched FROM tasks WHERE job = ? AND place = ?"
        for number, last in self._write.execute(query, (job, place)):
            # A report of an attempt may be on its way when the preemption is reported, or the next one begun. Another
            # incarnation of the scheduler numbers from far away, so that only the sign of the difference counts.
            return max(0, int(number) + max(-1, min(launched - last, 1))) if last >= 0 else int(number)
        return 0

    def _place(self, task: int) -> tuple[JobId, int, str]:
        """The job of a task, its place there, and whose it is."""
        for job, place in JobListings(self._write).places([task]):
            return job, place, self._write.execute("SELECT user FROM jobs WHERE id = ?", (job,)).fetchone()[0]
        return NOBODY, NOBODY, ""

    def preemptions(
        self, user: str | None, job: JobId | None, number_end: int | None, limit: int
    ) -> list[PreemptionStatus]:
        """The last ones first.

        Args:
            user, job: only those by which this one has lost, or gained.
            number_end: only those with smaller numbers.
        """
        columns = [("user", user), ("job", job)]
        conditions = [(f"({name} = ? OR for_{name} = ?)", value) for name, value in columns if value is not None]

        clause = " AND ".join(["number < ?", *(words for words, _ in conditions)])
        values = [value for _, value in conditions for _ in range(2)]
        query = f"{_LISTED} WHERE {clause} ORDER BY number DESC LIMIT ?"
        return [
            _status(row)
            for row in fetched(self._read, query, (1 << 62 if number_end is None else number_end, *values, limit))
        ]

    def last_lost(self, job: JobId, place: int) -> PreemptionStatus | None:
        """The last preemption of a task; None: there was none."""
        query = f"{_LISTED} WHERE job = ? AND place = ? ORDER BY number DESC LIMIT 1"
        return next((_status(row) for row in fetched(self._read, query, (job, place))), None)


def _parts(change: ShareChange | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if change is None else (change.due, change.before, change.after)


def _weight_change(row: Sequence[Any]) -> WeightChange:
    try:
        check_row("reweighs", row)
    except RowDamageError as error:
        return WeightChange(name=str(error), weight=0, was=0, by="", at_us=0)
    _, name, weight, was, by, at_us, _ = row
    return WeightChange(name, weight, was, by, at_us)


def _status(row: Sequence[Any]) -> PreemptionStatus:
    try:
        check_row("preemptions", row)
    except RowDamageError as error:
        return PreemptionStatus(
            number=row[0],
            at_us=0,
            by="",
            reason=str(error),
            job=NOBODY,
            index=NOBODY,
            attempt=0,
            user="",
            for_job=NOBODY,
            for_index=NOBODY,
            for_user="",
        )

    number, at_us, by, reason, _, job, place, attempt, user, for_job, for_place, for_user, *parts, _ = row
    return PreemptionStatus(
        number=number,
        at_us=at_us,
        by=by,
        reason=reason,
        job=job,
        index=place,
        attempt=attempt,
        user=user,
        for_job=for_job,
        for_index=for_place,
        for_user=for_user,
        loss=None if parts[0] is None else SharePart(*(part / 1e6 for part in parts[:3])),
        gain=None if parts[3] is None else SharePart(*(part / 1e6 for part in parts[3:])),
    )


_MOVES: Final = (
    "CREATE TABLE IF NOT EXISTS moves (epoch INTEGER PRIMARY KEY, origin TEXT NOT NULL, heir TEXT NOT NULL, "
    "at_us INTEGER NOT NULL, checksum INTEGER)"
)
_ASSIGNMENTS: Final = (
    "CREATE TABLE IF NOT EXISTS assignments (job INTEGER PRIMARY KEY, entry TEXT NOT NULL, epoch INTEGER NOT NULL, "
    "note TEXT NOT NULL, checksum INTEGER)"
)


class AssignmentLedger:
    """Moves and assignments, on the connections of the store.

    Args:
        write: connection that writes, within the batch that is under way.
        read: connection that sees what is committed.
    """

    def __init__(self, write: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._write = write
        self._read = read
        self._has_notes = read.execute("SELECT 1 FROM assignments LIMIT 1").fetchone() is not None

    def note_of(self, job: JobId) -> str:
        """Why another scheduler than usual has a job; empty where the usual one does."""
        query = "SELECT note FROM assignments WHERE job = ?"
        row = self._read.execute(query, (job,)).fetchone() if self._has_notes else None
        return row[0] if row else ""

    def moves(self) -> list[Reassignment]:
        """All moves, in order."""
        return [
            Reassignment(*row) for row in self._read.execute("SELECT epoch, origin, heir FROM moves ORDER BY epoch")
        ]

    def continue_from(self, moves: Iterable[Reassignment], at_us: int) -> None:
        """Take over the moves of a newer store: schedulers know them, and no epoch is given twice."""
        query = "INSERT OR IGNORE INTO moves (epoch, origin, heir, at_us) VALUES (?, ?, ?, ?)"
        self._write.executemany(query, ((move.epoch, move.origin, move.heir, at_us) for move in moves))

    def owners(self) -> list[tuple[JobId, Owner]]:
        """Open jobs that are not at their usual scheduler."""
        query = (
            "SELECT job, entry, epoch, note, checksum FROM assignments WHERE job IN (SELECT id FROM jobs "
            "INDEXED BY jobs_open WHERE ended_us IS NULL)"
        )
        # A start has named damaged rows; their jobs are given up.
        rows = (row for row in fetched(self._read, query) if row_checksum(row[:-1]) == row[-1])
        return [(job, Owner(entry, epoch)) for job, entry, epoch, *_ in rows]

    def open_jobs(self) -> list[tuple[JobId, str]]:
        """Jobs that have not ended, those of the batch under way included, with their users."""
        query = "SELECT id, user FROM jobs INDEXED BY jobs_open WHERE ended_us IS NULL ORDER BY id"
        return self._write.execute(query).fetchall()

    def note(self, jobs: Iterable[JobId], owner: Owner, note: str) -> None:
        """Write down where jobs are now, and why; a job whose own batch was rolled back is left out."""
        query = (
            "INSERT OR REPLACE INTO assignments (job, entry, epoch, note) "
            "SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ?1)"
        )
        self._has_notes = True
        self._write.executemany(query, ((job, *owner, note) for job in jobs))

    def add(self, move: Reassignment, jobs: Iterable[JobId], note: str, at_us: int) -> None:
        """Write down a move with the jobs that it concerns."""
        self._write.execute(
            "INSERT OR REPLACE INTO moves (epoch, origin, heir, at_us) VALUES (?, ?, ?, ?)",
            (move.epoch, move.origin, move.heir, at_us),
        )
        self.note(jobs, Owner(move.heir, move.epoch), note)


TABLES: Final = (
    """
CREATE TABLE IF NOT EXISTS archived (
  job INTEGER PRIMARY KEY, user TEXT NOT NULL, file INTEGER NOT NULL, tasks INTEGER NOT NULL, checksum INTEGER)
""",
    "CREATE INDEX IF NOT EXISTS archived_by_file ON archived (file)",
    """
CREATE TABLE IF NOT EXISTS used (
  job INTEGER NOT NULL, task INTEGER NOT NULL, revision INTEGER NOT NULL, checksum INTEGER)
""",
    _MOVES,
    _ASSIGNMENTS,
    *_SHARES.split(";"),
)
JOBS_PER_FILE: Final = 1_000
TASKS_PER_FILE: Final = 200_000
"""Tasks of one file; the job that exceeds them is its last."""
VACUUM_PAGES: Final = 500
"""Pages of free room that are given back to the file system at a time, in some milliseconds."""
_ENDED: Final = "SELECT id, tasks FROM jobs INDEXED BY jobs_by_end WHERE ended_us IS NOT NULL "


class ArchivedJob(NamedTuple):
    """A job that has left the store."""

    user: str
    file: int


class ArchivedKey(NamedTuple):
    """The first numbers, and the last revision, that jobs which have left the store cannot have had."""

    job: JobId = 0
    task: TaskId = 0
    revision: int = 0


class ArchiveLedger:
    """The rows of a store about jobs that have left it.

    Args:
        sql: connection that writes; begin and commit are the store's.
        read: connection that sees what is committed.
    """

    def __init__(self, sql: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._sql = sql
        self._read = read

    def used(self, sql: sqlite3.Connection | None = None) -> ArchivedKey:
        """The first numbers that were never given, in the rows that a connection sees; None: the one that writes."""
        row = (sql or self._sql).execute("SELECT max(job), max(task), max(revision) FROM used").fetchone()
        return ArchivedKey(*(value or 0 for value in row))

    def free(self, sql: sqlite3.Connection | None = None) -> ArchivedKey:
        """The first numbers that no job has or had, and the last revision, in the rows that a connection sees."""
        sql, used = sql or self._sql, self.used(sql)
        query = "SELECT id + 1, CAST(first_task + tasks AS INTEGER) FROM jobs ORDER BY id DESC LIMIT 1"
        job, task = sql.execute(query).fetchone() or (0, 0)  # numbers grow together
        revision = used.revision
        for table in ("jobs", "tasks"):  # a damaged revision may be none
            query = f"SELECT revision FROM {table} WHERE typeof(revision) = 'integer' ORDER BY revision DESC LIMIT 1"  # noqa: S608 - ours
            revision = max((revision, *(number for (number,) in sql.execute(query))))
        return ArchivedKey(max(job, used.job), max(task, used.task), revision)

    def forbid(self, first: ArchivedKey) -> None:
        """Give no number and no revision below these."""
        self._sql.execute("INSERT INTO used (job, task, revision) VALUES (?, ?, ?)", first)

    def of(self, job: JobId) -> ArchivedJob | None:
        """The user of an archived job, and the number of its file.

        Raises:
            RowDamageError: its row is damaged.
        """
        for row in fetched(self._read, f"{_ARCHIVED} WHERE job = ?", (job,)):
            check_row("archived", row)
            return ArchivedJob(row[1], row[2])
        return None

    def last_file(self) -> int:
        """The number of the newest file that is complete; 0: none."""
        # One after the other: what a damaged row names may be no number of a file.
        files = (file for (file,) in self._read.execute("SELECT DISTINCT file FROM archived ORDER BY file DESC"))
        return next((file for file in files if self.left(file)), 0)

    def due(self, before_us: Time | None, keep: int, recent_us: Time) -> list[JobId]:
        """Jobs for the next file, those that ended first before others.

        Args:
            before_us: jobs that ended earlier are due; None: their age does not matter.
            keep: number of ended jobs that stay, the newest; older ones are due. 0: their number does not matter.
            recent_us: jobs that ended later are not due.
        """
        tasks_by_job: dict[JobId, int] = {}
        if before_us is not None:
            query = _ENDED + "AND ended_us < ? ORDER BY ended_us, id LIMIT ?"
            tasks_by_job |= self._read.execute(query, (before_us, JOBS_PER_FILE)).fetchall()

        if keep and len(tasks_by_job) < JOBS_PER_FILE:
            (ended_count,) = self._read.execute("SELECT count(*) FROM jobs WHERE ended_us IS NOT NULL").fetchone()
            query = _ENDED + "AND ended_us < ? ORDER BY ended_us, id LIMIT ?"
            tasks_by_job |= self._read.execute(
                query, (recent_us, min(max(0, ended_count - keep), JOBS_PER_FILE))
            ).fetchall()

        due, tasks = list[JobId](), 0
        for number, count in tasks_by_job.items():
            if tasks >= TASKS_PER_FILE:
                break
            due.append(number)
            tasks += count

        return due

    def leave(self, jobs: Sequence[JobId], file: int, used: ArchivedKey) -> None:
        """Take the rows of jobs out, in the batch that is under way; those of their tasks follow by `clear`."""
        # The numbers of deleted rows must not be given again, so the last ones are written down.
        self._sql.execute("DELETE FROM used")
        self._sql.execute("INSERT INTO used (job, task, revision) VALUES (?, ?, ?)", used)
        for number in jobs:
            row = self._sql.execute("DELETE FROM jobs WHERE id = ? RETURNING user, tasks, description", (number,))
            ((user, tasks, description),) = row.fetchall()

            # Another job may be described alike: equal descriptions are stored once.
            self._sql.execute("DELETE FROM assignments WHERE job = ?", (number,))
            self._sql.execute(
                "INSERT INTO archived (job, user, file, tasks) VALUES (?, ?, ?, ?)", (number, user, file, tasks)
            )
            self._sql.execute(
                "DELETE FROM descriptions WHERE id = ?1 AND NOT EXISTS (SELECT 1 FROM jobs WHERE description = ?1)",
                (description,),
            )

    def left(self, file: int) -> list[tuple[JobId, int]]:
        """The jobs of a file, each with the number of its tasks; damaged rows are left out."""
        rows = fetched(self._read, f"{_ARCHIVED} WHERE file = ?", (file,))
        return [(row[0], row[3]) for row in rows if row_checksum(row[:-1]) == row[-1]]

    def clear(self, job: JobId, first: int, end: int) -> None:
        """Take the rows of tasks of a job that has left out, from one place up to another."""
        for table in ("tasks", "usages"):
            words = f"DELETE FROM {table} WHERE job = ? AND place >= ? AND place < ?"  # noqa: S608 - ours
            self._sql.execute(words, (job, first, end))

    def shrink(self) -> bool:
        """Give some free pages back to the file system; true if there are more."""
        self._sql.execute(f"PRAGMA incremental_vacuum({VACUUM_PAGES})").fetchall()
        is_automatic = self._sql.execute("PRAGMA auto_vacuum").fetchone()[0] == 2
        return bool(is_automatic and self._sql.execute("PRAGMA freelist_count").fetchone()[0])
