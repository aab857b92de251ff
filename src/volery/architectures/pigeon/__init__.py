"""Pigeon: hierarchical federated scheduling with job-oblivious distribution (Wang et al., SoCC 2019), and PigeonC.

Roles    Distributor (many, share nothing), Master (one per group), Node (one per machine).
Flow     Submit > GroupTasks > Launch > Completed (to the distributor) and Completed (to the master, an idle notice).
Deviates Idle lists are bit vectors: which of several equal idle workers runs a task changes no result. Jobs go to
         distributors round robin (the code: at random). A job of more than 4,096 tasks is dealt chunk by chunk. Masters
         fail over (section 6.1 of the paper) where `reliable` is set. PigeonC, the constraint-aware version of
         Thiyyakat et al. (IoT 2023, section 4.2), is a preset. See docs/papers.md.
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from volery.architectures.pigeon.captions import CAPTIONS
from volery.architectures.pigeon.distributor import Distribution, Distributor
from volery.architectures.pigeon.groups import ConstraintCounting, Group, GroupSupply, divide
from volery.architectures.pigeon.master import Master, Node, WeightCounting
from volery.architectures.pigeon.messages import MESSAGES
from volery.architectures.pigeon.recovery import (
    SURVIVING_MESSAGES,
    SurvivingDistributor,
    SurvivingMaster,
    surviving,
)
from volery.core.bounds import Components, Count, OptionalComponents, Period, Seconds
from volery.core.component import Architecture, Component, Deployment
from volery.core.model import SECOND, Address, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import MatchPolicy
from volery.roles.recovery.leases import Lease


class PigeonConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of Pigeon and PigeonC."""

    distributors: Annotated[Components, msgspec.Meta(description="distributors (schedulers)")] = 10
    groups: Annotated[
        OptionalComponents, msgspec.Meta(description="groups, each under a master; 0: one per 100 workers (section 4)")
    ] = 0
    group_sizes: Annotated[
        tuple[int, ...],
        msgspec.Meta(description="machines per group, for unequal groups weighted by power (section 6.2)"),
    ] = ()
    reserved: Annotated[Count, msgspec.Meta(description="workers per group that run short tasks only")] = 9
    weight: Annotated[
        Count, msgspec.Meta(description="W: one of W dispatches is long while long tasks wait; 0: infinite")
    ] = 20
    weight_counting: Annotated[
        WeightCounting, msgspec.Meta(description="published-code: weight + 1 short ones pass, and all are counted")
    ] = "paper"
    cutoff_s: Annotated[
        Seconds, msgspec.Meta(description="jobs with at most this mean task duration are short, seconds")
    ] = 1129.532
    distribution: Annotated[
        Distribution, msgspec.Meta(description="even with random remainder, or weighted by suitable workers")
    ] = "even"
    match: Annotated[MatchPolicy, msgspec.Meta(description="which suitable worker is taken")] = "random"
    constraint_counting: Annotated[
        ConstraintCounting,
        msgspec.Meta(description="published-code: weak workers count as strong ones, as in PigeonC's public code"),
    ] = "exact"
    reliable: Annotated[
        bool, msgspec.Meta(description="bear faults: two masters per group, leases, reliable messages (section 6.1)")
    ] = False
    detection_s: Annotated[
        Period, msgspec.Meta(description="a peer that does not answer is given up within this, seconds")
    ] = 1.0


GROUP_WORKERS = 100


def build(cluster: Cluster, config: PigeonConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: groups that the cluster cannot be cut into.
    """
    group_count = config.groups or max(1, len(cluster.constraints) // GROUP_WORKERS)
    groups = divide(cluster, group_count, config.group_sizes, config.reserved)
    supply = GroupSupply(groups, config.constraint_counting)
    if config.reliable:
        return build_surviving(groups, supply, config, streams)
    components: dict[str, Component] = {}
    machines: dict[str, int] = {}
    for number in range(config.distributors):
        address = f"distributor/{number}"
        components[address] = Distributor(
            supply,
            distribution=config.distribution,
            cutoff_us=round(config.cutoff_s * 1_000_000),
            stream=streams.of(address),
        )
    for number, group in enumerate(groups):
        master = f"master/{number}"
        components[master] = Master(
            group,
            weight=config.weight,
            weight_counting=config.weight_counting,
            match=config.match,
            stream=streams.of(master),
        )
        for address, machine in zip(group.node_of, group.machines, strict=True):
            if address not in machines:
                machines[address] = machine
                components[address] = Node(master)
    return Deployment(components, machines, lambda job: f"distributor/{job % config.distributors}")


def build_surviving(groups: list[Group], supply: GroupSupply, config: PigeonConfig, streams: Streams) -> Deployment:
    """Components of which masters and nodes may crash."""

    def distributor(address: Address) -> SurvivingDistributor:
        return SurvivingDistributor(
            supply=supply,
            distribution=config.distribution,
            cutoff_us=round(config.cutoff_s * SECOND),
            stream=streams.of(address),
        )

    distributors = [f"distributor/{number}" for number in range(config.distributors)]

    def master(group: Group, number: int, me: int, lease: Lease, address: Address, incarnation: int) -> SurvivingMaster:
        return SurvivingMaster(
            group,
            number,
            me,
            distributors,
            lease,
            incarnation,
            weight=config.weight,
            weight_counting=config.weight_counting,
            match=config.match,
            stream=streams.of(address, incarnation),
        )

    return surviving(groups, distributor, master, config.distributors, round(config.detection_s * SECOND))


STAGES = {
    Stage.J1: Realisation("Distributor.on_submit"),
    Stage.J4: Realisation("Distributor.on_submit", "full", "distributors in parallel"),
    Stage.J6: Realisation("Distributor.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("Master._next", "full", "two weighted fair queues"),
    Stage.T3: Realisation("Distributor._distribute"),
    Stage.M2: Realisation("Distributor._distribute", "full", "distributors over masters"),
    Stage.M3: Realisation("Distributor._distribute", "full", "all masters"),
    Stage.M4: Realisation("Distributor._draw", "partial", "masters with a suitable worker, whether idle or not"),
    Stage.M5: Realisation("Distributor._distribute", "full", "even with random remainder, or weighted by supply"),
    Stage.M6: Realisation("Master.on_group_tasks"),
    Stage.T4: Realisation("Master._launch"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T7: Realisation("Master.on_completed", "full", "idle notice"),
    Stage.T11: Realisation("SurvivingDistributor.on_lost", "full", "another attempt in its group", "reliable=true"),
    Stage.R1: Realisation("Master.on_completed", "full", "idle workers of the group"),
    Stage.R2: Realisation("Master.on_group_tasks", "partial", "reserved workers run short tasks only"),
    Stage.R3: Realisation("Master.on_group_tasks", "full", "constraint bit vectors"),
    Stage.R4: Realisation("Master.on_group_tasks", "full", "idle vector"),
    Stage.R5: Realisation("Master.on_group_tasks", "full", "random or minimum constraints"),
}

PIGEON = Architecture(
    name="pigeon",
    summary="federated: distributors deal tasks evenly to masters, each master serves two weighted fair queues",
    source="Z. Wang, H. Li, Z. Li, X. Sun, J. Rao, H. Che, H. Jiang: Pigeon, SoCC 2019, sections 2 and 6.2",
    defaults=PigeonConfig(),
    messages=MESSAGES | SURVIVING_MESSAGES,
    stages=STAGES,
    build=build,
    hops=3,
    tolerates=frozenset({"loss", "duplication", "delay", "partition", "crash:master", "crash:node"}),
    bearing={"reliable": True, "groups": 3, "reserved": 1, "distributors": 3, "weight": 3, "cutoff_s": 0.5},
    features={"constraints": ""},
    captions=CAPTIONS,
)

PIGEONC = msgspec.structs.replace(
    PIGEON,
    name="pigeonc",
    summary="constraint-aware Pigeon: masters drawn by the number of suitable workers, no reserved workers",
    source="Thiyyakat, Kalambur, Sitaram: Constraint-Aware Federated Scheduling, IoT 2023, section 4.2",
    defaults=PigeonConfig(reserved=0, distribution="supply"),
    stages={stage: found for stage, found in STAGES.items() if stage is not Stage.R2},
    bearing={"reliable": True, "groups": 3, "distributors": 3, "weight": 3, "cutoff_s": 0.5},
)
