"""What attempts have used, beside the store's tasks: tasks of load tests use nothing, and cost nothing here."""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from volery.core.model import JobId
from volery.live.messages import TaskReport
from volery.live.status import TaskUsage

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


class Usages:
    """The rows of a store that say what the last attempts at tasks have used.

    Args:
        sql: writes; begin and commit are the store's.
        read: sees what is committed.
    """

    def __init__(self, sql: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._sql = sql
        self._read = read
        self._rows: list[tuple[Any, ...]] = []

    def note(self, job: JobId, place: int, report: TaskReport) -> None:
        """What a report says of the task at a place of a job, if it does."""
        if (used := report.usage) is not None:
            peak = used.memory_peak_bytes
            self._rows.append((job, place, report.number, used.cpu_us, peak, used.out_of_memory, used.held))

    def write(self) -> None:
        """Write down what was noted."""
        if self._rows:
            self._sql.executemany(_WRITE, self._rows)
            self._rows.clear()

    def forget(self) -> None:
        """Nothing of what was noted has happened."""
        self._rows.clear()

    def of(self, job: JobId, first: int, end: int) -> dict[tuple[int, int], TaskUsage]:
        """What tasks of a job have used, from one place on up to another: (place, attempt) -> usage."""
        return {
            (place, attempt): TaskUsage(cpu_us=cpu_us, memory_peak_bytes=peak, out_of_memory=bool(short), held=held)
            for place, attempt, cpu_us, peak, short, held in self._read.execute(_READ, (job, first, end))
        }
