"""A federation without schedulers: a desk and a node agent, and whatever is submitted runs at once.

It speaks the submitter's protocol as every architecture does, so that the desk, the API and the client can be tried
without a host.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from volery.core.capabilities import CrashRecovery
from volery.core.component import Component, Deployment
from volery.core.events import Cancel, Event, Fact, JobAccepted, JobDone, JobRejected, MoreTasks, Submit, TimerFired
from volery.core.model import SUBMITTER, Address, JobId, Key, Message, Task, TaskId, Time
from volery.core.port import Problem
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.messages import AttemptState, TaskReport, identity_of, number_of
from volery.live.node.agent import NodeAgent
from volery.live.service.job_service import job_service
from volery.live.service.store import JobStore

MACHINES = [Machine("x86_64", "linux", "6.1", cores, 1024, {"zone": zone}) for cores, zone in ((4, "a"), (8, "b"))]


class Loopback:
    """The desk's port, and all that is behind it.

    Args:
        folder: of store and attempts.
        rejections: how many submissions are refused first.
        standins: see `CrashRecovery`; they do not answer by themselves.
    """

    address = SUBMITTER
    is_reliable = True

    def __init__(self, folder: Path, rejections: int = 0, standins: Sequence[Address] = ()) -> None:
        self.fleet = Fleet(MACHINES, [1, 1])
        self.store = JobStore(folder / "jobs.sqlite")
        nodes = {"node/0": 0, "node/1": 1}
        recovery = CrashRecovery(lambda address, incarnation: Component(), standins=tuple(standins))
        deployment = Deployment({"gm/0": Component()}, nodes, lambda job: f"gm/{job}", capabilities=(recovery,))
        self.service = job_service(self.store, self.fleet, deployment, self._send_soon)
        self.service.component.bind(self)
        self.agent = NodeAgent(folder / "tasks", report=self.post)
        self.submitted: list[int] = []
        self.sent_to: list[Address] = []
        self.silent = bool(standins)
        self._standins = standins
        self._rejections = rejections
        self._tasks: dict[int, list[Task]] = {}
        self._counts: dict[int, int] = {}
        self._left: dict[int, set[TaskId]] = {}

    def identity(self, number: int) -> JobId:
        """What schedulers call a job."""
        first = self.store.first_task(number)
        assert first is not None
        return identity_of(number, first)

    def end(self, number: int, state: AttemptState, at_us: Time) -> TaskReport:
        """A report of the first attempt at the first task of a job."""
        first = self.store.first_task(number)
        assert first is not None
        return TaskReport(first, self.identity(number), 0, "node/0", state, at_us)

    def post(self, event: Event) -> None:
        asyncio.get_running_loop().call_soon(self.service.component.handle, event, "here", 0)

    def _send_soon(self, to: Address, message: Message) -> None:
        asyncio.get_running_loop().call_soon(self.send, to, message)

    def send(self, to: Address, message: Message) -> None:
        match message:
            case Submit(job=job):
                if self._standins:
                    self.sent_to.append(to)
                else:
                    assert to == f"gm/{number_of(job.id)}"
                self.submitted.append(number_of(job.id))
                if self.silent:
                    return
                if self._rejections:
                    self._rejections -= 1
                    self.post(JobRejected(job.id, "the queue is full", 1))
                    return
                self._tasks[job.id] = list(job.tasks)
                self._counts[job.id] = job.task_count
                self._maybe_launch(job.id)
            case MoreTasks(job=number) if not self.silent:
                self._tasks[number] += message.tasks
                self._maybe_launch(number)
            case Cancel(job=number):
                for task in sorted(self._left.get(number, ())):
                    self.agent.kill(task, 0)
                if not self._left.get(number):
                    self.post(JobDone(number))

    def _maybe_launch(self, job: int) -> None:
        tasks = self._tasks[job]
        if len(tasks) < self._counts[job]:
            return
        self.post(JobAccepted(job))
        offers = self.fleet.cluster.constraints
        fitting = [task for task in tasks if any(task.constraints & ~offered == 0 for offered in offers)]
        self._left[job] = {task.id for task in fitting}
        unsatisfiable = len(tasks) - len(fitting)

        def ended(task: Task, attempt: int, outcome: str) -> None:
            self._left[job].discard(task.id)
            if not self._left[job]:
                self.post(JobDone(job, unsatisfiable))

        for task in fitting:
            self.agent.start("node/0", task, 0, ended)
        if not fitting:
            self.post(JobDone(job, unsatisfiable))

    def set_timer(self, key: Key, at: Time) -> None:
        self.post(TimerFired(key))

    def cancel_timer(self, key: Key) -> None: ...
    def launch(self, task: Task, attempt: int, waited_us: Time = 0, note: bytes = b"") -> None: ...
    def kill(self, task: TaskId, attempt: int) -> None: ...
    def compute(self, key: Key, problem: Problem) -> None: ...
    def observe(self, fact: Fact) -> None: ...


@asynccontextmanager
async def loopback(
    folder: Path, rejections: int = 0, elsewhere: Collection[Address] = (), standins: Sequence[Address] = ()
) -> AsyncIterator[Loopback]:
    """One that runs, and leaves nothing behind."""
    it = Loopback(folder, rejections, standins)
    await it.service.open(elsewhere)
    try:
        yield it
    finally:
        await it.agent.close()
        await it.service.close()
