"""Broken designs that preempt whom they must not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from tests.conformance.mutation import mutant

from volery.architectures import configure
from volery.architectures.megha.config import MeghaConfig
from volery.architectures.megha.designs import MEGHA_2021, build
from volery.architectures.megha.global_master import GlobalMaster
from volery.architectures.megha.shares.fairness import WeightedFairness
from volery.architectures.megha.shares.users import HeldTask
from volery.core.component import Deployment
from volery.core.model import Cluster, TaskId
from volery.core.streams import Streams
from volery.policies.queues import Kind

GIVEN = {"shares": "a:1+b:2+c:3", "gms": 3, "lms": 2, "heartbeat_s": 0.1}
MEGHA = msgspec.structs.replace(MEGHA_2021, defaults=configure(MEGHA_2021, GIVEN))
CHECK = "check_nobody_loses_what_it_is_due"


class TakesFromAnybody(WeightedFairness):
    """Takes from whoever has something, and gives up every task that it is asked for."""

    def _preemptible(self, user: int, kind: Kind) -> Iterator[tuple[int, list[TaskId]]]:
        for loser in reversed(range(len(self.account.running))):
            if loser != user and (victims := self._victims(loser, kind)):
                yield loser, victims

    def _can_lose(self, user: int, tasks: Iterable[HeldTask]) -> bool:
        return True


class TakesMoreThanIsDue(WeightedFairness):
    """Preempts for users that have their share already, and counts all others as above theirs."""

    def enforce(self) -> None:
        for name in self._users.names[: self._users.others]:
            self.account._ledger.wants(name, (0,) * len(self._packing.amounts(0)))
        super().enforce()

    def _maybe_preempt(self, user: int) -> bool:
        self.account._ledger.wants(self._users.names[user], (1 << 30,) * len(self._packing.amounts(0)))
        return super()._maybe_preempt(user)


def spoiled_fairness(deployment: Deployment, worse: type[WeightedFairness]) -> Deployment:
    """The deployment with the account of users of each Global Master turned into a mutant."""
    for component in deployment.components.values():
        if isinstance(component, GlobalMaster):
            component.fairness.__class__ = worse
    return deployment


@mutant(CHECK, MEGHA)
def build_preempts_a_user_within_its_share(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    return spoiled_fairness(build(cluster, config, streams), TakesFromAnybody)


@mutant(CHECK, MEGHA)
def build_forgets_what_others_are_due(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    return spoiled_fairness(build(cluster, config, streams), TakesMoreThanIsDue)
