"""Recipe of a deployment of Megha: the base on slots, and what is attached to it, by parameters."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random
from typing import TYPE_CHECKING, Any

from volery.architectures.megha.allocations import Allocations, ClusterState, SlotAllocations
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.global_master import GlobalMaster, MasterParts
from volery.architectures.megha.local_master import LocalMaster
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.architectures.megha.view import ClusterView, SlotView
from volery.core.capabilities import Draining
from volery.core.component import Component, Deployment
from volery.core.events import Reassignment
from volery.core.model import SECOND, Address, Cluster
from volery.core.streams import Streams
from volery.roles.node import Node

if TYPE_CHECKING:
    from volery.architectures.megha.amounts import Amounts
    from volery.architectures.megha.reasons import DecisionNarrator
    from volery.architectures.megha.recovery.reports import ReportRecovery
    from volery.architectures.megha.shares import ShareAttachment


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
            from volery.architectures.megha.amounts import Amounts

            self.amounts = Amounts(cluster, self._layout, config)
            if config.shares:
                from volery.architectures.megha.shares import ShareAttachment

                packing = self.amounts.capacities.ladders.packing
                self.shares = ShareAttachment(cluster, self._layout, packing, config)

    def master_parts(
        self, master: GlobalMaster, moves: tuple[Reassignment, ...], *, number: int, incarnation: int, stream: Random
    ) -> MasterParts:
        """Parts of a Global Master that knows nothing but these moves of jobs."""
        config, layout, search = self._config, self._layout, SearchOrder(self._layout, number)
        fairness = None if self.shares is None else self.shares.fairness(master)
        recovery: ReportRecovery | None = None
        observer: DecisionNarrator | None = None
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

            observer = DecisionNarrator(master, layout, view, fairness, () if recovery is None else recovery.epochs)
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
        """Components of which none may crash, unless that is attached."""
        if self._config.reliable:
            from volery.architectures.megha.recovery import recoverable

            return recoverable(self._config, self._machines, self._lm_of, self.global_master, self.local_master)
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
