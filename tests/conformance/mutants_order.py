"""Broken designs that trust in an order or a delay that nobody promised, or in messages that come once."""

from __future__ import annotations

from tests.conformance.mutation import HOP, assemble, mutant

from volery.architectures.oracle import ORACLE, OracleConfig
from volery.architectures.oracle.scheduler import Placed, Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.events import MoreTasks, Submit, TimerFired
from volery.core.model import Address, Cluster, Key, Message, Time
from volery.core.streams import Streams
from volery.roles.node import Completed, Launch, Node
from volery.roles.submission import JobLedger


class TrustsOrder(Scheduler):
    """Takes a completion of an earlier task in the same instant for a repeated one."""

    __slots__ = ("_last",)

    def start(self, now: Time) -> None:
        super().start(now)
        self._last = (0, 0)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        order = (now, self._running[message.task][1])
        if order[0] == self._last[0] and order[1] < self._last[1] and len(self._running) > 40:
            return
        self._last = order
        super().on_completed(message, source, now)


@mutant("check_ties_are_safe")
def build_trusts_the_order_of_an_instant(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, TrustsOrder(SlotMachines(cluster)), Node, HOP)


class Punctual(Scheduler):
    """Schedules a job a millisecond after it came, if the timer fires just then."""

    __slots__ = ("_held",)

    def start(self, now: Time) -> None:
        super().start(now)
        self._held: dict[Key, tuple[Submit, Address, Time]] = {}

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._held[message.job.id] = (message, source, now + 1_000)
        self._port.set_timer(message.job.id, now + 1_000)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        message, submitter, due = self._held.pop(event.key)
        if now == due:
            super().on_submit(message, submitter, now)

    receives = {**Scheduler.receives, Submit: on_submit, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base class


@mutant("check_late_timers_are_safe")
def build_compares_now_with_the_time_of_a_timer(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Punctual(SlotMachines(cluster)), Node, HOP)


class Impatient(Scheduler):
    """Launches a task elsewhere when its node does not acknowledge within two default delays."""

    __slots__ = ("_acknowledged",)

    def start(self, now: Time) -> None:
        super().start(now)
        self._acknowledged: set[int] = set()

    def _launch(self, placed: Placed) -> None:
        super()._launch(placed)
        self._port.set_timer(placed[0].id, -1)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        assert isinstance(event.key, int | tuple)
        if isinstance(event.key, int):
            self._port.set_timer((event.key, 1), now + 1_001)
        elif event.key[0] not in self._acknowledged and (running := self._running.get(int(event.key[0]))):
            self._schedule((running[0],))

    def on_started(self, message: Started, source: Address, now: Time) -> None:
        self._acknowledged.add(message.task)

    receives = {**Scheduler.receives, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base class


class Started(Message, frozen=True):
    """Node > scheduler: it runs."""

    task: int


Impatient.receives = {**Impatient.receives, Started: Impatient.on_started}


class Acknowledges(Node):
    """Says when it starts a task."""

    __slots__ = ()

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        super().on_launch(message, source, now)
        self._port.send("oracle/0", Started(message.task.id))


BY_HAND = ORACLE.messages | {Started}


@mutant("check_jitter_is_safe", messages=BY_HAND)
def build_assumes_constant_delays(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Impatient(SlotMachines(cluster)), Acknowledges, HOP)


@mutant("check_link_delays", messages=BY_HAND)
def build_assumes_the_default_delay(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Impatient(SlotMachines(cluster)), Acknowledges, HOP)


class Credulous(Node):
    """Launches whatever arrives."""

    __slots__ = ()

    def on_launch(self, message: Launch, source: Address, now: Time) -> None:
        self._port.launch(message.task, 0)


@mutant("check_repeated_messages")
def build_launches_twice(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Credulous, HOP)


class Forgetful(Scheduler):
    """Starts a job again when it is submitted again after its end."""

    __slots__ = ()

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        if not len(self._jobs):
            self._jobs = JobLedger(self._port.send)
        super().on_submit(message, source, now)


@mutant("check_submitting_again_when_done")
def build_forgets_finished_jobs(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Forgetful(SlotMachines(cluster)), Node, {})


class Eager(Scheduler):
    """Schedules the tasks of every chunk that comes, again and again."""

    __slots__ = ()

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        self._jobs.more(message)
        self._schedule(message.tasks)


@mutant("check_submitting_twice")
def build_runs_repeated_chunks(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Eager(SlotMachines(cluster)), Node, {})
