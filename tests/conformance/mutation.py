"""How the broken designs are registered: each names the check that must reject it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from volery.architectures.oracle import ORACLE, OracleConfig
from volery.architectures.oracle.scheduler import Scheduler, SlotMachines
from volery.core.component import AMOUNTS, Architecture, Component, Deployment, role_of
from volery.core.model import Address, Cluster, Time
from volery.core.streams import Streams
from volery.roles.node import Node

HOP = {("oracle", "node"): 500, ("node", "oracle"): 500}


def assemble(
    cluster: Cluster, scheduler: Component, node: Callable[[Address], Component], delays: dict[tuple[str, str], Time]
) -> Deployment:
    """The oracle's wiring around other components."""
    components: dict[Address, Component] = {"oracle/0": scheduler}
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    for address in machines:
        components[address] = node("oracle/0")
    return Deployment(components, machines, lambda _: "oracle/0", delays)


def build_unspoiled(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """Sound components in that wiring."""
    return assemble(cluster, Scheduler(SlotMachines(cluster)), Node, {})


def on_slots(base: Architecture, hops: int, **changes: Any) -> Architecture:
    """The design with other claims: slots alone, and so many hops of a lone task."""
    changes.setdefault("features", {name: when for name, when in base.features.items() if name != AMOUNTS})
    return msgspec.structs.replace(base, conformance=msgspec.structs.replace(base.conformance, hops=hops), **changes)


WIRED_HOPS = 2
"""Links take time in the oracle that `assemble` wires."""
UNSPOILED = on_slots(ORACLE, WIRED_HOPS, name="unspoiled", build=build_unspoiled)
MUTANTS: dict[str, tuple[str, Architecture]] = {}
"""Mutant -> (the check that must reject it, the design)."""


def mutant(
    rejected_by: str, base: Architecture = ORACLE, **changes: Any
) -> Callable[[Callable[..., Deployment]], Callable[..., Deployment]]:
    """Register a build function as a design that the named check must reject."""

    def register(build: Callable[..., Deployment]) -> Callable[..., Deployment]:
        name = build.__name__.removeprefix("build_").replace("_", "-")
        changed = {"name": name, "build": build, "hops": WIRED_HOPS if base is ORACLE else base.conformance.hops}
        MUTANTS[name] = (rejected_by, on_slots(base, **{**changed, **changes}))
        return build

    return register


def spoiled(deployment: Deployment, **roles: type[Component]) -> Deployment:
    """The deployment with the components of some roles turned into mutants of theirs, which add no fields."""
    for address, component in deployment.components.items():
        worse = roles.get(role_of(address))
        if worse is not None:
            component.__class__ = worse
    return deployment
