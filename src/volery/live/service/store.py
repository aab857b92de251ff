"""The store of jobs behind the API: SQLite in WAL mode, so that a restart keeps it and a commit carries many changes.

Every change of a row gets the next revision. Whoever has seen everything up to a revision asks for what is newer, and
gets the last state of each job and task that has changed: a stream of events that can be resumed from any point.

Writes gather in a transaction until `commit`, which is slow where it waits for the disk, and may then run in another
thread: meanwhile nothing is written, and what is read is what was committed last. Only promises wait for the disk
(`begin(durable=True)`). Reports of tasks survive this program without; when the whole machine fails, its tasks
are gone as well, and run again.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from volery.core.events import JobAccepted, JobDone, JobRejected
from volery.core.model import NEVER, Address, JobId, TaskId, Time
from volery.live.jobs import JobDescription
from volery.live.messages import TaskReport, number_of
from volery.live.service.checksums import CHECKED, RowDamageError, check_row, fetched, row_checksum
from volery.live.service.descriptions import DESCRIBED, DescriptionReader, EncodedDescription, encoded_at_once
from volery.live.service.ledgers import ArchivedKey, ArchiveLedger, AssignmentLedger, ShareHistory
from volery.live.service.marks import StoreMark, first_of_start, mark_of
from volery.live.service.rows import (
    NOTHING,
    SELECT_TASK,
    JobListings,
    JobRow,
    UsageTable,
    UserCounters,
    counts_of,
    key_of,
    sound_job,
    sound_task,
    state_after,
)
from volery.live.service.schema import Database, stored_description
from volery.live.service.soundness import set_aside
from volery.live.service.task_rows import TaskRows, WrittenRow, written_anyhow
from volery.live.status import JobStatus, TaskState

_UPDATE_JOB: Final = (
    "UPDATE jobs SET answered = ?5, cancelling = ?6, state = ?9, reason = ?10, running = ?12, finished = ?13, "
    "failed = ?14, killed = ?15, started_us = ?18, ended_us = ?19, revision = ?20, checksum = ?21 WHERE id = ?1"
)
"""The parameters have the numbers of the columns in `CHECKED`."""
_WRITE_JOB: Final = (
    f"INSERT INTO jobs ({', '.join(CHECKED['jobs'])}, checksum) VALUES (?{', ?' * len(CHECKED['jobs'])})"  # noqa: S608 - ours
)
_WRITE_TASK: Final = (
    f"INSERT OR REPLACE INTO tasks ({', '.join(CHECKED['tasks'])}, checksum) "  # noqa: S608 - ours
    f"VALUES (?{', ?' * len(CHECKED['tasks'])})"
)
_FINAL: Final[frozenset[TaskState]] = frozenset({"finished", "failed", "unsatisfiable"})
"""States that no report of another attempt changes: at most one attempt succeeds."""
_REFUSED: Final = "refused for now: "
INSERTED_MAX: Final = 1_000
"""New jobs whose rows are kept until they begin; more rows would fill the memory."""

News = TaskReport | JobAccepted | JobRejected | JobDone

_REVISION: Final = CHECKED["tasks"].index("revision")
_LOSE_TASK: Final = "UPDATE tasks SET state = 'unknown', revision = ? WHERE job = ? AND place = ?"
_JOB_FIELDS: Final = CHECKED["jobs"][:-1]
"""The columns of a `JobRow`, without the revision: each change gets one of its own."""
_READ_JOB: Final = f"SELECT {', '.join(CHECKED['jobs'])}, checksum FROM jobs WHERE id = ? AND ended_us IS NULL"  # noqa: S608 - ours
_READ_TASK: Final = f"{SELECT_TASK} FROM tasks WHERE job = ? AND place = ?"
_UNREPORTED: Final[tuple[TaskState, int, int, Time | None]] = ("pending", NEVER, NEVER, None)

log = logging.getLogger(__name__)


class JobStore:
    """The jobs and tasks of a federation, in a database.

    Tasks without a report have no row; they are pending, or cancelled with their job.

    Args:
        path: path of the database, which is made where it is missing.

    Attributes:
        damage: open jobs whose rows of tasks or descriptions were damaged at the start -> the place of the damage.

    Raises:
        InputError: it cannot be opened, is in use, or was written by another version.
    """

    def __init__(self, path: Path) -> None:
        self._database = Database(path)
        self._sql, self._read = self._database.write, self._database.read
        self._durable = True
        self.checkpoint, self.sync = self._database.checkpoint, self._database.sync
        self.demand_files, self.close = self._database.demand_files, self._database.close

        listings = JobListings(self._read)
        self.job, self.jobs, self.search = listings.job, listings.jobs, listings.search
        self.places, self.allocations_us = listings.places, listings.allocations_us
        self.descriptions = DescriptionReader(path, self._read)
        self.shares = ShareHistory(self._sql, self._read)
        self.assigned = AssignmentLedger(self._sql, self._read)

        self._open_jobs: dict[JobId, JobRow] = {}
        self._changed_jobs: dict[JobId, JobRow] = {}
        self._new_jobs: dict[JobId, JobRow] = {}
        self._changed_users: dict[JobId, str] = {}
        self._written_rows: list[WrittenRow] = []
        self._task_rows: dict[tuple[JobId, int], tuple[Any, ...]] = {}

        self._usages = UsageTable(self._sql, self._read)
        tasks = TaskRows(self._read, listings.job, self._usages)
        self.tasks, self.result, self.tasks_at = tasks.tasks, tasks.result, tasks.tasks_at
        self.changes, self.revisions = tasks.changes, tasks.revisions
        self.begun, self.ended_places = tasks.begun, tasks.ended_places
        self.open_ids, self.open_users, self.open_user = tasks.open_ids, tasks.open_users, tasks.open_user
        self.first_task, self.cancelling, self.is_answered = tasks.first_task, tasks.cancelling, tasks.is_answered
        self.pending_after, self.drained = tasks.pending_after, tasks.drained

        self.retired = ArchiveLedger(self._sql, self._read)
        self._revision: int = self.retired.free().revision

        # A job with a damaged row is ended before anything can write the row back with a sound checksum.
        for number in self._database.damage.rows:
            set_aside(self._sql, number, self._next_revision())

        self.damage = self._database.damage.parts

        self._given_up: dict[JobId, str] = {}
        self.revision: int = self._revision
        """The revision of the last change that is committed."""

        self._tally = UserCounters(self._read)
        self._is_miscounted = False
        self.loads = self._tally.loads
        self._refused_ids = self._refused_jobs()

    def _refused_jobs(self) -> set[JobId]:
        query = "SELECT id FROM jobs WHERE ended_us IS NULL AND substr(reason, 1, length(?1)) = ?1"
        return {number for (number,) in self._read.execute(query, (_REFUSED,))}

    def _first_value(self, query: str, *arguments: Any) -> Any:
        row = self._sql.execute(query, arguments).fetchone()
        return row[0] if row else None

    def drain(self, node: Address, drained: bool) -> None:
        """Note that nothing is to be placed on a node, or something again."""
        note = "INSERT OR IGNORE INTO drained (node) VALUES (?)" if drained else "DELETE FROM drained WHERE node = ?"
        self._sql.execute(note, (node,))

    def next_numbers(self) -> tuple[JobId, TaskId]:
        """The first job and task number that have never been used."""
        job, task, _ = self.retired.free()
        return job, task

    def first_numbers(self) -> tuple[JobId, TaskId]:
        """The first job and task number of a start of the API; the task's has an origin that no earlier start had."""
        job, task = self.next_numbers()
        return job, first_of_start(task)

    def mark(self, revision: int) -> StoreMark:
        """The mark of all that is committed up to a revision.

        A batch that is under way may never be: a mark that names something of it would forbid the next start.
        """
        return mark_of(self._read, self._database.store, self.shares, revision)

    def continue_from(self, marks: Collection[StoreMark], now_us: Time) -> None:
        """Take the place of a newer store of which these marks are left: its numbers are not given again.

        The orders in the marks are taken over, since schedulers follow them; jobs and ends of tasks are lost.
        """
        self.begin(durable=True)
        for mark in sorted(marks, key=lambda mark: mark.first.revision):
            self._database.continue_store(mark.store)
            self.retired.forbid(mark.first)
            self.assigned.continue_from(mark.moves, now_us)
            self.shares.continue_from(mark.reweighs, mark.weights, now_us)
            for node in mark.drained:
                self.drain(node, True)

        self._revision = max(self._revision, self.retired.used().revision)
        self.commit()

    # Writing.

    def begin(self, durable: bool) -> None:
        """Begin a batch; whether its commit waits for the disk, or is a matter of microseconds.

        Raises:
            sqlite3.OperationalError: the store's files were removed or replaced.
        """
        self.demand_files()
        assert not self._sql.in_transaction, "the batch before has not been committed"

        # Only promises to users wait for the disk (see the module's text).
        if durable is not self._durable:
            self._sql.execute(f"PRAGMA synchronous = {'FULL' if durable else 'NORMAL'}")
            self._durable = durable

        self._sql.execute("BEGIN")

    def commit(self) -> None:
        """End the batch; everyone sees it now."""
        revision = self._revision
        if self._sql.in_transaction:
            # It may run in another thread, and `self.revision` is read meanwhile: it is raised last.
            self._sql.execute("COMMIT")
        self._tally.commit()
        if self._is_miscounted:
            self._tally.recount()
            self._is_miscounted = False
        self.revision = revision

    def roll_back(self) -> None:
        """Forget the batch: it leaves no change."""
        if self._sql.in_transaction:
            self._sql.execute("ROLLBACK")

        self._open_jobs.clear()
        self._new_jobs.clear()
        self._changed_jobs.clear()
        self._task_rows.clear()
        self._changed_users.clear()
        self._written_rows.clear()
        self._usages.forget()
        self._given_up.clear()
        self._tally.roll_back()
        self._refused_ids = self._refused_jobs()
        self._revision = self.revision

    def take_written(self) -> tuple[dict[JobId, str], list[WrittenRow]]:
        """The jobs of which something was written since the last call, with their users, and the rows."""
        users, self._changed_users = self._changed_users, {}
        rows, self._written_rows = self._written_rows, []
        return users, rows

    def take_given_up(self) -> dict[JobId, str]:
        """The jobs that were ended before all their tasks had since the last call, and whose they are."""
        jobs, self._given_up = self._given_up, {}
        return jobs

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def job_with_key(self, user: str, key: str) -> tuple[JobId, int] | None:
        """Number and task count of the job that a user has submitted under a key."""
        query = "SELECT id, tasks FROM jobs WHERE key = ?"
        return self._sql.execute(query, (key_of(user, key),)).fetchone()  # type: ignore[no-any-return] # two numbers

    def describes(self, number: JobId, digest: bytes) -> bool:
        """True if a job was submitted with exactly the description of this digest."""
        return bool(self._first_value(f"SELECT digest = ? {DESCRIBED}", digest, number))

    def keep(self, descriptions: Iterable[EncodedDescription]) -> None:
        """Write descriptions into the batch that is under way; in a thread, where they are long."""
        for content, digest in descriptions:
            stored_description(self._sql, content, digest)

    def drop_unused(self, descriptions: Iterable[EncodedDescription]) -> None:
        """Delete the descriptions that no job has come to use."""
        delete_unused = (
            "DELETE FROM descriptions WHERE digest = ? "
            "AND NOT EXISTS (SELECT 1 FROM jobs WHERE description = descriptions.id)"
        )
        self._sql.executemany(delete_unused, ((description.digest,) for description in descriptions))

    def insert(
        self,
        number: JobId,
        first_task: TaskId,
        description: JobDescription,
        task_count: int,
        obstacles: Sequence[tuple[int, str]],
        now_us: int,
        encoded: EncodedDescription | None = None,
    ) -> None:
        """Take a job in, merged (see `merged`), with the tasks (place and reason) that no machine can run.

        Args:
            encoded: the description, if it is encoded already.
        """
        if obstacles:
            self._write_tasks(
                (number, place, "unsatisfiable", reason, 0, "", None, None, None, "", self._next_revision(), b"", -1)
                for place, reason in obstacles
            )

        content = stored_description(self._sql, *(encoded or encoded_at_once(description)))
        job = JobRow(
            number,
            key_of(description.user, description.key),
            content,
            first_task,
            description.name,
            description.user,
            task_count,
            len(obstacles),
            now_us,
            reason=obstacles[0][1] if obstacles else "",
        )

        self._write_jobs(_WRITE_JOB, (job,))
        if len(self._new_jobs) < INSERTED_MAX:
            self._new_jobs[number] = job

        pending_count = task_count - len(obstacles)
        self._tally.change(description.user, NOTHING, counts_of("pending", pending_count, 0))

    def cancel(self, number: JobId) -> bool:
        """Note that the job is to be cancelled; true if it had not ended yet."""
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
            self._fail(job, reason, now_us)
            self._write_changes()

    def _fail(self, job: JobRow, reason: str, now_us: int) -> None:
        job.state, job.reason, job.ended_us = "failed", reason, job.end_us(now_us)
        self._given_up[job.id] = job.user
        log.error("job %d is given up: %s", job.id, reason)

    def take_in(self, news: Iterable[News], now_us: int, monotonic_us: Time | None = None) -> list[JobId]:
        """Take in reports of jobs and attempts.

        Args:
            monotonic_us: the time by a clock that nobody sets, for the durations of jobs.

        Returns:
            The jobs that are answered although some of their tasks have not been reported to the end.
        """
        jobs: dict[JobId, JobRow | None] = {}

        for item in news:
            identity = item.job
            if type(item) is JobAccepted and number_of(identity) not in self._refused_ids:
                continue  # most jobs are accepted at once, and their rows do not change

            if identity not in jobs:
                jobs[identity] = self._job_under_way(number_of(identity), identity)

            job = jobs[identity]

            if job is None or job.ended_us is not None:
                continue

            match item:
                case TaskReport():
                    # One damaged row must end its own job, not the batch.
                    try:
                        self._report(job, item, monotonic_us)
                    except RowDamageError as error:
                        self._fail(job, str(error), now_us)
                case JobDone():
                    job.answered = True
                case JobRejected():
                    job.reason = _REFUSED + item.reason
                    self._refused_ids.add(job.id)
                case JobAccepted():
                    job.reason = ""
                    self._refused_ids.discard(job.id)

        answered_jobs = [job for job in self._changed_jobs.values() if job.answered and job.ended_us is None]
        late_jobs = [job.id for job in answered_jobs if not self._settle(job, now_us, monotonic_us)]
        self._write_changes()
        return late_jobs

    def give_up_waiting(self, number: JobId, now_us: int, monotonic_us: Time | None = None) -> None:
        """End an answered job although some reports of its tasks have not come; those tasks' ends are unknown."""
        job = self._job_under_way(number)
        if job is None or not job.answered:
            return

        query = "SELECT place FROM tasks WHERE job = ? AND state IN ('running', 'pending')"
        for (place,) in self._sql.execute(query, (number,)).fetchall():
            # One by one: each task's change gets a revision of its own.
            revision = self._next_revision()
            self._sql.execute(_LOSE_TASK, (revision, number, place))
            self._written_rows.append(written_anyhow(self._sql, revision, number, place))

        self._settle(job, now_us, monotonic_us, wait=False)
        self._write_changes()

    def _job_under_way(self, number: JobId, identity: JobId | None = None) -> JobRow | None:
        """A job that has not ended, to be changed; where an identity is given, only the job that has it."""
        job = self._open_jobs.get(number)
        if job is None:
            job = self._new_jobs.pop(number, None) or self._stored_job(number)
            if job is None:
                return None
            self._open_jobs[number] = job
            job.counted = job.load()
            # No report has come yet, so no task has a row: none needs to be read before its first one.
            if job.state == "pending" and not job.unsatisfiable:
                job.reported = bytearray(job.tasks)

        if identity not in (None, job.identity):
            return None  # it had this number in a folder that is no longer there

        self._changed_jobs[number] = job
        return job

    def _stored_job(self, number: JobId) -> JobRow | None:
        rows = fetched(self._sql, _READ_JOB, (number,))
        if not rows:
            return None
        try:
            check_row("jobs", row := rows[0])  # its next checksum would hide the damage
        except RowDamageError as error:
            log.error("job %d is given up: %s; `volery check` lists what is damaged", number, error)
            revision = self._next_revision()
            set_aside(self._sql, number, revision)
            self._written_rows.append(written_anyhow(self._sql, revision, number))
            self._changed_users[number] = ""
            self._is_miscounted = True
            return None

        return JobRow(**dict(zip(_JOB_FIELDS, row, strict=False)))

    def _written_job(self, row: Sequence[Any]) -> JobStatus:
        return sound_job((*row, self.assigned.note_of(row[0])))

    def _write_tasks(self, rows: Iterable[tuple[Any, ...]]) -> None:
        checked_rows = [(*row, row_checksum(row)) for row in rows]
        self._written_rows += [(row[_REVISION], sound_task, row) for row in checked_rows]
        self._sql.executemany(_WRITE_TASK, checked_rows)

    def _write_jobs(self, statement: str, jobs: Collection[JobRow]) -> None:
        checked_rows = []
        for job in jobs:
            revision = self._next_revision()
            checked_rows.append(job.row(revision))
            self._written_rows.append((revision, self._written_job, checked_rows[-1]))
            self._changed_users[job.id] = job.user
        self._sql.executemany(statement, checked_rows)

    def _write_changes(self) -> None:
        """Write the rows of this batch, each once."""
        self._write_tasks(self._task_rows.values())
        self._usages.write()

        changed_jobs = self._changed_jobs.values()
        self._write_jobs(_UPDATE_JOB, changed_jobs)

        for job in changed_jobs:
            counts = job.load()
            if counts != job.counted:
                self._tally.change(job.user, job.counted, counts)
                job.counted = counts
            if job.ended_us is not None:
                del self._open_jobs[job.id]
                self._refused_ids.discard(job.id)

        self._task_rows.clear()
        self._changed_jobs.clear()

    def _report(self, job: JobRow, report: TaskReport, monotonic_us: Time | None) -> None:
        place = report.task - job.first_task

        if not 0 <= place < job.tasks:
            return

        state, number, launched, started_us = self._last_report(job, place)
        reported_number = report.number
        is_same_attempt = number == reported_number and launched == report.attempt

        # Either number may be smaller of a later attempt: a scheduler that restarts may number from 0, and a host may
        # have had to take a greater number for people than the next one will.
        is_earlier = reported_number <= number and report.attempt <= launched
        if state in _FINAL or (state != "running" if is_same_attempt else is_earlier):
            return

        if not is_same_attempt:
            started_us = None

        if job.reported is not None:
            job.reported[place] = True

        is_running = report.state == "running"
        task_state = state_after(report.state, job)
        ended_us: Time | None = None
        if is_running:
            started_us = report.at_unix_us
        else:
            # After a restart of the API the clock may be another than the one that gave the start.
            ended_us = max(report.at_unix_us, started_us or report.at_unix_us)
            job.last_end_us = max(job.last_end_us, ended_us)

        self._task_rows[job.id, place] = (
            job.id,
            place,
            task_state,
            report.reason,
            reported_number,
            report.node,
            report.exit_code,
            started_us,
            ended_us,
            report.folder,
            self._next_revision(),
            report.result,
            report.attempt,
        )

        if report.usage is not None:
            self._usages.note(job.id, place, reported_number, report.usage)

        job.count(state, -1)
        job.count(task_state, +1)
        if report.state != "unstarted":
            job.state = "running"

        if job.started_us is None and started_us is not None:
            job.started_us = max(started_us, job.submitted_us)
            job.began_us = monotonic_us

    def _last_report(self, job: JobRow, place: int) -> tuple[TaskState, int, int, Time | None]:
        """State, both numbers of the attempt, and start of a task as last reported, in this batch or before."""
        row = self._task_rows.get((job.id, place))
        if row is not None:
            return row[2], row[4], row[12], row[7]
        if job.reported is not None and not job.reported[place]:
            return _UNREPORTED

        rows = fetched(self._sql, _READ_TASK, (job.id, place))
        if not rows:
            return _UNREPORTED

        _, _, state, _, number, _, _, started_us, _, _, _, result, launched, _ = rows[0]

        # A long result is not selected (None), and without it the checksum cannot be compared.
        if result is not None:
            check_row("tasks", rows[0])

        return state, number, launched, started_us

    def _settle(self, job: JobRow, now_us: int, monotonic_us: Time | None, wait: bool = True) -> bool:
        """End a job that is answered, unless some task of it has not ended; true if it has ended."""
        ended_count = job.finished + job.failed + job.killed + job.unsatisfiable

        # Tasks of a cancelled job that never started are not reported at all.
        if wait and (job.running or (ended_count < job.tasks and not job.cancelling)):
            return False

        is_done = job.finished == job.tasks
        job.state = "cancelled" if job.cancelling else "done" if is_done else "failed"
        job.running, job.ended_us = 0, job.end_us(now_us, monotonic_us)

        if job.cancelling:
            return True

        if ended_count < job.tasks:
            job.reason = f"the ends of {job.tasks - ended_count} tasks were not reported"
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
        places = [(key[1], row[3]) for key, row in self._task_rows.items() if key[0] == number and row[2] == "failed"]
        places += self._sql.execute(query, (number,)).fetchall()
        return str(min(places)[1]) if places else ""

    def retire(self, jobs: Sequence[JobId], file: int) -> None:
        """Take jobs that have ended out, whose record is in a file of the archive; their tasks' rows follow."""
        self.retired.leave(jobs, file, ArchivedKey(*self.next_numbers(), self._next_revision()))
