"""The store of jobs behind the API: SQLite in WAL mode, so that a restart keeps it and a commit carries many changes.

Every change of a row gets the next revision. Whoever has seen everything up to a revision asks for what is newer, and
gets the last state of each job and task that has changed: a stream of events that can be resumed from any point, also
after a restart, without a log of its own.

Writes gather in a transaction until `commit`, which is slow where it waits for the disk, and may then run in another
thread: meanwhile nothing is written, and what is read is what was committed last. Only promises wait for the disk
(`begin(durable=True)`). What was heard of tasks survives this program without; when the whole machine fails, its tasks
are gone as well, and run again.
"""

from __future__ import annotations

import fcntl
import os
import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.events import JobAccepted, JobDone, JobRejected
from volery.core.model import NEVER, Address, JobId, TaskId, Time
from volery.live.jobs import JobDescription
from volery.live.node.executor import TaskReport
from volery.live.service import listing
from volery.live.service.listing import JOB_COLUMNS, NEWEST, JobOrder, JobQuery, UserLoad, job_status
from volery.live.service.sharebook import ShareBook
from volery.live.status import JobState, JobStatus, TaskState, TaskStatus

VERSION: Final = 1
_TABLES: Final = """
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, description BLOB NOT NULL, first_task INTEGER NOT NULL,
  answered INTEGER NOT NULL DEFAULT 0, cancelling INTEGER NOT NULL DEFAULT 0,
  name TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
  tasks INTEGER NOT NULL, running INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, killed INTEGER NOT NULL DEFAULT 0, unsatisfiable INTEGER NOT NULL DEFAULT 0,
  submitted_us INTEGER NOT NULL, started_us INTEGER, ended_us INTEGER, revision INTEGER NOT NULL);
CREATE INDEX jobs_by_revision ON jobs (revision);
CREATE TABLE tasks (
  job INTEGER NOT NULL, place INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '', exit_code INTEGER,
  started_us INTEGER, ended_us INTEGER, folder TEXT NOT NULL DEFAULT '', revision INTEGER NOT NULL,
  result BLOB NOT NULL DEFAULT x'', PRIMARY KEY (job, place)) WITHOUT ROWID;
CREATE INDEX tasks_by_revision ON tasks (revision);
"""
_TASK: Final = ", ".join("place" if name == "index" else name for name in TaskStatus.__struct_fields__)
_JOB_CHANGES: Final = (
    "answered", "cancelling", "state", "reason", "running", "finished", "failed", "killed", "started_us", "ended_us",
    "revision",
)  # fmt: skip
_UPDATE_JOB: Final = f"UPDATE jobs SET {', '.join(f'{name} = ?' for name in _JOB_CHANGES)} WHERE id = ?"  # noqa: S608 - ours
_WRITE_TASK: Final = (
    "INSERT OR REPLACE INTO tasks (job, place, state, reason, attempt, node, exit_code, started_us, ended_us, folder, "
    "revision, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_FINAL: Final[frozenset[TaskState]] = frozenset({"finished", "failed", "unsatisfiable"})
"""Nothing that is heard of another attempt changes it: at most one attempt succeeds."""
_REFUSED: Final = "refused for now: "
_ADDED: Final = (
    "CREATE TABLE IF NOT EXISTS drained (node TEXT PRIMARY KEY) WITHOUT ROWID",
    "CREATE INDEX IF NOT EXISTS jobs_by_user ON jobs (user, id)",
    "CREATE INDEX IF NOT EXISTS jobs_open ON jobs (user) WHERE ended_us IS NULL",
)

News = TaskReport | JobAccepted | JobRejected | JobDone


class OpenJob(NamedTuple):
    """A job that had not ended when the store was last closed."""

    id: JobId
    first_task: TaskId
    description: JobDescription
    cancelling: bool


class _Job(msgspec.Struct):
    """A job that is under way, as its row will be."""

    id: JobId
    first_task: TaskId
    tasks: int
    unsatisfiable: int
    answered: bool = False
    cancelling: bool = False
    state: JobState = "pending"
    reason: str = ""
    running: int = 0
    finished: int = 0
    failed: int = 0
    killed: int = 0
    started_us: Time | None = None
    ended_us: Time | None = None
    revision: int = 0

    def count(self, state: TaskState, by: int) -> None:
        """So many more of its tasks are in a state."""
        if state in ("running", "finished", "failed", "killed"):
            setattr(self, state, getattr(self, state) + by)


_JOB_COLUMNS: Final = ", ".join(_Job.__struct_fields__)


class JobStore:
    """Jobs and tasks.

    Tasks of which nothing has been heard have no row; they are pending, or cancelled with their job.

    Args:
        path: of the database; made where it is missing.

    Raises:
        InputError: it cannot be opened, is in use, or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Commands and their environment stand in it: nobody else may read them.
            os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
            self._lock = os.open(path.with_suffix(".lock"), os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise InputError(str(path), f"the store of jobs cannot be opened: {error.strerror}") from None
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            self._sql = _connected(path, "PRAGMA synchronous = FULL")
            self._read = _connected(path, "PRAGMA query_only = 1")
        except OSError:
            os.close(self._lock)
            raise InputError(str(path), "another federation uses this store of jobs; give each its own") from None
        except sqlite3.Error as error:
            os.close(self._lock)
            raise InputError(str(path), f"the store of jobs cannot be opened: {error}; move it away") from None
        self.shares = ShareBook(self._sql, self._read)
        self._under_way: dict[JobId, _Job] = {}
        self._changed: dict[JobId, _Job] = {}
        self._rows: dict[tuple[JobId, int], tuple[Any, ...]] = {}
        newest = "SELECT max(ifnull((SELECT max(revision) FROM jobs), 0), ifnull((SELECT max(revision) FROM tasks), 0))"
        self._revision: int = self._one(newest)
        self.revision: int = self._revision
        """Of the last change that is committed."""

    def _one(self, query: str, *arguments: Any) -> Any:
        row = self._sql.execute(query, arguments).fetchone()
        return row[0] if row else None

    def close(self) -> None:
        """Leave the database in one file; what is not committed is lost."""
        self._read.close()
        self._sql.close()
        os.close(self._lock)

    def described(self, number: JobId) -> tuple[TaskId, JobDescription] | None:
        """The number of a job's first task, and what was asked for."""
        row = self._read.execute("SELECT first_task, description FROM jobs WHERE id = ?", (number,)).fetchone()
        return (row[0], msgspec.json.decode(row[1], type=JobDescription)) if row else None

    def drained(self) -> set[Address]:
        """The nodes on which nothing is to be placed."""
        return {node for (node,) in self._read.execute("SELECT node FROM drained")}

    def drain(self, node: Address, drained: bool) -> None:
        """Note that nothing is to be placed on a node, or something again."""
        note = "INSERT OR IGNORE INTO drained VALUES (?)" if drained else "DELETE FROM drained WHERE node = ?"
        self._sql.execute(note, (node,))

    def next_numbers(self) -> tuple[JobId, TaskId]:
        """The first job and task number that have never been used."""
        row = self._sql.execute(
            "SELECT ifnull(max(id) + 1, 0), ifnull(max(first_task + tasks), 0) FROM jobs"
        ).fetchone()
        return row[0], row[1]

    # Writing.

    def begin(self, durable: bool) -> None:
        """Begin a batch; whether its commit waits for the disk, or is a matter of microseconds."""
        assert not self._sql.in_transaction, "the batch before has not been committed"
        self._sql.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
        self._sql.execute("BEGIN")

    def commit(self) -> None:
        """End the batch; everyone sees it now."""
        revision = self._revision
        if self._sql.in_transaction:
            self._sql.execute("COMMIT")
        self.revision = revision

    def roll_back(self) -> None:
        """Forget the batch: nothing of it has happened."""
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")
        self._under_way.clear()
        self._changed.clear()
        self._rows.clear()
        self._revision = self.revision

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def job_with_key(self, user: str, key: str) -> tuple[JobId, int] | None:
        """Number and task count of the job that a user has submitted under a key."""
        query = "SELECT id, tasks FROM jobs WHERE key = ?"
        return self._sql.execute(query, (_key(user, key),)).fetchone()  # type: ignore[no-any-return] # two numbers

    def describes(self, number: JobId, description: JobDescription) -> bool:
        """Whether a job was submitted with exactly this description."""
        return bool(self._one("SELECT description = ? FROM jobs WHERE id = ?", _encoded(description), number))

    def insert(
        self, number: JobId, first_task: TaskId, description: JobDescription, task_count: int,
        obstacles: Sequence[tuple[int, str]], now_us: int,
    ) -> None:  # fmt: skip
        """Take a job in, with the tasks (place and reason) that no machine can run."""
        self._sql.executemany(
            "INSERT INTO tasks (job, place, state, reason, revision) VALUES (?, ?, 'unsatisfiable', ?, ?)",
            ((number, place, reason, self._next_revision()) for place, reason in obstacles),
        )
        self._sql.execute(
            "INSERT INTO jobs (id, key, description, first_task, name, user, reason, tasks, unsatisfiable, "
            "submitted_us, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, _key(description.user, description.key), _encoded(description), first_task,
             description.name, description.user, obstacles[0][1] if obstacles else "", task_count, len(obstacles),
             now_us, self._next_revision()),
        )  # fmt: skip

    def cancel(self, number: JobId) -> bool:
        """Note that the job is to be cancelled; whether it had not ended yet."""
        job = self._job_under_way(number)
        if job is None:
            return False
        job.cancelling, job.reason = True, "cancelled on request"
        self._write_changes()
        return True

    def fail(self, number: JobId, reason: str, now_us: int) -> None:
        """End a job that cannot be submitted again."""
        job = self._job_under_way(number)
        if job is not None:
            job.state, job.reason, job.ended_us = "failed", reason, now_us
            self._write_changes()

    def take_in(self, news: Iterable[News], now_us: int) -> list[JobId]:
        """Take in what was heard.

        Returns:
            The jobs that are answered although some of their tasks have not been reported to the end.
        """
        for item in news:
            job = self._job_under_way(item.job)
            if job is None:
                continue
            match item:
                case TaskReport():
                    self._report(job, item)
                case JobDone():
                    job.answered = True
                case JobRejected():
                    job.reason = _REFUSED + item.reason
                case JobAccepted() if job.reason.startswith(_REFUSED):
                    job.reason = ""
        answered = [job for job in self._changed.values() if job.answered]
        late = [job.id for job in answered if not self._settle(job, now_us)]
        self._write_changes()
        return late

    def give_up_waiting(self, number: JobId, now_us: int) -> None:
        """End an answered job although some reports of its tasks have not come; those tasks' ends are unknown."""
        job = self._job_under_way(number)
        if job is None or not job.answered:
            return
        query = "SELECT place FROM tasks WHERE job = ? AND state IN ('running', 'pending')"
        places = self._sql.execute(query, (number,)).fetchall()
        self._sql.executemany(
            "UPDATE tasks SET state = 'unknown', revision = ? WHERE job = ? AND place = ?",
            ((self._next_revision(), number, place) for (place,) in places),
        )
        self._settle(job, now_us, wait=False)
        self._write_changes()

    def _job_under_way(self, number: JobId) -> _Job | None:
        """A job that has not ended, to be changed."""
        job = self._under_way.get(number)
        if job is None:
            query = f"SELECT {_JOB_COLUMNS} FROM jobs WHERE id = ? AND ended_us IS NULL"  # noqa: S608 - our columns
            row = self._sql.execute(query, (number,)).fetchone()
            if row is None:
                return None
            job = self._under_way[number] = _Job(*row)
        self._changed[number] = job
        return job

    def _write_changes(self) -> None:
        """Write the rows of this batch, each once."""
        self._sql.executemany(_WRITE_TASK, self._rows.values())
        for job in self._changed.values():
            job.revision = self._next_revision()
            self._sql.execute(_UPDATE_JOB, (*(getattr(job, name) for name in _JOB_CHANGES), job.id))
            if job.ended_us is not None:
                del self._under_way[job.id]
        self._rows.clear()
        self._changed.clear()

    def _report(self, job: _Job, report: TaskReport) -> None:
        place = report.task - job.first_task
        if not 0 <= place < job.tasks:
            return
        state, attempt, started_us = self._known(job.id, place)
        if attempt > report.attempt or (attempt == report.attempt and state != "running") or state in _FINAL:
            return
        if attempt < report.attempt:
            started_us = None
        began, told = report.state == "running", _told(report, job)
        if began:
            started_us = report.at_unix_us
        self._rows[job.id, place] = (
            job.id, place, told, report.reason, report.attempt, report.node, report.exit_code, started_us,
            None if began else report.at_unix_us, report.folder, self._next_revision(), report.result,
        )  # fmt: skip
        job.count(state, -1)
        job.count(told, +1)
        job.state = "running"
        if job.started_us is None:
            job.started_us = started_us

    def _known(self, number: JobId, place: int) -> tuple[TaskState, int, Time | None]:
        """State, attempt and start of a task as it was last told, in this batch or before."""
        row = self._rows.get((number, place))
        if row is not None:
            return row[2], row[4], row[7]
        query = "SELECT state, attempt, started_us FROM tasks WHERE job = ? AND place = ?"
        found = self._sql.execute(query, (number, place)).fetchone()
        return found or ("pending", NEVER, None)

    def _settle(self, job: _Job, now_us: int, wait: bool = True) -> bool:
        """End a job that is answered, unless some task of it has not ended; whether it has ended."""
        heard = job.finished + job.failed + job.killed + job.unsatisfiable
        if wait and (job.running or (heard < job.tasks and not job.cancelling)):
            return False
        well = job.finished == heard
        job.state = "cancelled" if job.cancelling else "done" if well else "failed"
        job.running, job.ended_us = 0, now_us
        if job.cancelling:
            return True
        if heard < job.tasks:
            job.reason = f"the ends of {job.tasks - heard} tasks were not reported"
        elif job.failed:
            job.reason = f"{job.failed} of {job.tasks} tasks failed"
            first = self._first_failure(job.id)
            job.reason += f"; the first: {first}" if first else ""
        elif job.killed:
            job.reason = f"{job.killed} of {job.tasks} tasks were killed"
        return True

    def _first_failure(self, number: JobId) -> str:
        """Why the first task that failed has failed."""
        query = "SELECT place, reason FROM tasks WHERE job = ? AND state = 'failed' ORDER BY place LIMIT 1"
        places = [(key[1], row[3]) for key, row in self._rows.items() if key[0] == number and row[2] == "failed"]
        places += self._sql.execute(query, (number,)).fetchall()
        return str(min(places)[1]) if places else ""

    # Reading: what is committed.

    def job(self, number: JobId) -> JobStatus | None:
        """One job."""
        row = self._read.execute(f"SELECT {JOB_COLUMNS} FROM jobs WHERE id = ?", (number,)).fetchone()  # noqa: S608 - ours
        return job_status(row) if row else None

    def jobs(self, query: JobQuery, limit: int, order: JobOrder = NEWEST) -> list[JobStatus]:
        """Jobs, the newest first unless another order is asked for."""
        return listing.jobs(self._read, query, limit, order)

    def waits_us(self, limit: int) -> list[Time]:
        """How long the jobs that were submitted last have waited for their first task to start, in microseconds."""
        return listing.waits_us(self._read, limit)

    def places(self, tasks: Sequence[TaskId]) -> list[tuple[JobId, int]]:
        """The job of each task, and its place there; tasks of no job are left out."""
        return listing.places(self._read, tasks)

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """What every user has under way, or one; nobody who has nothing."""
        return listing.loads(self._read, user)

    def task(self, number: JobId, place: int) -> TaskStatus | None:
        """One task."""
        found = self.tasks(number, place, 1)
        return found[0] if found else None

    def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job from a place on, in order."""
        job = self.job(number)
        if job is None:
            return []
        end = min(first + limit, job.tasks)
        rows = self._read.execute(
            f"SELECT {_TASK} FROM tasks WHERE job = ? AND place >= ? AND place < ?", (number, first, end)  # noqa: S608 - ours
        )  # fmt: skip
        known = {task.index: task for task in map(_task, rows)}
        unheard: TaskState = "pending" if not job.ended else "cancelled" if job.state == "cancelled" else "unknown"
        return [known.get(at) or TaskStatus(job=number, index=at, state=unheard) for at in range(first, end)]

    def result(self, number: JobId, place: int) -> bytes:
        """What a callable returned or raised, pickled; empty where there is nothing."""
        row = self._read.execute("SELECT result FROM tasks WHERE job = ? AND place = ?", (number, place)).fetchone()
        return row[0] if row else b""

    def changes(
        self, after: int, job: JobId | None, limit: int, user: str | None = None
    ) -> list[JobStatus | TaskStatus]:
        """What has changed since a revision, in order of revisions; the tasks of a job come before the job.

        Args:
            after: the revision.
            job: only this one.
            limit: at most so many.
            user: only this one's.
        """
        jobs = self._read.execute(
            f"SELECT {JOB_COLUMNS} FROM jobs WHERE revision > ?1 AND (?2 IS NULL OR id = ?2) "  # noqa: S608 - ours
            "AND (?4 IS NULL OR user = ?4) ORDER BY revision LIMIT ?3",
            (after, job, limit, user),
        )
        tasks = self._read.execute(
            f"SELECT {_TASK} FROM tasks WHERE revision > ?1 AND (?2 IS NULL OR job = ?2) "  # noqa: S608 - ours
            "AND (?4 IS NULL OR (SELECT user FROM jobs WHERE id = job) = ?4) ORDER BY revision LIMIT ?3",
            (after, job, limit, user),
        )
        found: list[JobStatus | TaskStatus] = [*map(_task, tasks), *map(job_status, jobs)]
        found.sort(key=lambda status: status.revision)
        return found[:limit]

    def open_jobs(self) -> list[OpenJob]:
        """Jobs that have not ended, the oldest first."""
        rows = self._read.execute(
            "SELECT id, first_task, description, cancelling FROM jobs WHERE ended_us IS NULL ORDER BY id"
        )
        decode = msgspec.json.Decoder(JobDescription).decode
        return [OpenJob(row[0], row[1], decode(row[2]), bool(row[3])) for row in rows]

    def ended_places(self, number: JobId) -> set[int]:
        """The places of a job's tasks that need not run again."""
        rows = self._read.execute(
            "SELECT place FROM tasks WHERE job = ? AND state IN ('finished', 'failed', 'killed')", (number,)
        )
        return {row[0] for row in rows}


def _told(report: TaskReport, job: _Job) -> TaskState:
    """The state that a report puts its task in: one that was killed runs again, unless its job is given up."""
    return "pending" if report.state == "killed" and not job.cancelling else report.state


def _encoded(description: JobDescription) -> bytes:
    return msgspec.json.encode(description, order="deterministic")


def _connected(path: Path, pragma: str) -> sqlite3.Connection:
    """A connection to a database of this version, which is made where there is none.

    Raises:
        sqlite3.Error: the file is something else.
    """
    sql = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
    try:
        (version,) = sql.execute("PRAGMA user_version").fetchone()
        if version == 0:
            sql.execute("PRAGMA journal_mode = WAL")
            sql.execute("BEGIN")
            for statement in (*_TABLES.split(";"), *_ADDED):
                sql.execute(statement)
            sql.execute(f"PRAGMA user_version = {VERSION}")
            sql.execute("COMMIT")
        elif version != VERSION:
            raise sqlite3.DatabaseError(f"it was written by another version (format {version})")
        else:
            for statement in _ADDED:
                sql.execute(statement)
        sql.execute(pragma)
    except sqlite3.Error:
        sql.close()
        raise
    return sql


def _key(user: str, key: str) -> str | None:
    """A key as it is kept: each user has its own; no name or key holds what stands between them."""
    return f"{user}\n{key}" if key else None


def _task(row: Sequence[Any]) -> TaskStatus:
    return TaskStatus(**dict(zip(TaskStatus.__struct_fields__, row, strict=True)))
