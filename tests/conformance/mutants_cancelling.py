"""Broken designs that cancel too little or too much."""

from __future__ import annotations

from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import Scheduler, SlotMachines
from volery.core.component import Component, Deployment
from volery.core.events import Cancel
from volery.core.model import Address, Cluster, Time
from volery.core.streams import Streams
from volery.roles.node import Kill, Node


class LetsThemRun(Node):
    """Does not kill."""

    __slots__ = ()

    def on_kill(self, message: Kill, source: Address, now: Time) -> None:
        pass


@mutant("check_cancel")
def build_lets_cancelled_tasks_run(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), LetsThemRun, {})


class KeepsWaiting(Scheduler):
    """Kills what runs and leaves what waits in the queue."""

    __slots__ = ()

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        if self._jobs.cancel(message, source):
            for task, unit in self._running.values():
                if task.job == message.job:
                    self._port.send(self._nodes[unit], Kill(task.id))


class ClearsTheQueue(Scheduler):
    """Drops what waits, whosever it is."""

    __slots__ = ()

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        for task in self._machines.queue.remove(lambda task: task.job != message.job):
            self._jobs.finished(task.job)
        super().on_cancel(message, source, now)


class SaysNothing(Scheduler):
    """Forgets to count what it has dropped, so that nobody is told done."""

    __slots__ = ()

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        self._machines.queue.remove(lambda task: task.job == message.job)
        super().on_cancel(message, source, now)


class ForgetsWhatIsDone(Scheduler):
    """Answers nobody who cancels a job that is done."""

    __slots__ = ()

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        if message.job in self._jobs._remaining_counts:
            super().on_cancel(message, source, now)


def _oracle(scheduler: Component, cluster: Cluster) -> Deployment:
    return assemble(cluster, scheduler, Node, {})


@mutant("check_cancel")
def build_runs_cancelled_tasks_later(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return _oracle(KeepsWaiting(SlotMachines(cluster)), cluster)


@mutant("check_cancel")
def build_cancels_the_jobs_of_others(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return _oracle(ClearsTheQueue(SlotMachines(cluster)), cluster)


@mutant("check_cancel")
def build_never_ends_a_cancelled_job(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return _oracle(SaysNothing(SlotMachines(cluster)), cluster)


@mutant("check_cancel")
def build_answers_no_late_cancellation(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return _oracle(ForgetsWhatIsDone(SlotMachines(cluster)), cluster)
