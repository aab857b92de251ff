"""The state store, which decides nothing, and the global policy generator, which sets policies out of band.

The policies are those of YARN Federation (Apache Hadoop 3, `yarn.server.federation.policies`); guarantees of queues are
our reading of what Hydra's central step does (NSDI 2019: the method is not in any text at hand).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Final, Literal

from volery.architectures.hydra.layout import GPG, STORE, WHOLE, Layout, rm_of, sub_of_rm
from volery.architectures.hydra.messages import (
    Directory,
    Entitle,
    Guarantee,
    Load,
    Locate,
    Located,
    News,
    PolicyUpdate,
    Read,
    SubclusterLoads,
)
from volery.core.component import Component, role_of, sent_to
from volery.core.events import Measured, PeerBack, PeerLost, TimerFired
from volery.core.model import Address, JobId, Time
from volery.policies.fairness.ledger import water_filling
from volery.roles.recovery.channel import Renewed

PUBLISH: Final = "publish"
UNKNOWN: Final = -1
"""Number of free slots of a sub-cluster that has not reported them."""
WEIGHED_DOWN_MAX: Final = 3
"""Number of sub-clusters, those with most waiting applications, that get less."""
Generating = Literal["off", "weights", "queues", "both"]
LOOK: Final = "look"


class StateStore(Component):
    """One database for all; it stands for a replicated one, and does not fail."""

    def __init__(self, layout: Layout) -> None:
        count = len(layout.subclusters)
        self._readers = [*layout.routers, *layout.proxies]
        self._active = [True] * count
        self._weights = [WHOLE] * count
        self._loads = [Load(0, sum(sub.slots), UNKNOWN, 0, (), (), ()) for sub in layout.subclusters]
        self._guarantees: tuple[Guarantee, ...] = ()
        self._homes: dict[JobId, int] = {}
        self._published = self._entitled = 0
        self._is_publishing = False
        self._news_sent = False

    def on_locate(self, message: Locate, source: Address, now: Time) -> None:
        """Answer with the home of a job; the first that was stored counts."""
        self._port.send(source, Located(message.job, self._homes.setdefault(message.job, message.candidate)))

    def on_load(self, message: Load, source: Address, now: Time) -> None:
        """Take in the heartbeat of a sub-cluster."""
        sub = sub_of_rm(source)
        # A repeated or overtaken report.
        if message.number > self._loads[sub].number:
            self._loads[sub] = message
            self._port.observe(Measured("subcluster_imbalance_permille", self._imbalance()))
            self._publish_news(now)

    def _imbalance(self) -> int:
        """Between the most and the least loaded sub-cluster: what is used and wanted, in permille of its slots."""
        loads = [WHOLE * (sum(load.used) + sum(load.wanted)) // load.slots for load in self._loads]
        return max(loads) - min(loads)

    def _publish(self, now: Time) -> None:
        # Once per instant: several reports come at one time.
        if not self._is_publishing:
            self._is_publishing = True
            self._port.set_timer(PUBLISH, now)

    def _publish_news(self, now: Time) -> None:
        self._publish(now)
        # The generator reads when it looks; until then more news say nothing new.
        if not self._news_sent:
            self._news_sent = True
            self._port.send(GPG, News())

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Publish the directory to routers and proxies at the end of an instant with changes."""
        self._is_publishing = False
        self._published += 1
        for reader in self._readers:
            self._port.send(reader, self._directory())

    def _directory(self) -> Directory:
        free = tuple([load.free for load in self._loads])
        return Directory(self._published, tuple(self._active), tuple(self._weights), free)

    def on_read(self, message: Read, source: Address, now: Time) -> None:
        """Send the policy generator the loads."""
        self._news_sent = False
        self._port.send(GPG, SubclusterLoads(tuple(self._loads), tuple(self._active)))

    def on_policy_update(self, message: PolicyUpdate, source: Address, now: Time) -> None:
        """New policies hold until there are newer ones, whatever becomes of the generator."""
        if self._weights != list(message.weights):
            self._weights = list(message.weights)
            self._publish(now)

        if self._guarantees != message.guarantees:
            self._guarantees = message.guarantees
            self._entitled += 1
            for sub in range(len(self._loads)):
                self._entitle(sub)

    def _entitle(self, sub: int) -> None:
        queues = tuple([guarantee.queue for guarantee in self._guarantees])
        slots = tuple([guarantee.slots[sub] for guarantee in self._guarantees])
        self._port.send(rm_of(sub), Entitle(self._entitled, queues, slots))

    def _set_active(self, sub: int, active: bool, now: Time) -> None:
        if self._active[sub] != active:
            self._active[sub] = active
            self._publish_news(now)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """The membership of a sub-cluster has expired."""
        self._set_active(sub_of_rm(event.peer), False, now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Take note of a sub-cluster whose heartbeats come again."""
        self._set_active(sub_of_rm(event.peer), True, now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """Send a restarted component what it has lost; its reports begin with number one."""
        role = role_of(message.peer)
        if role == "rm":
            sub = sub_of_rm(message.peer)
            load = self._loads[sub]
            # The numbers of a restarted manager begin again, and what it has free is not known.
            self._loads[sub] = Load(0, load.slots, UNKNOWN, 0, (), (), ())

            if self._guarantees:
                self._entitle(sub)
        elif role == "router":
            self._port.send(message.peer, self._directory())

    def check(self) -> None:
        assert all(0 <= load.free <= load.slots or load.free == UNKNOWN for load in self._loads), "a load"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Locate: on_locate,
        Load: on_load,
        Read: on_read,
        PolicyUpdate: on_policy_update,
        TimerFired: on_timer,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
        Renewed: on_renewed,
    }
    sends = (
        sent_to("router", Located, Directory)
        | sent_to("proxy", Directory)
        | sent_to("rm", Entitle)
        | sent_to("gpg", News, SubclusterLoads)
    )


def load_weights(applications: Sequence[int], low: int, high: int) -> list[int]:
    """Weights by waiting applications, in permille: 1 up to `low`, then falling to 0 at `high`, for the three fullest.

    Where all would be 0, all are 1.
    """
    fullest = sorted(range(len(applications)), key=lambda sub: (-applications[sub], sub))[:WEIGHED_DOWN_MAX]
    weights = [WHOLE] * len(applications)
    for sub in fullest:
        excess = min(max(applications[sub] - low, 0), high - low)
        weights[sub] = WHOLE * (high - low - excess) // (high - low)

    # Weights that are all 0 would rule out every sub-cluster.
    return weights if any(weights) else [WHOLE] * len(applications)


def guarantees(
    demand: Mapping[str, Sequence[int]], weights: Mapping[str, int], slots: Sequence[int]
) -> dict[str, tuple[int, ...]]:
    """Slots that each queue is guaranteed in each sub-cluster.

    Max-min fairness over the whole federation first; then what a queue is due is laid where it wants to run, as far as
    the sub-cluster has slots. Queues without any demand keep their part of every sub-cluster.

    Args:
        demand: Containers used and wanted in each sub-cluster, per queue.
        weights: Weights of queues; 1 for those that are not in it.
    """
    weight_sum = max(1, sum(weights.values()))
    slots_of = {name: tuple([size * weight // weight_sum for size in slots]) for name, weight in weights.items()}

    names = [name for name in demand if sum(demand[name])]
    wishes = [Fraction(sum(demand[name])) for name in names]
    parts = water_filling(Fraction(sum(slots)), wishes, [weights.get(name, 1) for name in names])

    for name, wish, due in zip(names, wishes, parts, strict=True):
        # What a queue is due is laid out where it wants to run; nobody is due more slots than there are.
        amounts = [
            min(due * queue_demand / wish, Fraction(size))
            for queue_demand, size in zip(demand[name], slots, strict=True)
        ]
        slots_of[name] = tuple([int(amount) for amount in amounts])

    return slots_of


class PolicyGenerator(Component):
    """Sets weights of sub-clusters by their waiting applications, and guaranteed capacities of queues by demand.

    Args:
        period_us: Time from one look to the next; there is none where nothing has changed.
        low, high: Numbers of waiting applications between which a weight falls from 1 to 0.
        queues: Weights of queues; None: there are none.
    """

    def __init__(
        self,
        generating: Generating,
        period_us: Time,
        low: int,
        high: int,
        queues: Mapping[str, int] | None,
        incarnation: int,
    ) -> None:
        self._weighs = generating in ("weights", "both")
        self._guarantees = generating in ("queues", "both") and queues is not None
        self._period_us = period_us
        self._low = low
        self._high = high
        self._queues = queues or {}
        self._incarnation = incarnation
        self._looking = False

    def start(self, now: Time) -> None:
        """Look at once after a restart; the policies of before hold meanwhile."""
        if self._incarnation:
            self._port.send(STORE, Read())

    def on_news(self, message: News, source: Address, now: Time) -> None:
        """Look when the period is over."""
        if not self._looking and (self._weighs or self._guarantees):
            self._looking = True
            self._port.set_timer(LOOK, (now // self._period_us + 1) * self._period_us)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        self._looking = False
        self._port.send(STORE, Read())

    def on_loads(self, message: SubclusterLoads, source: Address, now: Time) -> None:
        loads = message.loads
        weights = [WHOLE] * len(loads)

        if self._weighs:
            weights = load_weights([load.applications for load in loads], self._low, self._high)

        new_guarantees: tuple[Guarantee, ...] = ()
        if self._guarantees:
            demand: dict[str, list[int]] = {}
            for sub, load in enumerate(loads):
                if message.active[sub]:
                    for queue, used, waiting in zip(load.queues, load.used, load.wanted, strict=True):
                        demand.setdefault(queue, [0] * len(loads))[sub] = used + waiting

            slots = [load.slots if active else 0 for load, active in zip(loads, message.active, strict=True)]

            slots_of = guarantees(dict(sorted(demand.items())), self._queues, slots)
            new_guarantees = tuple([Guarantee(queue, queue_slots) for queue, queue_slots in slots_of.items()])

        self._port.send(STORE, PolicyUpdate(tuple(weights), new_guarantees))

    receives = {News: on_news, SubclusterLoads: on_loads, TimerFired: on_timer}  # noqa: RUF012 - replaced by the base
    sends = sent_to("store", Read, PolicyUpdate)
