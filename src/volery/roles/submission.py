"""Ledger of the jobs of a scheduler: its side of the submitter's protocol, until all is done."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from volery.core.component import Sends, sent_to
from volery.core.events import Cancel, JobAccepted, JobDone, JobRejected, MoreTasks, Seen, Submit
from volery.core.model import CHUNK_TASKS, NO_TASK, SUBMITTER, Address, JobId, Message, Task, TaskId, Time

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
