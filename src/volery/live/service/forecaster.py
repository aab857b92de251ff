"""Forecaster: the lab plays the federation in a process of its own, and predicts starts, ends and preemptions of a job.

The API hands over the job and the machines; the process reads the store of jobs, forks the federation into the lab, and
is ended when it takes too long. The API's loop waits for it as for any client. That process is a program, started by
name: nothing here imports the lab.

A forecast counts for a job that its user submits within a minute, word for word. Such jobs are found when somebody
asks, in the store of jobs, so that a submission costs nothing more than it did. A plan whose job was never submitted is
forgotten; where the same job was planned twice, the later forecast counts.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import statistics
import sys
import threading
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from volery.core.forecast import MomentQuantiles, PreemptedJob
from volery.core.model import SECOND, Address, JobId, Time
from volery.live.clock import ended_within, in_slices, unix_now_us
from volery.live.config.federation import Federation
from volery.live.jobs import JobDescription, TaskDescription, demands, merged, task_count
from volery.live.service.authentication import Principal
from volery.live.service.checksums import FORECASTS, add_triggers, fetched, row_checksum
from volery.live.service.figures import Meter
from volery.live.service.forecast_inputs import WAITING_MAX as TASKS_PLAYED_MAX
from volery.live.service.forecast_inputs import ForecastReply, ForecastRequest
from volery.live.service.queries import JobQueries, started_tasks
from volery.live.service.requests import Operation, as_json, job_of_body, principal, seen_job
from volery.live.service.rows import digest_of, encoded, reading
from volery.live.status import ActualMoments, Forecast, ForecastOutcome, ForecastRecord, JobStatus, MomentRecord

COMMAND: Final = (sys.executable, "-m", "volery.cli.forecast")
BUDGET_S: Final = 5.0
"""Processor time for the runs of one forecast."""
LIMIT_S: Final = 30.0
"""Wall time after which the process is ended: on a busy machine it gets what others leave."""
WAITING_MAX: Final = 8
"""Forecasts that may wait for the one that is being made."""
RECORDED_MAX: Final = 1_000
"""Different tasks of a job up to which its forecast is stored: to write a longer list takes too long."""
ABSENT: Final = "its scheduler, {}; it waits until that scheduler is back or its jobs are moved"
FRESH_S: Final = 10.0
"""Time for which a forecast of a job under way answers further requests."""

log = logging.getLogger(__name__)


class Forecaster:
    """Makes forecasts, one at a time, and keeps their outcomes.

    Args:
        nodes: address of each node -> number of its machine.
        lost: gives the nodes that do not answer.
        unanswering: (user, job) -> a sentence about the scheduler of the job if it does not answer, else nothing;
            without a job, about that of the user's next one.
    """

    def __init__(
        self,
        federation: Federation,
        nodes: dict[Address, int],
        lost: Callable[[], Collection[Address]] = tuple,
        unanswering: Callable[[str, JobId | None], str] = lambda user, job: "",  # noqa: ARG005 - all answer
    ) -> None:
        self._lost = lost
        self._unanswering = unanswering
        self._path = federation.folder / "forecasts.sqlite"
        self._store = federation.folder / "jobs.sqlite"
        self._plan, self._fleet, self._nodes = federation.plan, federation.fleet, nodes
        self._turn = asyncio.Lock()
        self._waiting_requests = 0
        self._answers: dict[JobId, asyncio.Future[ForecastReply]] = {}
        self._answered_s: dict[JobId, float] = {}
        self._book: ForecastLedger | None = None

    @property
    def book(self) -> ForecastLedger:
        """The ledger of forecasts; a federation that was never asked has no file of it."""
        if self._book is None:
            self._book = ForecastLedger(self._path, self._store)
        return self._book

    async def record(self, user: str | None) -> ForecastRecord:
        """The accuracy of forecasts of one user's jobs or of all."""
        return await asyncio.to_thread(self.book.record, user)

    async def meters(self) -> list[Meter]:
        """The record for Prometheus; nothing while nobody has asked for a forecast here, or it cannot be read."""
        if self._book is None and not self._path.exists():
            return []
        try:
            return meters(await self.record(None))
        except sqlite3.Error as error:  # all other figures are as good as ever
            log.error("the metrics have no record of forecasts: %s; `volery check` lists what is damaged", error)
            return []

    def close(self) -> None:
        if self._book is not None:
            self._book.close()

    async def forecast(self, job: JobDescription, caller: Principal) -> Forecast:
        """The forecast of a planned job, without names of jobs that the user may not see.

        Raises:
            InputError: constraints that the fleet gives no meaning to.
        """
        if task_count(job) > TASKS_PLAYED_MAX:
            return _refused(task_count(job), f"it has more than {TASKS_PLAYED_MAX:,} tasks, more than the lab plays")
        if not await self._can_run(job):
            return _refused(task_count(job), "none of its tasks could ever run")
        if absence := self._unanswering(job.user, None):
            return _refused(task_count(job), ABSENT.format(absence))

        answer = await self._in_turn(await _sketch(job))
        if answer.outlook is not None and (isinstance(job.tasks, int) or len(job.tasks) <= RECORDED_MAX):
            await asyncio.to_thread(self.book.keep, answer.at_us, answer.next_job, job, answer.outlook.moments)

        return _forecast_of(answer, task_count(job), caller)

    async def _can_run(self, job: JobDescription) -> bool:
        async for demand in in_slices(demands(job, self._fleet)):
            if not demand.obstacle:
                return True
        return False

    async def of_job(self, job: JobStatus, caller: Principal) -> Forecast:
        """The forecast of what is left of a job; asked again soon, the answer is the same."""
        if job.ended:
            return _refused(job.tasks, "the job has ended")
        if started_tasks(job) < job.tasks and (absence := self._unanswering(job.user, job.id)):
            return _refused(job.tasks, ABSENT.format(absence))

        answer = self._answers.get(job.id)
        if answer is None or (answer.done() and time.monotonic() - self._answered_s[job.id] > FRESH_S):
            answer = self._answers[job.id] = asyncio.ensure_future(self._in_turn(job.id))
            # Several requests may wait for one answer; one that is cancelled does not end it for the others.
            answer.add_done_callback(partial(self._date, job.id))

        return _forecast_of(await asyncio.shield(answer), job.tasks, caller)

    def _date(self, number: JobId, _answer: asyncio.Future[ForecastReply]) -> None:
        """Store the time of an answer about a job, and forget old ones."""
        now_s = time.monotonic()
        self._answered_s[number] = now_s
        for old in [
            job for job, at_s in self._answered_s.items() if now_s - at_s > FRESH_S and self._answers[job].done()
        ]:
            del self._answers[old], self._answered_s[old]

    async def _in_turn(self, job: JobDescription | JobId) -> ForecastReply:
        if self._waiting_requests >= WAITING_MAX:
            return ForecastReply(0, 0, None, f"{WAITING_MAX} others wait for theirs; ask again")
        self._waiting_requests += 1
        try:
            async with self._turn:
                return await self._ask(job)
        finally:
            self._waiting_requests -= 1

    async def _ask(self, job: JobDescription | JobId) -> ForecastReply:
        plan, cluster = self._plan, self._fleet.cluster
        question = ForecastRequest(
            str(self._store),
            plan.architecture.name,
            msgspec.to_builtins(plan.config),
            self._fleet.machines,
            cluster.slots,
            cluster.resources,
            cluster.capacities,
            self._nodes,
            job,
            BUDGET_S,
            tuple(sorted(self._lost())),
        )
        return await ask_lab(question)


async def _sketch(job: JobDescription) -> JobDescription:
    """A job without what its tasks carry: the lab asks only what they need, and what they are called."""
    if isinstance(job.tasks, int) or len(job.tasks) <= RECORDED_MAX:
        return job

    first, *other_tasks = job.tasks
    names = ("estimate_s", "constraints", "request", "count")

    # Neighbours that differ in nothing the lab asks for become one entry.
    bare_tasks = (TaskDescription(**{name: getattr(task, name) for name in names}) for task in other_tasks)

    runs: list[tuple[TaskDescription, int]] = []

    async for bare_task in in_slices(bare_tasks):
        if runs and runs[-1][0] == bare_task:
            runs[-1] = bare_task, runs[-1][1] + 1
        else:
            runs.append((bare_task, 1))

    merged_tasks = [replace(task, count=task.count * times) async for task, times in in_slices(runs)]
    return replace(job, tasks=(replace(first, call=b"", stdin="", env={}), *merged_tasks), call=b"", stdin="", env={})


def _refused(tasks: int, problem: str) -> Forecast:
    return Forecast(made_us=0, tasks=tasks, runs=0, problem=problem)


def _forecast_of(answer: ForecastReply, tasks: int, caller: Principal) -> Forecast:
    outlook = answer.outlook
    if outlook is None:
        return _refused(tasks, answer.problem)

    return Forecast(
        made_us=answer.at_us,
        tasks=tasks,
        runs=outlook.runs,
        moments=outlook.moments,
        known=outlook.known,
        preempts=visible(outlook.preempts, caller),
    )


async def ask_lab(question: ForecastRequest) -> ForecastReply:
    """Answer a request in a process of its own, which is ended after `LIMIT_S`."""
    lab = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE)

    try:
        output, complaint = await ended_within(_answer_of(lab, msgspec.msgpack.encode(question)), LIMIT_S)
    except TimeoutError:
        return ForecastReply(0, 0, None, f"the lab has not come to an end within {LIMIT_S:g} s")
    finally:
        if lab.returncode is None:
            lab.kill()
            await lab.wait()

    if lab.returncode or not output:
        log.error("a forecast failed: %s", complaint.decode(errors="replace")[-2000:])
        return ForecastReply(0, 0, None, "the lab has failed; the log of the API's host says how")

    return msgspec.msgpack.decode(output, type=ForecastReply)


async def _answer_of(lab: Process, question: bytes) -> tuple[bytes, bytes]:
    """The output and the errors of the process, once it has ended."""
    try:
        return await lab.communicate(question)
    except RuntimeError:  # uvloop raises it where the process ends before it has read the question
        assert lab.stderr is not None
        complaint = await lab.stderr.read()
        await lab.wait()
        return b"", complaint


def visible(preempts: tuple[PreemptedJob, ...], caller: Principal) -> tuple[PreemptedJob, ...]:
    """The preempted jobs that the user may see; jobs of others are summed up without names."""
    if caller.sees is None:
        return preempts

    own_jobs = [item for item in preempts if item.user == caller.sees]
    foreign = [item for item in preempts if item.user != caller.sees]
    if foreign:
        runs = max(item.runs for item in foreign)
        own_jobs.append(PreemptedJob(tasks=sum(item.tasks for item in foreign), runs=runs))
    return tuple(own_jobs)


def forecast_operations(foreteller: Forecaster, queries: JobQueries) -> tuple[Operation, ...]:
    async def forecast(request: Request) -> Response:
        """Forecast start and end of a job if it were submitted now, and its preemptions; nothing is submitted."""
        return as_json(await foreteller.forecast(await job_of_body(request), principal(request)))

    async def of_job(request: Request) -> Response:
        """Forecast start and end of what is left of a job that is under way, and its preemptions."""
        caller = principal(request)
        status = seen_job(queries, request.path_params["id"], caller)
        return as_json(await foreteller.of_job(status, caller))

    async def forecasts(request: Request) -> Response:
        """The accuracy of forecasts of jobs that were submitted within a minute, word for word, and have ended."""
        return as_json(await foreteller.record(principal(request).sees))

    return (
        Operation("POST", "/forecast", forecast, Forecast, JobDescription),
        Operation("GET", "/jobs/{id:number}/forecast", of_job, Forecast),
        Operation("GET", "/forecasts", forecasts, ForecastRecord),
    )


COUNTS_US: Final = 60 * SECOND
"""Longest time between a forecast and the submission that it counts for: later, the federation is another one."""
KEPT: Final = 10_000
SHOWN: Final = 20
NAMES: Final = MomentQuantiles.__struct_fields__
_TABLE: Final = """
CREATE TABLE IF NOT EXISTS forecasts (
  id INTEGER PRIMARY KEY, made_us INTEGER NOT NULL, next_job INTEGER NOT NULL, user TEXT NOT NULL,
  description BLOB NOT NULL, moments BLOB NOT NULL, job INTEGER, delay_us INTEGER, came BLOB, checksum INTEGER)
"""
_JOB: Final = (
    "SELECT id, submitted_us, ended_us FROM jobs WHERE user = ? AND id >= ? AND submitted_us < ? "
    "AND description = (SELECT id FROM descriptions WHERE digest = ?) ORDER BY id LIMIT 1"
)
_ROWS: Final = "SELECT id, made_us, next_job, user, description, moments, job, delay_us, came, checksum FROM forecasts"
_CAME: Final = "SELECT min(started_us), min(ended_us), max(started_us), max(ended_us) FROM tasks WHERE job = ?"


class ForecastLedger:
    """The file of forecasts; it may be used by several threads.

    Raises:
        sqlite3.Error: it cannot be opened.
    """

    def __init__(self, path: Path, jobs: Path) -> None:
        # It holds commands and their environment, which nobody else may read.
        os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
        self._sql = sqlite3.connect(path, timeout=5.0, check_same_thread=False, isolation_level=None)
        self._sql.execute("PRAGMA journal_mode = WAL")
        self._sql.execute("PRAGMA synchronous = NORMAL")
        self._sql.execute(_TABLE)
        add_triggers(self._sql, (FORECASTS,))
        self._jobs = reading(jobs)
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            self._sql.close()
            self._jobs.close()

    def keep(self, made_us: Time, next_job: JobId, job: JobDescription, moments: MomentQuantiles) -> None:
        """Remember a forecast.

        Args:
            made_us: microseconds since 1970.
            next_job: the first job number that was free then.
        """
        row = (made_us, next_job, job.user, encoded(merged(job)), msgspec.json.encode(moments))
        with self._lock:
            self._sql.execute(
                "INSERT INTO forecasts (made_us, next_job, user, description, moments) VALUES (?, ?, ?, ?, ?)", row
            )
            self._sql.execute("DELETE FROM forecasts WHERE id <= (SELECT max(id) FROM forecasts) - ?", (KEPT,))

    def record(self, user: str | None) -> ForecastRecord:
        """The accuracy of forecasts of one user's jobs or of all."""
        with self._lock:
            self._settle()
            rows = fetched(self._sql, f"{_ROWS} WHERE ?1 IS NULL OR user = ?1 ORDER BY id DESC", (user,))

        sound_rows = [row for row in rows if row_checksum(row[:-1]) == row[-1]]
        outcomes = []
        for _, made_us, _, _, _, foretold, job, delay_us, came, _ in sound_rows:
            if came is None:
                continue
            outcomes.append(
                ForecastOutcome(
                    job=job,
                    made_us=made_us,
                    moments=msgspec.json.decode(foretold, type=MomentQuantiles),
                    came=msgspec.json.decode(came, type=ActualMoments),
                    delay_us=delay_us,
                )
            )

        moments = tuple(_moment(name, outcomes) for name in NAMES)
        return ForecastRecord(
            open=len(sound_rows) - len(outcomes),
            damaged=len(rows) - len(sound_rows),
            moments=moments,
            last=tuple(outcomes[:SHOWN]),
        )

    def _settle(self) -> None:
        """Find the jobs of forecasts, and what became of those that have ended."""
        now_us = unix_now_us()
        for row in fetched(self._sql, f"{_ROWS} WHERE came IS NULL ORDER BY id DESC"):
            if row_checksum(row[:-1]) != row[-1]:
                continue

            number, made_us, next_job, user, content, *_ = row
            job_row = self._jobs.execute(_JOB, (user, next_job, made_us + COUNTS_US, digest_of(content))).fetchone()

            # It may still be submitted while its forecast counts.
            if job_row is None:
                if now_us > made_us + COUNTS_US:
                    self._sql.execute("DELETE FROM forecasts WHERE id = ?", (number,))
                continue

            job, submitted_us, ended_us = job_row

            # Where the same job was planned twice, the later forecast counts.
            self._sql.execute("DELETE FROM forecasts WHERE job = ? AND id < ?", (job, number))
            if self._sql.execute("SELECT 1 FROM forecasts WHERE job = ? AND id > ?", (job, number)).fetchone():
                self._sql.execute("DELETE FROM forecasts WHERE id = ?", (number,))
                continue

            came = None
            if ended_us is not None:
                moments = self._jobs.execute(_CAME, (job,)).fetchone()
                came = msgspec.json.encode(
                    ActualMoments(*(None if at_us is None else max(0, at_us - submitted_us) for at_us in moments))
                )

            delay_us = max(0, submitted_us - made_us)
            words = (job, delay_us, came, number)
            self._sql.execute("UPDATE forecasts SET job = ?, delay_us = ?, came = ? WHERE id = ?", words)


def _moment(name: str, outcomes: Iterable[ForecastOutcome]) -> MomentRecord:
    settled, covered, errors_us = 0, 0, []
    for outcome in outcomes:
        at: int | None = getattr(outcome.came, name)
        low_us, median_us, high_us = counted_from_submission(outcome, name)
        if at is None or high_us is None or low_us is None:
            continue

        settled += 1
        covered += low_us <= at <= high_us
        if median_us is not None:
            errors_us.append(abs(median_us - at))

    return MomentRecord(
        moment=name, settled=settled, covered=covered, off_us=round(statistics.median(errors_us)) if errors_us else None
    )


def counted_from_submission(outcome: ForecastOutcome, moment: str) -> tuple[int | None, ...]:
    """Low, median and high of a moment, for a job that was submitted some time after the forecast was made.

    A start that was foretold for later than that comes when it was foretold; an earlier one moves, with its end, by the
    time between it and the submission.
    """
    bounds_us = []
    for bound in ("low_us", "median_us", "high_us"):
        at = getattr(getattr(outcome.moments, moment), bound)
        start = getattr(outcome.moments.first_start, bound)
        late = 0 if start is None else max(0, outcome.delay_us - start)
        bounds_us.append(None if at is None else at + late - outcome.delay_us)
    return tuple(bounds_us)


def meters(record: ForecastRecord) -> list[Meter]:
    """A record as Prometheus has it: name, type, meaning, samples."""
    settled = [({"moment": item.moment}, float(item.settled)) for item in record.moments]
    covered = [({"moment": item.moment}, float(item.covered)) for item in record.moments]
    off = [({"moment": item.moment}, item.off_us / SECOND) for item in record.moments if item.off_us is not None]
    return [
        ("volery_forecasts_settled", "gauge", "forecasts that are kept and whose moment has come", settled),
        ("volery_forecasts_covered", "gauge", "of these, that came within the interval", covered),
        ("volery_forecast_off_seconds", "gauge", "median distance of what came from the foretold median", off),
    ]
