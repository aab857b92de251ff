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

from typing import Literal

import msgspec

from volery.architectures.hybrid.central import Central, LeastWait
from volery.architectures.hybrid.layout import Layout
from volery.architectures.hybrid.messages import MESSAGES
from volery.architectures.hybrid.phoenix import (
    CrowdReport,
    DemandReport,
    Monitor,
    Negotiation,
    ScarceFirst,
    WatchSetting,
    supply,
)
from volery.architectures.hybrid.scheduler import Scheduler, SchedulerSetting, Sharing, ShortPlacement
from volery.architectures.hybrid.worker import Order, Stealing, Worker, WorkerSetting
from volery.core.bounds import (
    PROBES_MAX,
    ROUNDS_MAX,
    Components,
    Count,
    Parameters,
    Period,
    PositiveCount,
    PositiveRatio,
    Ratio,
    Seconds,
    param,
)
from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import Anchors, Matches
from volery.policies.sampler import Sampler, SmallRandom
from volery.roles.recovery.channel import LINK_MESSAGES, linked
from volery.roles.reservations import Numbers

EmptyWorkers = Literal["random", "first"]


class HybridConfig(Parameters, frozen=True):
    """Parameters of Hawk, Eagle and what they are compared with."""

    schedulers: Components = param(10, "distributed schedulers")
    cutoff_s: Seconds = param(1129.532, "jobs with at most this mean task duration are short, seconds")
    short_part: float = param(0.17, "share of the machines that run short tasks only", ge=0, le=0.9)
    probe_ratio: float = param(2.0, "probes per short task", ge=1, le=PROBES_MAX)
    probes_min: int = param(2, "probes per short job at least", ge=1, le=ROUNDS_MAX)
    replacement: bool = param(False, "a worker may be drawn twice, as in the authors' simulator")
    stealing: Stealing = param("behind-long", "what an idle worker takes: the first group behind a long task, or any")
    steal_attempts: int = param(10, "victims asked for each slot that falls idle", ge=1, le=ROUNDS_MAX)
    steal_after_vain: bool = param(
        True, "a slot that was kept for a reservation in vain falls idle too, as one whose task ended"
    )
    steal_max: PositiveCount = param(10_000, "reservations taken at once")
    steal_free: bool = param(False, "stealing takes no time, as in the authors' simulator")
    sharing: Sharing = param("none", "what is known of long tasks: nothing, vectors on rejection, or all (ideal)")
    rounds: int = param(2, "rejections of a probe before it goes to the short-only part", ge=1, le=ROUNDS_MAX)
    sticky: bool = param(False, "a reservation serves its job until nothing is left")
    cancellation: bool = param(True, "withdraw reservations of jobs with nothing left")
    order: Order = param("fifo", "queue of a worker: arrival, or least remaining work")
    bypass_max: Ratio = param(5.0, "a reservation is passed by at most this many times its estimate")
    empty_workers: EmptyWorkers = param(
        "random", "long tasks take idle workers at random, or the first: the authors' simulator packs them"
    )
    short_placement: ShortPlacement = param("probes", "short jobs: by probes, or centrally by least waiting time (LWL)")
    stale_s: Seconds = param(0.0, "least-wait placement sees the state of the last multiple of this (DLWL)")
    estimate_low: PositiveRatio = param(1.0, "estimates are off by a random factor from this ...")
    estimate_high: PositiveRatio = param(1.0, "... to this; both 1: exact means")
    reliable: bool = param(False, "bear faults: numbered and acknowledged messages; costs more of them")


class PhoenixConfig(HybridConfig, frozen=True, forbid_unknown_fields=True):
    """Parameters of Phoenix: Eagle's, and those of its monitor."""

    heartbeat_s: Period = param(9.0, "between reports to the monitor, seconds")
    crv_threshold: Ratio = param(1.0, "a constraint is scarce above so many waiting tasks per worker")
    wait_load: float = param(0.9, "a queue is crowded when its estimated wait exceeds that at this load", ge=0, lt=1)
    reorder_max: Count = param(5, "tasks with the scarcest constraint that may pass one in front of them")
    soft_constraints: tuple[int, ...] = param(
        (),
        "numbers of constraints that are dropped where no worker has all (the paper: clock, network); "
        "none unless you know what the numbers stand for",
    )


def build(cluster: Cluster, config: HybridConfig, streams: Streams, watch: WatchSetting | None = None) -> Deployment:
    """Components for a cluster; with `watch` those of Phoenix, without a monitor.

    Raises:
        InputError: parameters that exclude each other.
    """
    if config.estimate_low > config.estimate_high:
        raise InputError("hybrid:estimate_low", f"{config.estimate_low} is above estimate_high {config.estimate_high}")
    if config.stealing != "off" and (config.sticky or config.sharing != "none"):
        raise InputError("hybrid:stealing", "goes with neither sticky nor sharing; give stealing=off")
    matches = Matches(cluster.constraints, Anchors(cluster.constraints))
    share = config.short_part
    short_only = [int((machine + 1) * share) > int(machine * share) for machine in range(len(cluster.slots))]
    layout = Layout(cluster.constraints, cluster.slots, short_only, matches)
    step = config.schedulers + 1
    addresses = (*(f"scheduler/{number}" for number in range(config.schedulers)), "central/0")
    components: dict[str, Component] = {}
    setting = scheduler_setting(config)
    for number, address in enumerate(addresses[:-1]):
        stream = streams.of(address)
        sampler = Sampler(cluster.constraints, matches, stream.random, replacement=config.replacement)
        components[address] = Scheduler(
            layout,
            sampler,
            setting,
            stream,
            Numbers(number, step),
            demand=DemandReport(watch) if watch is not None else None,
            negotiation=Negotiation(watch.soft, watch.supply) if watch is not None and watch.soft else None,
        )
    wait = LeastWait(
        cluster.slot_count,
        streams.of("central/0").random,
        in_order=config.empty_workers == "first",
        request_us=REQUEST_US,
        stale_us=round(config.stale_s * SECOND),
    )
    components["central/0"] = Central(
        layout,
        wait,
        Numbers(config.schedulers, step),
        shared=config.sharing != "none",
        demand=DemandReport(watch) if watch is not None else None,
    )
    general = tuple(node for node, only in zip(layout.nodes, short_only, strict=True) if not only)
    shared = WorkerSetting(
        schedulers=addresses,
        general=general,
        stealing=config.stealing,
        steal_attempts=config.steal_attempts,
        steal_after_vain=config.steal_after_vain,
        steal_max=config.steal_max,
        sticky=config.sticky,
        order=config.order,
        bypass_max=config.bypass_max,
    )
    for machine, address in enumerate(layout.nodes):
        draws = SmallRandom(streams.number(address) if config.stealing != "off" else 0)
        slots = cluster.slots[machine]
        crowd = CrowdReport(watch, slots) if watch is not None else None
        scarce = ScarceFirst(watch) if watch is not None else None
        components[address] = Worker(slots, cluster.constraints[machine], shared, draws, crowd, scarce)
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
        soft=sum(1 << k for k in set(config.soft_constraints)),
    )
    deployment = build(cluster, msgspec.structs.replace(config, reliable=False), streams, watch)
    schedulers = [f"scheduler/{number}" for number in range(config.schedulers)]
    components = {**deployment.components, watch.monitor: Monitor(watch, schedulers)}
    whole = msgspec.structs.replace(deployment, components=components)
    return linked(whole, MESSAGES) if config.reliable else whole


REQUEST_US = 1_000
"""A request and its answer at the published delay of 0.5 ms; the published estimate of a wait adds it."""


def scheduler_setting(config: HybridConfig) -> SchedulerSetting:
    """The parameters of the schedulers."""
    return SchedulerSetting(
        probe_ratio=config.probe_ratio,
        probes_min=config.probes_min,
        cutoff_us=round(config.cutoff_s * SECOND),
        sharing=config.sharing,
        rounds=config.rounds,
        sticky=config.sticky,
        cancellation=config.cancellation,
        short_placement=config.short_placement,
        estimate_low=config.estimate_low,
        estimate_high=config.estimate_high,
        central="central/0",
    )


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
    **{stage: found for stage, found in STAGES.items() if stage is not Stage.T12},
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
