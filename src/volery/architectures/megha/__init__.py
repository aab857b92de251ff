"""Megha: federated scheduling on an eventually consistent view (Thiyyakat et al., IoT 2023; arXiv 2103.08413).

Roles    GlobalMaster (matches on a view of all clusters), LocalMaster (truth of one cluster), Node (one per machine).
Flow     Submit > Request > (valid) Launch > Completed > TasksEnded | (invalid) Refusal > Request ...; StateUpdate.
Deviates A GM retries an invalid placement at once (eager_retry; the published code waits for the next free unit), looks
         for partitions round robin over Local Masters (the code: always from the first), matches queued tasks against
         every unit that it learns to be free, and the last state of a unit wins within an update (the code: "busy"
         before "available"). Where machines offer several resources, amounts stand in for the available bit.
         megha-2021 (arXiv 2103.08413): a GM receives the ends of its own tasks at once, because it answers for their
         jobs (the paper: with the next update). With `shares` a preemption is validated by the loser's GM too, and
         nobody loses what it is due: docs/decisions/0011. Users below their share come first, a standby receives
         results alone, and GMs ask for what they need after a crash: docs/decisions/0010. Readings as printed:
         match=first, turns=round-robin, preemption=paper, recovery=paper (heartbeats are sent where there is news).
         docs/papers.md.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import Annotated, Literal

import msgspec

from volery.architectures.megha.allocations import SlotAllocations
from volery.architectures.megha.amounts import AmountAllocations
from volery.architectures.megha.capacity_view import CapacityView
from volery.architectures.megha.decisions import DecisionNarrator, SilentNarrator
from volery.architectures.megha.fairness import NoFairness, WeightedFairness
from volery.architectures.megha.global_master import GlobalMaster, MasterParts, Rescheduling
from volery.architectures.megha.local_master import CompletionNotice, LocalMaster, Updates
from volery.architectures.megha.messages import CAPTIONS, MESSAGES
from volery.architectures.megha.partitions import Capacities, Layout, SearchOrder
from volery.architectures.megha.recovery import Paired, pair_of
from volery.architectures.megha.reports import NoReports, ReportRecovery
from volery.architectures.megha.shares import ClaimTable, WeightedShares
from volery.architectures.megha.users import Users
from volery.architectures.megha.view import MeghaMatch, SlotView
from volery.core.bounds import Components, Count, Period, PositiveCount
from volery.core.capabilities import CrashRecovery, Draining, DueShares, Resumption
from volery.core.component import Architecture, Component, Deployment, role_of
from volery.core.errors import InputError
from volery.core.events import Reassignment
from volery.core.model import SECOND, Address, Cluster, Time
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import Node
from volery.roles.recovery.channel import Linking
from volery.roles.recovery.leases import GuardedNode, Lease

Preempted = Literal["restart", "keep"]
RecoveryRule = Literal["asked", "paper"]
PreemptionRule = Literal["agreed", "paper"]
Turns = Literal["short-first", "round-robin"]


class MeghaConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Parameters of Megha, of the first Megha and of the central scheduler."""

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
    recovery: Annotated[
        RecoveryRule,
        msgspec.Meta(
            description="GMs ask, and place again what died; paper: with heartbeats, and LMs relaunch (2021, IV-D)"
        ),
    ] = "asked"
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
    turns: Annotated[
        Turns, msgspec.Meta(description="a GM's users: below their share first, or in turn alone (2021, IV-C)")
    ] = "short-first"
    preemption: Annotated[
        PreemptionRule,
        msgspec.Meta(description="the loser's GM agrees and nobody loses its share; paper: algorithm 2 as printed"),
    ] = "agreed"
    preempted: Annotated[
        Preempted, msgspec.Meta(description="preempted tasks start anew, or keep what they have done (lab only)")
    ] = "restart"
    why: Annotated[bool, msgspec.Meta(description="GMs report why each task was placed, or not: volery why")] = False


def build(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more partitions than machines; the shares or queues are malformed; a parameter of shares is given
            without any; progress is to be kept where components may crash; recovery is chosen where none may.
    """
    if config.recovery == "paper" and not config.reliable:
        raise InputError("megha:recovery", "paper is a way to recover, and nothing may crash; set reliable=true")
    if not config.shares:
        _check_unshared(config)
    assembly = MasterAssembly(cluster, config, streams)
    deployment = assembly.recoverable() if config.reliable else assembly.deployment()
    users = assembly.users
    if users is None:
        return deployment
    if config.reliable and config.preempted == "keep":
        raise InputError("megha:preempted", "must be restart where reliable is set: a crash keeps no progress")
    guaranteed = users.due() if config.preemption == "agreed" else {}
    return msgspec.structs.replace(
        deployment,
        entry_of_user={name: f"gm/{gm}" for name, gm in zip(users.names, users.gm_of, strict=False)},
        capabilities=(
            *deployment.capabilities,
            DueShares(guaranteed, users.shares, tuple(f"gm/{gm}" for gm in range(config.gms))),
            Resumption(preempted=config.preempted == "keep"),
        ),
    )


def _check_unshared(config: MeghaConfig) -> None:
    for name in ("queues", "turns", "preemption", "preempted"):
        given, default = getattr(config, name), getattr(MeghaConfig(), name)
        if given != default:
            raise InputError(
                f"megha:{name}", f"{given!r} is of users with shares, and shares is empty; give shares, or leave {name}"
            )


class MasterAssembly:
    """Assembly of masters from parts: one view, account, recovery and narrator for each set of parameters.

    Args:
        streams: of random choices, per address and incarnation.

    Attributes:
        users: who shares the cluster; None: nobody has a share.
    """

    def __init__(self, cluster: Cluster, config: MeghaConfig, streams: Streams) -> None:
        lent = config.repartition or config.rescheduling == "tail"
        by_machine = bool(cluster.resources or lent or config.shares)
        self._config = config
        self._as_printed = config.recovery == "paper"
        self._streams = streams
        in_order = config.match == "first"
        self._layout = Layout(cluster, config.gms, config.lms, by_machine=by_machine, in_order=in_order)
        self._capacities = Capacities(cluster, self._layout) if by_machine else None
        self.users = Users(config.shares, config.queues, cluster, config.gms) if config.shares else None
        self._heartbeat_us = round(config.heartbeat_s * SECOND)
        self._machines: dict[Address, int] = {}
        self._lm_of: dict[Address, int] = {}
        for partition, lm in enumerate(self._layout.lm_of):
            nodes, machines = self._layout.nodes[partition], self._layout.machines[partition]
            for address, machine in zip(nodes, machines, strict=True):
                if address not in self._machines:
                    self._machines[address] = machine
                    self._lm_of[address] = lm

    def global_master(self, gm: int, incarnation: int = 0) -> GlobalMaster:
        """One of the Global Masters."""
        config, stream = self._config, self._streams.of(f"gm/{gm}", incarnation)
        recovery = partial(ReportRecovery, gm, incarnation, printed=self._as_printed) if config.reliable else None
        search, spared_us = SearchOrder(self._layout, gm), self._heartbeat_us
        parts = partial(
            _master_parts, config, self._layout, self._capacities, self.users, search, stream, spared_us, recovery,
        )  # fmt: skip
        return GlobalMaster(
            gm,
            self._layout,
            parts,
            batch_max=config.batch_max,
            eager_retry=config.eager_retry,
            rescheduling=config.rescheduling,
            queue_max=config.queue_max,
            ask=config.ask,
        )

    def local_master(self, lm: int, me: int = 0, lease: Lease | None = None, incarnation: int = 0) -> LocalMaster:
        """One of the Local Masters; with a lease one of a pair, which may crash."""
        config, layout, partitions = self._config, self._layout, self._layout.partitions_of_lm(lm)
        is_snapshot, is_twice = config.updates == "snapshots", config.completion_notice == "twice"
        preemptions: Callable[..., WeightedShares] | None = None
        pair: Callable[..., Paired] | None = None
        allocations: Callable[..., SlotAllocations | AmountAllocations] = partial(
            SlotAllocations, layout=layout, partitions=partitions, snapshots=is_snapshot, twice=is_twice
        )
        if self._capacities is not None:
            claims = ClaimTable()
            allocations = partial(
                AmountAllocations,
                layout=layout,
                capacities=self._capacities,
                partitions=partitions,
                snapshots=is_snapshot,
                twice=is_twice,
                repartition=config.repartition,
                reservations=claims,
                can_crash=config.reliable,
            )
            if self.users is not None:
                preemptions = partial(
                    WeightedShares,
                    claims=claims,
                    layout=layout,
                    partitions=partitions,
                    others=self.users.others,
                    printed=config.preemption == "paper",
                    can_crash=config.reliable,
                )
        if lease is not None:
            nodes = tuple(dict.fromkeys(node for partition in partitions for node in layout.nodes[partition]))
            pair = partial(
                Paired, nodes=nodes, lm=lm, me=me, lease=lease, incarnation=incarnation, printed=self._as_printed
            )
        return LocalMaster(
            layout,
            partitions,
            heartbeat_us=self._heartbeat_us,
            allocations=allocations,
            preemptions=preemptions,
            pair=pair,
        )

    def deployment(self) -> Deployment:
        """Components of which none may crash."""
        components: dict[str, Component] = {}
        for gm in range(self._config.gms):
            components[f"gm/{gm}"] = self.global_master(gm)
        for lm in range(self._config.lms):
            components[f"lm/{lm}"] = self.local_master(lm)
        masters = [f"lm/{lm}" for lm in range(self._config.lms)]  # one string for all nodes of a cluster
        for address, lm in self._lm_of.items():
            components[address] = Node(masters[lm])
        return Deployment(
            components,
            self._machines,
            lambda job: f"gm/{job % self._config.gms}",
            {("node", "lm"): 0},
            (Draining(lambda node: (masters[self._lm_of[node]],) if node in self._lm_of else ()),),
        )

    def recoverable(self) -> Deployment:
        """Components of which each may crash, linked, with two Local Masters per cluster."""
        lease, linking = Lease(round(self._config.detection_s * SECOND)), Linking(MESSAGES)
        gms = [f"gm/{gm}" for gm in range(self._config.gms)]
        pairs = [pair_of(lm) for lm in range(self._config.lms)]

        def component(address: Address, incarnation: int) -> Component:
            role = role_of(address)
            if role == "node":
                node = GuardedNode(pairs[self._lm_of[address]], lease, incarnation, tells_owner=False)
                return linking.around(node, incarnation)
            number = int(address.split("/")[1])
            if role == "gm":
                gm = self.global_master(number, incarnation)
                return linking.around(gm, incarnation, gm.heeds)
            master = self.local_master(number, pairs[number].index(address), lease, incarnation)
            return linking.around(master, incarnation)

        addresses = gms + [lm for pair in pairs for lm in pair] + list(self._machines)
        detector_pairs = [*pairs, *((lm, node) for node, at in self._lm_of.items() for lm in pairs[at])]
        return Deployment(
            {address: component(address, 0) for address in addresses},
            self._machines,
            lambda job: gms[job % len(gms)],
            {("node", "lm"): 0},
            (
                CrashRecovery(component, tuple(detector_pairs), lease.detection_us, tuple(gms), takes_back=True),
                Draining(lambda node: pairs[self._lm_of[node]] if node in self._lm_of else ()),
            ),
        )


def _master_parts(
    config: MeghaConfig, layout: Layout, capacities: Capacities | None, users: Users | None,
    search: SearchOrder, stream: Random, spared_us: Time,
    recovery: Callable[[tuple[Reassignment, ...]], ReportRecovery] | None, moves: tuple[Reassignment, ...],
) -> MasterParts:  # fmt: skip
    """Parts of a Global Master that knows nothing but these moves of jobs."""
    fairness: NoFairness | WeightedFairness = NoFairness()
    view: SlotView | CapacityView
    if capacities is None:
        view = SlotView(layout, search, match=config.match, stream=stream)
    else:
        view = CapacityView(layout, capacities, search, match=config.match, stream=stream)
        if users is not None:
            printed, in_turn = config.preemption == "paper", config.turns == "round-robin"
            fairness = WeightedFairness(users, spared_us, view, printed=printed, in_turn=in_turn)
    narrator = DecisionNarrator() if config.why else SilentNarrator()
    if recovery is None:
        return MasterParts(view, fairness, NoReports(), narrator)
    return MasterParts(view, fairness, recovery(moves), narrator)


def _stages(view: str) -> dict[Stage, Realisation]:
    """Methods that realise stages, those of this view among them."""
    find, place = f"{view}._find", f"{view}.place"
    return {
        Stage.J1: Realisation("GlobalMaster.on_submit"),
        Stage.J2: Realisation("GlobalMaster.on_submit", "partial", "refused while the queue is full"),
        Stage.J4: Realisation("GlobalMaster.on_submit", "full", "one job at a time, GMs in parallel"),
        Stage.J6: Realisation("GlobalMaster.on_tasks_ended", "full", "JobDone after the last task"),
        Stage.T2: Realisation(f"{view}.offer", "full", "first come first served among the tasks that fit"),
        Stage.T3: Realisation(place),
        Stage.T4: Realisation("LocalMaster.on_request", "full", "validation"),
        Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
        Stage.T6: Realisation("LocalMaster.on_timer", "partial", "heartbeats tell what is free, not how far tasks are"),
        Stage.T7: Realisation("LocalMaster.on_completed"),
        Stage.T10: Realisation(
            "WeightedFairness.enforce", "full", "youngest tasks of who exceeds its share most", "shares=a:1+b:1"
        ),
        Stage.T11: Realisation(
            "ReportRecovery.on_attempts_lost", "full", "another attempt, before all that waits", "reliable=true"
        ),
        Stage.M2: Realisation("GlobalMaster.request", "full", "every task goes by the Local Master of its machine"),
        Stage.M3: Realisation(find, "full", "the partitions of all LMs, the GM's own first"),
        Stage.M4: Realisation(find, "full", "partitions with something free in the view"),
        Stage.M5: Realisation(find, "full", "round robin over LMs, own partitions first"),
        Stage.M6: Realisation(
            "GlobalMaster.request", "full", "a batch of tasks with the machines that they shall have"
        ),
        Stage.R1: Realisation("GlobalMaster.on_update", "full", "the GM's view of all clusters"),
        Stage.R3: Realisation(place, "full", "constraint bit vectors"),
        Stage.R4: Realisation(place, "full", "availability bit vector"),
        Stage.R5: Realisation(place, "full", "random or minimum constraints"),
    }


STAGES = _stages("SlotView")
HIERARCHY = (Stage.M2, Stage.M3, Stage.M4, Stage.M5)
"""Stages that a scheduler with one Local Master lacks."""

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
        Stage.M6: Realisation("GlobalMaster.request", "partial", "to the only Local Master"),
        Stage.R1: Realisation("GlobalMaster.on_tasks_ended", "full", "the GM's view, exact: nobody else places"),
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
        **_stages("CapacityView"),
        Stage.T4: Realisation("LocalMaster.on_request", "full", "validation, repartition"),
        Stage.T6: Realisation("LocalMaster.on_timer", "partial", "full states tell what is free, no progress"),
        Stage.M4: Realisation("CapacityView._find", "full", "partitions with enough free in the view"),
        Stage.M6: Realisation("GlobalMaster.request", "full", "requests, and repartitions of another's machine"),
        Stage.R4: Realisation("CapacityView._find", "full", "bit vectors of free capacity"),
        Stage.R5: Realisation("CapacityView._find", "full", "the first machine that fits"),
    },
)
