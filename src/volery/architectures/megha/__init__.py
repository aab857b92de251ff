"""Megha: federated scheduling on an eventually consistent view (Thiyyakat et al., IoT 2023; arXiv 2103.08413).

Roles    GlobalMaster (matches on a view of all clusters), LocalMaster (truth of one cluster), Node (one per machine).
Flow     Submit > Request > (valid) Launch > Completed > Ended | (invalid) Inconsistency > Request ...; Update.
Deviates A GM retries an invalid placement at once (eager_retry; the published code waits for the next free unit), looks
         for partitions round robin over Local Masters (the code: always from the first), matches queued tasks against
         every unit that it learns to be free, and the last state of a unit wins within an update (the code: "busy"
         before "available"). Where machines offer several resources, amounts stand in for the available bit.
         megha-2021 (arXiv 2103.08413): a GM hears of the ends of its own tasks at once, because it answers for their
         jobs (the paper: with the next update). With `shares` a preemption is validated by the loser's GM too, and
         nobody loses what it is due: docs/decisions/0011. docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Annotated, Any, Literal

import msgspec

from volery.architectures.megha.allocations import SlotAllocations
from volery.architectures.megha.amounts import AmountAllocations
from volery.architectures.megha.captions import CAPTIONS
from volery.architectures.megha.explaining import (
    ExplainingFairMaster,
    ExplainingFairSurvivor,
    ExplainingMaster,
    ExplainingSurvivor,
    ExplainingVectorMaster,
    ExplainingVectorSurvivor,
)
from volery.architectures.megha.fair_gm import FairGlobalMaster
from volery.architectures.megha.global_master import GlobalMaster, MeghaMatch
from volery.architectures.megha.layout import Layout
from volery.architectures.megha.local_master import CompletionNotice, LocalMaster, Updates
from volery.architectures.megha.messages import MESSAGES
from volery.architectures.megha.recovery import Alone, Paired
from volery.architectures.megha.shares import NoShares, WeightedShares
from volery.architectures.megha.sharing import Sharing
from volery.architectures.megha.surviving import Survival
from volery.architectures.megha.surviving_fair_gm import SurvivingFairMaster
from volery.architectures.megha.surviving_gm import SurvivingGlobalMaster
from volery.architectures.megha.surviving_vector_gm import SurvivingVectorMaster
from volery.architectures.megha.vector_gm import Rescheduling, VectorGlobalMaster
from volery.architectures.megha.vector_layout import VectorLayout
from volery.core.bounds import Components, Count, Period, PositiveCount
from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import Node

Preempted = Literal["restart", "keep"]


class MeghaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of Megha."""

    gms: Annotated[Components, msgspec.Meta(description="Global Masters; partitions per Local Master")] = 5
    lms: Annotated[Components, msgspec.Meta(description="Local Masters; clusters")] = 5
    match: Annotated[MeghaMatch, msgspec.Meta(description="which suitable worker is taken (section 4.3)")] = "random"
    heartbeat_s: Annotated[Period, msgspec.Meta(description="period of updates to the GMs, seconds")] = 5.0
    batch_max: Annotated[PositiveCount, msgspec.Meta(description="placements per request to a Local Master")] = 100
    updates: Annotated[Updates, msgspec.Meta(description="what an update carries (section 4.4)")] = "deltas"
    completion_notice: Annotated[
        CompletionNotice, msgspec.Meta(description="own completions: notice once, or again in the next update (4.4)")
    ] = "once"
    eager_retry: Annotated[
        bool, msgspec.Meta(description="place a refused task at once; false: the published code")
    ] = True
    ask: Annotated[
        bool,
        msgspec.Meta(description="a GM with waiting tasks asks LMs for news; false: it waits for updates (the paper)"),
    ] = False
    queue_max: Annotated[
        Count, msgspec.Meta(description="tasks waiting at a GM before jobs are refused; 0: no limit")
    ] = 0
    reliable: Annotated[
        bool,
        msgspec.Meta(
            description="bear faults: reliable messages, two Local Masters per cluster, leases of nodes (2021, IV-D)"
        ),
    ] = False
    detection_s: Annotated[
        Period, msgspec.Meta(description="a peer that does not answer is given up within this, seconds")
    ] = 1.0
    repartition: Annotated[
        bool, msgspec.Meta(description="external machines lend logical nodes (2021, IV-B4), else are requested as such")
    ] = False
    rescheduling: Annotated[
        Rescheduling, msgspec.Meta(description="a refused task that fits nowhere goes to this end (2021: tail, IV-B5)")
    ] = "head"
    shares: Annotated[
        str, msgspec.Meta(description="tree of users and weights, as a:1+b:2(c:1+d:1); empty: no fairness (2021, IV-C)")
    ] = ""
    queues: Annotated[
        str, msgspec.Meta(description="the GM of each user of the tree, in order, as 0+1+1+2; empty: in turn")
    ] = ""
    preempted: Annotated[
        Preempted, msgspec.Meta(description="preempted tasks start anew, or keep what they have done (lab only)")
    ] = "restart"
    why: Annotated[bool, msgspec.Meta(description="GMs report why each task was placed, or not: volery why")] = False


def build(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more partitions than machines.
    """
    if config.shares:
        return build_fair(cluster, config, streams)
    if cluster.resources or config.repartition or config.rescheduling == "tail":
        return build_vectors(cluster, config, streams)
    layout = Layout(cluster, config.gms, config.lms)
    if config.reliable:
        return build_surviving(layout, config, streams)
    role = ExplainingMaster if config.why else GlobalMaster
    return _with_nodes(_masters(layout, config, streams, role), layout)


def _gm_arguments(config: MeghaConfig) -> dict[str, Any]:
    """What every Global Master takes beside its number, the layout and its stream."""
    return {
        "match": config.match,
        "batch_max": config.batch_max,
        "eager_retry": config.eager_retry,
        "queue_max": config.queue_max,
        "ask": config.ask,
    }


def _local_master(
    lm: int, layout: Layout, config: MeghaConfig, recovery: Alone | Paired, sharing: Sharing | None = None
) -> LocalMaster:
    """A Local Master of slots or amounts, of users with shares or without, alone or one of a pair."""
    partitions = layout.partitions_of_lm(lm)
    snapshots, twice = config.updates == "snapshots", config.completion_notice == "twice"
    shares: NoShares | WeightedShares = NoShares()
    allocations: SlotAllocations | AmountAllocations
    if isinstance(layout, VectorLayout):
        allocations = AmountAllocations(
            layout, partitions, snapshots=snapshots, twice=twice, repartition=config.repartition
        )
        if sharing is not None:
            shares = WeightedShares(sharing.others, allocations)
    else:
        allocations = SlotAllocations(layout, partitions, snapshots=snapshots, twice=twice)
    heartbeat_us = round(config.heartbeat_s * SECOND)
    return LocalMaster(
        layout, partitions, heartbeat_us=heartbeat_us, allocations=allocations, shares=shares, recovery=recovery
    )


def _placing(config: MeghaConfig) -> dict[str, Any]:
    """What a Global Master takes beside that where tasks ask for amounts."""
    return {"rescheduling": config.rescheduling}


def _masters(
    layout: Layout,
    config: MeghaConfig,
    streams: Streams,
    gm_role: Callable[..., Component],
    gm_also: Mapping[str, Any] = {},
    sharing: Sharing | None = None,
) -> dict[str, Component]:
    """The masters; what only this role of Global Masters takes is in `gm_also`."""
    components: dict[str, Component] = {}
    for gm in range(config.gms):
        address = f"gm/{gm}"
        components[address] = gm_role(gm, layout, stream=streams.of(address), **_gm_arguments(config), **gm_also)
    for lm in range(config.lms):
        components[f"lm/{lm}"] = _local_master(lm, layout, config, Alone(), sharing)
    return components


def build_vectors(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster whose machines offer several resources; slots are one resource of them."""
    layout = VectorLayout(cluster, config.gms, config.lms)
    if config.reliable:
        return Survival(
            layout,
            streams,
            ExplainingVectorSurvivor if config.why else SurvivingVectorMaster,
            _gm_arguments(config) | _placing(config),
            partial(_local_master, layout=layout, config=config),
            round(config.detection_s * SECOND),
        ).deployment()
    role = ExplainingVectorMaster if config.why else VectorGlobalMaster
    return _with_nodes(_masters(layout, config, streams, role, _placing(config)), layout)


def build_fair(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster that users have shares of.

    Raises:
        InputError: more partitions than machines; the shares or queues are malformed; progress is to be kept where
            components may crash.
    """
    layout = VectorLayout(cluster, config.gms, config.lms)
    sharing = Sharing(config.shares, config.queues, cluster, config.gms)
    role = ExplainingFairMaster if config.why else FairGlobalMaster
    fair = {"sharing": sharing, "spared_us": round(config.heartbeat_s * SECOND)}
    also = {**_placing(config), **fair}
    if config.reliable:
        if config.preempted == "keep":
            raise InputError("megha:preempted", "must be restart where reliable is set: a crash keeps no progress")
        deployment = Survival(
            layout,
            streams,
            ExplainingFairSurvivor if config.why else SurvivingFairMaster,
            _gm_arguments(config) | also,
            partial(_local_master, layout=layout, config=config, sharing=sharing),
            round(config.detection_s * SECOND),
        ).deployment()
    else:
        components = _masters(layout, config, streams, role, also, sharing)
        deployment = _with_nodes(components, layout)
    return msgspec.structs.replace(
        deployment,
        entry_of_user={name: f"gm/{gm}" for name, gm in zip(sharing.names, sharing.gm_of, strict=False)},
        guaranteed_shares=sharing.due(),
        weight_subscribers=tuple(f"gm/{gm}" for gm in range(config.gms)),
        shares=sharing.shares,
        keeps_progress=config.preempted == "keep",
    )


def _with_nodes(components: dict[str, Component], layout: Layout) -> Deployment:
    machines: dict[str, int] = {}
    for partition, lm in enumerate(layout.lm_of):
        master = f"lm/{lm}"  # one string for all nodes: a hundred thousand of them would be memory traffic
        for address, machine in zip(layout.nodes[partition], layout.machines[partition], strict=True):
            if address not in machines:
                machines[address] = machine
                components[address] = Node(master)

    def owners_of(node: Address) -> tuple[Address, ...]:
        return tuple({f"lm/{lm}": None for lm, nodes in zip(layout.lm_of, layout.nodes, strict=True) if node in nodes})

    return Deployment(
        components,
        machines,
        lambda job: f"gm/{job % layout.gm_count}",
        {("node", "lm"): 0},
        owners_of=owners_of,
        answers_queries=True,
    )


def build_surviving(layout: Layout, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for slots of which any may crash.

    Raises:
        InputError: a parameter has a value that they do not know.
    """
    for name, value in {"updates": "deltas", "completion_notice": "once", "eager_retry": True}.items():
        if getattr(config, name) != value:
            raise InputError(f"megha:{name}", f"must be {value} where reliable is set, not {getattr(config, name)}")
    return Survival(
        layout,
        streams,
        ExplainingSurvivor if config.why else SurvivingGlobalMaster,
        _gm_arguments(config),
        partial(_local_master, layout=layout, config=config),
        round(config.detection_s * SECOND),
    ).deployment()


STAGES = {
    Stage.J1: Realisation("GlobalMaster.on_submit"),
    Stage.J2: Realisation("GlobalMaster.on_submit", "partial", "refused while the queue is full"),
    Stage.J4: Realisation("GlobalMaster.on_submit", "full", "one job at a time, GMs in parallel"),
    Stage.J6: Realisation("GlobalMaster.on_ended", "full", "JobDone after the last task"),
    Stage.T2: Realisation("GlobalMaster._offer", "full", "first come first served among the tasks that fit"),
    Stage.T3: Realisation("GlobalMaster._place"),
    Stage.T4: Realisation("LocalMaster.on_request", "full", "validation"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T6: Realisation("LocalMaster.on_timer", "partial", "heartbeats tell what is free, not how far tasks are"),
    Stage.T7: Realisation("LocalMaster.on_completed"),
    Stage.T10: Realisation(
        "FairGlobalMaster._maybe_preempt", "full", "youngest tasks of who exceeds its share most", "shares=a:1+b:1"
    ),
    Stage.T11: Realisation(
        "SurvivingGlobalMaster.on_lost", "full", "another attempt, before all that waits", "reliable=true"
    ),
    Stage.M2: Realisation("GlobalMaster._request", "full", "every task goes by the Local Master of its machine"),
    Stage.M3: Realisation("GlobalMaster._search", "full", "the partitions of all LMs, the GM's own first"),
    Stage.M4: Realisation("GlobalMaster._search", "full", "partitions with something free in the view"),
    Stage.M5: Realisation("GlobalMaster._search", "full", "round robin over LMs, own partitions first"),
    Stage.M6: Realisation("GlobalMaster._request", "full", "a batch of tasks with the machines that they shall have"),
    Stage.R1: Realisation("GlobalMaster.on_update", "full", "the GM's view of all clusters"),
    Stage.R3: Realisation("GlobalMaster._place", "full", "constraint bit vectors"),
    Stage.R4: Realisation("GlobalMaster._place", "full", "availability bit vector"),
    Stage.R5: Realisation("GlobalMaster._place", "full", "random or minimum constraints"),
}

HIERARCHY = (Stage.M2, Stage.M3, Stage.M4, Stage.M5)
"""What a scheduler with one Local Master has no use for."""

MEGHA = Architecture(
    name="megha",
    summary="federated: Global Masters match on a stale view, Local Masters validate",
    source="Thiyyakat, Kalambur, Sitaram: Constraint-Aware Federated Scheduling, IoT 2023, section 4",
    defaults=MeghaConfig(),
    messages=MESSAGES,
    stages=STAGES,
    build=build,
    hops=3,
    tolerates=frozenset({"loss", "duplication", "delay", "partition", "crash:gm", "crash:lm", "crash:node", "gone:gm"}),
    bearing={"reliable": True, "gms": 3, "lms": 2, "heartbeat_s": 1.0},
    live={"ask": True},
    vectors=True,
    features={"constraints": "", "users": "shares"},
    captions=CAPTIONS,
)

CENTRAL = msgspec.structs.replace(
    MEGHA,
    name="central",
    summary="Megha with one Global Master and one Local Master: a central scheduler",
    source="Thiyyakat et al., arXiv 2103.08413, section V (centralised counterpart)",
    defaults=MeghaConfig(gms=1, lms=1),
    tolerates=MEGHA.tolerates - {"gone:gm"},
    bearing={"reliable": True},
    stages={
        **{stage: found for stage, found in STAGES.items() if stage not in HIERARCHY},
        Stage.M6: Realisation("GlobalMaster._request", "partial", "to the only Local Master"),
        Stage.R1: Realisation("GlobalMaster.on_ended", "full", "the GM's view, exact: nobody else places"),
    },
)

MEGHA_2021 = msgspec.structs.replace(
    MEGHA,
    name="megha-2021",
    summary="the first Megha: amounts of several resources, repartition, full states, rescheduling at the tail",
    source="Thiyyakat, Kalambur, Sitaram: Megha, arXiv 2103.08413 (2021), section IV",
    defaults=MeghaConfig(
        match="min-constraints",
        heartbeat_s=10.0,
        batch_max=1,
        updates="snapshots",
        repartition=True,
        rescheduling="tail",
    ),
    fuzzed={
        "updates": ("snapshots", "snapshots", "deltas"),
        "batch_max": (1, 1, 100),
        "match": ("min-constraints", "random", "best-fit"),
        "rescheduling": ("tail", "tail", "head"),
        "completion_notice": ("once", "once", "twice"),
        "eager_retry": (True, True, False),
        "shares": ("", "", "a:1+b:2+c:1", "c:3+org:2(a:1+b:4)"),
    },
    stages={
        Stage.J1: Realisation("VectorGlobalMaster.on_submit"),
        Stage.J2: Realisation("VectorGlobalMaster.on_submit", "partial", "refused while the queue is full"),
        Stage.J4: Realisation("VectorGlobalMaster.on_submit", "full", "one job at a time, GMs in parallel"),
        Stage.J6: Realisation("VectorGlobalMaster.on_ended", "full", "JobDone after the last task"),
        Stage.T2: Realisation("VectorGlobalMaster._offer", "full", "first come first served among the tasks that fit"),
        Stage.T3: Realisation("VectorGlobalMaster._place"),
        Stage.T4: Realisation("LocalMaster.on_request", "full", "validation, repartition"),
        Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
        Stage.T6: Realisation("LocalMaster.on_timer", "partial", "full states tell what is free, no progress"),
        Stage.T7: Realisation("LocalMaster.on_completed"),
        Stage.T10: Realisation(
            "FairGlobalMaster._maybe_preempt", "full", "youngest tasks of who exceeds its share most", "shares=a:1+b:1"
        ),
        Stage.T11: Realisation(
            "SurvivingVectorMaster.on_lost", "full", "another attempt, before all that waits", "reliable=true"
        ),
        Stage.M2: Realisation("VectorGlobalMaster._request", "full", "every task goes by the LM of its machine"),
        Stage.M3: Realisation("VectorGlobalMaster._find", "full", "the partitions of all LMs, the GM's own first"),
        Stage.M4: Realisation("VectorGlobalMaster._find", "full", "partitions with enough free in the view"),
        Stage.M5: Realisation("VectorGlobalMaster._find", "full", "round robin over LMs, own partitions first"),
        Stage.M6: Realisation("VectorGlobalMaster._request", "full", "requests, and repartitions of another's machine"),
        Stage.R1: Realisation("VectorGlobalMaster.on_state_update", "full", "the GM's view of all clusters"),
        Stage.R3: Realisation("VectorGlobalMaster._find", "full", "constraint bit vectors"),
        Stage.R4: Realisation("VectorGlobalMaster._find", "full", "bit vectors of free capacity"),
        Stage.R5: Realisation("VectorGlobalMaster._find", "full", "the first machine that fits"),
    },
)
