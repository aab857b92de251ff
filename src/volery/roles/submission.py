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
"""Those beside them where `queue_max` is set."""
SIGHTS: Final[Sends] = sent_to(SUBMITTER, Seen)
"""Answers of a scheduler to `Look`."""
RETRY_AFTER_US: Time = 1_000_000
NO_MORE: Final = -1
"""Where no chunk of tasks begins."""


def comes_in_parts(message: MoreTasks) -> bool:
    """Find out whether tasks came later than their job, as those of a workflow do; chunks of a large job are full."""
    return not message.left and message.first % CHUNK_TASKS != 0


class JobLedger:
    """Counts tasks down per job and answers the submitter; submitting a known job again starts nothing twice.

    Args:
        send: the owner's port.
        queue_max: refuse jobs while tasks wait and more than this would; 0 = never. An empty queue takes any job.

    Attributes:
        cancelled: the open jobs that were cancelled; their tasks may be on their way back to the owner.
    """

    __slots__ = (
        "_announced",
        "_done",
        "_last",
        "_queue_max",
        "_received",
        "_remaining",
        "_send",
        "_submitter",
        "_unsatisfiable",
        "cancelled",
    )

    def __init__(self, send: Send, queue_max: int = 0) -> None:
        self._send = send
        self._queue_max = queue_max
        self._remaining: dict[JobId, int] = {}
        self._received: dict[JobId, int] = {}
        self._submitter: dict[JobId, Address] = {}
        self._unsatisfiable: dict[JobId, int] = {}
        self._done: dict[JobId, int] = {}
        self._announced: dict[JobId, int] = {}
        self._last: dict[JobId, TaskId] = {}
        self.cancelled: set[JobId] = set()

    def __len__(self) -> int:
        """Return the number of open jobs."""
        return len(self._remaining)

    def is_open(self, job: JobId) -> bool:
        """Find out whether the job was admitted and is not done."""
        return job in self._remaining

    def is_done(self, job: JobId) -> bool:
        """Find out whether `JobDone` was sent for the job."""
        return job in self._done

    def received(self, job: JobId) -> int:
        """Number of tasks of an open job that have come; NO_MORE when it is cancelled, or its rest refused."""
        return self._received[job]

    def admit(self, message: Submit, source: Address, queued: int) -> tuple[Task, ...]:
        """Answer a submission and return the tasks to schedule now: none when it is refused, known or empty."""
        job = message.job
        if job.id in self._done:
            self._send(source, JobAccepted(job.id))
            self._send(source, JobDone(job.id, self._done[job.id]))
            return ()
        if job.id in self._remaining:
            self._send(source, JobAccepted(job.id))
            return ()
        if self._queue_max and queued and queued + job.task_count > self._queue_max:
            self._send(source, JobRejected(job.id, "the queue is full", RETRY_AFTER_US))
            return ()
        self._send(source, JobAccepted(job.id))
        self._remaining[job.id] = job.task_count
        self._received[job.id] = len(job.tasks)
        self._submitter[job.id] = source
        if job.task_count > len(job.tasks):
            self._announced[job.id] = job.task_count
            self._last[job.id] = job.tasks[-1].id if job.tasks else NO_TASK
        if not job.task_count:
            self._close(job.id)
        return job.tasks

    def announced(self, job: JobId) -> int:
        """Number of tasks of an open job of several chunks; 0: all tasks came in one message."""
        return self._announced.get(job, 0)

    def more(self, message: MoreTasks) -> tuple[Task, ...]:
        """The tasks of a further chunk that are new; a repeated chunk brings none."""
        job = message.job
        received = self._received.get(job, NO_MORE)
        if received == NO_MORE or job not in self._announced:
            return ()
        if message.left:
            tasks = self._new_by_number(message, received)
        else:
            tasks = message.tasks if received == message.first else ()
        if tasks:
            self._received[job] = received + len(tasks)
            self._last[job] = tasks[-1].id
        return tasks

    def _new_by_number(self, message: MoreTasks, received: int) -> tuple[Task, ...]:
        """The new tasks of a chunk that is placed by the numbers of its tasks.

        Tasks that were announced and that the submitter does not send any more have ended elsewhere: they are counted.
        """
        job, last = message.job, self._last[message.job]
        if message.after > last:
            return ()  # a chunk between has not come
        new = tuple([task for task in message.tasks if task.id > last])
        if new or message.left == len(message.tasks):
            to_come = message.left - len(message.tasks) + len(new)
            ended = self._announced[job] - received - to_come
            if ended:
                self._announced[job] -= ended
                self.finished(job, ended)
        return new

    def cancel(self, message: Cancel, source: Address) -> bool:
        """Give a job up; the owner drops its tasks and counts them as finished when this returns True.

        Chunks that have not come yet count as finished now. A job that is not open is answered at once.
        """
        job = message.job
        if job not in self._remaining:
            self._send(source, JobDone(job, self._done.setdefault(job, 0)))
            return False
        self.cancelled.add(job)
        missing = self._announced.pop(job) - self._received[job] if job in self._announced else 0
        self._received[job] = NO_MORE
        if missing:
            self.finished(job, missing)
        return job in self._remaining

    def finished(self, job: JobId, count: int = 1) -> None:
        """Tasks of the job have finished; the last one answers the submitter."""
        remaining = self._remaining[job] = self._remaining[job] - count
        if not remaining:
            self._close(job)

    def refuse_rest(self, job: JobId) -> None:
        """Count the tasks of an open job that have not come as ones that never run; what comes of them is ignored."""
        missing = self._announced.pop(job) - self._received[job] if job in self._announced else 0
        self._received[job] = NO_MORE
        for _ in range(missing):
            self.unsatisfiable(job)

    def unsatisfiable(self, job: JobId) -> None:
        """One task of the job fits no machine: it will never run and is reported."""
        self._unsatisfiable[job] = self._unsatisfiable.get(job, 0) + 1
        self.finished(job)

    def _close(self, job: JobId) -> None:
        del self._remaining[job], self._received[job]
        self._announced.pop(job, None)
        self._last.pop(job, None)
        self.cancelled.discard(job)
        unsatisfiable = self._done[job] = self._unsatisfiable.pop(job, 0)
        self._send(self._submitter.pop(job), JobDone(job, unsatisfiable))
