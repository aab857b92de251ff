"""The state store: which sub-clusters are there, where jobs are at home, what the policies are. It decides nothing."""

from __future__ import annotations

from typing import Final

from volery.architectures.hydra.layout import GPG, Layout, rm_of, sub_of_rm
from volery.architectures.hydra.messages import (
    Directory,
    Entitle,
    Guarantee,
    Load,
    Locate,
    Located,
    News,
    Policy,
    Read,
    Standing,
)
from volery.architectures.hydra.policies import WHOLE
from volery.core.component import Component, role_of, sent_to
from volery.core.events import Measured, PeerBack, PeerLost, TimerFired
from volery.core.model import Address, JobId, Time
from volery.roles.recovery.channel import Renewed

PUBLISH: Final = "publish"
UNKNOWN: Final = -1
"""Free slots of a sub-cluster that has not reported them."""


class StateStore(Component):
    """One database for all; it stands for a replicated one, and does not fail.

    Args:
        layout: of the federation.
    """

    def __init__(self, layout: Layout) -> None:
        count = len(layout.subclusters)
        self._readers = [*layout.routers, *layout.proxies]
        self._active = [True] * count
        self._weights = [WHOLE] * count
        self._loads = [Load(0, sum(sub.slots), UNKNOWN, 0, (), (), ()) for sub in layout.subclusters]
        self._guarantees: tuple[Guarantee, ...] = ()
        self._homes: dict[JobId, int] = {}
        self._published = self._entitled = 0
        self._changed = False
        self._news_sent = False

    def on_locate(self, message: Locate, source: Address, now: Time) -> None:
        """Answer with the home of a job; the first that was stored counts."""
        self._port.send(source, Located(message.job, self._homes.setdefault(message.job, message.candidate)))

    def on_load(self, message: Load, source: Address, now: Time) -> None:
        """Take in the heartbeat of a sub-cluster."""
        sub = sub_of_rm(source)
        if message.number > self._loads[sub].number:
            self._loads[sub] = message
            self._port.observe(Measured("subcluster_imbalance_permille", self._imbalance()))
            self._publish_change(now)

    def _imbalance(self) -> int:
        """Between the most and the least loaded sub-cluster: what is used and wanted, in permille of its slots."""
        loads = [WHOLE * (sum(load.used) + sum(load.wanted)) // load.slots for load in self._loads]
        return max(loads) - min(loads)

    def _publish_change(self, now: Time) -> None:
        if not self._changed:
            self._changed = True
            self._port.set_timer(PUBLISH, now)
        if not self._news_sent:
            self._news_sent = True
            self._port.send(GPG, News())

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """At the end of an instant with changes, publish the directory to routers and proxies."""
        self._changed = False
        self._published += 1
        for reader in self._readers:
            self._port.send(reader, self._directory())

    def _directory(self) -> Directory:
        free = tuple([load.free for load in self._loads])
        return Directory(self._published, tuple(self._active), tuple(self._weights), free)

    def on_read(self, message: Read, source: Address, now: Time) -> None:
        """Send the policy generator the loads."""
        self._news_sent = False
        self._port.send(GPG, Standing(tuple(self._loads), tuple(self._active)))

    def on_policy(self, message: Policy, source: Address, now: Time) -> None:
        """New policies hold until there are newer ones, whatever becomes of the generator."""
        if self._weights != list(message.weights):
            self._weights = list(message.weights)
            if not self._changed:
                self._changed = True
                self._port.set_timer(PUBLISH, now)
        if self._guarantees != message.guarantees:
            self._guarantees = message.guarantees
            self._entitled += 1
            for sub in range(len(self._loads)):
                self._entitle(sub)

    def _entitle(self, sub: int) -> None:
        queues = tuple([guarantee.queue for guarantee in self._guarantees])
        slots = tuple([guarantee.slots[sub] for guarantee in self._guarantees])
        self._port.send(rm_of(sub), Entitle(self._entitled, queues, slots))

    def _is_active(self, sub: int, active: bool, now: Time) -> None:
        if self._active[sub] != active:
            self._active[sub] = active
            self._publish_change(now)

    def on_peer_lost(self, event: PeerLost, source: Address, now: Time) -> None:
        """The membership of a sub-cluster has expired."""
        self._is_active(sub_of_rm(event.peer), False, now)

    def on_peer_back(self, event: PeerBack, source: Address, now: Time) -> None:
        """Its heartbeats come again."""
        self._is_active(sub_of_rm(event.peer), True, now)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        """Send a restarted component what it has lost; its reports begin with number one."""
        role = role_of(message.peer)
        if role == "rm":
            sub = sub_of_rm(message.peer)
            load = self._loads[sub]
            self._loads[sub] = Load(0, load.slots, UNKNOWN, 0, (), (), ())
            if self._guarantees:
                self._entitle(sub)
        elif role == "router":
            self._port.send(message.peer, self._directory())

    def check(self) -> None:
        """Every home is a sub-cluster."""
        assert all(0 <= load.free <= load.slots or load.free == UNKNOWN for load in self._loads), "a load"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Locate: on_locate,
        Load: on_load,
        Read: on_read,
        Policy: on_policy,
        TimerFired: on_timer,
        PeerLost: on_peer_lost,
        PeerBack: on_peer_back,
        Renewed: on_renewed,
    }
    sends = (
        sent_to("router", Located, Directory)
        | sent_to("proxy", Directory)
        | sent_to("rm", Entitle)
        | sent_to("gpg", News, Standing)
    )
