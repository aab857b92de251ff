"""Routers take jobs in and choose the home of each. They keep nothing that others do not keep, too."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Literal
from zlib import crc32

from volery.architectures.hydra.layout import STORE, Layout, Membership
from volery.architectures.hydra.messages import Directory, Hosted, Locate, Located
from volery.core.component import sent_to
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import Address, Job, JobId, Message, Time
from volery.roles.submission import ANSWERS, Forwarder

Routing = Literal["uniform", "weighted", "priority", "load", "hash", "locality"]


def draw_weighted(candidates: Sequence[int], weights: Sequence[int], random: Random) -> int:
    """A random sub-cluster, each with a probability in proportion to its weight; all alike where all are 0."""
    total = sum(weights[sub] for sub in candidates)
    if not total:
        return candidates[int(random.random() * len(candidates))]
    remainder = int(random.random() * total)

    for sub in candidates:
        remainder -= weights[sub]
        if remainder < 0:
            return sub
    raise AssertionError("weights that do not add up")


def by_hash(candidates: Sequence[int], queue: str) -> int:
    """The same sub-cluster for all jobs of a queue, while the same are active."""
    return candidates[crc32(queue.encode()) % len(candidates)]


class Router(Forwarder):
    """Chooses the home of every job, has the choice written down, and hands answers back."""

    def __init__(self, layout: Layout, routing: Routing, stream: Random) -> None:
        super().__init__()
        self._layout = layout
        self._routing = routing
        self._stream = stream
        self._membership = Membership(len(layout.subclusters))
        self._unlocated: dict[JobId, list[Message]] = {}

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Find the job's home; a job that is done is answered at once."""
        job = message.job
        if self._answer_done(job.id) or self._forward(job.id, Hosted(job)):
            return
        # Only the store decides: a job that comes to two routers has the home that was stored first.
        self._unlocated[job.id] = [Hosted(job)]

        self._port.send(STORE, Locate(job.id, self._choose(job)))

    def _choose(self, job: Job) -> int:
        """A home, among the active sub-clusters."""
        membership = self._membership
        routing = self._routing

        subclusters = range(len(self._layout.subclusters))
        # Without an active sub-cluster jobs are sent anywhere, and wait there until one is back.
        candidates = [sub for sub in subclusters if membership.active[sub]] or list(subclusters)

        if routing == "hash":
            return by_hash(candidates, job.user)
        if routing == "priority":
            return max(candidates, key=lambda sub: (membership.weights[sub], -sub))
        if routing == "load" and membership.headroom:
            usable = membership.usable(candidates)
            return max(usable, key=lambda sub: (membership.headroom.get(sub, 0), -sub))

        if routing == "locality":
            holders = [self._layout.sub_of[machine] for machines in job.replicas for machine in machines]
            active_holders = [sub for sub in holders if membership.active[sub]]
            if active_holders:
                return max(active_holders, key=lambda sub: (active_holders.count(sub), -sub))
        weights = [1] * len(subclusters) if routing == "uniform" else membership.weights

        return draw_weighted(candidates, weights, self._stream)

    def on_located(self, message: Located, source: Address, now: Time) -> None:
        """The home is written down, perhaps by an earlier router: hand over what has come for the job."""
        messages = self._unlocated.pop(message.job, None)
        if messages is not None:
            host = self._scheduler_of[message.job] = self._layout.host(message.job, message.home)
            for deferred in messages:
                self._port.send(host, deferred)

    def _forward(self, job: JobId, message: Message) -> bool:
        """Send a message to the home of a job, or keep it until the home is written down."""
        if job not in self._unlocated:
            return super()._forward(job, message)

        self._unlocated[job].append(message)
        return True

    def on_directory(self, message: Directory, source: Address, now: Time) -> None:
        """News of the sub-clusters."""
        self._membership.update(message)

    def check_rest(self) -> None:
        assert not self._scheduler_of, "jobs are left"
        assert not self._unlocated, "jobs without a home are left"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **Forwarder.receives,
        Submit: on_submit,
        Located: on_located,
        Directory: on_directory,
    }
    sends = ANSWERS | sent_to("store", Locate) | sent_to("proxy", Hosted, MoreTasks, Cancel)
