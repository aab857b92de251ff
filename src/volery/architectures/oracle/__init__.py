"""Oracle: an omniscient central scheduler without delay, the yardstick for all others.

Roles    Scheduler (one, sees every slot at once), Node (one per machine).
Flow     Submit > Launch > Completed, all without delay.
Deviates No published system; the "central FIFO" and "ideal" of the papers' comparisons. First come first served among
         the tasks that fit; minimum constraints first, and where tasks ask for several resources, best fit first. Small
         tasks may overtake large ones for ever. With `order`, users take turns by Dominant Resource Fairness (Ghodsi
         et al., NSDI 2011; Bhattacharya et al., SoCC 2013), without preemption; with `patience_s`, too, a machine is
         reserved for a task that is passed over for so long on its user's turn (as YARN and Volcano do). `hierarchy`
         has the two counter-examples of the latter paper, to be compared with and for nothing else.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from volery.architectures.oracle.patience import DrfTurns, HdrfTurns, PatientVectorQueue
from volery.architectures.oracle.scheduler import ADDRESS, AmountMachines, Reservations, Scheduler, SlotMachines
from volery.core.bounds import Parameters, Seconds, param
from volery.core.component import Architecture, Conformance, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.fairness.drf import FairOrder, WeightedDrf
from volery.policies.fairness.hdrf import HierarchicalDrf, NaiveHierarchy, collapsed
from volery.policies.fairness.queue import FairVectorQueue
from volery.policies.fairness.shares import parse_shares_text
from volery.roles.node import NODE_MESSAGES, Node, with_nodes


class OracleConfig(Parameters, frozen=True):
    """Parameters of the yardstick."""

    order: Literal["fifo", "drf", "hdrf"] = param(
        "fifo", "task that a freed slot takes: the oldest, or one of the user with the lowest share by DRF"
    )
    shares: str = param("", "fixed weights of users, as ann:2+bob:1; for hdrf a tree, as web:1+dev:2(ann:2+bob:1)")
    hierarchy: Literal["rescaled", "naive", "collapsed"] = param(
        "rescaled", "with hdrf: its rules; root to leaf without them, which starves; or the tree as flat weights"
    )
    patience_s: Seconds = param(
        0.0, "with drf or hdrf: passed over for so long, a task has a machine reserved; 0: never"
    )


def _scheduler(cluster: Cluster, config: OracleConfig) -> Scheduler:
    if config.hierarchy != "rescaled" and (config.order != "hdrf" or config.patience_s):
        raise InputError("oracle:hierarchy", "needs order=hdrf without patience_s: it names another rule for its tree")

    if config.order == "fifo":
        if config.shares:
            raise InputError("oracle:shares", "needs order=drf or order=hdrf: first come first served has no shares")
        if config.patience_s:
            raise InputError("oracle:patience_s", "needs order=drf or order=hdrf: first come first served has no turns")

        return Scheduler(AmountMachines(cluster) if cluster.resources else SlotMachines(cluster))

    if not config.patience_s:
        order = _order(cluster, config, WeightedDrf, HierarchicalDrf)

        if cluster.resources:
            return Scheduler(AmountMachines(cluster, lambda packing: FairVectorQueue(order, packing)))
        return Scheduler(SlotMachines(cluster, order))

    # Patience is a matter of amounts: a slot is an amount of one resource then.
    if not cluster.resources:
        capacities = tuple([(count,) for count in cluster.slots])
        cluster = msgspec.structs.replace(cluster, resources=("slots",), capacities=capacities)

    order = _order(cluster, config, WeightedDrf, HierarchicalDrf)
    turns = _order(cluster, config, DrfTurns, HdrfTurns)
    patience_us = round(config.patience_s * SECOND)
    machines = AmountMachines(cluster, lambda packing: PatientVectorQueue(order, turns, packing, patience_us))
    assert isinstance(machines.fair, PatientVectorQueue)

    machines.reservations = Reservations(machines, machines.fair)
    return Scheduler(machines)


def _order(
    cluster: Cluster, config: OracleConfig, flat: type[WeightedDrf], hierarchical: type[HierarchicalDrf]
) -> FairOrder:

    capacity: tuple[int, ...] = (cluster.slot_count,)
    if cluster.resources:
        capacity = tuple([sum(column) for column in zip(*cluster.capacities, strict=True)])

    tree = parse_shares_text(config.shares, "oracle:shares") if config.shares else None

    if config.hierarchy == "naive":
        return NaiveHierarchy(capacity, tree)
    if config.hierarchy == "collapsed":
        return flat(capacity, collapsed(tree) if tree is not None else {})
    if config.order == "hdrf":
        return hierarchical(capacity, tree)

    members = tree.members if tree is not None else ()
    if any(member.members for member in members):
        raise InputError("oracle:shares", "order=drf takes no tree of shares; give order=hdrf")
    return flat(capacity, {member.name: member.weight for member in members})


def build(cluster: Cluster, config: OracleConfig, streams: Streams) -> Deployment:
    """Build the components for a cluster.

    Raises:
        InputError: the shares are no list of weights, or do not go with the order, or patience is set for an order
            without turns.
    """
    delays = {("oracle", "node"): 0, ("node", "oracle"): 0}
    return with_nodes(cluster, ADDRESS, _scheduler(cluster, config), delays)


ORACLE = Architecture(
    name="oracle",
    summary="omniscient central scheduler without delay: the yardstick",
    source="none; the ideal that papers compare with",
    defaults=OracleConfig(),
    messages=NODE_MESSAGES,
    stages={
        Stage.J1: Realisation("Scheduler.on_submit"),
        Stage.J4: Realisation("Scheduler.on_submit", "full", "one job at a time"),
        Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last task"),
        Stage.T2: Realisation("Scheduler.on_completed", "full", "fifo, drf or hdrf, among those that fit"),
        Stage.T3: Realisation("Scheduler._schedule"),
        Stage.T4: Realisation("Scheduler._launch"),
        Stage.T5: Realisation(Node.on_launch.__qualname__, "partial", "launch without staging"),
        Stage.T7: Realisation("Scheduler.on_completed"),
        Stage.R1: Realisation("Scheduler._schedule", "full", "every slot, exactly"),
        Stage.R3: Realisation("Scheduler._schedule", "full", "constraint bit vectors"),
        Stage.R4: Realisation("Scheduler._schedule", "full", "idle slots, or enough of each resource"),
        Stage.R5: Realisation("Scheduler._schedule", "full", "minimum constraints; best fit for several resources"),
    },
    build=build,
    conformance=Conformance(hops=0, tolerates=frozenset({"duplication"})),
    features={"constraints": "", "users": "order=drf|hdrf", "amounts": ""},
)
