"""Jobs as their scheduler keeps them: its side of the submitter's protocol, and the order of a workflow's tasks.

`JobLedger` counts the tasks of each job down until all is done; `Workflow` is stage T1: which tasks may start, because
all that they wait for has finished; `Forwarder` stands between the submitter and schedulers that it chooses.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from volery.core.component import Component, Sends, sent_to
from volery.core.events import (
    GANG_TASKS_REFUSED,
    Cancel,
    Counted,
    JobAccepted,
    JobDone,
    JobRejected,
    MoreTasks,
    Seen,
    Submit,
)
from volery.core.model import CHUNK_TASKS, NO_TASK, SUBMITTER, Address, Gang, Job, JobId, Message, Task, TaskId, Time
from volery.core.port import Port

Send = Callable[[Address, Message], None]

ANSWERS: Final[Sends] = sent_to(SUBMITTER, JobAccepted, JobDone)
"""Messages of a ledger to the submitter."""
REFUSALS: Final[Sends] = sent_to(SUBMITTER, JobRejected)
"""Further messages of a ledger where `queue_max` is set."""
SIGHTS: Final[Sends] = sent_to(SUBMITTER, Seen)
"""Answers of a scheduler to `Look`."""
RETRY_AFTER_US: Time = 1_000_000
NO_MORE: Final = -1
"""A place at which no chunk of tasks begins."""


def comes_in_parts(message: MoreTasks) -> bool:
    """True if tasks came later than their job, as those of a workflow do; chunks of a large job are full."""
    return not message.left and message.first % CHUNK_TASKS != 0


class JobLedger:
    """Counts tasks down per job and answers the submitter; submitting a known job again starts nothing twice.

    Args:
        send: Sends a message through the owner's port.
        queue_max: Count of waiting tasks above which jobs are refused; 0 = never. An empty queue takes any job.

    Attributes:
        cancelled: Open jobs that were cancelled; their tasks may be on their way back to the owner.
    """

    __slots__ = (
        "_announced_counts",
        "_last_task",
        "_queue_max",
        "_received_counts",
        "_remaining_counts",
        "_send",
        "_submitter_of",
        "_unsatisfiable_counts",
        "_unsatisfiable_of_done",
        "cancelled",
    )

    def __init__(self, send: Send, queue_max: int = 0) -> None:
        self._send = send
        self._queue_max = queue_max
        self._remaining_counts: dict[JobId, int] = {}
        self._received_counts: dict[JobId, int] = {}
        self._submitter_of: dict[JobId, Address] = {}
        self._unsatisfiable_counts: dict[JobId, int] = {}
        self._unsatisfiable_of_done: dict[JobId, int] = {}
        self._announced_counts: dict[JobId, int] = {}
        self._last_task: dict[JobId, TaskId] = {}
        self.cancelled: set[JobId] = set()

    def __len__(self) -> int:
        """Return the number of open jobs."""
        return len(self._remaining_counts)

    def is_open(self, job: JobId) -> bool:
        """True if the job was admitted and is not done."""
        return job in self._remaining_counts

    def is_done(self, job: JobId) -> bool:
        """True if `JobDone` was sent for the job."""
        return job in self._unsatisfiable_of_done

    def received(self, job: JobId) -> int:
        """Number of tasks of an open job that have come; NO_MORE when it is cancelled, or its rest refused."""
        return self._received_counts[job]

    def admit(self, message: Submit, source: Address, queued: int) -> tuple[Task, ...]:
        """Answer a submission and return the tasks to schedule now: none when it is refused, known or empty."""
        job = message.job

        if job.id in self._unsatisfiable_of_done:
            self._send(source, JobAccepted(job.id))
            self._send(source, JobDone(job.id, self._unsatisfiable_of_done[job.id]))
            return ()
        if job.id in self._remaining_counts:
            self._send(source, JobAccepted(job.id))
            return ()

        # An empty queue takes any job: else one larger than the limit could never run.
        if self._queue_max and queued and queued + job.task_count > self._queue_max:
            self._send(source, JobRejected(job.id, "the queue is full", RETRY_AFTER_US))
            return ()

        self._send(source, JobAccepted(job.id))
        self._remaining_counts[job.id] = job.task_count
        self._received_counts[job.id] = len(job.tasks)
        self._submitter_of[job.id] = source

        if job.task_count > len(job.tasks):
            self._announced_counts[job.id] = job.task_count
            self._last_task[job.id] = job.tasks[-1].id if job.tasks else NO_TASK

        if not job.task_count:
            self._close(job.id)
        return job.tasks

    def announced(self, job: JobId) -> int:
        """Number of tasks of an open job of several chunks; 0: all tasks came in one message."""
        return self._announced_counts.get(job, 0)

    def more(self, message: MoreTasks) -> tuple[Task, ...]:
        """The tasks of a further chunk that are new; a repeated chunk brings none."""
        job = message.job
        received = self._received_counts.get(job, NO_MORE)
        if received == NO_MORE or job not in self._announced_counts:
            return ()

        if message.left:
            tasks = self._new_by_number(message, received)
        else:
            tasks = message.tasks if received == message.first else ()

        if tasks:
            self._received_counts[job] = received + len(tasks)
            self._last_task[job] = tasks[-1].id
        return tasks

    def _new_by_number(self, message: MoreTasks, received: int) -> tuple[Task, ...]:
        """The new tasks of a chunk that is placed by the numbers of its tasks.

        Tasks that were announced and that the submitter does not send any more have ended elsewhere: they are counted.
        """
        job = message.job
        last_task = self._last_task[message.job]

        if message.after > last_task:
            return ()  # a chunk between has not come; the submitter repeats it
        new_tasks = tuple([task for task in message.tasks if task.id > last_task])

        if new_tasks or message.left == len(message.tasks):
            to_come = message.left - len(message.tasks) + len(new_tasks)
            ended_count = self._announced_counts[job] - received - to_come
            if ended_count:
                self._announced_counts[job] -= ended_count
                self.finished(job, ended_count)
        return new_tasks

    def cancel(self, message: Cancel, source: Address) -> bool:
        """Give a job up; the owner drops its tasks and counts them as finished when this returns True.

        Chunks that have not come yet count as finished now. A job that is not open is answered at once.
        """
        job = message.job

        if job not in self._remaining_counts:
            self._send(source, JobDone(job, self._unsatisfiable_of_done.setdefault(job, 0)))
            return False

        self.cancelled.add(job)
        missing = self._announced_counts.pop(job) - self._received_counts[job] if job in self._announced_counts else 0
        self._received_counts[job] = NO_MORE

        if missing:
            self.finished(job, missing)
        return job in self._remaining_counts

    def finished(self, job: JobId, count: int = 1) -> None:
        """Tasks of the job have finished; the last one answers the submitter."""
        remaining = self._remaining_counts[job] = self._remaining_counts[job] - count
        if not remaining:
            self._close(job)

    def refuse_rest(self, job: JobId) -> None:
        """Count the tasks of an open job that have not come as ones that never run; what comes of them is ignored."""
        missing = self._announced_counts.pop(job) - self._received_counts[job] if job in self._announced_counts else 0
        self._received_counts[job] = NO_MORE
        for _ in range(missing):
            self.unsatisfiable(job)

    def unsatisfiable(self, job: JobId) -> None:
        """One task of the job fits no machine: it will never run and is reported."""
        self._unsatisfiable_counts[job] = self._unsatisfiable_counts.get(job, 0) + 1
        self.finished(job)

    def _close(self, job: JobId) -> None:
        del self._remaining_counts[job], self._received_counts[job]
        self._announced_counts.pop(job, None)
        self._last_task.pop(job, None)
        self.cancelled.discard(job)
        unsatisfiable = self._unsatisfiable_of_done[job] = self._unsatisfiable_counts.pop(job, 0)
        self._send(self._submitter_of.pop(job), JobDone(job, unsatisfiable))


class GatheredGang(NamedTuple):
    """A gang of which all tasks have come."""

    job: JobId
    shape: Gang
    estimate_us: Time
    tasks: tuple[Task, ...]


class GangChunks:
    """Gangs of which chunks are to come: they are placed when all their tasks are there."""

    __slots__ = ("_gangs",)

    def __init__(self) -> None:
        self._gangs: dict[JobId, tuple[Job, list[Task]]] = {}

    def __contains__(self, job: object) -> bool:
        return job in self._gangs

    def begin(self, job: Job, tasks: Sequence[Task]) -> GatheredGang | None:
        """The first chunk of a gang has come; the gang when it is the only one, and None otherwise."""
        self._gangs[job.id] = job, []
        return self.add(job.id, tasks)

    def add(self, number: JobId, tasks: Sequence[Task]) -> GatheredGang | None:
        """A further chunk has come; the gang when it is the last one, and None otherwise."""
        job, gathered_tasks = self._gangs[number]
        gathered_tasks += tasks
        if len(gathered_tasks) < job.task_count:
            return None
        del self._gangs[number]
        return GatheredGang(number, job.gang or Gang(), job.estimate_us, tuple(gathered_tasks))

    def drop(self, job: JobId) -> int:
        """Forget a gang of which chunks are to come; returns the count of tasks that have come."""
        return len(self._gangs.pop(job, (None, ()))[1])


def refuse_gang(gang: GatheredGang, ledger: JobLedger, port: Port) -> None:
    """Report a gang that no part of the empty cluster holds: each task as one that fits no machine."""
    port.observe(Counted(GANG_TASKS_REFUSED, len(gang.tasks)))
    for _ in gang.tasks:
        ledger.unsatisfiable(gang.job)


class Workflow:
    """The tasks of one job that depend on each other, as far as they have come. Parents come before their children."""

    __slots__ = ("_children", "_finished_tasks", "_missing_parents", "_ranks", "_tasks", "never")

    def __init__(self) -> None:
        self._tasks: dict[TaskId, Task] = {}
        self._children: dict[TaskId, list[TaskId]] = {}
        self._missing_parents: dict[TaskId, int] = {}
        self._finished_tasks: set[TaskId] = set()
        self._ranks: dict[TaskId, Time] = {}
        self.never: set[TaskId] = set()

    def add(self, tasks: Sequence[Task], parents: Sequence[Sequence[TaskId]], lost: set[TaskId]) -> list[Task]:
        """A chunk has come; returns those of its tasks that may start.

        Args:
            parents: Parents of each task; nothing where none waits for any.
            lost: Tasks of the chunk that no machine can run: they, and whatever is below them, are `never` ready.
        """
        # A new task may lengthen the chains of those above it.
        self._ranks.clear()

        ready = []
        for task, task_parents in zip(tasks, parents or ((),) * len(tasks), strict=True):
            self._tasks[task.id] = task
            if task.id in lost or not self.never.isdisjoint(task_parents):
                self.never.add(task.id)
                continue

            for parent in task_parents:
                self._children.setdefault(parent, []).append(task.id)

            if missing := sum(parent not in self._finished_tasks for parent in task_parents):
                self._missing_parents[task.id] = missing
            else:
                ready.append(task)
        return ready

    def finished(self, task: TaskId) -> list[Task]:
        """A task has finished; returns those that may start now."""
        if task in self._finished_tasks:
            return []
        self._finished_tasks.add(task)

        ready = []
        for child in self._children.get(task, ()):
            self._missing_parents[child] -= 1
            if not self._missing_parents[child]:
                del self._missing_parents[child]
                ready.append(self._tasks[child])
        return ready

    def ahead(self, task: TaskId) -> list[tuple[Task, int]]:
        """The tasks that wait for this one, each with its count of unfinished parents."""
        missing = self._missing_parents
        return [(self._tasks[child], missing[child]) for child in self._children.get(task, ()) if child in missing]

    @property
    def blocked(self) -> int:
        """Number of tasks that wait for others."""
        return len(self._missing_parents)

    def rank_us(self, task: TaskId) -> Time:
        """The longest chain of tasks that begins with this one, by estimates: HEFT's upward rank."""
        if not self._ranks:
            for number in reversed(self._tasks):
                below_us = max([self._ranks.get(child, 0) for child in self._children.get(number, ())], default=0)
                self._ranks[number] = self._tasks[number].estimate_us + below_us
        return self._ranks[task]


class Forwarder(Component):
    """Forwards the messages of each job to the scheduler chosen for it, and returns the answers.

    It keeps the answers: a job that is done is answered again without its scheduler. A subclass receives `Submit` and
    chooses.
    """

    __slots__ = ("_done", "_scheduler_of")

    def __init__(self) -> None:
        self._scheduler_of: dict[JobId, Address] = {}
        self._done: dict[JobId, JobDone] = {}

    def _answer_done(self, job: JobId) -> bool:
        """Answer a repeated submission of a job that is done; returns whether it is."""
        answer = self._done.get(job)
        if answer is None:
            return False
        self._port.send(SUBMITTER, JobAccepted(job))
        self._port.send(SUBMITTER, answer)
        return True

    def _forward(self, job: JobId, message: Message) -> bool:
        """Send a message to the scheduler of a job; returns whether there is one."""
        scheduler = self._scheduler_of.get(job)
        if scheduler is None:
            return False
        self._port.send(scheduler, message)
        return True

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Forward a further chunk."""
        self._forward(message.job, message)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Forward the order; a job that is done, or not known, is answered done and never runs."""
        if not self._forward(message.job, message):
            self._port.send(SUBMITTER, self._done.setdefault(message.job, JobDone(message.job)))

    def on_job_accepted(self, message: JobAccepted, source: Address, now: Time) -> None:
        self._port.send(SUBMITTER, message)

    def on_job_done(self, message: JobDone, source: Address, now: Time) -> None:
        """Return and keep the answer, once."""
        if self._scheduler_of.pop(message.job, None) is not None:
            self._done[message.job] = message
            self._port.send(SUBMITTER, message)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        JobAccepted: on_job_accepted,
        JobDone: on_job_done,
    }
