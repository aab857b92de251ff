"""Megha of which every component may crash: how it is put together, and how one that has crashed is built again."""

from __future__ import annotations

from volery.architectures.megha.explaining import ExplainingSurvivor
from volery.architectures.megha.global_master import MeghaMatch
from volery.architectures.megha.layout import Layout
from volery.architectures.megha.messages import MESSAGES
from volery.architectures.megha.surviving_gm import SurvivingGlobalMaster
from volery.architectures.megha.surviving_lm import SurvivingLocalMaster, pair_of
from volery.architectures.megha.surviving_messages import SURVIVING_MESSAGES
from volery.core.component import Component, Deployment, role_of
from volery.core.model import Address, Time
from volery.core.streams import Streams
from volery.policies.guarded import GuardedNode, Lease
from volery.policies.links import Linking


class Survival:
    """The wiring.

    Args:
        layout: of the cluster.
        streams: of random choices, per address and incarnation.
        match, batch_max, queue_max, heartbeat_us: see `GlobalMaster` and `LocalMaster`.
        detection_us: see `Deployment`.
        why: whether GMs explain themselves.
    """

    def __init__(
        self,
        layout: Layout,
        streams: Streams,
        *,
        match: MeghaMatch,
        batch_max: int,
        queue_max: int,
        heartbeat_us: Time,
        detection_us: Time,
        why: bool,
    ) -> None:
        self._layout = layout
        self._gm_role = ExplainingSurvivor if why else SurvivingGlobalMaster
        self._streams = streams
        self._match = match
        self._batch_max = batch_max
        self._queue_max = queue_max
        self._heartbeat_us = heartbeat_us
        self._lease = Lease(detection_us)
        self._linking = Linking(MESSAGES | SURVIVING_MESSAGES)
        self._machines: dict[Address, int] = {}
        self._lm_of: dict[Address, int] = {}
        for partition, lm in enumerate(layout.lm_of):
            for address, machine in zip(layout.nodes[partition], layout.machines[partition], strict=True):
                self._machines[address] = machine
                self._lm_of[address] = lm

    def component(self, address: Address, incarnation: int) -> Component:
        """Any of the components, in any of its lives."""
        return self._linking.around(self._inner(address, incarnation), incarnation)

    def _inner(self, address: Address, incarnation: int) -> Component:
        role = role_of(address)
        if role == "node":
            return GuardedNode(pair_of(self._lm_of[address]), self._lease, incarnation, tells_owner=False)
        if role == "gm":
            return self._gm_role(
                int(address.split("/")[1]),
                self._layout,
                match=self._match,
                batch_max=self._batch_max,
                queue_max=self._queue_max,
                stream=self._streams.of(address, incarnation),
                incarnation=incarnation,
            )
        lm = int(address.split("/")[1])
        return SurvivingLocalMaster(
            lm,
            self._layout,
            heartbeat_us=self._heartbeat_us,
            me=pair_of(lm).index(address),
            lease=self._lease,
            incarnation=incarnation,
        )

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
        )
