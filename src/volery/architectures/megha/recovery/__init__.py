"""Recovery of masters and nodes that crash (arXiv 2103.08413, section IV-D), attached to Megha."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.local_master import LocalMaster
from volery.architectures.megha.recovery.messages import MESSAGES
from volery.architectures.megha.recovery.pair import Paired, lease_of, pair_of
from volery.core.capabilities import CrashRecovery, Draining
from volery.core.component import Component, Deployment, role_of
from volery.core.model import Address
from volery.roles.recovery.channel import Linking
from volery.roles.recovery.leases import GuardedNode


def recoverable(
    config: MeghaConfig,
    machines: Mapping[Address, int],
    lm_of: Mapping[Address, int],
    global_master: Callable[[int, int], GlobalMaster],
    local_master: Callable[[int, Callable[..., Paired]], LocalMaster],
) -> Deployment:
    """Return components of which each may crash, linked, with two Local Masters per cluster.

    Args:
        lm_of: Cluster of each node.
        global_master: Maker of a Global Master, by its number and incarnation.
        local_master: Maker of a Local Master, by its cluster and the maker of its control of nodes.
    """
    lease, linking = lease_of(config), Linking(MESSAGES)
    gms = [f"gm/{gm}" for gm in range(config.gms)]
    pairs = [pair_of(lm) for lm in range(config.lms)]

    def component(address: Address, incarnation: int) -> Component:
        role = role_of(address)
        if role == "node":
            node = GuardedNode(pairs[lm_of[address]], lease, incarnation, sends_to_owner=False)
            return linking.around(node, incarnation)

        number = int(address.split("/")[1])
        if role == "gm":
            gm = global_master(number, incarnation)
            return linking.around(gm, incarnation, gm.accepts)

        me, nodes = pairs[number].index(address), tuple([node for node, lm in lm_of.items() if lm == number])
        pair = partial(Paired, nodes=nodes, lm=number, me=me, config=config, incarnation=incarnation)
        return linking.around(local_master(number, pair), incarnation)

    addresses = gms + [lm for pair in pairs for lm in pair] + list(machines)
    detector_pairs = [*pairs, *((lm, node) for node, at in lm_of.items() for lm in pairs[at])]
    return Deployment(
        {address: component(address, 0) for address in addresses},
        machines,
        lambda job: gms[job % len(gms)],
        {("node", "lm"): 0},
        (
            CrashRecovery(component, tuple(detector_pairs), lease.detection_us, tuple(gms), takes_back=True),
            Draining(lambda node: pairs[lm_of[node]] if node in lm_of else ()),
        ),
    )
