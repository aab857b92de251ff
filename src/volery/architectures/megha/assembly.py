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
from volery.core.model import Address, Cluster
from volery.core.streams import Streams
from volery.policies.queues import ConstraintQueue, VectorQueue
from volery.roles.node import Node

if TYPE_CHECKING:
    from volery.architectures.megha.amounts.view import Capacities
    from volery.architectures.megha.gangs import GangAttachment
    from volery.architectures.megha.near import NearView
    from volery.architectures.megha.printed.answers import LaunchAnswers
    from volery.architectures.megha.printed.requests import SynchronousRequests
    from volery.architectures.megha.priorities import PriorityQueue
    from volery.architectures.megha.reasons import DecisionNarrator
    from volery.architectures.megha.recovery.reports import ReportRecovery
    from volery.architectures.megha.shares import ShareAttachment


class Recipe:
    """Recipe of a deployment: the base on slots, and what is attached to it, by parameters.

    What is attached is imported where it is attached: the base runs without it (a test blocks it).

    Args:
        streams: Random choices, per address and incarnation.

    Attributes:
        layout: The whole cluster.
        capacities: Amounts that machines offer, where they offer several resources or amounts are needed; else None.
        shares: Attached where users have shares; else None.
        gangs: Attached where gangs start whole; set before components are made.
    """

    def __init__(self, cluster: Cluster, config: MeghaConfig, streams: Streams) -> None:
        is_lent = config.repartition or config.rescheduling == "tail"
        by_machine = bool(cluster.resources or is_lent or config.shares or config.launch == "synchronous")
        in_order = config.match == "first"
        self._config = config
        self._streams = streams
        self.layout = Layout(cluster, config.gms, config.lms, by_machine=by_machine, in_order=in_order)
        self._machines: dict[Address, int] = {}
        self._lm_of: dict[Address, int] = {}
        for partition, lm in enumerate(self.layout.lm_of):
            nodes, machines = self.layout.nodes[partition], self.layout.machines[partition]
            for address, machine in zip(nodes, machines, strict=True):
                self._machines.setdefault(address, machine)
                self._lm_of.setdefault(address, lm)

        self._units = self.layout.units() if config.near else {}
        self.capacities: Capacities | None = None
        self.shares: ShareAttachment | None = None
        self.gangs: GangAttachment | None = None
        if by_machine:
            from volery.architectures.megha.amounts.view import Capacities

            self.capacities = Capacities(cluster, self.layout)
            if config.shares:
                from volery.architectures.megha.shares import ShareAttachment

                self.shares = ShareAttachment(cluster, self.layout, self.capacities.ladders.packing, config)

    def master_parts(
        self, master: GlobalMaster, moves: tuple[Reassignment, ...], *, number: int, incarnation: int, stream: Random
    ) -> MasterParts:
        """Parts of a Global Master that knows nothing but these moves of jobs."""
        config, layout, search = self._config, self.layout, SearchOrder(self.layout, number)
        fairness = None if self.shares is None else self.shares.fairness(master)
        recovery: ReportRecovery | None = None
        observer: DecisionNarrator | None = None
        synchronous: SynchronousRequests | None = None
        view: ClusterView
        near: NearView | None = None
        priorities = self._priorities(master) if config.order == "priority" else None
        if self.capacities is None and config.near:
            from volery.architectures.megha.near import NearView

            view = near = NearView(master, layout, search, config, stream, priorities, self._units)
        elif self.capacities is None:
            view = SlotView(master, layout, search, config, stream, priorities)
        else:
            from volery.architectures.megha.amounts.view import CapacityView

            queue = priorities if fairness is None else fairness.lines
            if config.launch == "synchronous":
                from volery.architectures.megha.printed.requests import SynchronousRequests

                synchronous = SynchronousRequests(master, self.capacities.ladders.packing, fairness)
            view = CapacityView(master, self.capacities, search, config, stream, queue, fairness, synchronous)
            if synchronous is not None:
                synchronous.view = view
            if fairness is not None:
                fairness.view = view
        if config.reliable:
            from volery.architectures.megha.recovery.reports import ReportRecovery

            recovery = ReportRecovery(master, fairness, layout, number, incarnation, moves, config)
        if config.why:
            from volery.architectures.megha.reasons import DecisionNarrator

            observer = DecisionNarrator(master, layout, view, fairness, () if recovery is None else recovery.epochs)
        gangs = None if self.gangs is None else self.gangs.scheduler(master, view)
        return MasterParts(view, fairness, recovery, observer, synchronous, priorities, near, gangs)

    def _priorities(self, master: GlobalMaster) -> PriorityQueue:
        """Return an empty queue of a Global Master, by priority."""
        from volery.architectures.megha.priorities import PriorityQueue

        if self.capacities is None:
            return PriorityQueue(ConstraintQueue, master)
        return PriorityQueue(partial(VectorQueue, self.capacities.ladders.packing), master)

    def global_master(self, gm: int, incarnation: int = 0) -> GlobalMaster:
        """One of the Global Masters."""
        stream = self._streams.of(f"gm/{gm}", incarnation)
        parts = partial(self.master_parts, number=gm, incarnation=incarnation, stream=stream)
        return GlobalMaster(gm, self.layout, self._config, parts)

    def local_master(self, lm: int, pair: Callable[..., Any] | None = None) -> LocalMaster:
        """One of the Local Masters; with a maker of a control of nodes one of a pair."""
        config, layout, partitions = self._config, self.layout, self.layout.partitions_of_lm(lm)
        allocations: Callable[[ClusterState], Allocations]
        preemptions: Callable[..., Any] | None = None
        if self.capacities is None:
            allocations = partial(SlotAllocations, layout=layout, partitions=partitions, config=config)
        else:
            from volery.architectures.megha.amounts.allocations import AmountAllocations

            allocations = partial(AmountAllocations, capacities=self.capacities, partitions=partitions, config=config)
            if self.shares is not None:
                preemptions = self.shares.preemptions(partitions)
        answers: Callable[..., LaunchAnswers] | None = None
        if config.answers == "all" or config.launch == "synchronous":
            from volery.architectures.megha.printed.answers import LaunchAnswers

            answers = partial(LaunchAnswers, config=config)
        gangs = None if self.gangs is None else self.gangs.reservations
        return LocalMaster(layout, partitions, config, allocations, preemptions, pair, answers, gangs)

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
