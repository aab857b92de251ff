"""What users have under way, counted as it changes: a million jobs that wait are not counted anew for each question."""

from __future__ import annotations

import sqlite3
from typing import Final, NamedTuple

from volery.live.status import JobState

Counts = tuple[int, int, int, int]
"""Jobs that are pending and running, tasks that are pending and running."""
NOTHING: Final[Counts] = (0, 0, 0, 0)


class UserLoad(NamedTuple):
    """What a user has under way: jobs by whether anything of them runs, and tasks."""

    user: str
    jobs_pending: int
    jobs_running: int
    tasks_pending: int
    tasks_running: int


def counts_of(state: JobState, pending: int, running: int) -> Counts:
    """What a job that has not ended adds, with so many tasks that wait and that run."""
    waits = state == "pending"
    return int(waits), int(not waits), pending, running


class Tally:
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
        """What has changed holds now."""
        # A commit may run in another thread than whoever asks: what was asked for stays whole.
        counts = self._counts | self._changed
        self._counts = {user: one for user, one in counts.items() if one != NOTHING}
        self._changed.clear()

    def roll_back(self) -> None:
        """Nothing has changed."""
        self._changed.clear()

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """What every user has under way, or one; nobody who has nothing."""
        counts = self._counts
        names = sorted(counts) if user is None else [user] if user in counts else []
        return [UserLoad(name, *counts[name]) for name in names]
