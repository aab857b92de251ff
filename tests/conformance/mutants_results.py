"""Broken designs whose results depend on what must not matter."""

from __future__ import annotations

import random
import sys
from collections.abc import Sequence
from typing import Any

from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.events import Counted, TaskFinished
from volery.core.model import Address, Cluster, Task, Time
from volery.core.streams import Streams
from volery.policies.match import Anchors, Matches
from volery.roles.node import Node


class PlainMatches(Matches):
    """Constraint set -> vector of the units that satisfy it, the slow way."""

    def __init__(self, constraints: list[int]) -> None:
        super().__init__(constraints, Anchors(constraints))
        self._constraints = constraints

    def __missing__(self, mask: int) -> int:
        return sum(1 << unit for unit, offered in enumerate(self._constraints) if not mask & ~offered)


class Shuffles(Scheduler):
    """Picks a free slot in an order that is not the seed's."""

    __slots__ = ("_order",)

    def _permute(self, order: list[int]) -> None:
        self._nodes = [self._nodes[k] for k in order]
        self._machines.constraints = [self._machines.constraints[k] for k in order]
        self._machines.matches = PlainMatches(self._machines.constraints)


class HashOrder(Shuffles):
    """Iterates over a set of addresses."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        super().start(now)
        place = {address: k for k, address in enumerate(self._nodes)}
        self._permute([place[address] for address in set(self._nodes)])


@mutant("check_same_seed_same_digest")
def build_uses_hash_order(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    single = Cluster(cluster.constraints, (1,) * len(cluster.constraints))
    return assemble(single, HashOrder(SlotMachines(single)), Node, {})


class Unseeded(Shuffles):
    """Draws from the module's generator."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        super().start(now)
        self._permute(random.sample(range(len(self._nodes)), len(self._nodes)))


@mutant("check_same_seed_same_digest")
def build_draws_unseeded(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Unseeded(SlotMachines(cluster)), Node, {})


MEMORY: dict[int, int] = {}


class SharedSlots(SlotMachines):
    """Keeps which slots are free in a place that all builds share."""

    @property
    def free(self) -> int:
        return MEMORY.get(len(self.nodes), self.matches.every)

    @free.setter
    def free(self, vector: int) -> None:
        MEMORY[len(self.nodes)] = vector


@mutant("check_builds_share_nothing")
def build_shares_state(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SharedSlots(cluster)), Node, {})


def lab() -> Any:
    """The lab of the kernel that drives the caller, found where no component may look: on the call stack."""
    frame = sys._getframe()
    while frame.f_code.co_name != "simulate":
        assert frame.f_back is not None
        frame = frame.f_back
    return frame.f_locals["kernel"].lab


class Clairvoyant(Scheduler):
    """Reads true durations from its driver and runs short tasks first."""

    __slots__ = ()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        trace = lab().trace
        super()._schedule(tuple(sorted(tasks, key=lambda task: int(trace.duration_us[task.id]))))


@mutant("check_knowledge_is_honest")
def build_knows_durations(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Clairvoyant(SlotMachines(cluster)), Node, {})


class Nosy(Scheduler):
    """Decides by what was observed."""

    __slots__ = ()

    def _schedule(self, tasks: Sequence[Task]) -> None:
        self._port.observe(Counted("calls"))
        super()._schedule(tasks[::-1] if lab().records.counters.get("calls", 0) % 2 else tasks)


@mutant("check_observing_changes_nothing")
def build_depends_on_what_is_observed(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Nosy(SlotMachines(cluster)), Node, {})


class FirstFit(SlotMachines):
    """Takes the free machine with the lowest number."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster)
        machines = [machine for machine, slots in enumerate(cluster.slots) for _ in range(slots)]
        self.nodes = [f"node/{machine}" for machine in machines]
        self.constraints = [cluster.constraints[machine] for machine in machines]
        self.matches = PlainMatches(self.constraints)


@mutant("check_labels_do_not_matter")
def build_prefers_low_numbers(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(FirstFit(cluster)), Node, {})


class Stubborn(Node):
    """Runs a task that has failed again, as another attempt."""

    __slots__ = ()

    def on_task_finished(self, event: TaskFinished, source: Address, now: Time) -> None:
        if event.outcome == "failed":
            self._port.launch(event.task, event.attempt + 1)
        else:
            super().on_task_finished(event, source, now)

    receives = Node.receives | {TaskFinished: on_task_finished}


@mutant("check_failed_tasks_are_over")
def build_runs_failed_tasks_again(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Stubborn, {})
