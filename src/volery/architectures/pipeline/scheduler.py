"""The scheduler that jobs are submitted to: stages J1 to J7 and T1 around the cycle that places tasks."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Hashable, Sequence
from random import Random

from volery.architectures.pipeline.broker import ADDRESS, Outside
from volery.architectures.pipeline.messages import Completed, Kill, Launch, Pass, Risen
from volery.architectures.pipeline.placing import Assembly, Place, Placing
from volery.architectures.pipeline.policies import JobRecord, Kind, State, Waiting
from volery.architectures.pipeline.tending import Tending
from volery.core.component import sent_to
from volery.core.events import Cancel, Measured, MoreTasks, PeerBack, PeerLost, Submit, TimerFired
from volery.core.model import Address, Job, JobId, Task, TaskId, Time
from volery.roles.readiness import Workflow
from volery.roles.submission import ANSWERS, JobLedger


class Scheduler(Tending):
    """Takes jobs, sees to it that their tasks are placed when they are ready, and answers when they are done.

    Args:
        place: the machines.
        assembly: of policies.
        stream: its own.
        outside: the broker, if there is one.
        make_state: as for `Placing`.
    """

    __slots__ = ("_came", "_eligible", "_graphs", "_held", "_jobs", "_outside", "_setup_job", "_staging", "_unqueued")

    def __init__(
        self,
        place: Place,
        assembly: Assembly,
        stream: Random,
        outside: Outside | None = None,
        make_state: Callable[[Time], State] | None = None,
    ) -> None:
        super().__init__(place, assembly, stream, make_state)
        self._eligible = assembly.policies["J2"]
        self._setup_job = assembly.policies["J5"].stage_us
        self._outside = outside
        self._held: dict[Hashable, deque[JobRecord]] = {}
        self._unqueued: dict[JobId, list[tuple[Task, Kind]]] = {}
        self._came: dict[JobId, dict[TaskId, Time]] = {}
        self._staging: set[JobId] = set()
        self._graphs = self._state.graphs

    def start(self, now: Time) -> None:
        """Open the ledger of jobs."""
        self._jobs = JobLedger(self._port.send)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Stage J1: take a job in."""
        job = message.job
        waiting = len(self._state.waiting)
        self._port.observe(Measured("queued_tasks", waiting))
        known = self._jobs.is_open(job.id) or self._jobs.is_done(job.id)
        tasks = self._jobs.admit(message, source, waiting)
        if known or not self._jobs.is_open(job.id):
            return
        record = self._state.jobs[job.id] = _record(job, now)
        line = self._eligible.line(record)
        self._held.setdefault(line, deque()).append(record)
        self._unqueued[job.id] = []
        if any(job.parents):
            self._graphs[job.id] = Workflow()
        self._arrived(record, tasks, job.parents, now)
        if len(self._held.get(line, ())) == 1:  # whoever stands behind another is no news
            self._state.now = now
            self._admit_line(line, now)
        self._changed(now)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Take a further chunk in."""
        tasks = self._jobs.more(message)
        record = self._state.jobs.get(message.job)
        if not tasks or record is None:
            return
        if any(message.parents) and message.job not in self._graphs:
            graph = self._graphs[message.job] = Workflow()
            graph.add([task for task, _ in self._unqueued.get(message.job, ())], (), set())  # these came without one
        self._arrived(record, tasks, message.parents, now)
        self._changed(now)

    def _arrived(
        self, record: JobRecord, tasks: Sequence[Task], parents: Sequence[Sequence[TaskId]], now: Time
    ) -> None:
        if now > record.submit_us:
            self._came.setdefault(record.id, {}).update(dict.fromkeys([task.id for task in tasks], now))
        kinds = {task.id: self._kind(task, record) for task in tasks}
        lost = {task.id for task in tasks if not (kinds[task.id].possible or self._possible_outside(task))}
        graph = self._graphs.get(record.id)
        ready: Sequence[Task]
        if graph is not None:
            ready = graph.add(tasks, parents, lost)
            lost = {task.id for task in tasks if task.id in graph.never}
        else:
            ready = [task for task in tasks if task.id not in lost] if lost else tasks
        for task in tasks:
            if task.id not in lost:
                work = self._state.work_us(task)
                record.work_us += work
                record.left_us += work
        for task in ready:
            self._ready(record, task, kinds[task.id], now)
        for _ in lost:
            self._jobs.unsatisfiable(record.id)
        self._settle(record)

    def _possible_outside(self, task: Task) -> bool:
        return self._outside is not None and self._outside.possible(task)

    def _ready(self, record: JobRecord, task: Task, kind: Kind, now: Time) -> None:
        """Stage T1: nothing that the task waits for is left. It joins the queue once its job may."""
        if not record.eligible or record.id in self._staging:
            self._unqueued[record.id].append((task, kind))
            return
        graph = self._graphs.get(record.id)
        rank_us = graph.rank_us(task.id) if graph else task.estimate_us
        late = self._came.get(record.id) if self._came else None
        came_us = late.get(task.id, record.submit_us) if late else record.submit_us
        waiting = self._record(task, record, kind, rank_us, came_us, now)
        if self._outside is not None and self._outside.takes(self._view, waiting):
            self._broker(self._outside, waiting)
        else:
            self._enqueue(waiting)

    def _broker(self, outside: Outside, waiting: Waiting) -> None:
        """Stage M1: the task is managed elsewhere."""
        self._port.send(ADDRESS, outside.passed(waiting))

    def _admit(self, now: Time) -> None:
        """Stages J2 and J4: jobs that have become eligible, one after another."""
        for line in list(self._held) if self._held else ():
            self._admit_line(line, now)

    def _admit_line(self, line: Hashable, now: Time) -> None:
        held = self._held[line]
        while held and (held[0].id not in self._state.jobs or self._eligible.eligible(self._view, held[0])):
            record = held.popleft()
            if record.id in self._state.jobs:
                self._set_up(record, now)
        if not held:
            del self._held[line]

    def _set_up(self, record: JobRecord, now: Time) -> None:
        """Stage J5: the job is eligible; its files come in before its tasks are queued."""
        record.eligible = True
        self._state.eligible[record.user] = self._state.eligible.get(record.user, 0) + 1
        stage_us = self._setup_job(self._view, record)
        if stage_us > 0:
            self._staging.add(record.id)
            self._port.set_timer(("setup", record.id), now + stage_us)
        else:
            self._queue_up(record, now)

    def _queue_up(self, record: JobRecord, now: Time) -> None:
        tasks = self._unqueued.pop(record.id)
        for task, kind in tasks:
            self._ready(record, task, kind, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Also the files of a job that have come in."""
        if isinstance(event.key, str):
            super().on_timer(event, source, now)
            return
        assert isinstance(event.key, tuple)
        record = self._state.jobs.get(int(event.key[1]))
        if record is not None:
            self._staging.discard(record.id)
            self._queue_up(record, now)
            self._changed(now)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Stage T7: use the machine again, and release what has waited for the task."""
        if self._outside is not None and source == ADDRESS:
            waiting = self._outside.tasks.pop(message.task, None)
        else:
            waiting = self._ended(message, now)
        if waiting is not None:
            self._finish(waiting, now)
            self._changed(now)

    def _finish(self, waiting: Waiting, now: Time) -> None:
        """A task has ended: count it, and queue what it has held up."""
        record = waiting.job
        record.left_us -= waiting.work_us
        graph = self._graphs.get(record.id)
        if graph is not None and record.id not in self._jobs.cancelled:
            for task in graph.finished(waiting.task.id):
                self._ready(record, task, self._kind(task, record), now)
        self._jobs.finished(record.id)
        self._settle(record)

    def _settle(self, record: JobRecord) -> None:
        """Stages J6 and J7: forget a job that was told done."""
        if self._jobs.is_open(record.id) or record.id not in self._state.jobs:
            return
        del self._state.jobs[record.id]
        self._unqueued.pop(record.id, None)
        self._graphs.pop(record.id, None)
        self._came.pop(record.id, None)
        self._staging.discard(record.id)
        if record.eligible:
            count = self._state.eligible[record.user] - 1
            if count:
                self._state.eligible[record.user] = count
            else:
                del self._state.eligible[record.user]

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Drop the job's waiting tasks and kill the others."""
        record = self._state.jobs.get(message.job)
        if self._jobs.cancel(message, source):
            assert record is not None, "a job that is open has a record"
            dropped = self._give_up(record, now) + len(self._unqueued.pop(record.id, ()))
            graph = self._graphs.pop(record.id, None)
            dropped += graph.blocked if graph else 0
            if record.id in self._staging:
                self._port.cancel_timer(("setup", record.id))
            for waiting in self._outside.tasks.values() if self._outside else ():
                if waiting.job is record:
                    self._port.send(ADDRESS, Kill(waiting.task.id, waiting.attempt))
            if dropped:
                self._jobs.finished(record.id, dropped)
        if record is not None:
            self._settle(record)
            self._changed(now)

    def check(self) -> None:
        """Also: the ledger's jobs have records."""
        super().check()
        assert all(self._jobs.is_open(job) for job in self._state.jobs)
        assert len(self._jobs) == len(self._state.jobs)
        assert self._came.keys() <= self._state.jobs.keys()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Completed: on_completed,
        TimerFired: on_timer,
        PeerLost: Placing.on_lost,
        PeerBack: Placing.on_back,
        Risen: Placing.on_risen,
    }
    sends = ANSWERS | sent_to("node", Launch, Kill) | sent_to("broker", Pass, Kill)


def _record(job: Job, now: Time) -> JobRecord:
    return JobRecord(job.id, job.user, job.priority, job.deadline_us, now, job.estimate_us, job.task_count)
