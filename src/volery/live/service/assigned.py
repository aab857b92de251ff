"""Assignments of jobs to schedulers in the store: all moves, and the jobs that another scheduler than usual has."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from typing import Final

from volery.core.assignment import Owner
from volery.core.events import Move
from volery.core.model import JobId

_MOVES: Final = (
    "CREATE TABLE IF NOT EXISTS moves (epoch INTEGER PRIMARY KEY, origin TEXT NOT NULL, heir TEXT NOT NULL, "
    "at_us INTEGER NOT NULL)"
)
_ASSIGNMENTS: Final = (
    "CREATE TABLE IF NOT EXISTS assignments (job INTEGER PRIMARY KEY, entry TEXT NOT NULL, epoch INTEGER NOT NULL, "
    "note TEXT NOT NULL)"
)
TABLES: Final = (_MOVES, _ASSIGNMENTS)
NOTE_COLUMN: Final = "ifnull((SELECT note FROM assignments WHERE assignments.job = jobs.id), '') AS moved"
"""Of a job's row: why another scheduler than usual has it; empty where the usual one does."""


class AssignmentBook:
    """Moves and assignments, on the connections of the store.

    Args:
        write: within the batch that is under way.
        read: what is committed.
    """

    def __init__(self, write: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._write = write
        self._read = read

    def moves(self) -> list[Move]:
        """All moves, in order."""
        return [Move(*row) for row in self._read.execute("SELECT epoch, origin, heir FROM moves ORDER BY epoch")]

    def owners(self) -> list[tuple[JobId, Owner]]:
        """Open jobs that are not at their usual scheduler."""
        query = (
            "SELECT job, entry, epoch FROM assignments WHERE job IN (SELECT id FROM jobs INDEXED BY jobs_open "
            "WHERE ended_us IS NULL)"
        )
        return [(job, Owner(entry, epoch)) for job, entry, epoch in self._read.execute(query)]

    def open_jobs(self) -> list[tuple[JobId, str]]:
        """Jobs that have not ended, those of the batch under way included, with their users."""
        query = "SELECT id, user FROM jobs INDEXED BY jobs_open WHERE ended_us IS NULL ORDER BY id"
        return self._write.execute(query).fetchall()

    def note(self, jobs: Iterable[JobId], owner: Owner, note: str) -> None:
        """Write down where jobs are now, and why; a job whose own batch was rolled back is left out."""
        query = (
            "INSERT OR REPLACE INTO assignments SELECT ?1, ?2, ?3, ?4 WHERE EXISTS (SELECT 1 FROM jobs WHERE id = ?1)"
        )
        self._write.executemany(query, ((job, *owner, note) for job in jobs))

    def add(self, move: Move, jobs: Iterable[JobId], note: str, at_us: int) -> None:
        """Write down a move with the jobs that it concerns."""
        self._write.execute(
            "INSERT OR REPLACE INTO moves VALUES (?, ?, ?, ?)", (move.epoch, move.origin, move.heir, at_us)
        )
        self.note(jobs, Owner(move.heir, move.epoch), note)
