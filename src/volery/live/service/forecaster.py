"""Forecaster: the lab plays the federation in a process of its own, and predicts starts, ends and preemptions of a job.

The API hands over the job and the machines; the process reads the store of jobs, forks the federation into the lab, and
is ended when it takes too long. The API's loop waits for it as for any client. That process is a program, started by
name: nothing here imports the lab.
"""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Callable, Collection
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from volery.core.forecast import PreemptedJob
from volery.core.model import Address, JobId
from volery.live.config.federation import Federation
from volery.live.jobs import JobDescription, TaskDescription, demands, task_count
from volery.live.loop import in_slices
from volery.live.service.forecast_inputs import WAITING_MAX as TASKS_PLAYED_MAX
from volery.live.service.forecast_inputs import ForecastReply, ForecastRequest
from volery.live.service.forecast_ledger import ForecastLedger, meters
from volery.live.service.meters import Meter
from volery.live.service.openapi import Operation
from volery.live.service.queries import JobQueries
from volery.live.service.requests import as_json, described, principal, seen_job
from volery.live.service.tokens import Principal
from volery.live.status import Forecast, ForecastRecord, JobStatus

COMMAND: Final = (sys.executable, "-m", "volery.cli.forecast")
BUDGET_S: Final = 5.0
"""Processor time for the runs of one forecast."""
LIMIT_S: Final = 30.0
"""Wall time after which the process is ended: on a busy machine it gets what others leave."""
WAITING_MAX: Final = 8
"""So many may wait for the one that is being made."""
RECORDED_MAX: Final = 1_000
"""Of a job that lists more different tasks no forecast is kept: to write the list down takes too long."""
FRESH_S: Final = 10.0
"""A forecast of a job under way serves whoever asks for it within this time."""

log = logging.getLogger(__name__)


class Forecaster:
    """Makes forecasts, one at a time, and keeps their outcomes.

    Args:
        nodes: address of each node -> number of its machine.
        lost: gives the nodes that do not answer.
    """

    def __init__(
        self, federation: Federation, nodes: dict[Address, int], lost: Callable[[], Collection[Address]] = tuple
    ) -> None:
        self._lost = lost
        self._path, self._store = federation.folder / "forecasts.sqlite", federation.folder / "jobs.sqlite"
        self._plan, self._fleet, self._nodes = federation.plan, federation.fleet, nodes
        self._turn = asyncio.Lock()
        self._waiting = 0
        self._made: dict[JobId, asyncio.Future[ForecastReply]] = {}
        self._made_s: dict[JobId, float] = {}
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
        """The record for Prometheus; nothing while nobody has asked for a forecast here."""
        if self._book is None and not self._path.exists():
            return []
        return meters(await self.record(None))

    def close(self) -> None:
        if self._book is not None:
            self._book.close()

    async def forecast(self, job: JobDescription, who: Principal) -> Forecast:
        """The forecast of a planned job, without names of jobs that the user may not see.

        Raises:
            InputError: constraints that the fleet gives no meaning to.
        """
        if task_count(job) > TASKS_PLAYED_MAX:
            return _refused(task_count(job), f"it has more than {TASKS_PLAYED_MAX:,} tasks, more than the lab plays")
        if not await self._can_run(job):
            return _refused(task_count(job), "none of its tasks could ever run")
        answer = await self._in_turn(await _sketch(job))
        if answer.outlook is not None and (isinstance(job.tasks, int) or len(job.tasks) <= RECORDED_MAX):
            await asyncio.to_thread(self.book.keep, answer.at_us, answer.next_job, job, answer.outlook.moments)
        return _forecast_of(answer, task_count(job), who)

    async def _can_run(self, job: JobDescription) -> bool:
        async for one in in_slices(demands(job, self._fleet)):
            if not one.obstacle:
                return True
        return False

    async def of_job(self, job: JobStatus, who: Principal) -> Forecast:
        """The forecast of what is left of a job; asked again soon, the answer is the same."""
        if job.ended:
            return _refused(job.tasks, "the job has ended")
        made = self._made.get(job.id)
        if made is None or (made.done() and time.monotonic() - self._made_s[job.id] > FRESH_S):
            made = self._made[job.id] = asyncio.ensure_future(self._in_turn(job.id))
            made.add_done_callback(lambda _: self._date(job.id))
        return _forecast_of(await asyncio.shield(made), job.tasks, who)

    def _date(self, number: JobId) -> None:
        """Store the time of an answer about a job, and forget old ones."""
        now_s = time.monotonic()
        self._made_s[number] = now_s
        for old in [one for one, at_s in self._made_s.items() if now_s - at_s > FRESH_S and self._made[one].done()]:
            del self._made[old], self._made_s[old]

    async def _in_turn(self, asked: JobDescription | JobId) -> ForecastReply:
        if self._waiting >= WAITING_MAX:
            return ForecastReply(0, 0, None, f"{WAITING_MAX} others wait for theirs; ask again")
        self._waiting += 1
        try:
            async with self._turn:
                return await self._asked(asked)
        finally:
            self._waiting -= 1

    async def _asked(self, job: JobDescription | JobId) -> ForecastReply:
        plan, cluster = self._plan, self._fleet.cluster
        question = ForecastRequest(
            str(self._store), plan.architecture.name, msgspec.to_builtins(plan.config),
            self._fleet.machines, cluster.slots, cluster.resources, cluster.capacities, self._nodes, job, BUDGET_S,
            tuple(sorted(self._lost())),
        )  # fmt: skip
        return await ask_lab(question)


async def _sketch(job: JobDescription) -> JobDescription:
    """A job without what its tasks carry: the lab asks only what they need, and what they are called."""
    if isinstance(job.tasks, int) or len(job.tasks) <= RECORDED_MAX:
        return job
    first, *others = job.tasks
    names = ("estimate_s", "constraints", "request", "count")
    bare = (TaskDescription(**{name: getattr(one, name) for name in names}) for one in others)
    runs: list[tuple[TaskDescription, int]] = []
    async for one in in_slices(bare):
        if runs and runs[-1][0] == one:
            runs[-1] = one, runs[-1][1] + 1
        else:
            runs.append((one, 1))
    alike = [replace(task, count=task.count * times) async for task, times in in_slices(runs)]
    return replace(job, tasks=(replace(first, call=b"", stdin="", env={}), *alike), call=b"", stdin="", env={})


def _refused(tasks: int, problem: str) -> Forecast:
    return Forecast(made_us=0, tasks=tasks, runs=0, problem=problem)


def _forecast_of(answer: ForecastReply, tasks: int, who: Principal) -> Forecast:
    outlook = answer.outlook
    if outlook is None:
        return _refused(tasks, answer.problem)
    return Forecast(
        made_us=answer.at_us, tasks=tasks, runs=outlook.runs, moments=outlook.moments, known=outlook.known,
        preempts=seen(outlook.preempts, who),
    )  # fmt: skip


async def ask_lab(question: ForecastRequest) -> ForecastReply:
    """Answer a request in a process of its own, which is ended after `LIMIT_S`."""
    lab = await asyncio.create_subprocess_exec(*COMMAND, stdin=PIPE, stdout=PIPE, stderr=PIPE)
    try:
        async with asyncio.timeout(LIMIT_S):
            answered, complaint = await lab.communicate(msgspec.msgpack.encode(question))
    except TimeoutError:
        return ForecastReply(0, 0, None, f"the lab has not come to an end within {LIMIT_S:g} s")
    except RuntimeError:  # uvloop raises it where the process ends before it has read the question
        assert lab.stderr is not None
        answered, complaint = b"", await lab.stderr.read()
        await lab.wait()
    finally:
        if lab.returncode is None:
            lab.kill()
            await lab.wait()
    if lab.returncode or not answered:
        log.error("a forecast failed: %s", complaint.decode(errors="replace")[-2000:])
        return ForecastReply(0, 0, None, "the lab has failed; the log of the API's host says how")
    return msgspec.msgpack.decode(answered, type=ForecastReply)


def seen(preempts: tuple[PreemptedJob, ...], who: Principal) -> tuple[PreemptedJob, ...]:
    """The preempted jobs that the user may see; jobs of others are summed up without names."""
    if who.sees is None:
        return preempts
    own = [one for one in preempts if one.user == who.sees]
    others = [one for one in preempts if one.user != who.sees]
    if others:
        runs = max(one.runs for one in others)
        own.append(PreemptedJob(tasks=sum(one.tasks for one in others), runs=runs))
    return tuple(own)


def forecast_operations(foreteller: Forecaster, queries: JobQueries) -> tuple[Operation, ...]:
    async def forecast(request: Request) -> Response:
        """Forecast start and end of a job if it were submitted now, and its preemptions; nothing is submitted."""
        return as_json(await foreteller.forecast(await described(request), principal(request)))

    async def of_job(request: Request) -> Response:
        """Forecast start and end of what is left of a job that is under way, and its preemptions."""
        who = principal(request)
        status = seen_job(queries, request.path_params["id"], who)
        return as_json(await foreteller.of_job(status, who))

    async def forecasts(request: Request) -> Response:
        """The accuracy of forecasts of jobs that were submitted within a minute, word for word, and have ended."""
        return as_json(await foreteller.record(principal(request).sees))

    return (
        Operation("POST", "/forecast", forecast, Forecast, JobDescription),
        Operation("GET", "/jobs/{id:number}/forecast", of_job, Forecast),
        Operation("GET", "/forecasts", forecasts, ForecastRecord),
    )
