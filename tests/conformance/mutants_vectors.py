"""Broken designs that place requests for several resources wrongly."""

from __future__ import annotations

import msgspec
from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig, Scheduler, VectorScheduler
from volery.core.component import Deployment
from volery.core.model import Cluster, Task
from volery.core.streams import Streams
from volery.roles.node import Node

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
        cpu, memory, *gpus = ended.request
        kept = Task(ended.id, ended.job, request=(cpu, memory if memory < 1024 else 0, *gpus))
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


@mutant("check_capacity_and_constraints", vectors=True)
def build_counts_gpus_as_one_amount(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """As if a share could lie on several devices: the scheduler does not know which resource counts them."""
    if not cluster.resources:
        return assemble(cluster, Scheduler(cluster), Node, {})
    divisible = msgspec.structs.replace(cluster, resources=("cpu_milli", "memory_mb", "divisible"))
    return assemble(cluster, VectorScheduler(divisible), Node, {})


class SplitsShares(VectorScheduler):
    """Puts a share on two devices where both have room for half of it."""

    __slots__ = ()

    def _launch(self, task: Task, unit: int) -> None:
        packing, free = self._ladders.packing, self._index.free[unit]
        cpu, memory, *gpus = task.request
        rooms = packing.fields(free)[3:]
        half = gpus[0] // 2 if gpus and gpus[0] < 1000 and gpus[0] % 2 == 0 else 0
        if not half or sum(room >= half for room in rooms) < 2:
            super()._launch(task, unit)
            return
        first, second = [device for device, room in enumerate(rooms) if room >= half][:2]
        parts = [half * (device in (first, second)) for device in range(len(rooms))]
        split = msgspec.structs.replace(task, request=(cpu, memory, gpus[0], *parts))
        self._index.put(unit, packing.settled(free - packing[split.request]))
        Scheduler._launch(self, split, unit)


@mutant("check_capacity_and_constraints", vectors=True)
def build_splits_shares(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, SplitsShares(cluster) if cluster.resources else Scheduler(cluster), Node, {})
