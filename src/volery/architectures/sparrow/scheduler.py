"""Sparrow's schedulers: they share nothing, probe more workers than they have tasks, and bind a task when asked."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import msgspec

from volery.architectures.sparrow.messages import Assign, Place, Probe, QueueLength
from volery.core.component import sent_to
from volery.core.events import Cancel, Measured, MoreTasks, Submit
from volery.core.model import Address, JobId, Task, Time
from volery.policies.sampling import Sampler
from volery.roles.reservations import Completed, Kill, NoTask, ReservingScheduler, TaskRequest, Withdraw, by_needs
from volery.roles.submission import ANSWERS

Sampling = Literal["batch", "per-task"]


class Batch:
    """What was probed for together.

    Attributes:
        tasks: not bound yet, the first one last.
        first: number of the first probe; the others follow in the scheduler's steps.
        nodes: per probe, where it went; None once it was asked for or answered.
        siblings: the batches of the same chunk of a job; they share their reservations where the constraints allow.
    """

    __slots__ = ("first", "id", "nodes", "siblings", "tasks")

    def __init__(self, number: int, tasks: list[Task], siblings: list[Batch]) -> None:
        self.id = number
        self.tasks = tasks
        self.first = 0
        self.nodes: list[Address | None] = []
        self.siblings = siblings


class SchedulerSetting(msgspec.Struct, frozen=True):
    """How a scheduler probes.

    Args:
        probe_ratio: d, probes per task, for jobs without constraints.
        constrained_ratio: the same for tasks with constraints.
        sampling: "batch", all tasks of a job that need the same at once, or "per-task".
        cancellation: whether reservations that nothing is left for are withdrawn.
        cutoff_us: tasks with a longer estimate are long, for the account of head-of-line blocking alone.
        users: whether nodes need to know whose a reservation is.
        numbering: first number of the scheduler's messages and the step to the next, so that all numbers differ.
    """

    probe_ratio: float
    constrained_ratio: float
    sampling: Sampling
    cancellation: bool
    cutoff_us: Time
    users: bool
    numbering: tuple[int, int]


class BaseScheduler(ReservingScheduler):
    """What schedulers with and without late binding have in common.

    Args:
        nodes: addresses of the node monitors.
        constraints: per node, what it satisfies.
        sampler: draws nodes to probe.
        setting: how it probes.
    """

    __slots__ = ("_batches", "_nodes", "_offered", "_sampler", "_setting", "_user")

    def __init__(
        self, nodes: Sequence[Address], constraints: Sequence[int], sampler: Sampler, setting: SchedulerSetting
    ) -> None:
        super().__init__(setting.numbering)
        self._nodes = nodes
        self._offered = dict(zip(nodes, constraints, strict=True))
        self._sampler = sampler
        self._setting = setting
        self._batches: dict[int, Batch] = {}
        self._user: dict[JobId, str] = {}

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Probe for a job; tasks that fit no machine are reported and the others run."""
        self._report_facts()
        tasks = self._jobs.admit(message, source, 0)
        if self._setting.users and len(tasks) < message.job.task_count:
            self._user[message.job.id] = message.job.user
        self._sample(tasks, message.job.user if self._setting.users else "")

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        """Probe for a further chunk."""
        self._sample(self._jobs.more(message), self._user.get(message.job, ""))

    def _sample(self, tasks: Sequence[Task], user: str) -> None:
        groups = by_needs(tasks)
        siblings: list[Batch] = []
        setting = self._setting
        for need in reversed(groups):
            group = groups[need]
            if need and not self._sampler.supply(need):
                for task in group:
                    self._jobs.unsatisfiable(task.job)
                continue
            ratio = setting.constrained_ratio if need else setting.probe_ratio
            if setting.sampling == "batch":
                self._probe(Batch(self._next_number(), group, siblings), need, math.ceil(ratio * len(group)), user)
            else:
                for task in reversed(group):
                    self._probe(Batch(self._next_number(), [task], []), need, math.ceil(ratio), user)

    def _probe(self, batch: Batch, need: int, count: int, user: str) -> None:
        """Send the probes of a batch."""
        batch.siblings.append(batch)
        self._batches[batch.id] = batch
        self._probes += count
        nodes, send, number, step, batch_id = self._nodes, self._port.send, self._number, self._step, batch.id
        batch.first = number
        chosen = [nodes[worker] for worker in self._sampler.draw(need, count)]
        batch.nodes[:] = chosen
        for node in chosen:
            send(node, Probe(number, batch_id, user))
            number += step
        self._number = number

    def _answered(self, batch_id: int, number: int) -> Batch | None:
        """The batch of a probe that is answered for the first time, else None."""
        batch = self._batches.get(batch_id)
        if batch is not None:
            place = (number - batch.first) // self._step
            if batch.nodes[place] is not None:
                batch.nodes[place] = None
                return batch
        return None

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Give up what is not bound yet, and have the rest killed, the end of which its node reports."""
        if not self._jobs.cancel(message, source):
            return
        for batch in [batch for batch in self._batches.values() if batch.tasks and batch.tasks[0].job == message.job]:
            dropped = len(batch.tasks)
            batch.tasks.clear()
            self._maybe_forget(batch)
            self._jobs.finished(message.job, dropped)
        for task, node in self._running.get(message.job, {}).items():
            self._port.send(node, Kill(task))

    def _maybe_forget(self, batch: Batch) -> None:
        """Forget a batch that nothing is left of."""
        raise NotImplementedError


class Scheduler(BaseScheduler):
    """Binds a task when a node asks for one."""

    __slots__ = ()

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        """Bind the next task of the reservation's batch, or one of the job's others that fits the node."""
        batch = self._answered(message.batch, message.number)
        if batch is None:
            self._vain += 1
            self._port.send(source, NoTask(message.request))
            return
        tasks = batch.tasks
        if not tasks:
            other = self._sharing(batch.siblings, source)
            if other is None:
                self._vain += 1
                self._port.send(source, NoTask(message.request))
                return
            batch, tasks = other, other.tasks
        task = tasks.pop()
        running = self._running.get(task.job)
        if running is None:
            self._running[task.job] = {task.id: source}
            self._port.observe(Measured("queued_reservations", message.queued))
        else:
            running[task.id] = source
        if message.blocked_us and task.estimate_us <= self._setting.cutoff_us:
            self._blocked_us += message.blocked_us
        self._port.send(source, Assign(message.request, task))
        if not tasks:
            self._maybe_forget(batch)

    def _sharing(self, siblings: list[Batch], node: Address) -> Batch | None:
        """The first batch of the job with a task left that the node can run."""
        lacking = ~self._offered[node]
        for batch in siblings:
            if batch.tasks and not batch.tasks[-1].constraints & lacking:
                return batch
        return None

    def _maybe_forget(self, batch: Batch) -> None:
        """When all tasks of the chunk are bound, its reservations are in vain."""
        for sibling in batch.siblings:
            if sibling.tasks:
                return
        for sibling in batch.siblings:
            del self._batches[sibling.id]
            if self._setting.cancellation:
                self._withdraw(sibling.first, sibling.nodes)

    def check(self) -> None:
        """Every task that is not bound has a reservation of its own under way."""
        for batch in self._batches.values():
            left = len(batch.nodes) - batch.nodes.count(None)
            assert len(batch.tasks) <= left, f"{len(batch.tasks)} tasks, {left} reservations"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: BaseScheduler.on_submit,
        MoreTasks: BaseScheduler.on_more_tasks,
        Cancel: BaseScheduler.on_cancel,
        TaskRequest: on_task_request,
        Completed: ReservingScheduler.on_completed,
    }
    sends = ANSWERS | sent_to("node", Probe, Assign, NoTask, Withdraw, Kill)


class EarlyScheduler(BaseScheduler):
    """Asks nodes for their queue lengths and sends each task to the shortest queue (no late binding)."""

    __slots__ = ("_answers", "_user_of")

    def __init__(
        self, nodes: Sequence[Address], constraints: Sequence[int], sampler: Sampler, setting: SchedulerSetting
    ) -> None:
        super().__init__(nodes, constraints, sampler, setting)
        self._answers: dict[int, list[tuple[int, int, Address]]] = {}
        self._user_of: dict[int, str] = {}

    def _probe(self, batch: Batch, need: int, count: int, user: str) -> None:
        super()._probe(batch, need, count, user)
        self._answers[batch.id] = []
        if user:
            self._user_of[batch.id] = user

    def on_queue_length(self, message: QueueLength, source: Address, now: Time) -> None:
        """With the last answer, place the tasks."""
        batch = self._answered(message.batch, message.number)
        if batch is None:
            return
        answers = self._answers[batch.id]
        answers.append((message.length, message.number, source))
        if len(answers) == len(batch.nodes):
            self._place(batch, answers)
            self._maybe_forget(batch)

    def _place(self, batch: Batch, answers: list[tuple[int, int, Address]]) -> None:
        """The shortest queues get a task each; of a node that was probed twice the second place is one behind."""
        seen: dict[Address, int] = {}
        for at, (length, number, node) in enumerate(answers):
            earlier = seen[node] = seen.get(node, -1) + 1
            answers[at] = (length + earlier, number, node)
        answers.sort()
        self._port.observe(Measured("queued_tasks", answers[0][0]))
        user = self._user_of.get(batch.id, "")
        for (_, _, node), task in zip(answers, reversed(batch.tasks), strict=False):
            self._running.setdefault(task.job, {})[task.id] = node
            self._port.send(node, Place(self._next_number(), task, user))
        batch.tasks.clear()

    def _maybe_forget(self, batch: Batch) -> None:
        del self._batches[batch.id], self._answers[batch.id]
        self._user_of.pop(batch.id, None)

    def check(self) -> None:
        """Every batch waits for answers, and will have as many as it has tasks."""
        for batch in self._batches.values():
            answers = len(self._answers[batch.id])
            assert answers < len(batch.nodes), "a batch without unanswered probes"
            assert answers == batch.nodes.count(None), "an answer was lost"
            assert len(batch.tasks) <= len(batch.nodes), "too few probes"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: BaseScheduler.on_submit,
        MoreTasks: BaseScheduler.on_more_tasks,
        Cancel: BaseScheduler.on_cancel,
        QueueLength: on_queue_length,
        Completed: ReservingScheduler.on_completed,
    }
    sends = ANSWERS | sent_to("node", Probe, Place, Kill)
