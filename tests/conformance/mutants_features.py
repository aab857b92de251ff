"""Broken designs that say wrongly what they heed, or that go for the input of tasks against all rules."""

from __future__ import annotations

from collections.abc import Sequence

from tests.conformance.mutation import assemble, mutant

from volery.architectures.oracle import OracleConfig
from volery.architectures.oracle.scheduler import Scheduler, SlotMachines
from volery.core.component import Deployment
from volery.core.events import Submit
from volery.core.model import Address, Cluster, Task, Time
from volery.core.streams import Streams
from volery.roles.node import Node


@mutant("check_features_are_declared", features={})
def build_keeps_silent(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_features_are_declared", features={"constraints": "", "weather": ""})
def build_heeds_what_nobody_knows(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_features_are_declared", features={"constraints": "", "users": "fairly"})
def build_heeds_by_no_parameter(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_features_are_declared", features={"constraints": "", "amounts": "order=drf"})
def build_places_amounts_at_times(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


@mutant("check_ignored_features_change_nothing", features={"constraints": "", "locality": ""})
def build_claims_locality(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


class Partial(Scheduler):
    """Serves the newest of urgent jobs, and does not say so."""

    __slots__ = ("_urgent",)

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        self._urgent = message.job.priority > 0
        super().on_submit(message, source, now)

    def _schedule(self, tasks: Sequence[Task]) -> None:
        super()._schedule(tasks[::-1] if self._urgent else tasks)


@mutant("check_ignored_features_change_nothing")
def build_heeds_priorities_in_silence(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Partial(SlotMachines(cluster)), Node, {})


class Insistent(Scheduler):
    """Sends a task to the machine that holds its input, whatever runs there."""

    __slots__ = ()

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        for place, held in enumerate(machine for machines in message.job.replicas for machine in machines[:1]):
            self._nodes[place % len(self._nodes)] = f"node/{held}"
        super().on_submit(message, source, now)


@mutant("check_locality")
def build_insists_on_input(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    return assemble(cluster, Insistent(SlotMachines(cluster)), Node, {})
