"""Rows of the store: jobs, tasks and their usage as they are stored, counted by user, searched, and read again."""

from __future__ import annotations

import asyncio
import hashlib
import sqlite3
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from volery.core.model import JobId, TaskId, Time
from volery.live.jobs import JobDescription
from volery.live.messages import AttemptState, AttemptUsage, identity_of
from volery.live.service.checksums import CHECKED, RowDamageError, check_row, damage_of, fetched, row_checksum
from volery.live.status import JobState, JobStatus, TaskState, TaskStatus, TaskUsage

NOTE_COLUMN: Final = "ifnull((SELECT note FROM assignments WHERE assignments.job = jobs.id), '') AS moved"
"""The reason in a job's row why another scheduler than usual has the job; empty where the usual one has it."""
SELECT_JOB: Final = f"SELECT {', '.join(f'jobs.{name}' for name in (*CHECKED['jobs'], 'checksum'))}, {NOTE_COLUMN}"
RESULT_BYTES: Final = 1_000
"""Longest result in a list; the row of a longer one is compared with its checksum only where the result is read."""
_SHORT_RESULT: Final = f"CASE WHEN length(result) <= {RESULT_BYTES} THEN result END"
SELECT_TASK: Final = "SELECT " + ", ".join(
    _SHORT_RESULT if name == "result" else name for name in (*CHECKED["tasks"], "checksum")
)
ORDERS: Final = ("id", "name", "user", "state", "reason", "tasks", "submitted_us", "ended_us")
"""Columns that jobs can be sorted by."""
_WHERE: Final = ("state = ?", "user = ?", "id < ?", "instr(reason, ?)", "submitted_us >= ?", "instr(name, ?)")

Counts = tuple[int, int, int, int]
"""Jobs that are pending and running, tasks that are pending and running."""
NOTHING: Final[Counts] = (0, 0, 0, 0)


class JobQuery(NamedTuple):
    """A query of jobs; fields that are None do not matter.

    Args:
        state, user: state and user of the jobs.
        before: number above those of the jobs.
        reason, name: text that reason or name contains.
        since_us: earliest submission, microseconds since 1970.
    """

    state: str | None = None
    user: str | None = None
    before: int | None = None
    reason: str | None = None
    since_us: int | None = None
    name: str | None = None


class JobOrder(NamedTuple):
    """The order of listed jobs, and the first of them; equal ones: the newest first.

    Args:
        falling: true: the largest first.
        skip: number of jobs that are left out first.
    """

    by: str = "id"
    falling: bool = True
    skip: int = 0


NEWEST: Final = JobOrder()


def job_status(row: Sequence[Any]) -> JobStatus:
    """A job from a row of `SELECT_JOB`.

    Raises:
        sqlite3.DatabaseError: the row is damaged.
    """
    check_row("jobs", row[:-1])
    return sound_job(row)


def sound_job(row: Sequence[Any]) -> JobStatus:
    """A job from a row of `SELECT_JOB` that is known to be sound."""
    (
        number, _, _, _, _, _, name, user, state, reason, tasks, running, finished, failed, killed, unsatisfiable,
        submitted_us, started_us, ended_us, revision, _, moved,
    ) = row  # fmt: skip
    return JobStatus(
        id=number, name=name, user=user, state=state, reason=reason, tasks=tasks, running=running, finished=finished,
        failed=failed, killed=killed, unsatisfiable=unsatisfiable, submitted_us=submitted_us, started_us=started_us,
        ended_us=ended_us, moved=moved, revision=revision,
    )  # fmt: skip


def listed_job(row: Sequence[Any]) -> JobStatus:
    """A job of a list; one whose row is damaged hides no other."""
    try:
        return job_status(row)
    except sqlite3.DatabaseError as error:
        number = row[0]
        revision = row[CHECKED["jobs"].index("revision")]
        return JobStatus(
            id=number, name="", user="", state="damaged", reason=str(error), tasks=0, submitted_us=0,
            revision=revision if isinstance(revision, int) else 0,
        )  # fmt: skip


SLICE: Final = 4_096
"""Jobs that are searched in one piece, which takes some 2 ms."""
READ: Final = 500
"""Jobs that are read in one piece."""


class JobListings:
    """Jobs in the rows that a connection sees."""

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql

    def jobs(self, query: JobQuery, limit: int, order: JobOrder = NEWEST) -> list[JobStatus]:
        """Jobs, the newest first unless another order is asked for."""
        assert order.by in ORDERS
        conditions = [(words, value) for words, value in zip(_WHERE, query, strict=True) if value is not None]
        clause = " AND ".join(words for words, _ in conditions) or "1"
        rows = fetched(
            self._sql, f"{SELECT_JOB} FROM jobs WHERE {clause} "
            f"ORDER BY {order.by} {'DESC' if order.falling else 'ASC'}, id DESC LIMIT ? OFFSET ?",
            (*(value for _, value in conditions), limit, order.skip),
        )  # fmt: skip
        return [listed_job(row) for row in rows]

    async def search(self, query: JobQuery, limit: int, order: JobOrder = NEWEST) -> list[JobStatus]:
        """As `jobs`, in pieces where many are looked at or read; the event loop does other work between them.

        A job that changes meanwhile stays where it was when it was looked at, if the query still holds for it.
        """
        if is_indexed(query, order):
            return await self._newest(query, limit) if order == NEWEST else self.jobs(query, limit, order)

        conditions = [(words, value) for words, value in zip(_WHERE, query, strict=True) if value is not None]
        clause = " AND ".join(("id > ?", "id <= ?", *(words for words, _ in conditions)))
        words = (
            f"SELECT id, coalesce({order.by}, -1) FROM jobs WHERE {clause} "  # noqa: S608 - ours
            f"ORDER BY {order.by} {'DESC' if order.falling else 'ASC'}, id DESC LIMIT ?"
        )

        count = order.skip + limit
        best = list[tuple[int, Any]]()
        (last,) = self._sql.execute("SELECT coalesce(max(id), 0) FROM jobs").fetchone()
        last = last if query.before is None else min(last, query.before - 1)
        oldest_first = order.by == "id" and not order.falling

        for end in range(SLICE - 1, last + SLICE, SLICE) if oldest_first else range(last, -1, -SLICE):
            best += fetched(self._sql, words, (end - SLICE, end, *(value for _, value in conditions), count))

            # Pieces are in the order of ids: what follows cannot come before what there is.
            if order.by == "id" and len(best) >= count:
                break

            # A bounded number is kept, and rarely sorted.
            if len(best) > 2 * count:
                _sort(best, order)
                del best[count:]

            await asyncio.sleep(0)

        _sort(best, order)

        statuses = []
        for number, _ in best[order.skip : count]:
            # The row may have left for the archive since its number was found.
            row = self._row(number)
            statuses.append(listed_job(row) if row else None)
            if len(statuses) % READ == 0:
                await asyncio.sleep(0)

        return [status for status in statuses if status is not None]

    async def _newest(self, query: JobQuery, limit: int) -> list[JobStatus]:
        statuses = list[JobStatus]()
        while piece := self.jobs(query, min(READ, limit - len(statuses))):
            statuses += piece
            if len(piece) < READ:
                break
            query = query._replace(before=piece[-1].id)
            await asyncio.sleep(0)
        return statuses

    def job(self, number: JobId) -> JobStatus | None:
        """A job; None where there is none.

        Raises:
            sqlite3.DatabaseError: its row is damaged.
        """
        row = self._row(number)
        return job_status(row) if row else None

    def _row(self, number: JobId) -> Sequence[Any] | None:
        return next(iter(fetched(self._sql, f"{SELECT_JOB} FROM jobs WHERE id = ?", (number,))), None)

    def allocations_us(self, limit: int) -> list[Time]:
        """Allocation times of tasks of the jobs submitted last: from submission to the start of the first attempt.

        Args:
            limit: most jobs that are read, and most of their tasks.
        """
        rows = self._sql.execute(
            "SELECT tasks.started_us, submitted_us FROM "
            "(SELECT id, submitted_us FROM jobs WHERE started_us IS NOT NULL ORDER BY id DESC LIMIT ?1) AS last "
            "CROSS JOIN tasks ON tasks.job = last.id AND tasks.attempt = 0 AND tasks.started_us IS NOT NULL LIMIT ?1",
            (limit,),
        )
        return [max(0, started_us - submitted_us) for started_us, submitted_us in rows]

    def places(self, tasks: Sequence[TaskId]) -> list[tuple[JobId, int]]:
        """The job of each task, and its place there, without tasks of no job; numbers of tasks grow from job to job."""
        places = []
        for task in tasks:
            low = 0
            high = self._sql.execute("SELECT coalesce(max(id), -1) FROM jobs").fetchone()[0]

            # A search by halves: jobs have no index by the numbers of their tasks, and ids may have gaps.
            while low <= high:
                middle = (low + high) // 2
                row = self._sql.execute(
                    "SELECT id, first_task, tasks FROM jobs WHERE id >= ? AND id <= ? ORDER BY id LIMIT 1",
                    (middle, high),
                ).fetchone()
                if row is None or task < row[1]:
                    high = middle - 1
                elif task >= row[1] + row[2]:
                    low = row[0] + 1
                else:
                    places.append((row[0], task - row[1]))
                    break

        return places


def _sort(rows: list[tuple[int, Any]], order: JobOrder) -> None:
    # Sorts are stable: by the second key first, so that equal rows have the newest job in front.
    rows.sort(key=lambda row: row[0], reverse=True)
    rows.sort(key=lambda row: row[1], reverse=order.falling)


def is_indexed(query: JobQuery, order: JobOrder) -> bool:
    """True if an index finds the jobs of a query."""
    if query.state is not None or query.reason is not None or query.since_us is not None or query.name:
        return False
    return order.by == "id" or (order.by == "user" and order.falling)


class JobRow(msgspec.Struct):
    """A job that is under way, as its row will be."""

    id: JobId
    key: str | None
    description: int
    first_task: TaskId
    name: str
    user: str
    tasks: int
    unsatisfiable: int
    submitted_us: Time
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

    reported: bytearray | None = None
    """Per task, true if it may have a row; None: every task may have one."""
    counted: Counts = NOTHING
    """What it adds to its user's load."""
    began_us: Time | None = None
    """The monotonic clock when the start was reported; None: another incarnation of this program noted it."""
    last_end_us: Time = 0
    """The latest end of its tasks that this program has noted."""

    def end_us(self, now_us: Time, monotonic_us: Time | None = None) -> Time:
        """The moment of its end, if it ends now: its start and the time since, however the clock was set meanwhile.

        The start was reported a while after it was, so the time since is too short by that; but no job ends before its
        tasks do.
        """
        if self.started_us is None:
            return max(now_us, self.submitted_us)
        if self.began_us is None or monotonic_us is None:
            return max(now_us, self.started_us, self.last_end_us)
        return max(self.started_us + monotonic_us - self.began_us, self.last_end_us)

    @property
    def identity(self) -> JobId:
        return identity_of(self.id, self.first_task)

    def count(self, state: TaskState, by: int) -> None:
        if state == "running":
            self.running += by
        elif state == "finished":
            self.finished += by
        elif state == "failed":
            self.failed += by
        elif state == "killed":
            self.killed += by

    def load(self) -> Counts:
        if self.ended_us is not None:
            return NOTHING
        ended = self.finished + self.failed + self.killed + self.unsatisfiable
        return counts_of(self.state, self.tasks - self.running - ended, self.running)

    def row(self, revision: int) -> tuple[Any, ...]:
        """All columns of `CHECKED`, with the next revision, and the row's checksum."""
        row = (
            self.id, self.key, self.description, self.first_task, int(self.answered), int(self.cancelling), self.name,
            self.user, self.state, self.reason, self.tasks, self.running, self.finished, self.failed, self.killed,
            self.unsatisfiable, self.submitted_us, self.started_us, self.ended_us, revision,
        )  # fmt: skip
        return (*row, row_checksum(row))


def state_after(state: AttemptState, job: JobRow) -> TaskState:
    """The state that a report puts its task in.

    One that was killed, or could not begin, runs again, unless its job is given up.
    """
    match state:
        case "killed" | "unstarted":
            return "killed" if job.cancelling else "pending"
        case _:
            return state


def encoded(description: JobDescription) -> bytes:
    """A merged description as it is kept: equal ones are equal bytes."""
    return msgspec.json.encode(description, order="deterministic")


def digest_of(content: bytes) -> bytes:
    """The key under which the store keeps an encoded description once."""
    return hashlib.sha256(content).digest()


def reading(path: Path, options: str = "") -> sqlite3.Connection:
    """Open the store of jobs to be read.

    Args:
        options: parameters of SQLite, beginning with an ampersand.

    Raises:
        sqlite3.Error: it cannot be.
    """
    return sqlite3.connect(
        f"{path.absolute().as_uri()}?mode=ro{options}", uri=True, timeout=5.0, check_same_thread=False
    )


def sound_content(digest: bytes, content: bytes) -> bytes:
    """An encoded description that has its digest.

    Raises:
        sqlite3.DatabaseError: it has another.
    """
    if not isinstance(content, bytes) or digest_of(content) != digest:
        raise RowDamageError(f"the description with digest {digest.hex()[:16]} is damaged")
    return content


def key_of(user: str, key: str) -> str | None:
    """A key as it is kept: each user has its own; no name or key holds the character between them."""
    return f"{user}\n{key}" if key else None


def task_status(row: Sequence[Any], usage: TaskUsage | None = None) -> TaskStatus:
    """A task from a row of `SELECT_TASK`, with the usage of its last attempt.

    Of one that is damaged, nothing but its place and the reason is known.
    """
    job, index, *_, revision, result, _, checksum = row
    if result is not None and row_checksum(row[:-1]) != checksum:
        sound_revision = revision if isinstance(revision, int) else 0
        return TaskStatus(
            job=job, index=index, state="unknown", reason=damage_of("tasks", row), revision=sound_revision
        )
    return sound_task(row, usage)


def sound_task(row: Sequence[Any], usage: TaskUsage | None = None) -> TaskStatus:
    """A task from a row of `SELECT_TASK` that is known to be sound."""
    job, index, state, reason, attempt, node, exit_code, started_us, ended_us, folder, revision, _, _, _ = row
    return TaskStatus(
        job=job, index=index, state=state, reason=reason, attempt=attempt, node=node, exit_code=exit_code,
        started_us=started_us, ended_us=ended_us, folder=folder, revision=revision, usage=usage,
    )  # fmt: skip


class UserLoad(NamedTuple):
    """The load of a user: jobs that run or wait, and tasks that run or wait."""

    user: str
    jobs_pending: int
    jobs_running: int
    tasks_pending: int
    tasks_running: int


def counts_of(state: JobState, pending: int, running: int) -> Counts:
    """The load of a job that has not ended, with so many tasks that wait and that run."""
    is_pending = state == "pending"
    return int(is_pending), int(not is_pending), pending, running


class UserCounters:
    """The counts of all users as of the last commit.

    Args:
        sql: connection that reads what is counted at the start.
    """

    def __init__(self, sql: sqlite3.Connection) -> None:
        self._sql = sql
        self._changed_counts: dict[str, Counts] = {}
        self.recount()

    def recount(self) -> None:
        """Count again what is committed."""
        rows = fetched(
            self._sql, "SELECT user, sum(state = 'pending'), sum(state = 'running'), "
            "sum(tasks - running - finished - failed - killed - unsatisfiable), sum(running) "
            "FROM jobs WHERE ended_us IS NULL GROUP BY user",
        )  # fmt: skip
        self._counts: dict[str, Counts] = {user: tuple(counts) for user, *counts in rows}

    def change(self, user: str, old: Counts, new: Counts) -> None:
        """A job of a user counts otherwise from the next commit on."""
        counts = self._changed_counts.get(user) or self._counts.get(user, NOTHING)
        self._changed_counts[user] = (
            counts[0] - old[0] + new[0], counts[1] - old[1] + new[1],
            counts[2] - old[2] + new[2], counts[3] - old[3] + new[3],
        )  # fmt: skip

    def commit(self) -> None:
        # A commit may run in another thread than a query: the dictionary that the query reads is replaced, not changed.
        counts = self._counts | self._changed_counts
        self._counts = {user: count for user, count in counts.items() if count != NOTHING}
        self._changed_counts.clear()

    def roll_back(self) -> None:
        self._changed_counts.clear()

    def loads(self, user: str | None = None) -> list[UserLoad]:
        """The loads of all users that have any, or of one user."""
        counts = self._counts
        names = sorted(counts) if user is None else [user] if user in counts else []
        return [UserLoad(name, *counts[name]) for name in names]


USAGES_TABLE: Final = (
    "CREATE TABLE IF NOT EXISTS usages (job INTEGER NOT NULL, place INTEGER NOT NULL, attempt INTEGER NOT NULL, "
    "cpu_us INTEGER, memory_peak_bytes INTEGER, out_of_memory INTEGER NOT NULL, held TEXT NOT NULL, "
    "checksum INTEGER, PRIMARY KEY (job, place)) WITHOUT ROWID"
)
_WRITE: Final = (
    "INSERT OR REPLACE INTO usages (job, place, attempt, cpu_us, memory_peak_bytes, out_of_memory, held, checksum) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
_READ: Final = (
    "SELECT job, place, attempt, cpu_us, memory_peak_bytes, out_of_memory, held, checksum FROM usages "
    "WHERE job = ? AND place >= ? AND place < ?"
)


class UsageTable:
    """The rows of a store with the usage of the last attempts at tasks.

    Args:
        sql: connection that writes; begin and commit are the store's.
        read: connection that sees what is committed.
    """

    def __init__(self, sql: sqlite3.Connection, read: sqlite3.Connection) -> None:
        self._sql = sql
        self._read = read
        self._rows: list[tuple[Any, ...]] = []

    def note(self, job: JobId, place: int, number: int, usage: AttemptUsage) -> None:
        row = (job, place, number, usage.cpu_us, usage.memory_peak_bytes, int(usage.out_of_memory), usage.held)
        self._rows.append((*row, row_checksum(row)))

    def write(self) -> None:
        if self._rows:
            self._sql.executemany(_WRITE, self._rows)
            self._rows.clear()

    def forget(self) -> None:
        self._rows.clear()

    def of(self, job: JobId, first: int, end: int) -> dict[int, tuple[int | None, TaskUsage]]:
        """The usage of a job's tasks between two places: place -> attempt and usage.

        A damaged row gives its damage in place of the usage, for any attempt.
        """
        usages = dict[int, tuple[int | None, TaskUsage]]()
        for row in fetched(self._read, _READ, (job, first, end)):
            _, place, attempt, cpu_us, peak, is_short, hold_words, _ = row
            try:
                check_row("usages", row)
            except sqlite3.DatabaseError as error:
                usages[place] = None, TaskUsage(held=str(error))
            else:
                usages[place] = (
                    attempt,
                    TaskUsage(cpu_us=cpu_us, memory_peak_bytes=peak, out_of_memory=bool(is_short), held=hold_words),
                )

        return usages
