"""Megha of which every component may crash: how it is put together, and how one that has crashed is built again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import MESSAGES
from volery.architectures.megha.recovery import Paired, pair_of
from volery.architectures.megha.surviving_gm import Surviving
from volery.core.component import Component, Deployment, role_of
from volery.core.model import Address, Time
from volery.core.streams import Streams
from volery.roles.recovery.channel import Linking
from volery.roles.recovery.leases import GuardedNode, Lease


class Survival:
    """The wiring.

    Args:
        layout: of the cluster.
        streams: of random choices, per address and incarnation.
        gm_role: the Global Masters.
        gm_arguments: of theirs, the same in every life.
        local_master: makes one of a cluster, with this recovery.
        detection_us: see `Deployment`.
    """

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        gm_role: Callable[..., Component],
        gm_arguments: Mapping[str, Any],
        local_master: Callable[..., Component],
        detection_us: Time,
    ) -> None:
        self._layout = layout
        self._streams = streams
        self._gm_role = gm_role
        self._gm_arguments = gm_arguments
        self._local_master = local_master
        self._lease = Lease(detection_us)
        self._linking = Linking(MESSAGES)
        self._machines: dict[Address, int] = {}
        self._lm_of: dict[Address, int] = {}
        for partition, lm in enumerate(layout.lm_of):
            for address, machine in zip(layout.nodes[partition], layout.machines[partition], strict=True):
                self._machines[address] = machine
                self._lm_of[address] = lm

    def component(self, address: Address, incarnation: int) -> Component:
        """Any of the components, in any of its lives."""
        inner = self._inner(address, incarnation)
        return self._linking.around(inner, incarnation, inner.heeds if isinstance(inner, Surviving) else None)

    def _inner(self, address: Address, incarnation: int) -> Component:
        role = role_of(address)
        if role == "node":
            return GuardedNode(pair_of(self._lm_of[address]), self._lease, incarnation, tells_owner=False)
        number = int(address.split("/")[1])
        if role == "gm":
            stream = self._streams.of(address, incarnation)
            return self._gm_role(number, self._layout, stream=stream, incarnation=incarnation, **self._gm_arguments)
        me = pair_of(number).index(address)
        return self._local_master(number, recovery=Paired(number, me, self._lease, incarnation))

    def deployment(self) -> Deployment:
        """The whole."""
        gm_count, pairs = self._layout.gm_count, [pair_of(lm) for lm in range(self._layout.lm_count)]
        addresses = (
            [f"gm/{gm}" for gm in range(gm_count)] + [lm for pair in pairs for lm in pair] + list(self._machines)
        )
        watches = [*pairs, *((lm, node) for node, at in self._lm_of.items() for lm in pairs[at])]
        return Deployment(
            {address: self.component(address, 0) for address in addresses},
            self._machines,
            lambda job: f"gm/{job % gm_count}",
            {("node", "lm"): 0},
            self.component,
            tuple(watches),
            self._lease.detection_us,
            answers_queries=True,
            owners_of=lambda node: pairs[self._lm_of[node]] if node in self._lm_of else (),
            standins=tuple([f"gm/{gm}" for gm in range(gm_count)]),
        )
