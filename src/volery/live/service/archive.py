"""Retention: jobs that ended long ago leave the store for Parquet files.

Two files have the record of up to a thousand jobs, `jobs-000001.parquet` and `tasks-000001.parquet`. Their digests are
in a third, `000001.sha256`, as the program sha256sum writes and checks them. All are complete and on the disk before a
row leaves the store. A pass that was interrupted before the rows left writes the same files again; one that was
interrupted later goes on where it was.
"""

from __future__ import annotations

import asyncio
import logging
import re
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any, Final

from volery.core.errors import DamagedError, InputError
from volery.core.model import SECOND, JobId
from volery.integrity import file_digest
from volery.live.clock import in_background, unix_now_us
from volery.live.config.limits import Retention
from volery.live.files import replacing, sync_folder
from volery.live.service.batches import UnwrittenError, Written
from volery.live.service.rows import NOTE_COLUMN, reading
from volery.live.service.soundness import demand_sound_jobs
from volery.live.service.store import JobStore
from volery.live.status import JobStatus, TaskState, TaskStatus, TaskUsage

PERIOD_S: Final = 600.0
"""Time between two searches for jobs that are old enough."""
RECENT_S: Final = 600
"""Time after its end for which a job stays whatever the rules are: those who wait for it still read it."""
ROWS: Final = 2_000
"""Rows that are read, written or deleted at a time, in about 20 ms."""
PIECE_BYTES: Final = 16 << 20
"""Size of the descriptions in memory at a time; a longer one is there alone."""
DAY_S: Final = 86_400
_JOB_NAMES: Final = tuple([name for name in JobStatus.__struct_fields__ if name != "revision"])
_JOB_COLUMNS: Final = ", ".join([NOTE_COLUMN if name == "moved" else f"jobs.{name}" for name in _JOB_NAMES])
_READ_JOBS: Final = (
    f"SELECT {_JOB_COLUMNS}, first_task, CAST(content AS TEXT) AS description FROM jobs "  # noqa: S608 - ours
    "JOIN descriptions ON descriptions.id = jobs.description WHERE jobs.id = ?"
)
_READ_TASKS: Final = (
    'SELECT tasks.job AS job, tasks.place AS "index", state, reason, tasks.attempt AS attempt, node, exit_code, '
    "started_us, ended_us, folder, cpu_us, memory_peak_bytes, out_of_memory, held FROM tasks LEFT JOIN usages "
    "ON usages.job = tasks.job AND usages.place = tasks.place AND usages.attempt = tasks.attempt WHERE tasks.job = ? "
    "ORDER BY tasks.place"
)
_DIGESTS: Final = re.compile(rb"([0-9a-f]{64}  (jobs|tasks)-[0-9]+\.parquet\n){2}")
_TEXTS: Final = frozenset({"name", "user", "state", "reason", "moved", "description", "node", "folder", "held"})

log = logging.getLogger(__name__)


class Archive:
    """Moves old jobs from a store to files.

    Args:
        written: runs a write in the next batch of the store.
        folder: folder of the files, which is made when it is needed.
    """

    def __init__(
        self,
        store: JobStore,
        written: Written,
        path: Path,
        folder: Path,
        rules: Retention,
        now_us: Callable[[], int] = unix_now_us,
    ) -> None:
        self._store = store
        self._written = written
        self._path = path
        self._folder = folder
        self._rules = rules
        self._now_us = now_us
        self._cleared_file = 0
        self._run_task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Look for old jobs from now on, if the rules ever remove one."""
        if self._rules.days or self._rules.jobs:
            self._run_task = in_background(self._run(), "the archive of old jobs")

    async def close(self) -> None:
        """End the work; the next start does again what is not complete."""
        if self._run_task is not None:
            self._run_task.cancel()
            await asyncio.wait((self._run_task,))

    async def _run(self) -> None:
        while True:
            try:
                while moved_count := await self.pass_once():
                    log.info("%d old jobs have moved to %s", moved_count, self._folder)
            except InputError:
                return  # the store is closed
            except (OSError, sqlite3.Error, UnwrittenError) as error:
                log.error("old jobs could not be moved to %s, which is tried again: %s", self._folder, error)
            await asyncio.sleep(PERIOD_S)

    async def pass_once(self) -> int:
        """Move the jobs of one file.

        Returns:
            How many.

        Raises:
            OSError: the files cannot be written; everything stays in the store.
            UnwrittenError: the store cannot be written.
        """
        ledger, rules, now_us = self._store.retired, self._rules, self._now_us()

        # An earlier pass may have been interrupted between its file and the deletion of the tasks' rows.
        await self._clear(ledger.last_file())

        file = ledger.last_file() + 1
        recent_us = now_us - RECENT_S * SECOND
        before_us = min(now_us - round(rules.days * DAY_S * SECOND), recent_us) if rules.days else None
        due = ledger.due(before_us, rules.jobs, recent_us)

        if due:
            # A lost store's file is never written over: it is the only record of its jobs.
            while await asyncio.to_thread(_is_of_lost_store, self._path, self._folder, file):
                file += 1
            due = await asyncio.to_thread(self._without_damaged, due)

        if due:
            await asyncio.to_thread(write_files, self._path, self._folder, file, due)
            await self._written(partial(self._store.retire, due, file))
            await self._clear(file)

        return len(due)

    def _without_damaged(self, jobs: Sequence[JobId]) -> list[JobId]:
        """The jobs of which no row is damaged; the others stay, and keep none of these back."""
        with closing(reading(self._path)) as sql:
            try:
                demand_sound_jobs(sql, jobs)
            except sqlite3.DatabaseError:
                pass
            else:
                return list(jobs)

            sound_jobs = []
            for job in jobs:
                try:
                    demand_sound_jobs(sql, [job])
                except sqlite3.DatabaseError as error:
                    log.error("job %d stays out of %s: %s; `volery check` lists it", job, self._folder, error)
                else:
                    sound_jobs.append(job)

            return sound_jobs

    async def _clear(self, file: int) -> None:
        """Remove the rows of the tasks of a file's jobs, piece by piece, and release the room."""
        if not file or self._cleared_file == file:
            return

        ledger, piece, rows = self._store.retired, list[tuple[JobId, int, int]](), 0
        for job, tasks in ledger.left(file):
            for first in range(0, tasks, ROWS):
                piece.append((job, first, min(first + ROWS, tasks)))
                rows += piece[-1][2] - first
                if rows >= ROWS:
                    await self._written(partial(self._clear_rows, piece))
                    piece, rows = [], 0

        await self._written(partial(self._clear_rows, piece))

        # Free pages go back to the file system a few at a time, each in a batch of its own.
        while await self._written(ledger.shrink):
            pass

        self._cleared_file = file

    def _clear_rows(self, piece: Sequence[tuple[JobId, int, int]]) -> None:
        for job, first, end in piece:
            self._store.retired.clear(job, first, end)


def paths_of(folder: Path, file: int) -> tuple[Path, Path]:
    return folder / f"jobs-{file:06}.parquet", folder / f"tasks-{file:06}.parquet"


def _is_of_lost_store(store: Path, folder: Path, file: int) -> bool:
    """True if a file has jobs that the store lacks: a newer store has written it, which is lost.

    A file of a pass that was interrupted has jobs of the store alone; it is written again.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    path, _ = paths_of(folder, file)
    if not path.exists():
        return False

    try:
        numbers = pq.read_table(path, columns=["id"]).column("id").to_pylist()
    except (OSError, pa.ArrowException):
        return True

    with closing(reading(store)) as sql:
        return any(sql.execute("SELECT 1 FROM jobs WHERE id = ?", (number,)).fetchone() is None for number in numbers)


def write_files(store: Path, folder: Path, file: int, jobs: Sequence[JobId]) -> None:
    """Write the record of jobs; when this returns, the disk has it.

    Raises:
        OSError: the disk is full, for example.
        sqlite3.Error: the store cannot be read.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)  # they hold commands and their environment
    with closing(reading(store)) as sql:
        sql.execute("BEGIN")
        demand_sound_jobs(sql, jobs)  # a damage would get a digest of its own
        jobs_path, tasks_path = paths_of(folder, file)
        digests = digests_path(jobs_path)
        digests.unlink(missing_ok=True)
        _write_rows(tasks_path, sql, _READ_TASKS, jobs)
        _write_rows(jobs_path, sql, _READ_JOBS, jobs)  # after the other: by it a reader finds both

    with replacing(digests) as digest_file:
        for path in (jobs_path, tasks_path):
            digest_file.write(f"{file_digest(path)}  {path.name}\n".encode())

    sync_folder(folder.parent)


def digests_path(jobs: Path) -> Path:
    """The file with the digests of a file of jobs and of the one of their tasks."""
    return jobs.with_name(jobs.name.removeprefix("jobs-")).with_suffix(".sha256")


def demand_digests(jobs: Path) -> bool:
    """Compare a file of jobs, and the one of their tasks, with their digests.

    Returns:
        False where there are none, because the pass that wrote the files was interrupted.

    Raises:
        DamagedError: a file has another digest, or is missing.
        OSError: a file cannot be read.
    """
    digests = digests_path(jobs)
    if not digests.exists():
        return False

    lines = digests.read_bytes()
    if not _DIGESTS.fullmatch(lines):
        raise DamagedError(str(digests), f"is damaged: it is not as `sha256sum {jobs.name} ...` prints it")

    for line in lines.decode().splitlines():
        digest, _, name = line.partition("  ")
        path = digests.with_name(name)
        if not path.exists():
            raise DamagedError(str(path), f"is missing, but {digests.name} names it; put back a copy")
        if file_digest(path) != digest:
            raise DamagedError(str(path), f"is damaged: its digest is another than in {digests.name}; put back a copy")

    return True


def _write_rows(path: Path, sql: sqlite3.Connection, query: str, jobs: Sequence[JobId]) -> None:
    import pyarrow as pa
    import pyarrow.parquet as pq

    names = [column[0] for column in sql.execute(query, (-1,)).description]
    schema = pa.schema([(name, pa.string() if name in _TEXTS else pa.int64()) for name in names])

    with replacing(path) as file, pq.ParquetWriter(file, schema, compression="zstd") as writer:
        for rows in _pieces(sql, query, jobs):
            columns = [
                pa.array(column, kind) for column, kind in zip(zip(*rows, strict=True), schema.types, strict=True)
            ]
            writer.write_table(pa.Table.from_arrays(columns, schema=schema))


def _pieces(sql: sqlite3.Connection, query: str, jobs: Sequence[JobId]) -> Iterator[list[Any]]:
    """Rows of all jobs, some thousands or megabytes at a time: the last column is the only one that may be long."""
    rows, size = list[Any](), 0
    for number in jobs:
        cursor = sql.execute(query, (number,))
        while batch := cursor.fetchmany(ROWS):
            rows += batch
            size += sum(len(row[-1] or "") for row in batch)
            if len(rows) >= ROWS or size >= PIECE_BYTES:
                yield rows
                rows, size = [], 0

    if rows:
        yield rows


def archived(folder: Path, damages: list[InputError]) -> Iterator[tuple[JobStatus, list[TaskStatus]]]:
    """The jobs of an archive with their tasks, in order of their ends.

    Args:
        damages: gets an error for each file that has another digest than when it was written, or cannot be read.

    Raises:
        InputError: the folder has no archived jobs.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    jobs_paths = sorted(folder.glob("jobs-*.parquet"))
    if not jobs_paths:
        raise InputError(str(folder), "has no archived jobs; name the folder `archive` of a federation's folder")

    for path in jobs_paths:
        tasks = path.with_name(path.name.replace("jobs-", "tasks-", 1))
        try:
            demand_digests(path)
            yield from _joined(pq.ParquetFile(path), pq.ParquetFile(tasks))
        except DamagedError as error:
            damages.append(error)
        except (OSError, KeyError, TypeError, ValueError, pa.ArrowException) as error:
            damages.append(InputError(str(path), f"cannot be read with {tasks.name}: {error}"))


def _joined(jobs: Any, tasks: Any) -> Iterator[tuple[JobStatus, list[TaskStatus]]]:
    task_rows = (row for batch in tasks.iter_batches(ROWS) for row in batch.to_pylist())
    next_row = next(task_rows, None)
    for batch in jobs.iter_batches(ROWS, columns=list(_JOB_NAMES)):
        for row in batch.to_pylist():
            job = JobStatus(**{name: row[name] for name in _JOB_NAMES}, revision=0)
            tasks_by_place: dict[int, TaskStatus] = {}
            while next_row is not None and next_row["job"] == job.id:
                tasks_by_place[next_row["index"]] = _task_of(next_row)
                next_row = next(task_rows, None)

            # Tasks without a report have no row: they never ran, or their ends are unknown.
            default_state: TaskState = "cancelled" if job.state == "cancelled" else "unknown"
            missing_tasks = (
                TaskStatus(job=job.id, index=i, state=default_state)
                for i in range(job.tasks)
                if i not in tasks_by_place
            )
            yield job, sorted((*tasks_by_place.values(), *missing_tasks), key=lambda task: task.index)


def _task_of(row: dict[str, Any]) -> TaskStatus:
    names = ("cpu_us", "memory_peak_bytes", "out_of_memory", "held")
    cpu_us, peak, is_short, hold_words = (row.pop(name) for name in names)
    if hold_words is None:
        return TaskStatus(**row)
    usage = TaskUsage(cpu_us=cpu_us, memory_peak_bytes=peak, out_of_memory=bool(is_short), held=hold_words)
    return TaskStatus(**row, usage=usage)
