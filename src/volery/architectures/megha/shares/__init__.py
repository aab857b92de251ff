"""Shares of users and preemption (arXiv 2103.08413, section IV-C), attached to Megha."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import msgspec

from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.hosts import FairnessHost
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.shares.fairness import WeightedFairness
from volery.architectures.megha.shares.preemptions import ClaimTable, WeightedShares
from volery.architectures.megha.shares.users import Users
from volery.core.capabilities import DueShares, Resumption
from volery.core.component import Deployment
from volery.core.errors import InputError
from volery.core.model import Cluster
from volery.core.resources import Packing


class ShareAttachment:
    """Attachment of shares: accounts and preemption at Global Masters, validation at Local Masters.

    Args:
        layout: The whole cluster, by machine.
        packing: Packing of amounts into one number.
    """

    def __init__(self, cluster: Cluster, layout: Layout, packing: Packing, config: MeghaConfig) -> None:
        self._users = Users(config.shares, config.queues, cluster, config.gms)
        self._layout = layout
        self._packing = packing
        self._config = config

    def fairness(self, master: FairnessHost) -> WeightedFairness:
        """Make the account of users of a Global Master."""
        return WeightedFairness(master, self._users, self._layout, self._packing, self._config)

    def claims(self) -> ClaimTable:
        """Make the table of preemptions under way in a cluster, whose amounts are set aside."""
        return ClaimTable()

    def preemptions(self, partitions: range, claims: ClaimTable) -> Callable[..., Any]:
        """Return a maker of the preemptions of a Local Master."""
        return partial(
            WeightedShares,
            claims=claims,
            layout=self._layout,
            partitions=partitions,
            others=self._users.others,
            config=self._config,
        )

    def declared(self, deployment: Deployment) -> Deployment:
        """Return the deployment with the entries of users, and what they are due.

        Raises:
            InputError: progress is to be kept where components may crash.
        """
        config, users = self._config, self._users
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
