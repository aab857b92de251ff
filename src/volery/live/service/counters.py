"""Counters beside the rows of the store: what users have under way, and what attempts have used."""

from __future__ import annotations

import sqlite3
from typing import Any, Final, NamedTuple

from volery.core.model import JobId
from volery.live.messages import TaskReport
from volery.live.status import JobState, TaskUsage

Counts = tuple[int, int, int, int]
"""Jobs that are pending and running, tasks that are pending and running."""
NOTHING: Final[Counts] = (0, 0, 0, 0)


class UserLoad(NamedTuple):
    """The load of a user: jobs that run or wait, and tasks that run or wait."""

    user: str
    jobs_pending: int
    jobs_running: int
    tasks_pending: int
    tasks_running: int


def counts_of(state: JobState, pending: int, running: int) -> Counts:
    """The load of a job that has not ended, with so many tasks that wait and that run."""
    waits = state == "pending"
    return int(waits), int(not waits), pending, running


class UserCounters:
    """The counts of all users as of the last commit.

    Args:
        sql: they are counted there once.
    """

    def __init__(self, sql: sqlite3.Connection) -> None:
        rows = sql.execute(
            "SELECT user, sum(state = 'pending'), sum(state = 'running'), "
            "sum(tasks - running - finished - failed - killed - unsatisfiable), sum(running) "
            "FROM jobs WHERE ended_us IS NULL GROUP BY user"
        )
        self._counts: dict[str, Counts] = {user: tuple(counts) for user, *counts in rows}
        self._changed: dict[str, Counts] = {}

    def change(self, user: str, before: Counts, after: Counts) -> None:
        """A job of a user counts otherwise from the next commit on."""
        now = self._changed.get(user) or self._counts.get(user, NOTHING)
        self._changed[user] = (
            now[0] - before[0] + after[0], now[1] - before[1] + after[1],
            now[2] - before[2] + after[2], now[3] - before[3] + after[3],
        )  # fmt: skip

    def commit(self) -> None:
        # A commit may run in another thread than whoever asks: what was asked for stays whole.
        counts = self._counts | self._changed
        self._counts = {user: one for user, one in counts.items() if one != NOTHING}
        self._changed.clear()

    def roll_back(self) -> None:
        self._changed.clear()

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """The loads of all users that have any, or of one user."""
        counts = self._counts
        names = sorted(counts) if user is None else [user] if user in counts else []
        return [UserLoad(name, *counts[name]) for name in names]


TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS usages (job INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL, "
    "cpu_us INTEGER, memory_peak_bytes INTEGER, out_of_memory INTEGER NOT NULL, held TEXT NOT NULL, "
    "PRIMARY KEY (job, place)) WITHOUT ROWID"
)
_WRITE: Final = "INSERT OR REPLACE INTO usages VALUES (?, ?, ?, ?, ?, ?, ?)"
_READ: Final = (
    "SELECT place, attempt, cpu_us, memory_peak_bytes, out_of_memory, held FROM usages "
    "WHERE job = ? AND place >= ? AND place < ?"
)


class UsageTable:
    """The rows of a store with the usage of the last attempts at tasks.

    Args:
        sql: writes; begin and commit are the store's.
        read: sees what is committed.
    """

    def __init__(self, sql: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._sql = sql
        self._read = read
        self._rows: list[tuple[Any, ...]] = []

    def note(self, job: JobId, place: int, report: TaskReport) -> None:
        """Note the usage in a report about the task at a place of a job."""
        if (used := report.usage) is not None:
            peak = used.memory_peak_bytes
            self._rows.append((job, place, report.number, used.cpu_us, peak, used.out_of_memory, used.held))

    def write(self) -> None:
        if self._rows:
            self._sql.executemany(_WRITE, self._rows)
            self._rows.clear()

    def forget(self) -> None:
        self._rows.clear()

    def of(self, job: JobId, first: int, end: int) -> dict[tuple[int, int], TaskUsage]:
        """The usage of a job's tasks between two places: (place, attempt) -> usage."""
        return {
            (place, attempt): TaskUsage(cpu_us=cpu_us, memory_peak_bytes=peak, out_of_memory=bool(short), held=held)
            for place, attempt, cpu_us, peak, short, held in self._read.execute(_READ, (job, first, end))
        }
