"""The hybrid designs: Hawk and Eagle (Delgado et al., ATC 2015 and SoCC 2016), Phoenix (Thinakaran et al., ICDCS 2017).

Roles    Scheduler (many; jobs come in here), Central (one, for long jobs), Worker (one per machine); Monitor (Phoenix).
Flow     short: Submit > Probe > (Rejected > Probe)* > TaskRequest > Assign | NoTask > Completed; Withdraw; Steal >
         Stolen. Long: Submit > CentralTasks > LongProbe > TaskRequest > Assign > Completed, Ended. Phoenix, every
         heartbeat: Demanded, Crowded > Reorder, Scarcity.
Deviates A scheduler hands a long job to the central one without delay, as a frontend would that knows its class.
         Long tasks ask for their task as short ones do (the public simulator). Workers know of a job's remaining
         work what its scheduler last told them (the simulator reads it everywhere, 2 delays old); reservations of a
         job without tasks left are withdrawn instead, in Hawk too, where the ones that were stolen are not found. Of
         several idle workers a long task takes a random one (the simulator: the first, which packs long tasks; a
         switch). The short-only part is spread evenly over the machines. A machine of several slots is placed on as
         that many workers. IdealEagle, and least-waiting-time placement of all jobs (CLWL, and DLWL with `stale_s` =
         8), are parameters. Under constraints (Hawk-C, Eagle-C) all choices are among machines that satisfy them; a
         long task that fits short-only machines alone runs there, and a short one that fits none of them waits behind a
         long one in the end. Phoenix reports what has changed only, estimates waits from tasks that have run, and lets
         scarce constraints pass when a slot takes its next reservation. See docs/papers.md.
"""

from __future__ import annotations

import msgspec

from volery.architectures.hybrid.central import Central, LeastWait
from volery.architectures.hybrid.layout import CENTRAL, HybridConfig, Layout, PhoenixConfig
from volery.architectures.hybrid.phoenix import (
    CrowdReport,
    DemandReport,
    Monitor,
    Negotiation,
    ScarceFirst,
    WatchSetting,
    supply,
)
from volery.architectures.hybrid.scheduler import Scheduler
from volery.architectures.hybrid.worker import Worker
from volery.core.component import Architecture, Component, Deployment, sent_by
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import Sampler, SmallRandom
from volery.roles.recovery.channel import LINK_MESSAGES, linked
from volery.roles.reservations import Numbers

MESSAGES = sent_by(Scheduler, Central, Worker, Monitor)


def build(cluster: Cluster, config: HybridConfig, streams: Streams, watch: WatchSetting | None = None) -> Deployment:
    """Components for a cluster; with `watch` those of Phoenix, without a monitor.

    Raises:
        InputError: parameters that exclude each other.
    """
    if config.estimate_low > config.estimate_high:
        raise InputError("hybrid:estimate_low", f"{config.estimate_low} is above estimate_high {config.estimate_high}")
    if config.stealing != "off" and (config.sticky or config.sharing != "none"):
        raise InputError("hybrid:stealing", "goes with neither sticky nor sharing; give stealing=off")

    layout = Layout(cluster, config)
    addresses = layout.schedulers
    step = config.schedulers + 1

    components: dict[str, Component] = {}

    for number, address in enumerate(addresses[:-1]):
        stream = streams.of(address)
        sampler = Sampler(cluster.constraints, layout.matches, stream.random, replacement=config.replacement)
        components[address] = Scheduler(
            layout,
            sampler,
            config,
            stream,
            Numbers(number, step),
            demand=DemandReport(watch) if watch is not None else None,
            negotiation=Negotiation(watch.soft, watch.supply) if watch is not None and watch.soft else None,
        )

    wait = LeastWait(
        cluster.slot_count,
        streams.of(CENTRAL).random,
        in_order=config.empty_workers == "first",
        request_us=REQUEST_US,
        stale_us=round(config.stale_s * SECOND),
    )

    components[CENTRAL] = Central(
        layout,
        wait,
        Numbers(config.schedulers, step),
        shared=config.sharing != "none",
        demand=DemandReport(watch) if watch is not None else None,
    )

    for machine, address in enumerate(layout.nodes):
        draws = SmallRandom(streams.number(address) if config.stealing != "off" else 0)
        slots = cluster.slots[machine]
        crowd = CrowdReport(watch, slots) if watch is not None else None
        scarce = ScarceFirst(watch) if watch is not None else None
        components[address] = Worker(slots, cluster.constraints[machine], layout, config, draws, crowd, scarce)

    delays = {("scheduler", "central"): 0, ("central", "scheduler"): 0}
    if config.steal_free:
        delays["node", "node"] = 0

    machines = {address: machine for machine, address in enumerate(layout.nodes)}
    deployment = Deployment(components, machines, lambda job: addresses[job % config.schedulers], delays)
    return linked(deployment, MESSAGES) if config.reliable else deployment


def build_phoenix(cluster: Cluster, config: PhoenixConfig, streams: Streams) -> Deployment:
    """Eagle's components with reports to a monitor, and the monitor.

    Raises:
        InputError: parameters that exclude each other.
    """
    if config.soft_constraints and min(config.soft_constraints) < 0:
        raise InputError("phoenix:soft_constraints", "constraints are numbered from 0")

    watch = WatchSetting(
        monitor="monitor/0",
        heartbeat_us=max(1, round(config.heartbeat_s * SECOND)),
        supply=tuple(supply(cluster.constraints, cluster.slots)),
        threshold=config.crv_threshold,
        wait_load=config.wait_load,
        reorder_max=config.reorder_max,
        soft=sum(1 << constraint for constraint in set(config.soft_constraints)),
    )

    # The link is put around the monitor, too, when all components are there.
    deployment = build(cluster, msgspec.structs.replace(config, reliable=False), streams, watch)

    schedulers = [f"scheduler/{number}" for number in range(config.schedulers)]

    components = {**deployment.components, watch.monitor: Monitor(watch, schedulers)}
    deployment_with_monitor = msgspec.structs.replace(deployment, components=components)
    return linked(deployment_with_monitor, MESSAGES) if config.reliable else deployment_with_monitor


REQUEST_US = 1_000
"""A request and its answer at the published delay of 0.5 ms; the published estimate of a wait adds it."""


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J4: Realisation("Scheduler.on_submit", "full", "schedulers in parallel, and a central one for long jobs"),
    Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("Worker._take", "full", "first come first served"),
    Stage.T3: Realisation("Scheduler._schedule", "full", "batches of tasks with the same constraints"),
    Stage.T4: Realisation("Scheduler.on_task_request", "full", "late binding"),
    Stage.T5: Realisation("Worker.on_assign", "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_completed"),
    Stage.T12: Realisation("Worker.on_steal", "partial", "reservations, not running tasks, move"),
    Stage.M2: Realisation("Scheduler._schedule", "full", "short jobs distributed, long ones central"),
    Stage.M3: Realisation("Scheduler._probe", "full", "all workers"),
    Stage.M5: Realisation("Scheduler._probe", "full", "random sample for short jobs"),
    Stage.M6: Realisation("Worker.on_probe", "full", "a reservation, which the worker asks to have filled"),
    Stage.R1: Realisation("Central.on_ended", "full", "waits of all units outside the short-only part"),
    Stage.R2: Realisation("Central._place", "partial", "long jobs, not certain users, keep out of the short-only part"),
    Stage.R3: Realisation("Scheduler._schedule", "full", "probes and placements on machines that satisfy"),
    Stage.R4: Realisation("Worker.on_probe", "full", "reservations wait for a free slot"),
    Stage.R5: Realisation(
        "Central._place", "full", "least estimated wait; short tasks: sampled workers, free ones first"
    ),
}

EAGLES_STAGES = {
    **{stage: realisation for stage, realisation in STAGES.items() if stage is not Stage.T12},
    Stage.T2: Realisation("Worker._take", "full", "least remaining work first, with a bound on passing"),
    Stage.T4: Realisation("Scheduler.on_task_request", "full", "late binding; a reservation stays with its job"),
    Stage.M4: Realisation("Scheduler._without_long", "full", "workers without long tasks, as far as is known"),
    Stage.R4: Realisation("Worker.on_probe", "full", "reservations wait for a free slot, or are rejected"),
}
"""Eagle does not steal."""

HAWK = Architecture(
    name="hawk",
    summary="hybrid: long jobs centrally by least wait, short ones by random probes; idle workers steal from busy ones",
    source="Delgado, Dinu, Kermarrec, Zwaenepoel: Hawk, USENIX ATC 2015, section 3",
    defaults=HybridConfig(),
    messages=MESSAGES | LINK_MESSAGES,
    stages=STAGES,
    build=build,
    hops=4,
    tolerates=frozenset({"loss", "duplication", "delay", "partition"}),
    bearing={"reliable": True},
    features={"constraints": ""},
)

EAGLE = msgspec.structs.replace(
    HAWK,
    name="eagle",
    summary="hybrid: short tasks avoid workers with long ones, stick to their workers, and the shortest job goes first",
    source="Delgado, Didona, Dinu, Zwaenepoel: Job-Aware Scheduling in Eagle, SoCC 2016, sections 3 and 4",
    defaults=HybridConfig(stealing="off", sharing="vector", sticky=True, order="srpt", probes_min=20),
    stages=EAGLES_STAGES,
)

PHOENIX = msgspec.structs.replace(
    EAGLE,
    name="phoenix",
    summary="hybrid: Eagle, and where queues are crowded tasks that ask for the scarcest constraint go first",
    source="Thinakaran, Gunasekaran, Sharma, Kandemir, Das: Phoenix, ICDCS 2017, sections III and IV",
    defaults=PhoenixConfig(stealing="off", sharing="vector", sticky=True, order="srpt", probes_min=20),
    stages={
        **EAGLES_STAGES,
        Stage.J2: Realisation(
            "Scheduler._admitted", "partial", "soft constraints (none by default) are dropped, no job is put off"
        ),
        Stage.T2: Realisation("Worker._take", "full", "scarcest constraint first while queues are crowded"),
        Stage.T6: Realisation("Monitor.on_timer", "partial", "waiting tasks and estimated waits, no running ones"),
    },
    build=build_phoenix,
)
