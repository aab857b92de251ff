"""The batches of tasks that a Sparrow scheduler has probed for."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from volery.architectures.sparrow.messages import Probe
from volery.core.events import MoreTasks, Submit
from volery.core.model import Address, JobId, Task, Time
from volery.policies.match import Sampler
from volery.roles.reservations import Numbers, by_needs
from volery.roles.submission import JobLedger, Send

Sampling = Literal["batch", "per-task"]


class ProbeSetting(msgspec.Struct, frozen=True):
    """The parameters of a scheduler.

    Args:
        probe_ratio: d, probes per task, for jobs without constraints.
        constrained_ratio: the same for tasks with constraints.
        sampling: "batch", all tasks of a job that need the same at once, or "per-task".
        cancellation: whether reservations that nothing is left for are withdrawn.
        cutoff_us: tasks with a longer estimate are long, for the account of head-of-line blocking alone.
        users: whether nodes need to know the user of a reservation.
    """

    probe_ratio: float
    constrained_ratio: float
    sampling: Sampling
    cancellation: bool
    cutoff_us: Time
    users: bool


class ProbeBatch:
    """Tasks of a job that were probed for together.

    Attributes:
        tasks: not bound yet, the first one last.
        user: of the job; "" where nodes do not ask.
        first: number of the first probe; the others follow in the scheduler's steps.
        nodes: per probe, its receiver; None once it was asked for or answered.
        siblings: the batches of the same chunk of a job; they share their reservations where the constraints allow.
    """

    __slots__ = ("first", "id", "nodes", "siblings", "tasks", "user")

    def __init__(self, number: int, tasks: list[Task], user: str, siblings: list[ProbeBatch]) -> None:
        self.id = number
        self.tasks = tasks
        self.user = user
        self.first = 0
        self.nodes: list[Address | None] = []
        self.siblings = siblings
        siblings.append(self)


class Batches:
    """Probes for tasks, and keeps their batches until all tasks are bound.

    Args:
        nodes: addresses of the node monitors.
        sampler: draws nodes to probe.
        setting: the parameters.
        numbers: of batches and probes.

    Attributes:
        open: by number.
    """

    __slots__ = ("_nodes", "_numbers", "_sampler", "_setting", "_users", "open")

    def __init__(self, nodes: Sequence[Address], sampler: Sampler, setting: ProbeSetting, numbers: Numbers) -> None:
        self._nodes = nodes
        self._sampler = sampler
        self._setting = setting
        self._numbers = numbers
        self._users: dict[JobId, str] = {}
        self.open: dict[int, ProbeBatch] = {}

    def submit(self, message: Submit, source: Address, jobs: JobLedger, send: Send) -> int:
        """Probe for a job, if it is new; returns the number of probes."""
        job, user = message.job, ""
        tasks = jobs.admit(message, source, 0)
        if self._setting.users:
            user = job.user
            if len(job.tasks) < job.task_count:
                self._users[job.id] = user
        return self._probe(tasks, user, jobs, send)

    def extend(self, message: MoreTasks, jobs: JobLedger, send: Send) -> int:
        """Probe for a further chunk of a job; returns the number of probes."""
        return self._probe(jobs.more(message), self._users.get(message.job, ""), jobs, send)

    def _probe(self, tasks: Sequence[Task], user: str, jobs: JobLedger, send: Send) -> int:
        """Probe for tasks in the name of a user, and report those that fit no machine."""
        groups, setting, sent = by_needs(tasks), self._setting, 0
        siblings: list[ProbeBatch] = []
        for need in reversed(groups):
            group = groups[need]
            if need and not self._sampler.supply(need):
                for task in group:
                    jobs.unsatisfiable(task.job)
                continue
            ratio = setting.constrained_ratio if need else setting.probe_ratio
            if setting.sampling == "batch":
                batch = ProbeBatch(self._numbers.take(), group, user, siblings)
                sent += self._send(batch, need, math.ceil(ratio * len(group)), send)
            else:
                for task in reversed(group):
                    batch = ProbeBatch(self._numbers.take(), [task], user, [])
                    sent += self._send(batch, need, math.ceil(ratio), send)
        return sent

    def _send(self, batch: ProbeBatch, need: int, count: int, send: Send) -> int:
        self.open[batch.id] = batch
        nodes, step, batch_id, user = self._nodes, self._numbers.step, batch.id, batch.user
        number = batch.first = self._numbers.take(count)
        chosen = [nodes[worker] for worker in self._sampler.draw(need, count)]
        batch.nodes[:] = chosen
        for node in chosen:
            send(node, Probe(number, batch_id, user))
            number += step
        return count

    def answered(self, batch_id: int, number: int) -> ProbeBatch | None:
        """The batch of a probe that is answered for the first time, else None."""
        batch = self.open.get(batch_id)
        if batch is not None:
            place = (number - batch.first) // self._numbers.step
            if batch.nodes[place] is not None:
                batch.nodes[place] = None
                return batch
        return None

    def of(self, job: JobId) -> list[ProbeBatch]:
        """The batches of a job with tasks that are not bound."""
        return [batch for batch in self.open.values() if batch.tasks and batch.tasks[0].job == job]
