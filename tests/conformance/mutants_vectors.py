"""Broken designs that place requests for several resources wrongly."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import AmountMachines, Placed, Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.model import Cluster, Task
from volery.core.streams import Streams
from volery.roles.node import Node

MEMORY = 1


def placed_by(machines: type[AmountMachines], cluster: Cluster) -> Deployment:
    return assemble(cluster, Scheduler((machines if cluster.resources else SlotMachines)(cluster)), Node, {})


class OvercommitsMemory(AmountMachines):
    """Gives memory away without noting it."""

    def take(self, task: Task, unit: int) -> tuple[Task, int]:
        taken = super().take(task, unit)
        self.index.put(unit, self.index.free[unit] + self.packing[0, task.request[MEMORY], 0])
        return taken

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        self.index.put(unit, self.index.free[unit] - self.packing[0, ended.request[MEMORY], 0])
        return super().reuse(ended, unit)


@mutant("check_capacity_and_constraints", features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""})
def build_overcommits_memory(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return placed_by(OvercommitsMemory, cluster)


class LeaksMemory(AmountMachines):
    """Never notes that the memory of large tasks is free again."""

    def reuse(self, ended: Task, unit: int) -> Sequence[Placed]:
        cpu, memory, *gpus = ended.request
        kept = Task(ended.id, ended.job, request=(cpu, memory if memory < 1024 else 0, *gpus))
        return super().reuse(kept, unit)


@mutant("check_every_task_finishes_once", features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""})
def build_leaks_memory(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return placed_by(LeaksMemory, cluster)


class PassesOverTheTooLarge(AmountMachines):
    """Lets tasks wait that no machine holds."""

    def fits_somewhere(self, kind: tuple[int, tuple[int, ...]]) -> bool:
        return bool(self.matches[kind[0]])


@mutant("check_done_is_said_once", features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""})
def build_waits_for_ever_for_a_larger_machine(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return placed_by(PassesOverTheTooLarge, cluster)


@mutant("check_capacity_and_constraints", features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""})
def build_counts_gpus_as_one_amount(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """As if a share could lie on several devices: the scheduler does not know which resource counts them."""
    if not cluster.resources:
        return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})
    divisible = msgspec.structs.replace(cluster, resources=("cpu_milli", "memory_mb", "divisible"))
    return assemble(cluster, Scheduler(AmountMachines(divisible)), Node, {})


class SplitsShares(AmountMachines):
    """Puts a share on two devices where both have room for half of it."""

    def take(self, task: Task, unit: int) -> tuple[Task, int]:
        packing, free = self.packing, self.index.free[unit]
        cpu, memory, *gpus = task.request
        rooms = packing.fields(free)[3:]
        half = gpus[0] // 2 if gpus and gpus[0] < 1000 and gpus[0] % 2 == 0 else 0
        if not half or sum(room >= half for room in rooms) < 2:
            return super().take(task, unit)
        first, second = [device for device, room in enumerate(rooms) if room >= half][:2]
        parts = [half * (device in (first, second)) for device in range(len(rooms))]
        split = msgspec.structs.replace(task, request=(cpu, memory, gpus[0], *parts))
        self.index.put(unit, packing.settled(free - packing[split.request]))
        return split, unit


@mutant("check_capacity_and_constraints", features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""})
def build_splits_shares(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return placed_by(SplitsShares, cluster)
