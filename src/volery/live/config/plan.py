"""Plan of a federation: builds components from a registry entry, alike for a host and for a replay of its journal.

The times of failure detection between hosts are here, too, as parts of the detection time of a deployment.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from random import Random
from typing import Final

import msgspec

from volery.core.capabilities import CrashRecovery, Overcommitment, Resumption
from volery.core.component import Architecture, Component, Deployment, role_of
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.streams import Streams
from volery.roles.recovery.leases import Lease


class IncarnationStreams(Streams):
    """Streams of one incarnation of a host: a restarted component does not draw its predecessor's numbers again."""

    def __init__(self, seed: int, incarnation: int) -> None:
        super().__init__(seed)
        self._incarnation = incarnation

    def of(self, name: Address, incarnation: int = 0) -> Random:
        return super().of(name, incarnation or self._incarnation)


def host_recovery(architecture: Architecture, deployment: Deployment) -> CrashRecovery | None:
    """The recovery of hosts that fail and restart; None: they may not.

    That takes components that can be built again and messages that can be lost, so that nothing of an earlier
    incarnation is taken for the present one's. A design that in the lab bears the crash of its machines alone has no
    fence live.
    """
    return deployment.capability(CrashRecovery) if "loss" in architecture.conformance.tolerates else None


def recovery_in_words(architecture: Architecture, deployment: Deployment) -> str:
    """The recovery of a federation when its hosts fail, in words."""
    claims = architecture.conformance
    if (recovery := host_recovery(architecture, deployment)) is not None:
        roles = ", ".join(sorted(fault.partition(":")[2] for fault in claims.tolerates if "crash:" in fault))
        seconds = recovery.detection_us / SECOND
        given_up = f"a host that does not answer counts as failed within {seconds:g} s"
        return (
            f"{architecture.name} recovers when any host of {roles} fails; {given_up}; {_heirs(deployment, recovery)}"
        )

    bears = "loss" in claims.tolerates and any(":" in fault for fault in claims.tolerates)
    parameters = ", ".join(
        f"{name} = {str(value).lower()}" for name, value in claims.fault_parameters.items() if value is True
    )
    alternative = f"; with {parameters} it would recover from that" if bears else ", and it has no parameter for that"
    problem = "recovers from lost frames only: when a host fails, jobs hang until all hosts are restarted"

    return f"{architecture.name} {problem}{alternative}"


def _heirs(deployment: Deployment, recovery: CrashRecovery) -> str:
    """The fate of jobs whose scheduler does not restart, in words."""
    if len(recovery.standins) > 1:
        return f"jobs of a {role_of(recovery.standins[0])} that does not come back go to another"
    return f"jobs of {deployment.entry(0)} wait until it is started again"


class FederationPlan(msgspec.Struct, frozen=True):
    """Architecture, parameters and cluster of a federation, without its hosts.

    Args:
        cluster: the machines as schedulers see them.
    """

    architecture: Architecture
    config: msgspec.Struct
    cluster: Cluster
    seed: int = 0

    def build(self, incarnation: int = 1) -> Deployment:
        """Build fresh components.

        Raises:
            InputError: the architecture cannot be built on this cluster, or asks for what real tasks cannot do.
        """
        deployment = self.architecture.build(self.cluster, self.config, IncarnationStreams(self.seed, incarnation))
        if (resumption := deployment.capability(Resumption)) is not None and resumption.preempted:
            problem = "preempted tasks cannot keep their progress here: real work starts anew; give preempted=restart"
            raise InputError(self.architecture.name, problem)
        if deployment.capability(Overcommitment) is not None:
            problem = "what tasks use is not measured here, so nothing that is reserved can be reclaimed; give T6=none"
            raise InputError(self.architecture.name, problem)
        return deployment

    def components(
        self, deployment: Deployment, addresses: Iterable[Address], incarnation: int
    ) -> dict[Address, Component]:
        """The components of one incarnation of a host.

        Designs that bear crashes rebuild them, even for the first: the others may have run before.

        Args:
            deployment: deployment that `build` made for this incarnation.
            incarnation: incarnation of the host, from 1.
        """
        recovery = host_recovery(self.architecture, deployment)
        if recovery is None:
            return {address: deployment.components[address] for address in addresses}
        return {address: recovery.rebuild(address, incarnation) for address in addresses}

    @property
    def configuration(self) -> str:
        """SHA-256 of architecture, parameters and cluster; two hosts fit together only when theirs are equal."""
        content = (self.architecture.name, self.config, self.cluster)
        return hashlib.sha256(msgspec.msgpack.encode(content, order="deterministic")).hexdigest()


HEARTBEATS_PER_DETECTION: Final = 6
_PATIENCE: Final = 0.75
"""Part of the detection time without a heartbeat; the rest is for the way of the last one."""
_SPARE: Final = 0.5


def patience_us(detection_us: Time) -> Time:
    """A host counts as lost when no heartbeat of it has proved for so long that both ends are up."""
    return round(_PATIENCE * detection_us)


def task_lease_s(detection_us: Time) -> float:
    """Tasks go on for so long, in seconds, while their node's host is away.

    A master without a beat of a node gives its tasks up after the patience and its lease. A host that comes back
    takes the patience to see that its master is away, and its nodes go on for their grace. What is left, less half a
    detection time to spare, is for the time between.
    """
    lease = Lease(detection_us)
    given_up_us = patience_us(detection_us) + lease.lease_us
    ended_us = patience_us(detection_us) + lease.grace_us
    return (given_up_us - ended_us - _SPARE * detection_us) / SECOND
