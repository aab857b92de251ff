"""Broken designs that say that they start gangs whole: in parts, never, or in another shape."""

from __future__ import annotations

from typing import Any

import msgspec
from tests.conformance.mutation import mutant, spoiled

from volery.architectures.hydra import HYDRA
from volery.architectures.hydra import build as build_hydra
from volery.architectures.hydra.messages import Hosted
from volery.architectures.hydra.proxy import Proxy
from volery.architectures.jockey import JOCKEY
from volery.architectures.jockey import build as build_jockey
from volery.architectures.jockey.scheduler import Scheduler
from volery.architectures.megha.designs import MEGHA
from volery.architectures.megha.designs import build as build_megha
from volery.architectures.megha.gangs.messages import CommitRequest, PrepareVote
from volery.architectures.megha.gangs.reservations import GangReservations
from volery.architectures.megha.gangs.scheduler import GangScheduler
from volery.architectures.omega import OMEGA
from volery.architectures.omega import build as build_omega
from volery.architectures.oracle import ORACLE
from volery.architectures.oracle import build as build_oracle
from volery.architectures.pigeon import PIGEON
from volery.architectures.pigeon import build as build_pigeon
from volery.architectures.pigeon.gangs import GroupGangs
from volery.architectures.pigeon.master import Master
from volery.architectures.pigeon.messages import GangTasks
from volery.architectures.pipeline import PIPELINE
from volery.architectures.pipeline import build as build_pipeline
from volery.architectures.pipeline.gangs import Gangs
from volery.architectures.pipeline.policies import Waiting
from volery.core.capabilities import GangPlacement
from volery.core.component import AMOUNTS, Deployment
from volery.core.events import Submit
from volery.core.features import GANGS
from volery.core.model import Address, Cluster, Gang, JobId, Task, Time
from volery.core.streams import Streams

DECLARED = {name: when for name, when in ORACLE.features.items() if name != AMOUNTS} | {GANGS: ""}


@mutant("check_gangs_start_whole", ORACLE, features=DECLARED)
def build_declares_gangs_and_starts_tasks_one_by_one(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    """The feature without the capability: a comparison would take it for a design that starts gangs whole."""
    return build_oracle(cluster, config, streams)


@mutant("check_gangs_start_whole", ORACLE, features=DECLARED)
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


class HastyScheduler(GangScheduler):
    """Takes the first vote for all: what others refuse follows later."""

    def on_vote(self, message: PrepareVote, source: Address) -> None:
        state = self._records.get(message.job)
        if state is not None:
            state.missing_votes.intersection_update({(self._host.lm_at[source], message.number)})
        super().on_vote(message, source)


class PartialReservations(GangReservations):
    """Launches one of the members that it has reserved."""

    def on_commit(self, message: CommitRequest, source: Address) -> None:
        for reservation in self._reservations.values():
            reservation.starts = reservation.starts[:1]
        super().on_commit(message, source)


def _with_parts(deployment: Deployment, role: str, kind: type) -> Deployment:
    for address, component in deployment.components.items():
        if address.startswith(role):
            component.gangs.__class__ = kind  # type: ignore[attr-defined]  # the mutant reaches into its masters
    return deployment


@mutant("check_gangs_start_whole", MEGHA)
def build_commits_a_gang_with_the_first_vote(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_parts(build_megha(cluster, config, streams), "gm/", HastyScheduler)


@mutant("check_gangs_start_whole", MEGHA)
def build_launches_a_part_of_what_is_reserved(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return _with_parts(build_megha(cluster, config, streams), "lm/", PartialReservations)


class GanglessScheduler(Scheduler):
    """Takes gangs for other jobs."""

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        super().on_submit(Submit(msgspec.structs.replace(message.job, gang=None)), source, now)

    receives = {**Scheduler.receives, Submit: on_submit}  # noqa: RUF012 - replaced by the base


@mutant("check_gangs_start_whole", JOCKEY)
def build_hands_out_tokens_one_by_one(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build_jockey(cluster, config, streams), scheduler=GanglessScheduler)


class PiecemealMaster(Master):
    """Places each member of a gang as a task."""

    def place_gang(self, message: GangTasks, distributor: Address) -> None:
        for task in message.tasks:
            self.place(task, message.kind, distributor)


@mutant("check_gangs_start_whole", PIGEON)
def build_deals_with_members_one_by_one(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build_pigeon(cluster, config, streams), master=PiecemealMaster)


class ForgetfulGangs(GroupGangs):
    """Never starts a gang of a dozen members and more."""

    def add(self, tasks: tuple[Task, ...], kind: int, gang: Gang) -> None:
        if len(tasks) < 12:
            super().add(tasks, kind, gang)


class ForgetfulMaster(Master):
    """Has such gangs."""

    def place_gang(self, message: GangTasks, distributor: Address) -> None:
        self._gangs = self._gangs or ForgetfulGangs(self._group, self)
        self.serve = self._gangs.serve
        super().place_gang(message, distributor)


@mutant("check_gangs_start_whole", PIGEON)
def build_forgets_gangs_of_a_dozen(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build_pigeon(cluster, config, streams), master=ForgetfulMaster)


class GanglessProxy(Proxy):
    """Asks for containers for a gang as for any other job."""

    def on_hosted(self, message: Hosted, source: Address, now: Time) -> None:
        super().on_hosted(Hosted(msgspec.structs.replace(message.job, gang=None)), source, now)

    receives = {**Proxy.receives, Hosted: on_hosted}  # noqa: RUF012 - replaced by the base


@mutant("check_gangs_start_whole", HYDRA)
def build_grants_containers_one_by_one(cluster: Cluster, config: Any, streams: Streams) -> Deployment:
    return spoiled(build_hydra(cluster, config, streams), proxy=GanglessProxy)
