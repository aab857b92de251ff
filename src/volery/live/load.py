"""Load: replays a trace against a federation, and writes down what the lab would have written down.

The loader takes the place of the API. It submits each job at its time in the trace (an open loop: a federation that
falls behind gets no rest), and the table that it fills is the lab's own, so that the same metrics read both.

All hosts run in this process (`load`), or each in one of its own (`load_apart`): starts and ends of tasks are then
those that nodes report by the wall clock, which all processes of one machine share.

A federation that runs elsewhere is loaded through its API, as its users would (`load_by_api`). What is measured is what
users see: from the moment at which a job is handed to the client to the start of each task, by the wall clocks of both
sides. All submissions go out on time, answered or not.
"""

from __future__ import annotations

import asyncio
import gc
import multiprocessing
import time
from array import array
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

import msgspec

from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.events import JobAccepted, JobDone, JobRejected, MoreTasks, Outcome, Submit, TimerFired
from volery.core.model import NEVER, SECOND, Address, JobId, Message, Task, TaskId, Time
from volery.core.records import PATH_SHIFT, LostAttempt, Records
from volery.core.trace import Trace, longs
from volery.core.workflows import comes_in_parts
from volery.live.assembly import running
from volery.live.calibration import FrameNotes, FramingHost
from volery.live.client import AsyncClient
from volery.live.clock import ClockSteps, monotonic_now_us, run_loop
from volery.live.config.federation import ALL, API_HOST, Choose, Federation, FederationFile, resolve
from volery.live.jobs import JobDescription, TaskDescription
from volery.live.messages import ConfinementReport, DecisionReport, HostName, PeerReport, PreemptionReport, TaskReport
from volery.live.node.executor import Executor
from volery.live.runtime.host import Host
from volery.live.runtime.submitter import Frontend, SubmitterSite
from volery.live.status import ENDED_TASKS, JobStatus, Receipt, TaskStatus

LEAD_US: Final = 20_000
"""Time between the start of the federation and the first job."""
NEXT: Final = "next"
PROGRESS_S: Final = 0.25

Payload = Callable[[TaskId], bytes]


def refuse_tags(trace: Trace) -> None:
    """Refuse a workload whose tasks have tags: nothing enforces them in a federation.

    Raises:
        InputError: it has.
    """
    if trace.tag_set:
        problem = "tasks have tag constraints, which federations do not take; give work without tags"
        raise InputError(trace.name, problem)


class LoadProgress(msgspec.Struct, frozen=True):
    submitted: int
    done: int
    finished: int


class Loaded(msgspec.Struct, frozen=True):
    """Result of a load.

    Args:
        records: records on the federation's clock; arrivals are the times of the submissions.
        late_us: delay of each job's submission against the plan.
        failed: attempts that failed.
        cpu_s: processor time of this process, from the first submission to the last answer.
        journal: path of the journal; empty where none was kept.
    """

    records: Records
    late_us: array[int]
    failed: int
    cpu_s: float
    journal: str


def sped_up(trace: Trace, speedup: float) -> Trace:
    """The same work in less time: arrivals, durations, estimates, deadlines and limits divided: the load stays.

    Raises:
        InputError: tasks wait for others or come after their jobs, and nothing holds them back here.
    """
    if comes_in_parts(trace):
        problem = "its tasks wait or come late; workflows run in the lab alone; make a table of independent ones with"
        raise InputError(trace.name, f"{problem} `volery trace convert --without-parents`")

    def divided(column: array[int]) -> array[int]:
        if speedup == 1:
            return column[:]
        return array("q", [value if value == NEVER else round(value / speedup) for value in column])

    return msgspec.structs.replace(
        trace,
        arrival_us=divided(trace.arrival_us),
        duration_us=divided(trace.duration_us),
        estimate_us=divided(trace.estimate_us),
        deadline_us=divided(trace.deadline_us),
        limit_us=divided(trace.limit_us),
    )


def as_lived(records: Records) -> Trace:
    """The work as it really was: submitted when it was, by the federation's clock, and each task as long as it took.

    Args:
        records: records of a load of which all tasks have finished.
    """
    durations_us = array("q", [b - a for a, b in zip(records.start_us, records.finish_us, strict=True)])
    return msgspec.structs.replace(records.trace, duration_us=durations_us)


class Loader(Component):
    """Submits the jobs of a trace on time and notes the answers.

    Args:
        records: records that are filled in; their own trace gets the times of the submissions as they are made.
        entry: the address that a job of a user is submitted to.
        payload: payload of each task; None: none.
    """

    def __init__(
        self, trace: Trace, records: Records, entry: Callable[[JobId, str], Address], payload: Payload | None
    ) -> None:
        self._trace = trace
        self._records = records
        self._entry = entry
        self._payload = payload
        self._origin_us = 0
        self.late_us = longs(trace.job_count)
        self.submitted = 0
        self.done = 0
        self.cpu_s = 0.0
        self.complete = asyncio.Event()

    def start(self, now: Time) -> None:
        self._origin_us = now + LEAD_US
        self._port.set_timer(NEXT, self._origin_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Submit what is due, or once more what was refused."""
        if isinstance(event.key, int):
            self._submit(event.key)
            return

        if not self.submitted:
            self.cpu_s = time.process_time()

        arrivals, count = self._trace.arrival_us, self._trace.job_count
        # An open loop: jobs that fell due during a long turn are all submitted now, and their delay is noted.
        while self.submitted < count and (due := self._origin_us + arrivals[self.submitted]) <= now:
            job = self.submitted
            self.submitted += 1
            self.late_us[job] = now - due
            self._records.trace.arrival_us[job] = now
            self._submit(job)

        if self.submitted < count:
            self._port.set_timer(NEXT, self._origin_us + arrivals[self.submitted])

    def _submit(self, job: JobId) -> None:
        entry = self._entry(job, self._trace.user[job] if self._trace.user else "")
        for message in self._trace.submission(job):
            self._port.send(entry, message if self._payload is None else self._with_payload(message))

    def _with_payload(self, message: Message) -> Message:
        """The message, with a payload in each task."""
        assert self._payload is not None
        replace = msgspec.structs.replace
        if isinstance(message, Submit):
            tasks = tuple(replace(task, payload=self._payload(task.id)) for task in message.job.tasks)
            return Submit(replace(message.job, tasks=tasks))
        assert isinstance(message, MoreTasks)
        return replace(message, tasks=tuple(replace(task, payload=self._payload(task.id)) for task in message.tasks))

    def on_done(self, message: JobDone, source: Address, now: Time) -> None:
        if self._records.answered_us[message.job] != NEVER:
            return
        self._records.answered_us[message.job] = now
        self._records.unsatisfiable[message.job] = message.unsatisfiable
        self.done += 1
        if self.done == self._trace.job_count:
            self.cpu_s = time.process_time() - self.cpu_s
            self.complete.set()

    def on_rejected(self, message: JobRejected, source: Address, now: Time) -> None:
        self._records.rejections += 1
        self._port.set_timer(message.job, now + max(1, message.retry_after_us))

    def on_report(self, message: Message, source: Address, now: Time) -> None:
        """Ignore what a job service would write down."""

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        TimerFired: on_timer,
        JobAccepted: on_report,
        JobRejected: on_rejected,
        JobDone: on_done,
        TaskReport: on_report,
        ConfinementReport: on_report,
        DecisionReport: on_report,
        PreemptionReport: on_report,
        PeerReport: on_report,
    }


class LoadRecorder:
    """Fills the lab's own table when a federation replays a trace, so that the lab's metrics read it.

    Tasks have the numbers that they have in the trace. The time from the beginning of a start's turn to the start is
    processing: on one host nothing is on the wire, and a task was waiting before that turn.

    Attributes:
        machines: address of each node -> number of its machine; filled before the first start.
        finished, failed: numbers of attempts that ended so.
    """

    def __init__(self, records: Records) -> None:
        self.machines: dict[Address, int] = {}
        self.finished = self.failed = 0
        self._records = records

    def started(self, node: Address, task: Task, attempt: int, waited_us: Time, turn_us: Time, now: Time) -> None:
        records, number = self._records, task.id
        # An earlier attempt was lost: its times are kept before they are overwritten.
        if attempt:
            records.lost.append(
                LostAttempt(
                    number,
                    records.attempt[number],
                    records.worker[number],
                    records.start_us[number],
                    records.finish_us[number],
                )
            )

        records.start_us[number] = now
        records.worker[number] = self.machines[node]
        records.attempt[number] = attempt

        if waited_us:
            records.waited_us[number] = waited_us

        records.path[number] = (now - turn_us) << PATH_SHIFT

    def ended(self, _node: Address, task: Task, attempt: int, outcome: Outcome, now: Time) -> None:
        if outcome == "finished":
            self._records.finish_us[task.id] = now
        else:
            self._records.killed[task.id, attempt] = now
        self.finished += outcome == "finished"
        self.failed += outcome == "failed"


async def load(
    federation: Federation,
    trace: Trace,
    executor: Executor,
    payload: Payload | None = None,
    watch: Callable[[LoadProgress], None] | None = None,
    make_host: type[Host] = Host,
) -> Loaded:
    """Run a federation in this process and replay a trace against it, until every job is answered.

    Args:
        federation: federation that does not run yet.
        payload: content that each task carries.
        watch: is called with the progress of the load, four times a second.

    Raises:
        InputError: tasks have tags.
        Exception: whatever a component has raised.
    """
    refuse_tags(trace)
    records = Records(msgspec.structs.replace(trace, arrival_us=trace.arrival_us[:]))
    recorder = LoadRecorder(records)
    loaders: list[Loader] = []

    def front(site: SubmitterSite) -> Frontend:
        recorder.machines.update(site.deployment.machines)
        loaders.append(Loader(trace, records, site.deployment.entry_for, payload))
        return Frontend(loaders[0])

    async with running(federation, ALL, front, recorder, executor, make_host) as at_work:
        loader = loaders[0]
        complete = asyncio.ensure_future(loader.complete.wait())
        host_end = asyncio.ensure_future(at_work.host.run())

        while not complete.done():
            await asyncio.wait((complete, host_end), timeout=PROGRESS_S, return_when=asyncio.FIRST_COMPLETED)
            if host_end.done():
                complete.cancel()
                host_end.result()  # raises what the component has raised
            if watch is not None:
                watch(LoadProgress(loader.submitted, loader.done, recorder.finished))

        host_end.cancel()
        for name, tally in at_work.host.facts.tallies.items():
            records.tallies[name] = tally

        records.counters.update(at_work.host.facts.counters)

        return Loaded(records, loader.late_us, recorder.failed, loader.cpu_s, at_work.journal)


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
        trace: see `sped_up`.
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


REST_US: Final = SECOND
"""Time before the first job: the work of hosts at their beginning is no load."""
SETTLE_S: Final = 0.5
"""Time for which reports may come after answers."""
LIMIT_S: Final = 120


class LoadMeasurements(NamedTuple):
    """Measurements of a run.

    Args:
        records: starts and ends as nodes have reported them.
        notes: by host, the measurements of hosts that time themselves.
        broker_us: processor time of the broker per frame; 0 where that is not known.
        origin_us: by host, the time of the machine's clock when that of the host showed 0.
    """

    federation: Federation
    records: Records
    notes: dict[HostName, FrameNotes]
    broker_us: float
    origin_us: dict[HostName, Time]


class RecordingLoader(Loader):
    """A loader that records the starts and ends of tasks by their nodes' clocks."""

    def start(self, now: Time) -> None:
        self._origin_us, self._steps = monotonic_now_us() - now, ClockSteps()
        super().start(now + REST_US)

    def on_report(self, message: Message, source: Address, now: Time) -> None:
        if isinstance(message, TaskReport):
            column = self._records.start_us if message.state == "running" else self._records.finish_us
            column[message.task] = self._steps.monotonic_us(message.at_unix_us) - self._origin_us


def load_apart(
    file: FederationFile,
    base: Path,
    choose: Choose,
    trace: Trace,
    make_host: type[Host] = Host,
    broker_s: Callable[[], float] = float,
) -> LoadMeasurements:
    """Load a federation, each of whose hosts is a process, until every task has ended.

    Args:
        file: file with a broker and hosts, whose tasks sleep as long as they are estimated to run.
        base: folder that the file's folder is relative to.
        choose: see `resolve`; processes import it.
        trace: trace that is submitted.
        make_host: a kind of host that also measures itself.
        broker_s: processor time of the broker so far, seconds.

    Raises:
        InputError: the federation cannot be built, no broker answers, or tasks have tags.
        TimeoutError: it takes longer than two minutes.
    """
    refuse_tags(trace)
    federation = resolve(file, base, choose)
    results: list[LoadMeasurements] = []
    with ExitStack() as stack:
        lines = {
            name: stack.enter_context(_process_of(_hosted, file, base, choose, name, make_host)) for name in file.hosts
        }
        run_loop(_measure(federation, trace, lines, make_host, broker_s, results))
    return results[0]


async def _measure(
    federation: Federation,
    trace: Trace,
    lines: dict[HostName, Connection],
    make_host: type[Host],
    broker_s: Callable[[], float],
    results: list[LoadMeasurements],
) -> None:
    records = Records(trace)
    loaders: list[RecordingLoader] = []

    def front(site: SubmitterSite) -> Frontend:
        loaders.append(RecordingLoader(trace, records, site.deployment.entry_for, None))
        return Frontend(loaders[0])

    async with running(federation, API_HOST, front, make_host=make_host) as at_work, asyncio.timeout(LIMIT_S):
        await asyncio.sleep(REST_US / SECOND / 2)
        used_s = broker_s()
        await loaders[0].complete.wait()
        used_s = broker_s() - used_s

        while min(records.finish_us) == NEVER:
            await asyncio.sleep(SETTLE_S)
        measurements = {API_HOST: _measurements(at_work.host)}

    for name, line in lines.items():
        line.recv()
        line.send("stop")
        measurements[name] = line.recv()

    notes = {name: note for name, (note, _) in measurements.items() if note is not None}
    frames = sum(item.published for item in notes.values())
    clocks = {name: origin_us for name, (_, origin_us) in measurements.items()}
    results.append(LoadMeasurements(federation, records, notes, used_s * SECOND / max(1, frames), clocks))


def _measurements(host: Host) -> tuple[FrameNotes | None, Time]:
    """The measurements of a host, and the time by the machine's clock when the host's showed 0."""
    return FrameNotes(host) if isinstance(host, FramingHost) else None, time.monotonic_ns() // 1000 - host.now()


def _hosted(
    file: FederationFile, base: Path, choose: Choose, name: HostName, make_host: type[Host], orders: Connection
) -> None:
    """A process: one host, until it is told to stop; then it sends its measurements."""

    async def work() -> None:
        async with running(resolve(file, base, choose), name, make_host=make_host) as at_work:
            gc.collect()
            gc.freeze()
            orders.send("ready")
            await asyncio.to_thread(orders.recv)
            orders.send(_measurements(at_work.host))

    run_loop(work())


@contextmanager
def _process_of(target: Callable[..., None], *arguments: Any) -> Iterator[Connection]:
    """A process with a line to it; one that is not told to stop is ended."""
    own_end, child_end = multiprocessing.Pipe()
    child = multiprocessing.get_context("spawn").Process(target=target, args=(*arguments, child_end))
    child.start()
    try:
        yield own_end
        child.join(SETTLE_S * 10)
    finally:
        child.kill()
