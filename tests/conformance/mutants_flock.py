"""Sparrow, Hawk, Eagle and Phoenix with one role broken each, as the contract's checks must notice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
from tests.conformance.mutation import mutant, spoiled

from volery.architectures import configure, lookup
from volery.architectures.hybrid.messages import Entry, Rejected, Stolen
from volery.architectures.hybrid.phoenix import BEAT, ScarceFirst
from volery.architectures.hybrid.scheduler import Batch
from volery.architectures.hybrid.scheduler import Scheduler as HybridScheduler
from volery.architectures.hybrid.worker import Worker
from volery.architectures.sparrow.node import NodeMonitor, Probe
from volery.core.component import Architecture, Deployment
from volery.core.events import TimerFired
from volery.core.model import Address, Cluster, Time
from volery.core.streams import Streams
from volery.roles.reservations import TaskRequest


def with_defaults(design: str, **parameters: Any) -> Architecture:
    """A registry entry with other defaults, under which a loss is not made good by spare reservations."""
    entry = lookup(design)
    return msgspec.structs.replace(entry, defaults=configure(entry, parameters))


FRUGAL = {"probe_ratio": 1.0, "probes_min": 1, "cutoff_s": 0.2, "schedulers": 2}


class LosesProbes(NodeMonitor):
    """Hears one probe in three: late binding makes good for half of the reservations, not for two thirds."""

    __slots__ = ()

    def on_probe(self, message: Probe, source: Address, now: Time) -> None:
        if message.number % 3 == 0:
            super().on_probe(message, source, now)


@mutant("check_every_task_finishes_once", lookup("sparrow"))
def build_loses_probes(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("sparrow").build(cluster, config, streams), node=LosesProbes)


class KeepsLoot(Worker):
    """Steals reservations and does not serve them."""

    __slots__ = ()

    def on_stolen(self, message: Stolen, source: Address, now: Time) -> None:
        super().on_stolen(Stolen(()), source, now)


@mutant("check_every_task_finishes_once", with_defaults("hawk", **FRUGAL))
def build_steals_and_keeps(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("hawk").build(cluster, config, streams), node=KeepsLoot)


class TrustsThieves(HybridScheduler):
    """Binds a task for a reservation however often it is asked for."""

    __slots__ = ()

    def _holds(self, batch: Batch, place: int, source: Address) -> bool:
        return True


@mutant("check_repeated_messages", with_defaults("hawk", **FRUGAL))
def build_serves_a_reservation_twice(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("hawk").build(cluster, config, streams), scheduler=TrustsThieves)


class GivesUp(HybridScheduler):
    """Does not try again when a probe is rejected."""

    __slots__ = ()

    def on_rejected(self, message: Rejected, source: Address, now: Time) -> None:
        self._rejected += 1


@mutant("check_every_task_finishes_once", with_defaults("eagle", **FRUGAL))
def build_never_retries_a_rejected_probe(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("eagle").build(cluster, config, streams), scheduler=GivesUp)


class ForgetsRequests(HybridScheduler):
    """Answers a repeated request of a sticky reservation with another task."""

    __slots__ = ()

    def on_task_request(self, message: TaskRequest, source: Address, now: Time) -> None:
        batch = self._batches.get(message.batch)
        if batch is not None:
            batch.requests[:] = [0] * len(batch.requests)
        super().on_task_request(message, source, now)


@mutant("check_repeated_messages", with_defaults("eagle", **FRUGAL))
def build_serves_a_sticky_request_twice(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("eagle").build(cluster, config, streams), scheduler=ForgetsRequests)


EAGER = {"crv_threshold": 0.0, "wait_load": 0.1, "heartbeat_s": 0.02, "reorder_max": 1, "cutoff_s": 0.2}


class PassesForEver(ScarceFirst):
    """Lets scarce constraints pass however often the others have been passed."""

    __slots__ = ()

    def pick(self, queue: Iterable[Entry]) -> tuple[Entry | None, bool]:
        asks = 1 << self.constraint
        waiting = [entry for entry in queue if not entry.asking]
        for place, entry in enumerate(waiting):
            if entry.needs & asks and not entry.long:
                for other in waiting[:place]:
                    self._pass_counts[other.number] = self._pass_counts.get(other.number, 0) + 1
                return entry, True
        return (waiting[0] if waiting else None), True


@mutant("check_invariants", with_defaults("phoenix", **EAGER))
def build_ignores_the_slack(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    deployment = lookup("phoenix").build(cluster, config, streams)
    for component in deployment.components.values():
        if isinstance(component, Worker):
            assert component._scarce is not None
            component._scarce.__class__ = PassesForEver
    return deployment


class Nags(HybridScheduler):
    """Reports at every heartbeat, whether anything has changed or not, and so for ever."""

    __slots__ = ()

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        super().on_timer(event, source, now)
        if event.key == BEAT:
            self._report_demand(now)


@mutant("check_goes_quiet", with_defaults("phoenix", **EAGER))
def build_reports_for_ever(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("phoenix").build(cluster, config, streams), scheduler=Nags)


class ForgetsItsQueue(NodeMonitor):
    """Launches tasks as if they had never waited in its queue."""

    __slots__ = ()

    def _ask(self, scheduler: Address, batch: int, number: int, waited_us: Time, blocked_us: Time) -> None:
        super()._ask(scheduler, batch, number, 0, blocked_us)


@mutant("check_worker_queues_are_reported", lookup("sparrow"))
def build_forgets_its_queue(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(lookup("sparrow").build(cluster, config, streams), node=ForgetsItsQueue)
