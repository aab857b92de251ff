"""The forwarder of jobs, which stands between the submitter and schedulers that it chooses."""

from __future__ import annotations

from volery.core.component import Component
from volery.core.events import Cancel, JobAccepted, JobDone, MoreTasks
from volery.core.model import SUBMITTER, Address, JobId, Message, Time


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
