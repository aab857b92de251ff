"""Broken designs that preempt whom they must not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec
from tests.conformance.mutation import mutant, spoiled

from volery.architectures import configure
from volery.architectures.megha import MEGHA_2021, MeghaConfig, build
from volery.architectures.megha.fair_gm import FairGlobalMaster, Held
from volery.core.component import Deployment
from volery.core.model import Cluster, TaskId, Time
from volery.core.streams import Streams
from volery.policies.queues import Kind

GIVEN = {"shares": "a:1+b:2+c:3", "gms": 3, "lms": 2, "heartbeat_s": 0.1}
MEGHA = msgspec.structs.replace(MEGHA_2021, defaults=configure(MEGHA_2021, GIVEN))
CHECK = "check_nobody_loses_what_it_is_due"


class TakesFromAnybody(FairGlobalMaster):
    """Takes from whoever has something, and gives up every task that it is asked for."""

    __slots__ = ()

    def _preemptible(self, user: int, kind: Kind) -> Iterator[tuple[int, list[TaskId]]]:
        for loser, running in reversed(list(enumerate(self._running))):
            if loser != user and running:
                yield loser, self._victims(loser, kind)

    def _can_lose(self, user: int, tasks: Iterable[Held]) -> bool:
        return True


@mutant(CHECK, MEGHA)
def build_preempts_a_user_within_its_share(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    return spoiled(build(cluster, config, streams), gm=TakesFromAnybody)


class TakesMoreThanIsDue(FairGlobalMaster):
    """Preempts for users that have their share already, and believes that all others have more than theirs."""

    __slots__ = ()

    def start(self, now: Time) -> None:
        super().start(now)
        self._ledger = self._sharing.ledger()
        for name in self._names[: self._sharing.others]:
            self._ledger.wants(name, (0,) * len(self._doubtful[0]))

    def _maybe_preempt(self, user: int) -> bool:
        self._ledger.wants(self._names[user], (1 << 30,) * len(self._doubtful[0]))
        return super()._maybe_preempt(user)


@mutant(CHECK, MEGHA)
def build_forgets_what_others_are_due(cluster: Cluster, config: MeghaConfig, streams: Streams) -> Deployment:
    return spoiled(build(cluster, config, streams), gm=TakesMoreThanIsDue)
