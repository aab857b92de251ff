"""Broken designs that say that they start gangs whole: in parts, never, or in another shape."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.conformance.mutation import mutant

from volery.architectures.omega import OMEGA
from volery.architectures.omega import build as build_omega
from volery.architectures.oracle import ORACLE
from volery.architectures.oracle import build as build_oracle
from volery.architectures.pipeline import PIPELINE
from volery.architectures.pipeline import build as build_pipeline
from volery.architectures.pipeline.gangs import Gangs
from volery.architectures.pipeline.policies import Waiting
from volery.core.capabilities import GangPlacement
from volery.core.component import Deployment
from volery.core.model import Cluster, Gang, JobId
from volery.core.streams import Streams


@mutant("check_gangs_start_whole", ORACLE)
def build_places_members_as_they_fit(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    """Members hold machines and wait for others; some gangs wait for each other."""
    deployment = build_oracle(cluster, config, streams)
    return msgspec.structs.replace(deployment, capabilities=(*deployment.capabilities, GangPlacement()))


class Apart(Gangs):
    """Starts a gang without one of its members, which follows when another task is queued."""

    def expect(self, job: JobId, gang: Gang, task_count: int) -> None:
        super().expect(job, gang, max(1, task_count - 1))


class Shapeless(Gangs):
    """Starts gangs on any machines."""

    def expect(self, job: JobId, gang: Gang, task_count: int) -> None:
        super().expect(job, Gang(), task_count)


class Rackless(Gangs):
    """Starts gangs in any racks."""

    def expect(self, job: JobId, gang: Gang, task_count: int) -> None:
        super().expect(job, msgspec.structs.replace(gang, rack=0), task_count)


class Forgetful(Gangs):
    """Never queues a gang of a dozen members and more."""

    def gathers(self, waiting: Waiting) -> bool:
        if waiting.job.task_count >= 12 and waiting.job.id in self._records:
            self._state.waiting[waiting.task.id] = waiting
            return True
        return super().gathers(waiting)


def _with_gangs(deployment: Deployment, kind: type[Gangs]) -> Deployment:
    cycle = deployment.components["scheduler/0"]._cycle  # type: ignore[attr-defined]  # the mutant reaches into its scheduler
    cycle.gangs().__class__ = kind
    return deployment


@mutant("check_gangs_start_whole", PIPELINE)
def build_starts_a_gang_in_two_parts(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_gangs(build_pipeline(cluster, config, streams), Apart)


@mutant("check_gangs_start_whole", PIPELINE)
def build_ignores_shapes(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_gangs(build_pipeline(cluster, config, streams), Shapeless)


@mutant("check_gangs_start_whole", PIPELINE)
def build_ignores_racks(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_gangs(build_pipeline(cluster, config, streams), Rackless)


@mutant("check_gangs_start_whole", PIPELINE)
def build_forgets_large_gangs(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_gangs(build_pipeline(cluster, config, streams), Forgetful)


@mutant("check_gangs_start_whole", OMEGA)
def build_takes_gangs_for_tasks(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    """Commits what is not in conflict of a gang, as of any other job."""
    deployment = build_omega(cluster, config, streams)
    for component in deployment.components.values():
        jobs = getattr(component, "jobs", None)
        if jobs is not None:
            jobs.setting = msgspec.structs.replace(jobs.setting, heeds_gangs=False)
            setattr(component, "_setting", jobs.setting)  # noqa: B010 - not every component has one
    return deployment
