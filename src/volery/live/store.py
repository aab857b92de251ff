"""The store of jobs behind the API: SQLite in WAL mode, so that a restart keeps it and a commit carries many changes.

Every change of a row gets the next revision. Whoever has seen everything up to a revision asks for what is newer, and
gets the last state of each job and task that has changed: a stream of events that can be resumed from any point, also
after a restart, without a log of its own.

A store belongs to one thread at a time.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.events import JobAccepted, JobDone, JobRejected
from volery.core.model import JobId, TaskId
from volery.live.executor import TaskReport
from volery.live.jobs import JobDescription
from volery.live.status import ENDED_TASKS, JobState, JobStatus, TaskState, TaskStatus

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
_JOB: Final = ", ".join(JobStatus.__struct_fields__)
_TASK: Final = ", ".join("place" if name == "index" else name for name in TaskStatus.__struct_fields__)
_COUNTED: Final = ("running", "finished", "failed", "killed", "unsatisfiable")

News = TaskReport | JobAccepted | JobRejected | JobDone


class OpenJob(NamedTuple):
    """A job that had not ended when the store was last closed."""

    id: JobId
    first_task: TaskId
    description: JobDescription
    cancelling: bool


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
            self._sql = sqlite3.connect(path, timeout=1.0, check_same_thread=False, isolation_level=None)
            self._sql.execute("PRAGMA locking_mode = EXCLUSIVE")
            self._sql.execute("PRAGMA journal_mode = WAL")
            self._sql.execute("PRAGMA synchronous = FULL")
            self._sql.execute("BEGIN IMMEDIATE")
        except (OSError, sqlite3.Error) as error:
            problem = f"the store of jobs cannot be opened ({error}); it may be in use by another federation"
            raise InputError(str(path), problem) from None
        (version,) = self._sql.execute("PRAGMA user_version").fetchone()
        if version == 0:
            for statement in _TABLES.split(";"):
                self._sql.execute(statement)
            self._sql.execute(f"PRAGMA user_version = {VERSION}")
        self._sql.execute("COMMIT")
        if version not in (0, VERSION):
            self._sql.close()
            raise InputError(str(path), f"was written by another version (format {version}); move it away")
        self._revision: int = self._one("SELECT max(ifnull((SELECT max(revision) FROM jobs), 0), "
                                   "ifnull((SELECT max(revision) FROM tasks), 0))")  # fmt: skip

    def _one(self, query: str, *arguments: Any) -> Any:
        row = self._sql.execute(query, arguments).fetchone()
        return row[0] if row else None

    @property
    def revision(self) -> int:
        """Of the last change."""
        return self._revision

    def close(self) -> None:
        """Leave the database in one file."""
        self._sql.close()

    def next_numbers(self) -> tuple[JobId, TaskId]:
        """The first job and task number that have never been used."""
        row = self._sql.execute(
            "SELECT ifnull(max(id) + 1, 0), ifnull(max(first_task + tasks), 0) FROM jobs"
        ).fetchone()
        return row[0], row[1]

    def job_with_key(self, key: str) -> JobStatus | None:
        """The job that was submitted under a key."""
        row = self._sql.execute(f"SELECT {_JOB} FROM jobs WHERE key = ?", (key,)).fetchone()  # noqa: S608 - our columns
        return _job(row) if row else None

    def insert(
        self, number: JobId, first_task: TaskId, description: JobDescription, task_count: int,
        obstacles: Sequence[tuple[int, str]], now_us: int,
    ) -> None:  # fmt: skip
        """Take a job in, with the tasks (place and reason) that no machine can run; committed on return."""
        self._sql.execute("BEGIN")
        self._sql.executemany(
            "INSERT INTO tasks (job, place, state, reason, revision) VALUES (?, ?, 'unsatisfiable', ?, ?)",
            ((number, place, reason, self._next_revision()) for place, reason in obstacles),
        )
        self._sql.execute(
            "INSERT INTO jobs (id, key, description, first_task, name, user, reason, tasks, unsatisfiable, "
            "submitted_us, revision) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (number, description.key or None, msgspec.json.encode(description), first_task, description.name,
             description.user, obstacles[0][1] if obstacles else "", task_count, len(obstacles), now_us,
             self._next_revision()),
        )  # fmt: skip
        self._sql.execute("COMMIT")

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def cancel(self, number: JobId) -> None:
        """Note that the job is to be cancelled; committed on return."""
        self._change_job(number, "cancelling = 1, reason = 'cancelled on request'", where="ended_us IS NULL")

    def take_in(self, news: Iterable[News], now_us: int) -> list[JobId]:
        """Take in what was heard, in one commit.

        Returns:
            The jobs that are answered although some of their tasks have not been reported to the end.
        """
        self._sql.execute("BEGIN")
        touched: dict[JobId, None] = {}
        for item in news:
            number = item.job
            touched[number] = None
            match item:
                case TaskReport():
                    self._report(item)
                case JobDone():
                    self._sql.execute("UPDATE jobs SET answered = 1 WHERE id = ?", (number,))
                case JobRejected():
                    self._change_job(number, "reason = ?", f"refused for now: {item.reason}")
                case JobAccepted():
                    self._change_job(number, "reason = ''", where="reason LIKE 'refused for now%'")
        late = [number for number in touched if self._settle(number, now_us)]
        self._sql.execute("COMMIT")
        return late

    def fail(self, number: JobId, reason: str, now_us: int) -> None:
        """End a job that cannot be submitted again; committed on return."""
        self._change_job(number, "state = 'failed', reason = ?, ended_us = ?, running = 0", reason, now_us)

    def give_up_waiting(self, number: JobId, now_us: int) -> None:
        """End an answered job although some reports of its tasks have not come; those tasks' ends are unknown."""
        self._sql.execute("BEGIN")
        self._settle(number, now_us, wait=False)
        self._sql.execute("COMMIT")

    def _change_job(self, number: JobId, change: str, *values: Any, where: str = "1") -> None:
        self._sql.execute(
            f"UPDATE jobs SET {change}, revision = ? WHERE id = ? AND {where}",  # noqa: S608 - our own words
            (*values, self._next_revision(), number),
        )

    def _report(self, report: TaskReport) -> None:
        row = self._sql.execute("SELECT first_task, ended_us FROM jobs WHERE id = ?", (report.job,)).fetchone()
        if row is None or row[1] is not None:
            return
        place = report.task - row[0]
        old = self._sql.execute(
            "SELECT state, attempt, started_us FROM tasks WHERE job = ? AND place = ?", (report.job, place)
        ).fetchone()
        if old and (old[1] > report.attempt or (old[1] == report.attempt and old[0] in ENDED_TASKS)):
            return
        began = report.state == "running"
        started_us = report.at_unix_us if began else old[2] if old and old[1] == report.attempt else None
        self._sql.execute(
            "INSERT OR REPLACE INTO tasks (job, place, state, reason, attempt, node, exit_code, started_us, ended_us, "
            "folder, revision, result) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (report.job, place, report.state, report.reason, report.attempt, report.node, report.exit_code, started_us,
             None if began else report.at_unix_us, report.folder, self._next_revision(), report.result),
        )  # fmt: skip
        before = old[0] if old and old[0] in _COUNTED else None
        changes = ["state = 'running'", "started_us = ifnull(started_us, ?)"]
        if before != report.state:
            changes.append(f"{report.state} = {report.state} + 1")
            if before:
                changes.append(f"{before} = {before} - 1")
        self._change_job(report.job, ", ".join(changes), started_us)

    def _settle(self, number: JobId, now_us: int, wait: bool = True) -> bool:
        """End a job that is answered and of which every task has ended; whether it is answered but has to wait."""
        row = self._sql.execute(
            "SELECT tasks, finished, failed, killed, unsatisfiable, cancelling, reason FROM jobs "
            "WHERE id = ? AND answered AND ended_us IS NULL",
            (number,),
        ).fetchone()
        if row is None:
            return False
        tasks, finished, failed, killed, unsatisfiable, cancelling, reason = row
        running = self._one("SELECT running FROM jobs WHERE id = ?", number)
        heard = finished + failed + killed + unsatisfiable
        if wait and (running or (heard < tasks and not cancelling)):
            return True
        state: JobState = "cancelled" if cancelling else "done" if finished == tasks else "failed"
        if heard < tasks and not cancelling:
            state = "failed" if failed + killed + unsatisfiable else "done"
            reason = f"the ends of {tasks - heard} tasks were not reported"
        elif failed and not cancelling:
            reason = f"{failed} of {tasks} tasks failed"
            first = self._one("SELECT reason FROM tasks WHERE job = ? AND state = 'failed' ORDER BY place", number)
            reason += f"; the first: {first}" if first else ""
        elif killed and not cancelling:
            reason = f"{killed} of {tasks} tasks were killed"
        places = self._sql.execute("SELECT place FROM tasks WHERE job = ? AND state = 'running'", (number,)).fetchall()
        self._sql.executemany(
            "UPDATE tasks SET state = 'unknown', revision = ? WHERE job = ? AND place = ?",
            ((self._next_revision(), number, place) for (place,) in places),
        )
        self._change_job(number, "state = ?, reason = ?, ended_us = ?, running = 0", state, reason, now_us)
        return False

    def job(self, number: JobId) -> JobStatus | None:
        """One job."""
        row = self._sql.execute(f"SELECT {_JOB} FROM jobs WHERE id = ?", (number,)).fetchone()  # noqa: S608 - ours
        return _job(row) if row else None

    def jobs(self, state: str | None, user: str | None, before: int | None, limit: int) -> list[JobStatus]:
        """Jobs, the newest first, from below a number on."""
        rows = self._sql.execute(
            f"SELECT {_JOB} FROM jobs WHERE (?1 IS NULL OR state = ?1) AND (?2 IS NULL OR user = ?2) "  # noqa: S608 - ours
            "AND (?3 IS NULL OR id < ?3) ORDER BY id DESC LIMIT ?4",
            (state, user, before, limit),
        )
        return [_job(row) for row in rows]

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
        rows = self._sql.execute(
            f"SELECT {_TASK} FROM tasks WHERE job = ? AND place >= ? AND place < ?", (number, first, end)  # noqa: S608 - ours
        )  # fmt: skip
        known = {task.index: task for task in map(_task, rows)}
        unheard: TaskState = "pending" if not job.ended else "cancelled" if job.state == "cancelled" else "unknown"
        return [known.get(at) or TaskStatus(job=number, index=at, state=unheard) for at in range(first, end)]

    def result(self, number: JobId, place: int) -> bytes:
        """What a callable returned or raised, pickled; empty where there is nothing."""
        return self._one("SELECT result FROM tasks WHERE job = ? AND place = ?", number, place) or b""

    def changes(self, after: int, job: JobId | None, limit: int) -> list[JobStatus | TaskStatus]:
        """What has changed since a revision, in order of revisions; the tasks of a job come before the job."""
        jobs = self._sql.execute(
            f"SELECT {_JOB} FROM jobs WHERE revision > ?1 AND (?2 IS NULL OR id = ?2) ORDER BY revision LIMIT ?3",  # noqa: S608 - ours
            (after, job, limit),
        )
        tasks = self._sql.execute(
            f"SELECT {_TASK} FROM tasks WHERE revision > ?1 AND (?2 IS NULL OR job = ?2) ORDER BY revision LIMIT ?3",  # noqa: S608 - ours
            (after, job, limit),
        )
        found: list[JobStatus | TaskStatus] = [*map(_task, tasks), *map(_job, jobs)]
        found.sort(key=lambda status: status.revision)
        return found[:limit]

    def open_jobs(self) -> list[OpenJob]:
        """Jobs that have not ended, the oldest first."""
        rows = self._sql.execute(
            "SELECT id, first_task, description, cancelling FROM jobs WHERE ended_us IS NULL ORDER BY id"
        )
        decode = msgspec.json.Decoder(JobDescription).decode
        return [OpenJob(row[0], row[1], decode(row[2]), bool(row[3])) for row in rows]

    def ended_places(self, number: JobId) -> set[int]:
        """The places of a job's tasks that need not run again."""
        rows = self._sql.execute(
            "SELECT place FROM tasks WHERE job = ? AND state IN ('finished', 'failed', 'killed')", (number,)
        )
        return {row[0] for row in rows}


def _job(row: Sequence[Any]) -> JobStatus:
    return JobStatus(**dict(zip(JobStatus.__struct_fields__, row, strict=True)))


def _task(row: Sequence[Any]) -> TaskStatus:
    return TaskStatus(**dict(zip(TaskStatus.__struct_fields__, row, strict=True)))
