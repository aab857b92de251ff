"""Load for a federation that runs elsewhere: replays a trace through its API, as its users would.

What is measured is what users see: from the moment at which a job is handed to the client to the start of each task,
by the wall clocks of both sides. All submissions go out on time, answered or not.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec

from volery.core.model import NEVER, SECOND, JobId
from volery.core.records import Records
from volery.core.trace import Trace, longs
from volery.live.client import AsyncClient
from volery.live.clock import ClockSteps, monotonic_now_us
from volery.live.jobs import JobDescription, TaskDescription
from volery.live.load import PROGRESS_S, Loaded, LoadProgress, refuse_tags
from volery.live.status import ENDED_TASKS, JobStatus, Receipt, TaskStatus

Work = Literal["sleep", "spin"]
_SPIN: Final = "import sys, time\nend = float(sys.argv[1])\nwhile time.thread_time() < end: pass"


def command(work: Work, duration_us: int) -> tuple[str, ...]:
    """A command that sleeps, or uses a processor, for so long."""
    seconds = f"{duration_us / SECOND:.6f}"
    return ("sleep", seconds) if work == "sleep" else ("python3", "-S", "-c", _SPIN, seconds)


def job_of_trace(trace: Trace, job: JobId, work: Work) -> JobDescription:
    """A job of a trace as users write it."""
    durations = trace.duration_us[trace.first[job] : trace.first[job + 1]]
    tasks = tuple(TaskDescription(command=command(work, duration)) for duration in durations)
    return JobDescription(
        name=f"load {job}",
        user=trace.user[job] if trace.user else "load",
        estimate_s=trace.estimate_us[job] / SECOND,
        tasks=tasks,
    )


class _Load:
    """The replay of one trace through a client: submissions, answers and records."""

    def __init__(self, client: AsyncClient, trace: Trace, work: Work) -> None:
        self._client = client
        self._trace = trace
        self._work = work
        self._origin_us = 0
        self._steps = ClockSteps()
        self._jobs: dict[int, JobId] = {}
        self._early: list[JobStatus | TaskStatus] = []
        self._receipts: set[asyncio.Task[None]] = set()
        self.records = Records(msgspec.structs.replace(trace, arrival_us=trace.arrival_us[:]))
        self.late_us = longs(trace.job_count)
        self.finished = self.failed = self.done = self.submitted = 0
        self.complete = asyncio.Event()

    def _now_us(self) -> int:
        return monotonic_now_us() - self._origin_us

    async def submit_all(self) -> None:
        """Hand every job over when it is due."""
        self._origin_us = monotonic_now_us()
        for job, due in enumerate(self._trace.arrival_us):
            await asyncio.sleep((due - self._now_us()) / SECOND)
            now = self._now_us()
            self.records.trace.arrival_us[job] = now
            self.late_us[job] = max(0, now - due)
            self.submitted += 1
            submit_task = asyncio.get_running_loop().create_task(self._submit(job))
            self._receipts.add(submit_task)

        await asyncio.gather(*self._receipts)

    async def _submit(self, job: JobId) -> None:
        receipt: Receipt = await self._client.submit(job_of_trace(self._trace, job, self._work))
        self._jobs[receipt.id] = job
        early_statuses, self._early = self._early, []
        for status in early_statuses:
            self.take_in(status)

    async def listen(self, revision: int) -> None:
        async for status in self._client.events(after=revision):
            self.take_in(status)

    def take_in(self, status: JobStatus | TaskStatus) -> None:
        """Note what has become of a job or a task; what comes before the receipt waits for it."""
        number = status.id if isinstance(status, JobStatus) else status.job
        job = self._jobs.get(number)
        if job is None:
            if self.submitted > len(self._jobs):
                self._early.append(status)
        elif isinstance(status, TaskStatus):
            self._task(job, status)
        elif status.ended and self.records.answered_us[job] == NEVER:
            self._job(job, status)

    def _task(self, job: JobId, status: TaskStatus) -> None:
        if status.state not in ENDED_TASKS or status.started_us is None:
            return

        records = self.records
        task = self._trace.first[job] + status.index
        ended_us = status.ended_us if status.ended_us is not None else status.started_us
        finish_us = self._steps.monotonic_us(ended_us) - self._origin_us

        # The duration is by the node's clock; the place of the start is by ours.
        records.start_us[task] = max(finish_us - (ended_us - status.started_us), records.trace.arrival_us[job])
        records.attempt[task] = status.attempt
        if status.state == "finished" and status.ended_us is not None:
            records.finish_us[task] = finish_us
            self.finished += 1

        self.failed += status.state == "failed"

    def _job(self, job: JobId, status: JobStatus) -> None:
        records, trace = self.records, self._trace
        assert status.ended_us is not None
        records.answered_us[job] = answered_us = self._steps.monotonic_us(status.ended_us) - self._origin_us

        records.unsatisfiable[job] = status.unsatisfiable
        taken_us = answered_us - (status.ended_us - status.submitted_us)
        sending_us = max(0, taken_us - records.trace.arrival_us[job])

        for task in range(trace.first[job], trace.first[job + 1]):
            records.path[task] = sending_us

        self.done += 1
        if self.done == trace.job_count:
            self.complete.set()


async def load_by_api(
    api: str | None, trace: Trace, work: Work, watch: Callable[[LoadProgress], None] | None = None
) -> Loaded:
    """Replay a trace through the API of a running federation, until every job has ended.

    Args:
        api: address of the API; see `volery.live.api_calls.api_address`.
        trace: see `volery.live.load.sped_up`.
        work: work of its tasks; a federation with a sleep executor sleeps for the estimates whatever they are.
        watch: is called with the progress of the load, four times a second.

    Raises:
        InputError: no federation answers, it refuses a job, or tasks have tags.
    """
    refuse_tags(trace)
    cpu_s = time.process_time()
    async with AsyncClient(api) as client:
        load = _Load(client, trace, work)
        revision = await client.revision()
        tasks: list[asyncio.Future[Any]] = [
            asyncio.ensure_future(load.listen(revision)),
            asyncio.ensure_future(load.submit_all()),
            asyncio.ensure_future(load.complete.wait()),
        ]

        try:
            while not tasks[-1].done():
                await asyncio.wait(tasks[-1:], timeout=PROGRESS_S)
                for task in tasks[:-1]:
                    if task.done():
                        task.result()  # raises what has gone wrong
                if watch is not None:
                    watch(LoadProgress(load.submitted, load.done, load.finished))
        finally:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    return Loaded(load.records, load.late_us, load.failed, time.process_time() - cpu_s, "")
