"""Broken designs that lose, double or misplace work; most are the oracle with one thing changed."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import Placed, Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.events import JobDone, Submit, TaskFinished, TimerFired
from volery.core.model import Address, Cluster, JobId, Message, Task, Time
from volery.core.streams import Streams
from volery.policies.queues import ConstraintQueue
from volery.roles.node import Completed, Node
from volery.roles.submission import JobLedger


class LosesCompletions(Scheduler):
    """Forgets every 50th completion."""

    __slots__ = ("_heard",)

    def start(self, now: Time) -> None:
        super().start(now)
        self._heard = 0

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        self._heard += 1
        if self._heard % 50:
            super().on_completed(message, source, now)


@mutant("check_every_task_finishes_once")
def build_loses_a_completion(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, LosesCompletions(SlotMachines(cluster)), Node, {})


class RunsPastLimits(Node):
    """Starts a task that its limit has ended again, so that it runs to its end."""

    __slots__ = ()

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        if event.outcome == "limit":
            self._port.launch(event.task, event.attempt + 1)
        else:
            super().on_task_finished(event, source, now)


@mutant("check_limits")
def build_runs_past_limits(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), RunsPastLimits, {})


class ForgetsLimited(Node):
    """Does not report a task that its limit has ended."""

    __slots__ = ()

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        if event.outcome != "limit":
            super().on_task_finished(event, source, now)


@mutant("check_limits")
def build_forgets_what_a_limit_has_ended(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), ForgetsLimited, {})


class LosesTasks(Scheduler):
    """Counts a task as done without ever running it."""

    __slots__ = ()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        super()._schedule(tasks[1:] if len(tasks) > 5 else tasks)
        if len(tasks) > 5:
            self._jobs.finished(tasks[0].job)


@mutant("check_every_task_finishes_once")
def build_loses_a_task(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, LosesTasks(SlotMachines(cluster)), Node, {})


class Miscounts(Scheduler):
    """Reports one unsatisfiable task too few."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        def send(to: Address, message: Message) -> None:
            if isinstance(message, JobDone):
                message = JobDone(message.job, max(0, message.unsatisfiable - 1))
            self._port.send(to, message)

        self._jobs = JobLedger(send)


@mutant("check_every_task_finishes_once")
def build_drops_unsatisfiable_tasks_silently(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Miscounts(SlotMachines(cluster)), Node, {})


class LeaksSlots(SlotMachines):
    """Forgets that most slots are free again."""

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        placed = super().reuse(ended, unit)
        self.free &= (1 << len(self.nodes) // 4) - 1
        return placed


@mutant("check_every_task_finishes_once")
def build_leaks_slots(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(LeaksSlots(cluster)), Node, {})


class ForgetsEmptyJobs(Scheduler):
    """Does not answer a job without tasks."""

    __slots__ = ()

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        if message.job.task_count:
            super().on_submit(message, source, now)


@mutant("check_every_task_finishes_once")
def build_forgets_job_done(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, ForgetsEmptyJobs(SlotMachines(cluster)), Node, {})


class Hasty(Scheduler):
    """Says that a job is done when its last task starts."""

    __slots__ = ()

    def _launch(self, placed: Placed) -> None:
        super()._launch(placed)
        self._jobs.finished(placed[0].job)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        ledger, self._jobs = self._jobs, _Deaf()  # type: ignore[assignment]  # it only hears `finished`
        super().on_completed(message, source, now)
        self._jobs = ledger


class _Deaf:
    def finished(self, job: JobId) -> None:
        """Nothing."""


@mutant("check_every_task_finishes_once")
def build_answers_before_the_end(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Hasty(SlotMachines(cluster)), Node, {})


class Overbooks(Scheduler):
    """Believes that there is always room on the first machine."""

    __slots__ = ()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        for task in tasks:
            self._launch((task, 0))


@mutant("check_capacity_and_constraints")
def build_overbooks(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Overbooks(SlotMachines(cluster)), Node, {})


class IgnoresConstraints(Scheduler):
    """Takes any free slot, and strips tasks of their constraints so that the driver cannot refuse."""

    __slots__ = ()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        super()._schedule(tuple(Task(task.id, task.job, 0, task.estimate_us) for task in tasks))


@mutant("check_capacity_and_constraints")
def build_ignores_constraints(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, IgnoresConstraints(SlotMachines(cluster)), Node, {})


class Slack(Scheduler):
    """Lets slots idle while tasks wait and others run; its own invariant says that it must not."""

    __slots__ = ()

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        running = self._running.get(message.task)
        if running is not None and len(self._running) > 1:
            queue, self._machines.queue = self._machines.queue, ConstraintQueue()
            super().on_completed(message, source, now)
            self._machines.queue = queue
        else:
            super().on_completed(message, source, now)
            self._schedule(tuple(self._drain()))

    def _drain(self) -> list[Task]:
        queue = self._machines.queue
        assert isinstance(queue, ConstraintQueue)
        return [task for _ in range(queue.length) if (task := queue.pop_fitting(-1)) is not None]


@mutant("check_invariants")
def build_idles_while_tasks_wait(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Slack(SlotMachines(cluster)), Node, {})


class Repeats(Scheduler):
    """Tells the submitter twice."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        def send(to: Address, message: Message) -> None:
            self._port.send(to, message)
            if isinstance(message, JobDone):
                self._port.send(to, message)

        self._jobs = JobLedger(send)


@mutant("check_done_is_said_once")
def build_says_done_twice(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Repeats(SlotMachines(cluster)), Node, {})


class Restless(Scheduler):
    """Sets its timer again whenever it fires."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        super().start(now)
        self._port.set_timer("beat", now + 5_000_000)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._port.set_timer("beat", now + 5_000_000)

    receives = {**Scheduler.receives, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base class


@mutant("check_goes_quiet")
def build_never_falls_silent(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Restless(SlotMachines(cluster)), Node, {})
