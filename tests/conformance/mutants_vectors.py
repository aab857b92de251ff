"""Broken designs that place requests for several resources wrongly."""

from __future__ import annotations

from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import Node, OracleConfig, Scheduler, VectorScheduler
from volery.core.component import Deployment
from volery.core.model import Cluster, Task
from volery.core.streams import Streams

MEMORY = 1


class OvercommitsMemory(VectorScheduler):
    """Gives memory away without noting it."""

    __slots__ = ()

    def _launch(self, task: Task, unit: int) -> None:
        super()._launch(task, unit)
        self._index.put(unit, self._index.free[unit] + self._ladders.packing[0, task.request[MEMORY], 0])

    def _reuse(self, ended: Task, unit: int) -> None:
        self._index.put(unit, self._index.free[unit] - self._ladders.packing[0, ended.request[MEMORY], 0])
        super()._reuse(ended, unit)


@mutant("check_capacity_and_constraints", vectors=True)
def build_overcommits_memory(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, OvercommitsMemory(cluster) if cluster.resources else Scheduler(cluster), Node, {})


class LeaksMemory(VectorScheduler):
    """Never notes that the memory of large tasks is free again."""

    __slots__ = ()

    def _reuse(self, ended: Task, unit: int) -> None:
        cpu, memory, gpus = ended.request
        kept = Task(ended.id, ended.job, request=(cpu, memory if memory < 1024 else 0, gpus))
        super()._reuse(kept, unit)


@mutant("check_every_task_finishes_once", vectors=True)
def build_leaks_memory(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, LeaksMemory(cluster) if cluster.resources else Scheduler(cluster), Node, {})


class PassesOverTheTooLarge(VectorScheduler):
    """Lets tasks wait that no machine holds."""

    __slots__ = ()

    def _fits_somewhere(self, kind: tuple[int, tuple[int, ...]]) -> bool:
        return bool(self._matches[kind[0]])


@mutant("check_done_is_said_once", vectors=True)
def build_waits_for_ever_for_a_larger_machine(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, PassesOverTheTooLarge(cluster) if cluster.resources else Scheduler(cluster), Node, {})
