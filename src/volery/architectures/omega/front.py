"""The front, which separates batch jobs from service jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volery.architectures.omega.layout import Rule, Workload
from volery.core.component import Component, sent_to
from volery.core.events import Cancel, JobAccepted, JobDone, MoreTasks, Submit
from volery.core.model import SUBMITTER, Address, JobId, Time
from volery.roles.submission import ANSWERS


class Front(Component):
    """Sends every job to a scheduler of its workload type, chosen by the job's id (section 4.3).

    It is the mapping of jobs to schedulers that all users share, and returns the answers.

    Args:
        rule: which jobs are service jobs.
        schedulers: of each type.
    """

    __slots__ = ("_chosen", "_done", "_rule", "_schedulers")

    def __init__(self, rule: Rule, schedulers: Mapping[Workload, Sequence[Address]]) -> None:
        self._rule = rule
        self._schedulers = schedulers
        self._chosen: dict[JobId, Address] = {}
        self._done: dict[JobId, JobDone] = {}

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Send a job to a scheduler by its type and number."""
        job = message.job
        done = self._done.get(job.id)
        if done is not None:
            self._port.send(SUBMITTER, JobAccepted(job.id))
            self._port.send(SUBMITTER, done)
            return
        schedulers = self._schedulers[self._rule.workload(job)]
        chosen = self._chosen[job.id] = schedulers[job.id % len(schedulers)]
        self._port.send(chosen, message)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Send a chunk to the scheduler of its job."""
        chosen = self._chosen.get(message.job)
        if chosen is not None:
            self._port.send(chosen, message)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Forward the order; a job that is done, or not known, is reported done and never runs."""
        chosen = self._chosen.get(message.job)
        if chosen is None:
            self._port.send(SUBMITTER, self._done.setdefault(message.job, JobDone(message.job)))
        else:
            self._port.send(chosen, message)

    def on_job_accepted(self, message: JobAccepted, source: Address, now: Time) -> None:
        self._port.send(SUBMITTER, message)

    def on_job_done(self, message: JobDone, source: Address, now: Time) -> None:
        """Return and keep the answer: a repeated submission needs no scheduler."""
        if self._chosen.pop(message.job, None) is not None:
            self._done[message.job] = message
            self._port.send(SUBMITTER, message)

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        JobAccepted: on_job_accepted,
        JobDone: on_job_done,
    }
    sends = ANSWERS | sent_to("scheduler", Submit, MoreTasks, Cancel) | sent_to("framework", Submit, MoreTasks, Cancel)
