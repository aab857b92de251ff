"""The front, which separates batch jobs from service jobs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from volery.architectures.omega.layout import Rule, Workload
from volery.core.component import sent_to
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import Address, Time
from volery.roles.forwarder import Forwarder
from volery.roles.submission import ANSWERS


class Front(Forwarder):
    """Sends every job to a scheduler of its workload type, chosen by the job's id (section 4.3).

    It is the mapping of jobs to schedulers that all users share.

    Args:
        rule: which jobs are service jobs.
        schedulers: of each type.
    """

    __slots__ = ("_rule", "_schedulers")

    def __init__(self, rule: Rule, schedulers: Mapping[Workload, Sequence[Address]]) -> None:
        super().__init__()
        self._rule = rule
        self._schedulers = schedulers

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Send a job to a scheduler by its type and number."""
        job = message.job
        if not self._answer_done(job.id):
            schedulers = self._schedulers[self._rule.workload(job)]
            chosen = self._scheduler_of[job.id] = schedulers[job.id % len(schedulers)]
            self._port.send(chosen, message)

    receives = {**Forwarder.receives, Submit: on_submit}  # noqa: RUF012 - the base class reads the table once
    sends = ANSWERS | sent_to("scheduler", Submit, MoreTasks, Cancel) | sent_to("framework", Submit, MoreTasks, Cancel)
