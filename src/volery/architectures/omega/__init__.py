"""Omega: shared state and optimistic concurrency (Schwarzkopf et al., EuroSys 2013), and what it was compared with.

Roles    Front, Scheduler (several, in parallel), CellState (the master copy; it only validates), Node.
         monolithic: one Scheduler that places on the master. mesos: Framework (several) and Allocator.
Flow     Submit > Refresh > Changes > (decision) > Commit > Verdict, Launch > Completed > Ended.
         mesos: Submit > Demand > (batch) > Offer > (decisions) > Answer > Launch > Completed > Ended.
Deviates A transaction fetches what has changed and commits over the network (the paper's simulators: without messages).
         Jobs are never given up by default (the simulator: after 100 attempts without a task placed; the paper: after
         1,000): attempts_max and fruitless_max do, and those tasks are reported as ones that fit no
         machine. A gang is placed whole or not at all, also where there is room for a part (the public simulator
         commits that part); one that the same search does not fit into an empty cell is refused, as tasks that fit no
         machine are. Undone claims give their sequence numbers back (restore_sequences; the simulator does not).
         Schedulers limit the resources that they hold (batch_limit, service_limit), not the jobs that they admit; a
         task or gang beyond the limit of its scheduler is refused. Tasks are preempted with `preemption` alone; which
         ones is our choice. A task is only sought among machines that were not found too full for tasks that ask for
         the same (the simulator: for any task of the job). Elastic jobs get a decision for each task that they may
         run, where the paper's workers take their next activity themselves. mesos: frameworks ask for offers while jobs
         wait; a framework's decisions are taken one after the other on one offer; what is kept for a gang is given up
         after hoard_s. docs/papers.md.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from volery.architectures.omega.cell import CellState, ChangeLog, Claims, Conflicts, PrecedenceClaims
from volery.architectures.omega.jobs import (
    WORKLOADS,
    DecisionTimes,
    Elasticity,
    Front,
    JobQueue,
    LocalLimit,
    PlacementSetting,
    Policy,
    Workload,
    parse_rule,
)
from volery.architectures.omega.mesos import Allocator, Framework, Terms
from volery.architectures.omega.placement import Layout, Rings
from volery.architectures.omega.scheduler import LowerHolds, Scheduler
from volery.core.bounds import Components, Count, Parameters, Period, PositiveCount, Seconds, param
from volery.core.capabilities import GangPlacement, Refusals, TagPlacement
from volery.core.component import Architecture, Component, Conformance, Deployment, UnusedFeatures, sent_by
from volery.core.errors import InputError
from volery.core.features import GANGS, RACKS
from volery.core.model import SECOND, Address, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.fairness.drf import WeightedDrf
from volery.policies.fairness.shares import parse_shares_text
from volery.policies.tags import TagIndex
from volery.roles.node import Node
from volery.roles.recovery.channel import LINK_MESSAGES, linked

CELL = "cell/0"


class PlacementConfig(Parameters, frozen=True):
    """Parameters of all three designs: types of jobs, decision times, retries."""

    service: str = param(
        "user:service", "which jobs are service jobs: none, user:NAME+NAME or estimate:SECONDS (longer)"
    )
    fill: str = param("fill", "the user whose jobs fill the cell before the run: no decision time; empty: none")
    batch_job_s: Seconds = param(0.1, "t_job of batch jobs: decision time per attempt")
    batch_task_s: Seconds = param(0.005, "t_task: and so much per task that is left")
    service_job_s: Seconds = param(0.1, "t_job of service jobs")
    service_task_s: Seconds = param(0.005, "t_task of service jobs")
    gang: bool = param(False, "all tasks of a job at once, or none")
    pickiness: float = param(0.0, "share of the machines that an attempt leaves out at random", ge=0, lt=1)
    retry_s: Period = param(1.0, "before a job with tasks left is tried again, seconds")
    attempts_max: Count = param(0, "then a job is given up (the paper: 1000); 0: never")
    fruitless_max: Count = param(0, "likewise, without any task placed (the simulator: 100); 0: never")
    width: Count = param(0, "workers that users ask for: tasks of a job at once; 0: no limit")
    elastic: Policy = param("none", "workers beyond these (section 6, MapReduce): the jobs that may use idle ones")
    elastic_cap: float = param(0.6, "global-cap: up to this share of the cell in use", gt=0, le=1)
    elastic_times: PositiveCount = param(4, "relative-size: up to so many times the workers asked for")
    reliable: bool = param(False, "tolerate faults: numbered and acknowledged messages; costs more of them")


class OmegaConfig(PlacementConfig, frozen=True, forbid_unknown_fields=True):
    """Parameters of shared state."""

    batch_schedulers: Components = param(1, "schedulers that share the batch jobs")
    service_schedulers: Components = param(1, "schedulers that share the service jobs")
    conflicts: Conflicts = param("fine", "fine: too little is left; coarse: the machine's sequence number changed")
    restore_sequences: bool = param(True, "undone claims give sequence numbers back; false: the public simulator")
    batch_limit: float = param(1.0, "share of the cell that a batch scheduler may hold; 1: no limit", gt=0, le=1)
    service_limit: float = param(1.0, "share of the cell that a service scheduler may hold; 1: no limit", gt=0, le=1)
    preemption: bool = param(False, "a job may claim what tasks of lower priority hold: they are ended (3.4)")
    tags: bool = param(False, "heed tag constraints between tasks: affinity, anti-affinity, cardinality")


class MonolithicConfig(PlacementConfig, frozen=True, forbid_unknown_fields=True):
    """Parameters of one scheduler for all jobs."""

    path: Literal["single", "multi"] = param(
        "multi", "single: all jobs take the decision times of service jobs; multi: each its own"
    )


class MesosConfig(PlacementConfig, frozen=True, forbid_unknown_fields=True):
    """Parameters of two-level offers."""

    batch_schedulers: Components = param(1, "frameworks that share the batch jobs")
    service_schedulers: Components = param(1, "frameworks that share the service jobs")
    offer_s: Seconds = param(1.0, "from a reason to make offers to the offers")
    allocation_s: Seconds = param(0.001, "the allocator's own decision, seconds")
    offer_min: float = param(0.0025, "no offer while less than this share of a resource is free", ge=0, le=1)
    refuse_s: Seconds = param(5.0, "no offers for so long after one of which nothing was used")
    hoard_s: Seconds = param(60.0, "gangs keep what they have found for so long; 0: for ever (may deadlock)")
    shares: str = param("batch:1+service:1", "weights of the roles, for DRF")


MESSAGES = sent_by(Front, Scheduler, CellState, Node)
OFFER_MESSAGES = sent_by(Front, Framework, Allocator, Node)


def build(cluster: Cluster, config: OmegaConfig, streams: Streams) -> Deployment:
    """Build the components of shared state for a cluster.

    Raises:
        InputError: the rule for service jobs is malformed.
    """
    layout = _layout(cluster, streams)
    setting = _setting("omega", config)

    if config.tags:
        _check_tags(config)
    schedulers = _addresses("scheduler", config.batch_schedulers, config.service_schedulers)
    log = ChangeLog(len(layout.whole))
    claims = PrecedenceClaims(layout, log) if config.preemption else Claims(layout)
    components: dict[Address, Component] = {
        "front/0": Front(setting.rule, schedulers),
        CELL: CellState(
            layout, claims, log, config.conflicts, restore=config.restore_sequences, tags=_index(cluster, config)
        ),
    }
    shares: dict[Workload, float] = {"batch": config.batch_limit, "service": config.service_limit, "fill": 1.0}
    for workload in WORKLOADS:
        for address in schedulers[workload]:
            lower = LowerHolds(layout) if config.preemption else None
            limit = LocalLimit(shares[workload], layout.capacity) if shares[workload] < 1 else None
            jobs = JobQueue(layout, setting, CELL, streams.of(address), limit)
            components[address] = Scheduler(jobs, lower=lower, tags=_index(cluster, config))
    # The front is a mapping that all users share, not a machine on the way (section 4.3).
    delays = {("front", "scheduler"): 0, ("scheduler", "front"): 0}

    limits = {workload: LocalLimit(share, layout.capacity) for workload, share in shares.items()}
    placement = (TagPlacement(),) if config.tags else ()
    refusals = Refusals(lambda job, task: not limits[setting.rule.workload(job)].allows((task,)))
    return _wired(components, layout, config, delays, (*placement, refusals))


def build_monolithic(cluster: Cluster, config: MonolithicConfig, streams: Streams) -> Deployment:
    """Build one scheduler and the master copy.

    Raises:
        InputError: the rule for service jobs is malformed.
    """
    if config.path == "single":
        config = msgspec.structs.replace(config, batch_job_s=config.service_job_s, batch_task_s=config.service_task_s)
    layout = _layout(cluster, streams)
    setting = _setting("monolithic", config)

    jobs = JobQueue(layout, setting, CELL, streams.of("scheduler/0"))
    log = ChangeLog(len(layout.whole))
    components: dict[Address, Component] = {
        "scheduler/0": Scheduler(jobs, decides_first=True),
        CELL: CellState(layout, Claims(layout), log, "fine", restore=True),
    }
    delays = {("scheduler", "cell"): 0, ("cell", "scheduler"): 0}
    return _wired(components, layout, config, delays)


def _index(cluster: Cluster, config: OmegaConfig) -> TagIndex | None:
    """A count of tags of its own for one component; None: tags are not heeded."""
    return TagIndex(cluster) if config.tags else None


def _check_tags(config: OmegaConfig) -> None:
    """Refuse what tag constraints have no meaning for: searches of an empty cell, and choices of the tasks to end."""
    if config.gang:
        problem = "a gang is refused by a search of the empty cell, where tasks near which it may run are lacking"
        raise InputError("omega:tags", f"{problem}. Take gang=false, or tags=false")
    if config.preemption:
        problem = "tasks to end are chosen by the room that they hold, and not by their tags"
        raise InputError("omega:tags", f"{problem}. Take preemption=false, or tags=false")


def build_mesos(cluster: Cluster, config: MesosConfig, streams: Streams) -> Deployment:
    """Build an allocator and its frameworks.

    Raises:
        InputError: the rule for service jobs or the shares are malformed.
    """
    layout = _layout(cluster, streams)
    setting = _setting("mesos", config)
    frameworks = _addresses("framework", config.batch_schedulers, config.service_schedulers)
    weights = {member.name: member.weight for member in parse_shares_text(config.shares, "mesos:shares").members}

    if set(weights) != {"batch", "service"}:
        raise InputError(
            "mesos:shares", f"{config.shares!r} is not a weight for each role. Write batch:NUMBER+service:NUMBER"
        )

    terms = Terms(
        round(config.offer_s * SECOND),
        round(config.allocation_s * SECOND),
        tuple([int(config.offer_min * amount) for amount in layout.capacity]),
    )

    role_of = {address: workload for workload in WORKLOADS for address in frameworks[workload]}
    components: dict[Address, Component] = {
        "front/0": Front(setting.rule, frameworks),
        CELL: Allocator(layout, WeightedDrf(layout.capacity, weights), role_of, terms),
    }

    refuse_us = round(config.refuse_s * SECOND)
    hoard_us = round(config.hoard_s * SECOND)
    for address in role_of:
        jobs = JobQueue(layout, setting, CELL, streams.of(address))
        components[address] = Framework(jobs, refuse_us=refuse_us, hoard_us=hoard_us)
    return _wired(components, layout, config, {("front", "framework"): 0, ("framework", "front"): 0})


def _layout(cluster: Cluster, streams: Streams) -> Layout:
    return Layout(cluster, Rings(cluster, streams.of("rings")))


def heeds_gangs(config: Any) -> bool:
    """True if jobs that are submitted as gangs start whole: no task is ended for another, and no width limits them."""
    return not (config.width or getattr(config, "tags", False) or getattr(config, "preemption", False))


def _unused(config: Any) -> frozenset[str]:
    return frozenset() if heeds_gangs(config) else frozenset({GANGS, RACKS})


def _setting(name: str, config: PlacementConfig) -> PlacementSetting:
    def us(seconds: float) -> int:
        return round(seconds * SECOND)

    if config.gang and config.width:
        problem = "a gang starts whole, but width limits the workers of a job. Set one of the two"
        raise InputError(f"{name}:gang", problem)
    return PlacementSetting(
        rule=msgspec.structs.replace(parse_rule(config.service, f"{name}:service"), fill=config.fill),
        deciding=DecisionTimes(
            {"batch": us(config.batch_job_s), "service": us(config.service_job_s), "fill": 0},
            {"batch": us(config.batch_task_s), "service": us(config.service_task_s), "fill": 0},
        ),
        gang=config.gang,
        heeds_gangs=heeds_gangs(config),
        pickiness=config.pickiness,
        retry_us=us(config.retry_s),
        attempts_max=config.attempts_max,
        fruitless_max=config.fruitless_max,
        elasticity=Elasticity(config.width, config.elastic, config.elastic_cap, config.elastic_times),
    )


def _addresses(role: str, batch: int, service: int) -> dict[Workload, list[Address]]:
    """The addresses by workload: batch first, and one for the jobs that fill the cell."""
    return {
        "batch": [f"{role}/{number}" for number in range(batch)],
        "service": [f"{role}/{number}" for number in range(batch, batch + service)],
        "fill": [f"{role}/{batch + service}"],
    }


def _wired(
    components: dict[Address, Component],
    layout: Layout,
    config: PlacementConfig,
    delays: dict[tuple[str, str], int],
    capabilities: tuple[object, ...] = (),
) -> Deployment:
    """The deployment, with nodes; jobs are submitted to the first component."""
    entry = next(iter(components))
    for address in layout.nodes:
        components[address] = Node(CELL)

    machines = {address: machine for machine, address in enumerate(layout.nodes)}
    is_shared = not isinstance(config, MesosConfig)
    if heeds_gangs(config):
        capabilities = (*capabilities, GangPlacement(shapes=is_shared, racks=is_shared))
    deployment = Deployment(components, machines, lambda _: entry, delays, capabilities)
    return linked(deployment, MESSAGES | OFFER_MESSAGES) if config.reliable else deployment


STAGES = {
    Stage.J1: Realisation("JobQueue.submit"),
    Stage.J3: Realisation("Scheduler.on_timer", "partial", "first come first served; retries go to the tail"),
    Stage.J4: Realisation("Scheduler._begin_next", "full", "one job at a time, schedulers in parallel"),
    Stage.J6: Realisation("Scheduler.on_ended", "full", "JobDone after the last task"),
    Stage.T3: Realisation("Scheduler._placing", "full", "the tasks of a job in one decision"),
    Stage.T4: Realisation("CellState.on_commit", "full", "optimistic transactions, incremental or all-or-nothing"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T7: Realisation("CellState.on_completed"),
    Stage.M2: Realisation("Front.on_submit", "partial", "parallel schedulers, each of which sees the whole cell"),
    Stage.M4: Realisation("Front.on_submit", "full", "the schedulers of the job's type"),
    Stage.M5: Realisation("Front.on_submit", "full", "by the job's id"),
    Stage.R1: Realisation(
        "Scheduler.on_changes", "full", "a private copy of the cell state, refreshed per transaction"
    ),
    Stage.R3: Realisation("Scheduler._placing", "full", "machines by constraint set"),
    Stage.R4: Realisation("Scheduler._decide", "full", "free amounts in the copy"),
    Stage.R5: Realisation("Scheduler.on_computed", "full", "randomised first fit"),
}

HEEDS = {"constraints": "", "users": "service=user or fill", "amounts": "", "gangs": ""}
HEEDS_RACKS = {**HEEDS, "racks": ""}
PREEMPTION = Realisation("CellState.on_commit", "full", "lower priorities make way", "preemption=true")

OMEGA = Architecture(
    name="omega",
    summary="shared state: schedulers place on private copies and commit optimistically",
    source="Schwarzkopf, Konwinski, Abd-El-Malek, Wilkes: Omega, EuroSys 2013, sections 3 to 6",
    defaults=OmegaConfig(),
    messages=MESSAGES | LINK_MESSAGES,
    stages={**STAGES, Stage.T10: PREEMPTION},
    build=build,
    conformance=Conformance(
        hops=6,
        tolerates=frozenset({"loss", "duplication", "delay", "partition"}),
        fault_parameters={"reliable": True},
        gangs="gang",
        tags="tags",
        immediate={
            **dict.fromkeys(("batch_job_s", "batch_task_s", "service_job_s", "service_task_s"), 0.0),
            "retry_s": 60.0,
        },
    ),
    features={**HEEDS_RACKS, "priorities": "preemption"},
    capabilities=(UnusedFeatures(_unused),),
)

MONOLITHIC = msgspec.structs.replace(
    OMEGA,
    name="monolithic",
    summary="one scheduler for all jobs on the master copy of the cell state",
    source="Schwarzkopf et al.: Omega, EuroSys 2013, section 4.1 (the baseline)",
    defaults=MonolithicConfig(),
    conformance=msgspec.structs.replace(OMEGA.conformance, tags="", hops=2),
    features=HEEDS_RACKS,
    build=build_monolithic,
    stages={
        **{stage: realisation for stage, realisation in STAGES.items() if stage not in (Stage.M2, Stage.M4, Stage.M5)},
        Stage.J4: Realisation("Scheduler._begin_next", "full", "one job at a time"),
        Stage.T4: Realisation("CellState.on_commit", "full", "no other scheduler claims anything"),
        Stage.R1: Realisation("Scheduler.on_changes", "full", "the master copy of the cell state"),
    },
)

MESOS = msgspec.structs.replace(
    OMEGA,
    name="mesos",
    summary="two levels: an allocator offers what is free to one framework at a time, which places its jobs there",
    source="Hindman et al.: Mesos, NSDI 2011; as modelled in Omega, EuroSys 2013, section 4.2",
    defaults=MesosConfig(),
    conformance=msgspec.structs.replace(
        OMEGA.conformance, tags="", immediate={**OMEGA.conformance.immediate, "offer_s": 0.0, "allocation_s": 0.0}
    ),
    features=HEEDS,
    messages=OFFER_MESSAGES | LINK_MESSAGES,
    build=build_mesos,
    stages={
        Stage.J1: Realisation("JobQueue.submit"),
        Stage.J3: Realisation("Framework.on_timer", "partial", "first come first served; retries go to the tail"),
        Stage.J4: Realisation("Framework._decide", "full", "one job at a time, while the offer has room"),
        Stage.J6: Realisation("JobQueue.ended", "full", "JobDone after the last task"),
        Stage.T3: Realisation("Framework._placing", "full", "the tasks of a job in one decision"),
        Stage.T4: Realisation("Allocator.on_answer", "full", "placed on a locked offer"),
        Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
        Stage.T7: Realisation("Allocator.on_completed"),
        Stage.M2: Realisation("Allocator._allocate", "full", "offers to frameworks, which decide"),
        Stage.M4: Realisation("Allocator._allocate", "full", "frameworks that ask and do not refuse"),
        Stage.M5: Realisation("Allocator._first", "full", "lowest dominant share of its role"),
        Stage.M6: Realisation("Allocator._offer", "full", "all that is free, locked until the answer"),
        Stage.R1: Realisation("Framework.on_offer", "full", "what is offered, nothing else"),
        Stage.R3: Realisation("Framework._placing", "full", "machines by constraint set"),
        Stage.R4: Realisation("Framework._decide", "full", "what the offer has left of each resource"),
        Stage.R5: Realisation("Framework.on_computed", "full", "randomised first fit"),
    },
)
