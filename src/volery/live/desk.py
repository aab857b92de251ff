"""The submitter: between the API, which speaks of jobs in words, and the schedulers, which speak messages.

It stands on a host under the address `SUBMITTER` like any component, hears what becomes of jobs, and writes it to the
store in batches: while one commit is under way, the next batch gathers. It is not journalled; its state is the store.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final, TypeVar

from volery.core.component import Component
from volery.core.errors import InputError
from volery.core.events import Cancel, Event, JobAccepted, JobDone, JobRejected, TimerFired
from volery.core.model import Address, JobId, Message, Task, TaskId, Time
from volery.live.executor import TaskReport
from volery.live.fleet import Fleet
from volery.live.jobs import JobDescription, plan, submission
from volery.live.status import JobStatus, NodeStatus, Receipt, TaskStatus
from volery.live.store import JobStore, News, OpenJob

REPORTS_LATE_S: Final = 2.0
"""Reports travel other ways than the answer of the scheduler, and may come after it; rarely by this much."""
WARNINGS_MAX: Final = 5

T = TypeVar("T")


class Outgoing(Message, frozen=True):
    """What the API wants sent: handed to the desk by its host, so that it is sent in a turn; it leaves no host."""

    to: Address
    messages: tuple[Message, ...]


class Desk(Component):
    """Submits jobs, follows them, and answers the API's questions; all calls come from the event loop's thread.

    Args:
        store: of jobs; closed with the desk.
        fleet: the machines of the federation.
        entry: the address that a job is submitted to.
        nodes: address of each node -> number of its machine.
        post: hands an event to this desk in the host's next turn.
    """

    __slots__ = (
        "_closed", "_entry", "_fleet", "_news", "_nodes", "_numbers", "_post", "_running", "_sent", "_store", "_thread",
        "_told", "_wake", "_writer",
    )  # fmt: skip

    def __init__(
        self, store: JobStore, fleet: Fleet, entry: Callable[[JobId], Address], nodes: Mapping[Address, int],
        post: Callable[[Event], None],
    ) -> None:  # fmt: skip
        self._store = store
        self._fleet = fleet
        self._entry = entry
        self._nodes = nodes
        self._post = post
        self._numbers = store.next_numbers()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="store")
        self._sent: dict[JobId, tuple[Message, ...]] = {}
        self._running: dict[tuple[TaskId, int], Address] = {}
        self._news: list[News] = []
        self._wake = asyncio.Event()
        self._told = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._closed = False

    # What the host calls.

    def on_outgoing(self, event: Outgoing, source: Address, now: Time) -> None:
        """Send what the API has written down."""
        for message in event.messages:
            self._port.send(event.to, message)

    def on_news(self, event: News, source: Address, now: Time) -> None:
        """Note what has become of a job or a task."""
        self._news.append(event)
        self._wake.set()
        match event:
            case TaskReport(state="running"):
                self._running[event.task, event.attempt] = event.node
            case TaskReport():
                self._running.pop((event.task, event.attempt), None)
            case JobRejected():
                self._port.set_timer(event.job, now + event.retry_after_us)
            case JobAccepted() | JobDone():
                self._sent.pop(event.job, None)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Submit a refused job again."""
        assert isinstance(event.key, int)
        for message in self._sent.get(event.key, ()):
            self._port.send(self._entry(event.key), message)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Outgoing: on_outgoing,
        TaskReport: on_news,
        JobAccepted: on_news,
        JobRejected: on_news,
        JobDone: on_news,
        TimerFired: on_timer,
    }

    # What the API calls.

    async def open(self) -> None:
        """Begin to write, and submit what had not ended when the store was last closed; ended tasks stay ended."""
        self._writer = asyncio.get_running_loop().create_task(self._write())
        for job in await self._in_store(self._store.open_jobs):
            await self._resubmit(job)

    async def close(self) -> None:
        """Write down what has been heard, and close the store."""
        if self._closed:
            return
        self._closed = True
        if self._writer is not None:
            self._wake.set()
            await self._writer
        await self._in_store(self._store.close)
        self._thread.shutdown()
        self._told.set()

    async def submit(self, description: JobDescription) -> Receipt:
        """Take a job: it is in the store, committed, when this returns.

        Raises:
            InputError: constraints that the fleet gives no meaning to.
        """
        receipt, messages = await self._in_store(self._admit, description)
        if messages:
            self._send(receipt.id, messages)
            self._tell()
        return receipt

    async def cancel(self, number: JobId) -> JobStatus | None:
        """Give a job up; None where there is no such job."""
        await self._in_store(self._store.cancel, number)
        job = await self._in_store(self._store.job, number)
        if job is not None and not job.ended:
            self._sent.pop(number, None)
            self._post(Outgoing(self._entry(number), (Cancel(number),)))
            self._tell()
        return job

    async def job(self, number: JobId) -> JobStatus | None:
        """One job."""
        return await self._in_store(self._store.job, number)

    async def jobs(self, state: str | None, user: str | None, before: int | None, limit: int) -> list[JobStatus]:
        """Jobs, the newest first."""
        return await self._in_store(self._store.jobs, state, user, before, limit)

    async def tasks(self, number: JobId, first: int, limit: int) -> list[TaskStatus]:
        """Tasks of a job, in order."""
        return await self._in_store(self._store.tasks, number, first, limit)

    async def result(self, number: JobId, place: int) -> bytes:
        """What a callable returned or raised, pickled."""
        return await self._in_store(self._store.result, number, place)

    async def changes(self, after: int, job: JobId | None, limit: int) -> list[JobStatus | TaskStatus]:
        """What has changed since a revision; waits until there is something, and is empty once the desk is closed."""
        while not self._closed:
            told = self._told
            if after < self._store.revision:
                found = await self._in_store(self._store.changes, after, job, limit)
                if found:
                    return found
                after = max(after, self._store.revision) if job is None else after
            await told.wait()
        return []

    @property
    def revision(self) -> int:
        """Of the last change."""
        return self._store.revision

    def nodes(self) -> list[NodeStatus]:
        """All nodes, in order of their addresses' machines."""
        running: dict[Address, int] = {}
        for node in self._running.values():
            running[node] = running.get(node, 0) + 1
        found = []
        for address, number in sorted(self._nodes.items(), key=lambda item: (item[1], item[0])):
            machine = self._fleet.machines[number]
            words = {name: getattr(machine, name) for name in machine.__struct_fields__ if name != "labels"}
            found.append(
                NodeStatus(
                    address=address, slots=self._fleet.cluster.slots[number], running=running.get(address, 0),
                    labels=dict(machine.labels), **words,
                )
            )  # fmt: skip
        return found

    # What nobody else calls.

    def _in_store(self, call: Callable[..., T], *arguments: Any) -> Coroutine[Any, Any, T]:
        """Run something in the store's thread."""

        async def run() -> T:
            return await asyncio.get_running_loop().run_in_executor(self._thread, call, *arguments)

        return run()

    def _admit(self, description: JobDescription) -> tuple[Receipt, tuple[Message, ...]]:
        if description.key and (known := self._store.job_with_key(description.key)):
            return Receipt(id=known.id, tasks=known.tasks, known=True), ()
        number, first = self._numbers
        planned = plan(description, number, first, self._fleet)
        obstacles = [(place, obstacle) for place, (_, obstacle) in enumerate(planned) if obstacle]
        self._store.insert(number, first, description, len(planned), obstacles, _now_us())
        self._numbers = number + 1, first + len(planned)
        reasons = {obstacle: place for place, obstacle in reversed(obstacles)}
        warnings = tuple(f"task {place} will never run: {reason}" for reason, place in sorted(reasons.items()))
        receipt = Receipt(id=number, tasks=len(planned), warnings=warnings[:WARNINGS_MAX])
        return receipt, tuple(submission(number, tuple(task for task, _ in planned), description.user))

    def _send(self, number: JobId, messages: tuple[Message, ...]) -> None:
        self._sent[number] = messages
        self._post(Outgoing(self._entry(number), messages))

    async def _resubmit(self, job: OpenJob) -> None:
        if job.cancelling:
            self._post(Outgoing(self._entry(job.id), (Cancel(job.id),)))
            return
        try:
            tasks = await self._in_store(self._unfinished, job)
        except InputError as error:
            await self._in_store(self._store.fail, job.id, f"not submitted again: {error}", _now_us())
            return
        if tasks:
            self._send(job.id, tuple(submission(job.id, tasks, job.description.user)))
        else:
            self.on_news(JobDone(job.id), self._entry(job.id), 0)

    def _unfinished(self, job: OpenJob) -> tuple[Task, ...]:
        ended = self._store.ended_places(job.id)
        planned = plan(job.description, job.id, job.first_task, self._fleet)
        return tuple(task for place, (task, _) in enumerate(planned) if place not in ended)

    async def _write(self) -> None:
        """Take in what is heard, a batch per commit."""
        while self._news or not self._closed:
            await self._wake.wait()
            self._wake.clear()
            news, self._news = self._news, []
            if not news:
                continue
            late = await self._in_store(self._store.take_in, news, _now_us())
            self._tell()
            for number in late:
                asyncio.get_running_loop().call_later(REPORTS_LATE_S, self._give_up_waiting, number)

    def _give_up_waiting(self, number: JobId) -> None:
        if self._closed:
            return

        def told(_: object) -> None:
            self._tell()

        with suppress(RuntimeError):
            future = asyncio.get_running_loop().run_in_executor(
                self._thread, self._store.give_up_waiting, number, _now_us()
            )
            future.add_done_callback(told)

    def _tell(self) -> None:
        """Wake everyone who waits for changes."""
        told, self._told = self._told, asyncio.Event()
        told.set()


def _now_us() -> int:
    return time.time_ns() // 1000
