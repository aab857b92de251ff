"""The front, which separates batch jobs from service jobs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Final, Literal

import msgspec

from volery.core.component import sent_to
from volery.core.errors import InputError
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import SECOND, Address, Job, Time
from volery.roles.submission import ANSWERS, Forwarder

Workload = Literal["batch", "service", "fill"]
WORKLOADS: Final[tuple[Workload, ...]] = ("batch", "service", "fill")
"""Types of jobs; those of "fill" fill the cell when a run begins, take no decision time and are not measured."""


class Rule(msgspec.Struct, frozen=True):
    """The rule that makes some jobs service jobs; the others are batch jobs.

    Args:
        beyond_us: Limit of estimates beyond which jobs are service jobs; None: estimates do not count.
        fill: User whose jobs fill the cell; "": no user.
    """

    users: tuple[str, ...] = ()
    beyond_us: Time | None = None
    fill: str = ""

    def workload(self, job: Job) -> Workload:
        if self.fill and job.user == self.fill:
            return "fill"

        is_long = self.beyond_us is not None and job.estimate_us > self.beyond_us
        return "service" if is_long or job.user in self.users else "batch"


def parse_rule(text: str, place: str) -> Rule:
    """Read `none`, `user:NAME+NAME` or `estimate:SECONDS`.

    Raises:
        InputError: at `place`, when it is none of these.
    """
    kind, _, value = text.partition(":")

    if text == "none":
        return Rule()

    if kind == "user" and all(value.split("+")):
        return Rule(users=tuple(value.split("+")))

    if kind == "estimate":
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if 0 <= seconds < math.inf:
            return Rule(beyond_us=round(seconds * SECOND))
    raise InputError(place, f"{text!r} is neither none, user:NAME+NAME nor estimate:SECONDS")


class Front(Forwarder):
    """Sends every job to a scheduler of its workload type, chosen by the job's id (section 4.3).

    It is the mapping of jobs to schedulers that all users share.
    """

    def __init__(self, rule: Rule, schedulers: Mapping[Workload, Sequence[Address]]) -> None:
        super().__init__()
        self._rule = rule
        self._schedulers = schedulers

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Send a job to a scheduler by its type and number."""
        job = message.job
        # A job that has ended was submitted again, as its answer was lost: it is answered here.
        if not self._answer_done(job.id):
            schedulers = self._schedulers[self._rule.workload(job)]
            scheduler = self._scheduler_of[job.id] = schedulers[job.id % len(schedulers)]
            self._port.send(scheduler, message)

    receives = {**Forwarder.receives, Submit: on_submit}  # noqa: RUF012 - the base class reads the table once
    sends = ANSWERS | sent_to("scheduler", Submit, MoreTasks, Cancel) | sent_to("framework", Submit, MoreTasks, Cancel)
