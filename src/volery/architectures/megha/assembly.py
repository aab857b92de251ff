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
from importlib import import_module
from random import Random
from typing import TYPE_CHECKING, Any, Final

from volery.architectures.megha.allocations import Allocations, ClusterState, SlotAllocations
from volery.architectures.megha.attachments import DecisionObserver, MasterParts, StateRecovery
from volery.architectures.megha.config import MeghaConfig, check_unshared
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.local_master import LocalMaster
from volery.architectures.megha.messages import MESSAGES
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.architectures.megha.view import ClusterView, SlotView
from volery.core.capabilities import CrashRecovery, Draining
from volery.core.component import Component, Deployment, role_of
from volery.core.errors import InputError
from volery.core.events import Reassignment
from volery.core.model import SECOND, Address, Cluster
from volery.core.streams import Streams
from volery.roles.node import Node
from volery.roles.recovery.channel import Linking
from volery.roles.recovery.leases import GuardedNode, Lease

if TYPE_CHECKING:
    from volery.architectures.megha.amounts.attachment import Amounts
    from volery.architectures.megha.shares.attachment import ShareAttachment

_ATTACHED: Final = {
    "CapacityView": "amounts.view",
    "ReportRecovery": "recovery.reports",
    "WeightedFairness": "shares.fairness",
}
"""Modules of the attached classes of which methods realise stages, by class."""


def __getattr__(name: str) -> Any:
    """An attached class, imported when a stage that it realises is looked up in this module.

    Raises:
        AttributeError: nothing attached has that name.
    """
    if name not in _ATTACHED:
        raise AttributeError(f"module {__name__} has no attribute {name}")
    return getattr(import_module(f"{__package__}.{_ATTACHED[name]}"), name)


def build(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more partitions than machines; the shares or queues are malformed; a parameter of shares is given
            without any; progress is to be kept where components may crash; recovery is chosen where none may.
    """
    if config.recovery == "paper" and not config.reliable:
        raise InputError("megha:recovery", "paper is a way to recover, and nothing may crash; set reliable=true")
    if not config.shares:
        check_unshared(config)
    recipe = Recipe(cluster, config, streams)
    deployment = recipe.recoverable() if config.reliable else recipe.deployment()
    return deployment if recipe.shares is None else recipe.shares.declared(deployment)


class Recipe:
    """Recipe of a deployment: the base on slots, and what is attached to it, by parameters.

    What is attached is imported where it is attached: the base runs without it (a test blocks it).

    Args:
        streams: Random choices, per address and incarnation.

    Attributes:
        amounts: Attached where machines offer several resources, or parameters need amounts; else None.
        shares: Attached where users have shares; else None.
    """

    def __init__(self, cluster: Cluster, config: MeghaConfig, streams: Streams) -> None:
        is_lent = config.repartition or config.rescheduling == "tail"
        by_machine = bool(cluster.resources or is_lent or config.shares)
        in_order = config.match == "first"
        self._config = config
        self._streams = streams
        self._layout = Layout(cluster, config.gms, config.lms, by_machine=by_machine, in_order=in_order)
        self._machines: dict[Address, int] = {}
        self._lm_of: dict[Address, int] = {}
        for partition, lm in enumerate(self._layout.lm_of):
            nodes, machines = self._layout.nodes[partition], self._layout.machines[partition]
            for address, machine in zip(nodes, machines, strict=True):
                self._machines.setdefault(address, machine)
                self._lm_of.setdefault(address, lm)

        self.amounts: Amounts | None = None
        self.shares: ShareAttachment | None = None
        if by_machine:
            from volery.architectures.megha.amounts.attachment import Amounts

            self.amounts = Amounts(cluster, self._layout, config)
            if config.shares:
                from volery.architectures.megha.shares.attachment import ShareAttachment

                packing = self.amounts.capacities.ladders.packing
                self.shares = ShareAttachment(cluster, self._layout, packing, config)

    def master_parts(
        self, master: GlobalMaster, moves: tuple[Reassignment, ...], *, number: int, incarnation: int, stream: Random
    ) -> MasterParts:
        """Parts of a Global Master that knows nothing but these moves of jobs."""
        config, layout, search = self._config, self._layout, SearchOrder(self._layout, number)
        fairness = None if self.shares is None else self.shares.fairness(master)
        recovery: StateRecovery | None = None
        observer: DecisionObserver | None = None
        view: ClusterView
        if self.amounts is None:
            view = SlotView(master, layout, search, match=config.match, stream=stream)
        elif fairness is None:
            view = self.amounts.view(master, number, stream, None, None)
        else:
            view = fairness.view = self.amounts.view(master, number, stream, fairness.lines, fairness)
        if config.reliable:
            from volery.architectures.megha.recovery.reports import ReportRecovery

            printed = config.recovery == "paper"
            recovery = ReportRecovery(master, fairness, layout, number, incarnation, moves, printed=printed)
        if config.why:
            from volery.architectures.megha.reasons import DecisionNarrator

            observer = DecisionNarrator(master, layout, view, fairness)
        return MasterParts(view, fairness, recovery, observer)

    def global_master(self, gm: int, incarnation: int = 0) -> GlobalMaster:
        """One of the Global Masters."""
        config, stream = self._config, self._streams.of(f"gm/{gm}", incarnation)
        return GlobalMaster(
            gm,
            self._layout,
            partial(self.master_parts, number=gm, incarnation=incarnation, stream=stream),
            batch_max=config.batch_max,
            eager_retry=config.eager_retry,
            rescheduling=config.rescheduling,
            queue_max=config.queue_max,
            ask=config.ask,
        )

    def local_master(self, lm: int, pair: Callable[..., Any] | None = None) -> LocalMaster:
        """One of the Local Masters; with a maker of a control of nodes one of a pair."""
        config, layout, partitions = self._config, self._layout, self._layout.partitions_of_lm(lm)
        allocations: Callable[[ClusterState], Allocations]
        preemptions: Callable[..., Any] | None = None
        if self.amounts is None:
            is_snapshot, is_twice = config.updates == "snapshots", config.completion_notice == "twice"
            allocations = partial(
                SlotAllocations, layout=layout, partitions=partitions, snapshots=is_snapshot, twice=is_twice
            )
        elif self.shares is None:
            allocations = self.amounts.allocations(partitions, None)
        else:
            from volery.architectures.megha.shares.preemptions import ClaimTable

            claims = ClaimTable()
            allocations = self.amounts.allocations(partitions, claims)
            preemptions = self.shares.preemptions(partitions, claims)
        return LocalMaster(
            layout,
            partitions,
            heartbeat_us=round(config.heartbeat_s * SECOND),
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
        from volery.architectures.megha.recovery.pair import Paired, pair_of

        lease, linking = Lease(round(self._config.detection_s * SECOND)), Linking(MESSAGES)
        gms = [f"gm/{gm}" for gm in range(self._config.gms)]
        pairs = [pair_of(lm) for lm in range(self._config.lms)]

        def component(address: Address, incarnation: int) -> Component:
            role = role_of(address)
            if role == "node":
                node = GuardedNode(pairs[self._lm_of[address]], lease, incarnation, sends_to_owner=False)
                return linking.around(node, incarnation)
            number = int(address.split("/")[1])
            if role == "gm":
                gm = self.global_master(number, incarnation)
                return linking.around(gm, incarnation, gm.accepts)
            me, printed = pairs[number].index(address), self._config.recovery == "paper"
            nodes = tuple([node for node, lm in self._lm_of.items() if lm == number])
            pair = partial(Paired, nodes=nodes, lm=number, me=me, lease=lease, incarnation=incarnation, printed=printed)
            return linking.around(self.local_master(number, pair), incarnation)

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
