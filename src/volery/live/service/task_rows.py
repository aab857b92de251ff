"""Rows of tasks, and of jobs beside them, by the revision of their last change and by what is left to do."""

from __future__ import annotations

import sqlite3
from array import array
from collections.abc import Callable, Sequence
from typing import Any, Final

from msgspec.structs import replace

from volery.core.model import Address, JobId, TaskId
from volery.live.jobs import TASKS_MAX
from volery.live.service.checksums import CHECKED, check_row, fetched
from volery.live.service.rows import SELECT_JOB, SELECT_TASK, UsageTable, listed_job, task_status
from volery.live.status import JobStatus, TaskState, TaskStatus

_RESULT: Final = CHECKED["tasks"].index("result")
_OPEN: Final = "SELECT id FROM jobs INDEXED BY jobs_open WHERE ended_us IS NULL"
REVISION_MAX: Final = (1 << 63) - 1


WrittenRow = tuple[int, Callable[[Sequence[Any]], JobStatus | TaskStatus], Sequence[Any]]
"""The revision of a row that was written, what makes a status of it, and the row."""


def written_anyhow(sql: sqlite3.Connection, revision: int, job: JobId, place: int | None = None) -> WrittenRow:
    """The row of a task, or of a job, that may have been damaged before it was written."""
    if place is None:
        return revision, listed_job, fetched(sql, f"{SELECT_JOB} FROM jobs WHERE id = ?", (job,))[0]
    query = f"{SELECT_TASK} FROM tasks WHERE job = ? AND place = ?"
    return revision, task_status, fetched(sql, query, (job, place))[0]


class TaskRows:
    """Tasks, and jobs by the revision of their last change, in the rows that a connection sees.

    Args:
        job: finds a job.
        usages: usages of the tasks.
    """

    def __init__(self, sql: sqlite3.Connection, job: Callable[[JobId], JobStatus | None], usages: UsageTable) -> None:
        self._sql = sql
        self._job = job
        self._usages = usages

    def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job from a place on, in order."""
        job = self._job(number)
        if job is None:
            return []

        end = min(first + limit, job.tasks)
        query = f"{SELECT_TASK} FROM tasks WHERE job = ? AND place >= ? AND place < ?"

        usages = self._usages.of(number, first, end)
        statuses = dict[int, TaskStatus]()

        for row in fetched(self._sql, query, (number, first, end)):
            # A damaged usage has no attempt, and is shown with whatever attempt there is.
            attempt, usage = usages.get(row[1], (None, None))
            statuses[row[1]] = task_status(row, usage if attempt in (None, row[4]) else None)

        default_state: TaskState = (
            "pending" if not job.ended else "cancelled" if job.state == "cancelled" else "unknown"
        )
        return [statuses.get(at) or TaskStatus(job=number, index=at, state=default_state) for at in range(first, end)]

    def result(self, number: JobId, place: int) -> bytes:
        """The pickled result or exception of a callable; empty where there is none."""
        query = f"SELECT {', '.join(CHECKED['tasks'])}, checksum FROM tasks WHERE job = ? AND place = ?"  # noqa: S608 - ours
        for row in fetched(self._sql, query, (number, place)):
            check_row("tasks", row)
            return bytes(row[_RESULT])
        return b""

    def drained(self) -> set[Address]:
        return {node for (node,) in self._sql.execute("SELECT node FROM drained")}

    def open_ids(self) -> Sequence[JobId]:
        """The numbers of jobs that have not ended, the oldest first."""
        return array("q", sorted(number for (number,) in self._sql.execute(_OPEN)))

    def open_users(self) -> Sequence[tuple[JobId, str]]:
        """The jobs that have not ended, and whose they are."""
        return self._sql.execute("SELECT id, user FROM jobs INDEXED BY jobs_open WHERE ended_us IS NULL").fetchall()

    def pending_after(self, number: JobId, user: str, limit: int) -> list[JobId]:
        """The first jobs of a user that were submitted after another one and wait."""
        query = (
            "SELECT id FROM jobs INDEXED BY jobs_open WHERE ended_us IS NULL AND user = ? AND id > ? "
            "AND state = 'pending' ORDER BY id LIMIT ?"
        )
        return [job for (job,) in self._sql.execute(query, (user, number, limit))]

    def open_user(self, number: JobId) -> str | None:
        """The user of a job that has not ended; None where it has."""
        row = self._sql.execute("SELECT user FROM jobs WHERE id = ? AND ended_us IS NULL", (number,)).fetchone()
        return row[0] if row else None

    def changes(self, start: int, limit: int, end: int = REVISION_MAX) -> list[JobStatus | TaskStatus]:
        """Changes between two revisions, in their order; the tasks of a job come before the job."""
        newest = "WHERE revision > ? AND revision <= ? ORDER BY revision LIMIT ?"
        tasks = fetched(self._sql, f"{SELECT_TASK} FROM tasks {newest}", (start, end, limit))
        jobs = fetched(self._sql, f"{SELECT_JOB} FROM jobs {newest}", (start, end, limit))

        changes: list[JobStatus | TaskStatus] = [*map(task_status, tasks), *map(listed_job, jobs)]

        # A damaged row may have another revision than the index by which it was found: whoever reads on from the last
        # one would miss changes, or never come to an end.
        changes = [item if start < item.revision <= end else replace(item, revision=start + 1) for item in changes]
        changes.sort(key=lambda status: status.revision)

        return changes[:limit]

    def revisions(self, job: JobId, first: int, end: int, start: int, last: int) -> list[tuple[int, int]]:
        """Revision and place of each task between two places of a job that has changed between two revisions."""
        query = (
            "SELECT revision, place FROM tasks WHERE job = ? AND place >= ? AND place < ? "
            "AND revision > ? AND revision <= ?"
        )
        return self._sql.execute(query, (job, first, end, start, last)).fetchall()

    def tasks_at(self, job: JobId, places: Sequence[int]) -> list[TaskStatus]:
        """The tasks of a job at some places, without those that have no row, and without their usage."""
        query = f"{SELECT_TASK} FROM tasks WHERE job = ? AND place = ?"
        return [task_status(row) for place in places for row in fetched(self._sql, query, (job, place))]

    def begun(self, number: JobId, first: int = 0, end: int = TASKS_MAX) -> dict[int, tuple[int, int]]:
        """The attempts of tasks between two places that have begun and not ended: place -> how many, and a number.

        The number is the scheduler's own, of the last attempt.
        """
        query = (
            "SELECT place, attempt, launched FROM tasks WHERE job = ? AND place >= ? AND place < ? "
            "AND node != '' AND state NOT IN ('finished', 'failed', 'killed')"
        )
        rows = self._sql.execute(query, (number, first, end))
        return {place: (attempt + 1, launched) for place, attempt, launched in rows}

    def ended_places(self, number: JobId, first: int = 0, end: int = TASKS_MAX) -> set[int]:
        """The places between two of a job's tasks that need not run again."""
        query = (
            "SELECT place FROM tasks WHERE job = ? AND place >= ? AND place < ? "
            "AND state IN ('finished', 'failed', 'killed')"
        )
        return {place for (place,) in self._sql.execute(query, (number, first, end))}

    def first_task(self, number: JobId) -> TaskId | None:
        row = self._sql.execute("SELECT first_task FROM jobs WHERE id = ?", (number,)).fetchone()
        return row[0] if row else None

    def cancelling(self, number: JobId) -> bool:
        row = self._sql.execute("SELECT cancelling FROM jobs WHERE id = ?", (number,)).fetchone()
        return bool(row and row[0])

    def is_answered(self, number: JobId) -> bool:
        """True if the scheduler of a job has finished it; reports of its tasks may come later."""
        row = self._sql.execute("SELECT answered FROM jobs WHERE id = ?", (number,)).fetchone()
        return bool(row and row[0])
