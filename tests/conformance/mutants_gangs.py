"""Broken designs that take gangs: impossible ones run in waves, are forgotten, or start in pieces."""

from __future__ import annotations

from typing import Any

from tests.conformance.mutation import mutant, spoiled

from volery.architectures.omega import MESOS, OMEGA, build, build_mesos
from volery.architectures.omega.jobs import JobQueue, PendingJob
from volery.architectures.omega.mesos import Framework
from volery.architectures.omega.scheduler import Scheduler
from volery.architectures.tetrisched import TETRISCHED
from volery.architectures.tetrisched import build as build_tetrisched
from volery.architectures.tetrisched.requests import Requests
from volery.architectures.tetrisched.requests import WaitingJob as Gang
from volery.core.component import Deployment
from volery.core.model import Cluster
from volery.core.port import Port
from volery.core.streams import Streams


class WaveQueue(JobQueue):
    """Places an impossible gang as it comes."""

    __slots__ = ()

    def _ever_whole(self, work: PendingJob) -> bool:
        work.gang = super()._ever_whole(work)
        return True


class InWaves(Scheduler):
    """Has such a queue."""

    __slots__ = ()

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.jobs.__class__ = WaveQueue


@mutant("check_gangs", OMEGA)
def build_runs_impossible_gangs_in_waves(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build(cluster, config, streams), scheduler=InWaves)


class HopefulQueue(JobQueue):
    """Takes every gang for possible."""

    __slots__ = ()

    def _ever_whole(self, work: PendingJob) -> bool:
        return True


class Hopeful(Framework):
    """Keeps machines for an impossible gang, gives them up, and does it again."""

    __slots__ = ()

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.jobs.__class__ = HopefulQueue


@mutant("check_gangs", MESOS)
def build_hoards_for_ever(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build_mesos(cluster, config, streams), framework=Hopeful)


class Generous(Requests):
    """Takes every gang for possible, and waits for ever."""

    def is_possible(self, waiting: Gang) -> bool:
        return True


@mutant("check_gangs", TETRISCHED)
def build_plans_for_impossible_gangs(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    deployment = build_tetrisched(cluster, config, streams)
    deployment.components["scheduler/0"]._requests.__class__ = Generous  # type: ignore[attr-defined]  # the mutant reaches into its scheduler
    return deployment
