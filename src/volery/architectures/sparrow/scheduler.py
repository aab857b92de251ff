"""Sparrow's schedulers: they share nothing, and probe more workers than they have tasks, a batch of tasks at a time."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Literal

from volery.architectures.sparrow.node import Assign, Place, Probe, QueueLength, QueuePolicy
from volery.core.bounds import PROBES_MAX, Components, Parameters, Seconds, param
from volery.core.component import sent_to
from volery.core.events import Cancel, Measured, MoreTasks, Submit
from volery.core.model import SECOND, Address, JobId, Task, Time
from volery.policies.match import Sampler
from volery.roles.reservations import (
    Completed,
    Kill,
    NoTask,
    Numbers,
    ReservingScheduler,
    TaskRequest,
    Withdraw,
    by_needs,
)
from volery.roles.submission import ANSWERS, JobLedger, Send

Sampling = Literal["batch", "per-task"]


class SparrowConfig(Parameters, frozen=True):
    schedulers: Components = param(10, "schedulers; they share nothing")
    probe_ratio: float = param(2.0, "d, probes per task without constraints", ge=1, le=PROBES_MAX)
    constrained_ratio: float = param(2.0, "probes per task with constraints", ge=1, le=PROBES_MAX)
    late_binding: bool = param(True, "false: tasks go to the shortest queues among those probed (section 3.3)")
    sampling: Sampling = param("batch", "probe for all tasks of a job that need the same at once, or for each")
    cancellation: bool = param(True, "withdraw reservations when the last task is bound (section 3.6)")
    replacement: bool = param(False, "a worker may be drawn twice, as in the Eagle authors' simulator")
    queue: QueuePolicy = param("fifo", "order at a worker, between users (section 4.2)")
    priorities: dict[str, int] = param({}, "user -> priority, smallest first; others come last")
    weights: dict[str, float] = param({}, "user -> weight of the fair queue; others 1")
    cutoff_s: Seconds = param(1129.532, "a longer estimate makes a task long; only blocking is told by it")
    reliable: bool = param(False, "bear faults: numbered and acknowledged messages; costs more of them")


class ProbeBatch:
    """Tasks of a job that were probed for together.

    Attributes:
        tasks: Tasks that are not bound yet, the first one last.
        user: User of the job; "" where nodes need no user.
        first: Number of the first probe; the others follow in the scheduler's steps.
        nodes: Per probe, its receiver; None once it was asked for or answered.
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
    """Probes for tasks, and keeps their batches until all tasks are bound."""

    def __init__(self, nodes: Sequence[Address], sampler: Sampler, config: SparrowConfig, numbers: Numbers) -> None:
        self._nodes = nodes
        self._sampler = sampler
        self._setting = config
        self._numbers = numbers
        self._users: dict[JobId, str] = {}
        self.open: dict[int, ProbeBatch] = {}

    def submit(self, message: Submit, source: Address, jobs: JobLedger, send: Send) -> int:
        """Probe for a job, if it is new; returns the number of probes."""
        job = message.job
        user = ""

        tasks = jobs.admit(message, source, 0)
        if self._setting.queue != "fifo":
            user = job.user
            # The user is kept only while further chunks of the job are to come.
            if jobs.is_open(job.id) and 0 <= jobs.received(job.id) < jobs.announced(job.id):
                self._users[job.id] = user

        return self._probe(tasks, user, jobs, send)

    def extend(self, message: MoreTasks, jobs: JobLedger, send: Send) -> int:
        """Probe for a further chunk of a job; returns the number of probes."""
        tasks = jobs.more(message)
        user = self._users.get(message.job, "")

        if not jobs.is_open(message.job) or jobs.received(message.job) == jobs.announced(message.job):
            self._users.pop(message.job, None)
        return self._probe(tasks, user, jobs, send)

    def _probe(self, tasks: Sequence[Task], user: str, jobs: JobLedger, send: Send) -> int:
        """Probe for tasks in the name of a user, and report those that fit no machine."""
        groups = by_needs(tasks)
        setting = self._setting
        probe_count = 0

        siblings: list[ProbeBatch] = []
        # `by_needs` lists groups, and the tasks of each, last first.
        for needs in reversed(groups):
            group = groups[needs]
            if needs and not self._sampler.supply(needs):
                for task in group:
                    jobs.unsatisfiable(task.job)
                continue

            ratio = setting.constrained_ratio if needs else setting.probe_ratio
            if setting.sampling == "batch":
                batch = ProbeBatch(self._numbers.take(), group, user, siblings)
                probe_count += self._send(batch, needs, math.ceil(ratio * len(group)), send)
            else:
                # Each task is a batch of its own, without siblings: no reservation serves another task of the job.
                for task in reversed(group):
                    batch = ProbeBatch(self._numbers.take(), [task], user, [])
                    probe_count += self._send(batch, needs, math.ceil(ratio), send)

        return probe_count

    def _send(self, batch: ProbeBatch, need: int, count: int, send: Send) -> int:
        self.open[batch.id] = batch
        nodes = self._nodes
        step = self._numbers.step
        batch_id = batch.id
        user = batch.user
        number = batch.first = self._numbers.take(count)
        sampled_nodes = [nodes[worker] for worker in self._sampler.draw(need, count)]
        batch.nodes[:] = sampled_nodes

        for node in sampled_nodes:
            send(node, Probe(number, batch_id, user))
            number += step

        return count

    def forget_user(self, job: JobId) -> None:
        """Drop the user of a cancelled job: its further chunks are ignored."""
        self._users.pop(job, None)

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


class Scheduler(ReservingScheduler):
    """Binds a task when a node asks for one."""

    def __init__(
        self, batches: Batches, offered: Mapping[Address, int], config: SparrowConfig, numbers: Numbers
    ) -> None:
        super().__init__(numbers)
        self._batches = batches
        self._offered = offered
        self._setting = config
        self._cutoff_us = round(config.cutoff_s * SECOND)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Probe for a job; tasks that fit no machine are reported and the others run."""
        self._report_facts()
        self._probes += self._batches.submit(message, source, self._jobs, self._port.send)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._probes += self._batches.extend(message, self._jobs, self._port.send)

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        """Bind the next task of the reservation's batch, or one of the job's others that fits the node."""
        batch = self._batches.answered(message.batch, message.number)
        if batch is not None and not batch.tasks:
            # The batch is bound; its reservation serves another batch of the job, as the public code's list of tasks.
            batch = self._sharing(batch.siblings, source)

        if batch is None:
            self._refuse(message, source)
            return

        task = self._bind(batch.tasks, message, source)
        # Only short tasks that waited behind a long one measure head-of-line blocking.
        if message.blocked_us and task.estimate_us <= self._cutoff_us:
            self._blocked_us += message.blocked_us

        self._port.send(source, Assign(message.request, task))

        if not batch.tasks:
            self._maybe_forget(batch)

    def _sharing(self, siblings: list[ProbeBatch], node: Address) -> ProbeBatch | None:
        """The first batch of the job with a task left that the node can run."""
        lacking = ~self._offered[node]
        for batch in siblings:
            if batch.tasks and not batch.tasks[-1].constraints & lacking:
                return batch
        return None

    def _maybe_forget(self, batch: ProbeBatch) -> None:
        """Forget the chunk, and withdraw its reservations, if all its tasks are bound."""
        for sibling in batch.siblings:
            # A sibling with tasks may be served by this batch's reservations yet.
            if sibling.tasks:
                return

        for sibling in batch.siblings:
            del self._batches.open[sibling.id]
            if self._setting.cancellation:
                self._withdraw(sibling.first, sibling.nodes)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Give up the tasks that are not bound, and have the others killed; their nodes report the end."""
        self._batches.forget_user(message.job)
        if not self._jobs.cancel(message, source):
            return
        for batch in self._batches.of(message.job):
            unbound_count = len(batch.tasks)
            # Nothing is left to bind, so requests for these reservations get no task.
            batch.tasks.clear()
            self._maybe_forget(batch)
            self._jobs.finished(message.job, unbound_count)

        self._kill(message.job)

    def check(self) -> None:
        for batch in self._batches.open.values():
            open_probes = len(batch.nodes) - batch.nodes.count(None)
            assert len(batch.tasks) <= open_probes, f"{len(batch.tasks)} tasks, {open_probes} reservations"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        TaskRequest: on_task_request,
        Completed: ReservingScheduler.on_completed,
    }
    sends = ANSWERS | sent_to("node", Probe, Assign, NoTask, Withdraw, Kill)


class EarlyScheduler(ReservingScheduler):
    """Asks nodes for their queue lengths and sends each task to the shortest queue (no late binding)."""

    def __init__(self, batches: Batches, numbers: Numbers) -> None:
        super().__init__(numbers)
        self._batches = batches
        self._answers: dict[int, list[tuple[int, int, Address]]] = {}

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Probe for a job; tasks that fit no machine are reported and the others run."""
        self._report_facts()
        self._probes += self._batches.submit(message, source, self._jobs, self._port.send)

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._probes += self._batches.extend(message, self._jobs, self._port.send)

    def on_queue_length(self, message: QueueLength, source: Address, now: Time) -> None:
        """Place the tasks of a batch when its last answer has come."""
        batch = self._batches.answered(message.batch, message.number)
        if batch is None:
            return
        answers = self._answers.setdefault(batch.id, [])
        answers.append((message.length, message.number, source))

        if len(answers) == len(batch.nodes):
            self._place(batch, answers)
            self._forget(batch)

    def _place(self, batch: ProbeBatch, answers: list[tuple[int, int, Address]]) -> None:
        """The shortest queues get a task each; of a node that was probed twice the second place is one behind."""
        place_count: dict[Address, int] = {}
        for position, (length, number, node) in enumerate(answers):
            earlier_places = place_count[node] = place_count.get(node, -1) + 1
            answers[position] = (length + earlier_places, number, node)

        answers.sort()
        self._port.observe(Measured("queued_tasks", answers[0][0]))

        # There are at least as many answers as tasks; the longest queues get none.
        for (_, _, node), task in zip(answers, reversed(batch.tasks), strict=False):
            self._running.setdefault(task.job, {})[task.id] = node
            self._port.send(node, Place(self._numbers.take(), task, batch.user))

    def _forget(self, batch: ProbeBatch) -> None:
        del self._batches.open[batch.id]
        self._answers.pop(batch.id, None)

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Give up the tasks that are not placed, and have the others killed; their nodes report the end."""
        self._batches.forget_user(message.job)
        if not self._jobs.cancel(message, source):
            return
        for batch in self._batches.of(message.job):
            self._forget(batch)
            self._jobs.finished(message.job, len(batch.tasks))

        self._kill(message.job)

    def check(self) -> None:
        for batch in self._batches.open.values():
            answers = len(self._answers.get(batch.id, ()))
            assert answers < len(batch.nodes), "a batch without unanswered probes"
            assert answers == batch.nodes.count(None), "an answer was lost"
            assert len(batch.tasks) <= len(batch.nodes), "too few probes"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        QueueLength: on_queue_length,
        Completed: ReservingScheduler.on_completed,
    }
    sends = ANSWERS | sent_to("node", Probe, Place, Kill)
