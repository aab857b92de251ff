"""Amounts of several resources by machine, and repartition (arXiv 2103.08413, section IV-B), attached to Megha."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from random import Random

from volery.architectures.megha.allocations import Allocations, ClusterState
from volery.architectures.megha.amounts.allocations import AmountAllocations, SetAsideAmounts
from volery.architectures.megha.amounts.view import Capacities, CapacityHost, CapacityView, FittingQueue, UseAccount
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.partitions import Layout, SearchOrder
from volery.core.model import Cluster


class Amounts:
    """Attachment of amounts: a machine is a unit, of which tasks take as much as they ask for.

    Args:
        layout: The whole cluster, by machine.
    """

    def __init__(self, cluster: Cluster, layout: Layout, config: MeghaConfig) -> None:
        self.capacities = Capacities(cluster, layout)
        self._layout = layout
        self._config = config

    def view(
        self, master: CapacityHost, gm: int, stream: Random, queue: FittingQueue | None, account: UseAccount | None
    ) -> CapacityView:
        """Make the view of a Global Master, with queues and an account of users where they have shares."""
        return CapacityView(
            master,
            self._layout,
            self.capacities,
            SearchOrder(self._layout, gm),
            match=self._config.match,
            stream=stream,
            gm=gm,
            waits_for_kind=self._config.eager_retry,
            can_crash=self._config.reliable,
            queue=queue,
            account=account,
        )

    def allocations(
        self, partitions: range, reservations: SetAsideAmounts | None
    ) -> Callable[[ClusterState], Allocations]:
        """Return a maker of the allocations of a Local Master."""
        return partial(
            AmountAllocations,
            layout=self._layout,
            capacities=self.capacities,
            partitions=partitions,
            snapshots=self._config.updates == "snapshots",
            twice=self._config.completion_notice == "twice",
            repartition=self._config.repartition,
            reservations=reservations,
            can_crash=self._config.reliable,
        )
