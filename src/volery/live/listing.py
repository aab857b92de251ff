"""Questions about many jobs: which of them, and what their users have under way."""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from volery.live.status import JobStatus

JOB_COLUMNS: Final = ", ".join(JobStatus.__struct_fields__)
_WHERE: Final = ("state = ?", "user = ?", "id < ?", "instr(reason, ?)", "submitted_us >= ?")


class JobQuery(NamedTuple):
    """Which jobs are asked for; what is None does not matter.

    Args:
        state, user: theirs.
        before: their numbers are smaller.
        reason: theirs contains it.
        since_us: they were submitted then or later, microseconds since 1970.
    """

    state: str | None = None
    user: str | None = None
    before: int | None = None
    reason: str | None = None
    since_us: int | None = None


class UserLoad(NamedTuple):
    """What a user has under way: jobs by whether anything of them runs, and tasks."""

    user: str
    jobs_pending: int
    jobs_running: int
    tasks_pending: int
    tasks_running: int


def job_status(row: Sequence[Any]) -> JobStatus:
    """A job from a row of `JOB_COLUMNS`."""
    return JobStatus(**dict(zip(JobStatus.__struct_fields__, row, strict=True)))


def jobs(sql: sqlite3.Connection, query: JobQuery, limit: int) -> list[JobStatus]:
    """Jobs, the newest first."""
    asked = [(words, value) for words, value in zip(_WHERE, query, strict=True) if value is not None]
    where = " AND ".join(words for words, _ in asked) or "1"
    rows = sql.execute(
        f"SELECT {JOB_COLUMNS} FROM jobs WHERE {where} ORDER BY id DESC LIMIT ?",  # noqa: S608 - ours
        (*(value for _, value in asked), limit),
    )
    return [job_status(row) for row in rows]


def loads(sql: sqlite3.Connection, user: str | None = None) -> list[UserLoad]:
    """What every user has under way, or one; nobody who has nothing."""
    rows = sql.execute(
        "SELECT user, sum(state = 'pending'), sum(state = 'running'), "
        "sum(tasks - running - finished - failed - killed - unsatisfiable), sum(running) "
        "FROM jobs WHERE ended_us IS NULL AND (?1 IS NULL OR user = ?1) GROUP BY user ORDER BY user",
        (user,),
    )
    return [UserLoad(*row) for row in rows]
