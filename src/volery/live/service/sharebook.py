"""What is kept of shares beside the jobs: who has changed whose weight, and which attempts were preempted for whom.

Both are histories: nothing in them is ever changed or deleted.
"""

from __future__ import annotations

import sqlite3
from typing import Any, Final

from volery.core.model import JobId, Time
from volery.core.shares import ShareChange
from volery.live.messages import PreemptionReport
from volery.live.service import listing
from volery.live.status import PreemptionStatus, SharePart, WeightChange

_TABLES: Final = """
CREATE TABLE IF NOT EXISTS reweighs (
  number INTEGER PRIMARY KEY, name TEXT NOT NULL, weight INTEGER NOT NULL, was INTEGER NOT NULL, by TEXT NOT NULL,
  at_us INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS reweighs_by_name ON reweighs (name, number);
CREATE TABLE IF NOT EXISTS preemptions (
  number INTEGER PRIMARY KEY, at_us INTEGER NOT NULL, by TEXT NOT NULL, reason TEXT NOT NULL, task INTEGER NOT NULL,
  job INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL, user TEXT NOT NULL,
  for_job INTEGER NOT NULL, for_place INTEGER NOT NULL, for_user TEXT NOT NULL,
  loss_due INTEGER, loss_before INTEGER, loss_after INTEGER, gain_due INTEGER, gain_before INTEGER, gain_after INTEGER);
CREATE UNIQUE INDEX IF NOT EXISTS preemptions_of_task ON preemptions (task, attempt, at_us);
CREATE INDEX IF NOT EXISTS preemptions_of_job ON preemptions (job, number);
CREATE INDEX IF NOT EXISTS preemptions_of_place ON preemptions (job, place);
CREATE INDEX IF NOT EXISTS preemptions_for_job ON preemptions (for_job, number);
CREATE INDEX IF NOT EXISTS preemptions_of_user ON preemptions (user, number);
CREATE INDEX IF NOT EXISTS preemptions_for_user ON preemptions (for_user, number)
"""
_NOTE: Final = (
    "INSERT OR IGNORE INTO preemptions (at_us, by, reason, task, job, place, attempt, user, for_job, for_place, "
    "for_user, loss_due, loss_before, loss_after, gain_due, gain_before, gain_after) "
    "SELECT ?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12, ?13, ?14, ?15, ?16, ?17 "
    "WHERE NOT EXISTS (SELECT 1 FROM preemptions WHERE task = ?4 AND at_us = ?1)"
)
_LISTED: Final = (
    "number, at_us, by, reason, job, place, attempt, user, for_job, for_place, for_user, loss_due, loss_before, "
    "loss_after, gain_due, gain_before, gain_after"
)
NOBODY: Final = -1


class ShareBook:
    """The two histories, in the database of jobs.

    Args:
        write: the connection whose transaction the caller begins and commits.
        read: sees what is committed.
    """

    def __init__(self, write: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._write = write
        self._read = read
        for statement in _TABLES.split(";"):
            write.execute(statement)

    def weights(self) -> tuple[int, dict[str, int]]:
        """How many changes there have been, and by name the weights that they have left."""
        number = self._write.execute("SELECT coalesce(max(number), 0) FROM reweighs").fetchone()[0]
        rows = self._write.execute("SELECT name, weight, max(number) FROM reweighs GROUP BY name ORDER BY name")
        return number, {name: weight for name, weight, _ in rows}

    def reweigh(self, name: str, weight: int, was: int, by: str, at_us: Time) -> int:
        """Note that somebody, by his name, has given a user or an organisation another weight; returns its number."""
        row = self._write.execute(
            "INSERT INTO reweighs (name, weight, was, by, at_us) VALUES (?, ?, ?, ?, ?)", (name, weight, was, by, at_us)
        )
        assert row.lastrowid is not None
        return row.lastrowid

    def changes(self, name: str | None, limit: int) -> list[WeightChange]:
        """Who has changed weights, or one, the last change first."""
        rows = self._read.execute(
            "SELECT name, weight, was, by, at_us FROM reweighs WHERE ?1 IS NULL OR name = ?1 "
            "ORDER BY number DESC LIMIT ?2",
            (name, limit),
        )
        return [WeightChange(*row) for row in rows]

    def note(self, told: PreemptionReport) -> None:
        """Note a preemption; what was told before is noted once."""
        fact = told.fact
        job, place, user = self._place(fact.task)
        for_job, for_place, for_user = self._place(fact.beneficiary)
        attempt = self._number_of(fact.attempt, job, place)
        row = (
            told.at_unix_us, told.by, fact.reason, fact.task, job, place, attempt, user, for_job, for_place,
            for_user, *_parts(fact.loser), *_parts(fact.winner),
        )  # fmt: skip
        self._write.execute(_NOTE, row)

    def _number_of(self, launched: int, job: JobId, place: int) -> int:
        """The number for people of an attempt, by what was reported of the task's last one."""
        query = "SELECT attempt, launched FROM tasks WHERE job = ? AND place = ?"
        for number, last in self._write.execute(query, (job, place)):
            # A report of an attempt may be on its way when the preemption is told; or the next one has begun. Another
            # incarnation of the scheduler numbers from far away, so that only the sign of the difference counts.
            return max(0, int(number) + max(-1, min(launched - last, 1))) if last >= 0 else int(number)
        return 0

    def _place(self, task: int) -> tuple[JobId, int, str]:
        """The job of a task, its place there, and whose it is."""
        for job, place in listing.places(self._write, [task]):
            return job, place, self._write.execute("SELECT user FROM jobs WHERE id = ?", (job,)).fetchone()[0]
        return NOBODY, NOBODY, ""

    def preemptions(
        self, user: str | None, job: JobId | None, before: int | None, limit: int
    ) -> list[PreemptionStatus]:  # fmt: skip
        """The last ones first.

        Args:
            user, job: only those by which this one has lost, or gained.
            before: only those with smaller numbers.
            limit: at most so many.
        """
        wanted = [("user", user), ("job", job)]
        asked = [(f"({name} = ? OR for_{name} = ?)", value) for name, value in wanted if value is not None]
        where = " AND ".join(["number < ?", *(words for words, _ in asked)])
        values = [value for _, value in asked for _ in range(2)]
        rows = self._read.execute(
            f"SELECT {_LISTED} FROM preemptions WHERE {where} ORDER BY number DESC LIMIT ?",  # noqa: S608 - ours
            (1 << 62 if before is None else before, *values, limit),
        )
        return [_status(*row) for row in rows]

    def last_lost(self, job: JobId, place: int) -> PreemptionStatus | None:
        """How a task was last preempted; None: it never was."""
        asked = f"SELECT {_LISTED} FROM preemptions WHERE job = ? AND place = ? ORDER BY number DESC LIMIT 1"  # noqa: S608 - ours
        row = self._read.execute(asked, (job, place)).fetchone()
        return None if row is None else _status(*row)


def _parts(change: ShareChange | None) -> tuple[int | None, int | None, int | None]:
    return (None, None, None) if change is None else (change.due, change.before, change.after)


def _status(
    number: int, at_us: Time, by: str, reason: str, job: JobId, place: int, attempt: int, user: str,
    for_job: JobId, for_place: int, for_user: str, *parts: Any,
) -> PreemptionStatus:  # fmt: skip
    return PreemptionStatus(
        number=number, at_us=at_us, by=by, reason=reason, job=job, index=place, attempt=attempt, user=user,
        for_job=for_job, for_index=for_place, for_user=for_user,
        loss=None if parts[0] is None else SharePart(*(part / 1e6 for part in parts[:3])),
        gain=None if parts[3] is None else SharePart(*(part / 1e6 for part in parts[3:])),
    )  # fmt: skip
