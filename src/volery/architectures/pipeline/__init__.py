"""Pipeline: the reference architecture made executable, a scheduler assembled from stage policies by name.

Andreadis, Versluis, Mastenbroek, Iosup: A Reference Architecture for Datacenter Scheduling, SC18 (arXiv 1808.04224).

Roles    Scheduler (one), Node (one per machine); with lrms > 0 LocalManager (many) between the two, and with
         broker_machines > 0 a further LocalManager that is the broker.
Parts    Cycle (T2 to T4, T10, T11) with targets (machines, or managers), queue and iteration; Speculation (T9),
         Migration (T12), Monitor (T6), Allocs (R5), Autoscaler (R6, R7), DelayScheduling (R3), Broker (M1).
Flow     Submit > J2, J3, J5 > T1 > (cycle: T2, T3, R2-R5, T4 per task) > Launch > (T5) > (Report: T6) > Completed > T7,
         J6, J7 > (T8) > Cleaned.
         Two levels: .. > (cycle: T2, T3, M4, M5) > Pass (M6) > (cycle of the LRM: T2, T3, R2-R5, T4) > Launch > ..
Deviates Which policies there are, and what their parameters are, is ours where the paper names none; see
         docs/reference/pipeline.md. Jobs are handled one after another; a job's order (J3) decides between tasks that
         the order of tasks (T2) leaves alike. R4 counts what was asked for; T6=reclaim gives away what is not used.
         What tasks use is a model of the nodes (use_least to use_most), since no trace format here has it; progress is
         the time for which a task has run. Files of an attempt that was ended are deleted at once.
"""

from __future__ import annotations

from random import Random
from typing import Annotated, Any, Literal

import msgspec

from volery.architectures.pipeline.allocs import Allocs
from volery.architectures.pipeline.assembly import Assembly, CycleParts
from volery.architectures.pipeline.attempts import Migration, Speculation
from volery.architectures.pipeline.autoscaler import Autoscaler, Rental, price_factors
from volery.architectures.pipeline.cycle import Cycle
from volery.architectures.pipeline.delay import DelayScheduling
from volery.architectures.pipeline.iterations import BACKFILLING
from volery.architectures.pipeline.local_manager import BROKER, Broker, LocalManager
from volery.architectures.pipeline.monitor import Monitor
from volery.architectures.pipeline.node import Node, Upkeep, Use
from volery.architectures.pipeline.policies import METHODS, Policy, parse
from volery.architectures.pipeline.policies.jobs import PoorestUser
from volery.architectures.pipeline.policies.tasks import ByFairness, NoCopies, NoMigration, NoMonitor, NoPreemption
from volery.architectures.pipeline.scheduler import Scheduler
from volery.architectures.pipeline.targets import (
    MachineInventory,
    MachineTargets,
    ManagerTargets,
    TaggedTargets,
    Targets,
)
from volery.core.bounds import (
    Components,
    Count,
    OptionalComponents,
    Parameters,
    Period,
    Ratio,
    Seconds,
    WholeMicroseconds,
    param,
)
from volery.core.capabilities import (
    CrashRecovery,
    DueShares,
    GangPlacement,
    Overcommitment,
    Replication,
    Resumption,
    TagPlacement,
)
from volery.core.component import (
    Architecture,
    Component,
    Conformance,
    Deployment,
    PolicyNames,
    UnusedFeatures,
    sent_by,
)
from volery.core.errors import InputError
from volery.core.features import GANGS, RACKS
from volery.core.model import SECOND, Address, Cluster, split_evenly
from volery.core.records import ATTEMPT_MAX, Billing
from volery.core.resources import units_per_processor
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.locality import ByTime
from volery.roles.recovery.channel import LINK_MESSAGES, linked

Share = Annotated[float, msgspec.Meta(ge=0, le=1)]


class PipelineConfig(Parameters, frozen=True):
    """A policy per stage, as NAME or NAME/parameter:value/...; `volery policy list` names them."""

    J2: str = param("all", "which jobs are eligible")
    J3: str = param("fifo", "order of jobs: between tasks that T2 leaves alike")
    J4: Components = param(1, "tasks that are decided on at once; divides what they cost (task_cost_us)")
    J5: str = param("none", "what a job needs before its tasks are queued")
    T2: str = param("by-job", "order of tasks")
    T3: Literal["skip", "strict", "easy", "conservative", "every"] = param(
        "skip",
        "behind a task that does not fit: all are tried, none, those that do not delay it, or those "
        "that delay nobody before them; every: as skip, but also tasks that are like one that did not fit",
    )
    T5: str = param("none", "what a task needs on its machine before it runs")
    T6: str = param("none", "what follows from reports on running tasks")
    T8: str = param("none", "what is deleted on a machine after a task; it is taken meanwhile")
    J7: str = param("none", "what is deleted after a job; it counts as its user's eligible job meanwhile")
    T9: str = param("none", "how many attempts of a task run at once")
    T10: str = param("none", "who loses a running task to one that fits nowhere")
    T11: str = param("none", "what becomes of a task whose machine has died")
    T12: str = param("none", "which running tasks go on elsewhere; implies progress=keep")
    alloc_s: Seconds = param(0.0, "time for which room of a task that has ended is kept for further tasks of its job")
    use_least: Share = param(1.0, "share of its request that a task uses at least; needs T6")
    use_most: Share = param(1.0, "share of its request that a task uses at most: each draws its own")
    use_jumps: Share = param(0.0, "probability that a task draws anew at a report")
    detection_s: Period = param(1.0, "within this time a scheduler is told that a machine has died; needs T11")
    reliable: bool = param(False, "numbered and acknowledged messages: bears loss, delay and partitions")
    progress: Literal["restart", "keep"] = param(
        "restart", "where a task goes on whose attempt was ended on purpose: from zero, or where it was"
    )
    R2: str = param("all", "machines that a user may have")
    R3: str = param("none", "how far from its input a task may run, beside constraints")
    R5: str = param("best-fit", "which machine a task takes, of those with enough")
    R6: str = param("first", "which machines are provisioned and released; needs R7")
    R7: str = param("none", "how many processors, or slots, are there; none: all machines are always on")
    boot_s: Seconds = param(120.0, "until a provisioned machine is on; needs R7")
    billing_s: Seconds = param(3600.0, "a machine is paid for by whole intervals; 0: to the microsecond")
    machine_price: Ratio = param(0.0, "of a machine for an hour, in any currency")
    unit_price: Ratio = param(1.0, "more for each of its processors, or slots")
    prices: str = param("", "factors of the prices in successive hours, repeated, as 1+1+0.4; empty: constant")
    scale_s: Period = param(60.0, "time between two decisions of R7")
    rest_s: Seconds = param(3600.0, "after so long without news and jobs there is what was there at first")
    M1: str = param("none", "which tasks go to the broker; needs broker_machines")
    M4: str = param("all", "local resource managers that may be passed a task; needs lrms")
    M5: str = param("worst-fit", "which of them is; needs lrms")
    lrms: OptionalComponents = param(0, "local resource managers between scheduler and machines (M2); 0: monolithic")
    broker_machines: Count = param(0, "the last machines of the cluster are the broker's (B)")
    broker_delay_s: Seconds = param(60.0, "how long the broker keeps a task first")
    cycle_s: Seconds = param(0.0, "period of cycles; 0: whenever something changes")
    cycle_cost_us: WholeMicroseconds = param(0, "what a cycle costs")
    backfilling: Literal["per-instant", "per-event"] = param(
        "per-instant", "T3=easy or conservative: decide once after all of an instant, or after each event"
    )
    task_cost_us: WholeMicroseconds = param(0, "what a cycle costs more per task tried")
    tags: bool = param(False, "heed tag constraints between tasks: affinity, anti-affinity, cardinality (R3)")


POLICY_STAGES = tuple([stage for stage in Stage if stage in METHODS])
ENTRY: Address = "scheduler/0"
DEFAULTS = PipelineConfig()
UNTAGGED = ("J2", "T3", "T5", "T6", "T8", "T9", "T10", "T12", "alloc_s", "R3", "R7", "lrms", "broker_machines")
"""Parameters that keep their defaults beside `tags`."""
GANGLESS = ("T9", "T12", "R3", "R7", "alloc_s", "tags", "lrms", "broker_machines")
"""Parameters beside which gangs are not started whole."""
BOTH = "T3=" + " or ".join(BACKFILLING)
EXCLUSIONS = (
    ("T9", ("T10", "reserving"), f"copies of tasks cannot be combined with T10, {BOTH}; remove one of them"),
    (
        "R3",
        ("T9", "T10", "T12", "R7", "reserving", "lrms", "broker_machines"),
        f"delay scheduling cannot be combined with T9, T10, T12, R7, {BOTH}, lrms or a broker; remove one of them",
    ),
    ("alloc_s", ("T9", "reserving"), f"allocs cannot be combined with T9, {BOTH}; remove one of them"),
    ("T12", ("T9", "T11", "reserving"), f"migration cannot be combined with T9, T11, {BOTH}; remove one of them"),
)
"""Parameters that exclude others, where both are set, and the error."""


def _is_set(config: PipelineConfig, name: str) -> bool:
    """True where a parameter is not its default; `reserving`: where T3 reserves."""
    return config.T3 in BACKFILLING if name == "reserving" else getattr(config, name) != getattr(DEFAULTS, name)


def chosen(config: PipelineConfig) -> dict[Stage, Policy]:
    """The policies that a configuration names, by stage.

    Raises:
        InputError: naming stage and policy, when one is unknown, or two do not go together.
    """
    policies = {stage: parse(stage, getattr(config, stage), f"pipeline:{stage}") for stage in POLICY_STAGES}

    has_turns = hasattr(policies[Stage.T2], "turns")
    is_drawn = getattr(policies[Stage.T2], "drawn", False)

    if hasattr(policies[Stage.J3], "turns") and config.T2 != "by-job":
        raise InputError("pipeline:J3", f"{config.J3!r} selects a job before every task, so it needs T2=by-job")

    # Both reserve room for the first task: its place must not change before it starts.
    is_reserving = config.T3 in BACKFILLING
    if is_reserving and (has_turns or is_drawn or hasattr(policies[Stage.J3], "turns")):
        name = config.T2 if has_turns or is_drawn else config.J3
        raise InputError(
            "pipeline:T3", f"{config.T3} reserves for the first task, but {name!r} changes the order; take a fixed one"
        )

    _check_preemption(config, policies)
    _check_tags(config)

    if config.T9 != "none" and (config.progress == "keep" or policies[Stage.T11].period_us()):  # type: ignore[attr-defined]  # of T11
        raise InputError(
            "pipeline:T9", "copies of tasks cannot be combined with progress=keep or checkpoints; take progress=restart"
        )

    for name, excluded_names, problem in EXCLUSIONS:
        if _is_set(config, name) and any(_is_set(config, excluded) for excluded in excluded_names):
            raise InputError(f"pipeline:{name}", problem)

    if getattr(policies[Stage.J2], "managed", False):
        _check_masters(config)

    if config.T6.startswith("reclaim") and (config.T9 != "none" or config.T3 != "skip"):
        raise InputError(
            "pipeline:T6",
            "what is reclaimed may be taken back at any time: reclaim cannot be combined with T9, or T3 "
            "other than skip; remove one of them",
        )

    if config.use_least > config.use_most:
        raise InputError("pipeline:use_least", f"{config.use_least} is more than use_most={config.use_most}; lower it")

    if config.R7 == "none" and config.R6 != "first":
        raise InputError(
            "pipeline:R6", f"{config.R6!r} provisions machines, but all are always on without a policy of R7; set R7"
        )

    if config.lrms and getattr(policies[Stage.R7], "foresees", False):
        raise InputError(
            "pipeline:R7", f"{config.R7!r} looks into workflows, which local managers do not receive; take lrms=0"
        )

    return policies


def _check_masters(config: PipelineConfig) -> None:
    """Refuse what would begin a master twice, reckon with its end, or place it elsewhere than its job's other tasks."""
    for name in ("T9", "T11", "reserving", "lrms", "broker_machines"):
        if _is_set(config, name):
            parameter = "T3" if name == "reserving" else name
            raise InputError(
                "pipeline:J2",
                f"the room of a master is taken until its job is done, and {parameter}={getattr(config, parameter)} "
                f"does not know that; take {parameter}={getattr(DEFAULTS, parameter)}",
            )


def _check_tags(config: PipelineConfig) -> None:
    """Refuse what makes tasks start later than they are placed, move, or stand in the way of others with their tags."""
    # The first of these that differs is named; the others may have to change as well.
    changed_parameter = next((name for name in UNTAGGED if _is_set(config, name)), None)

    if config.tags and changed_parameter is not None:
        raise InputError(
            "pipeline:tags",
            f"tag constraints need one scheduler under which tasks start where and when they are placed, and which "
            f"passes over those that wait: {changed_parameter}={getattr(config, changed_parameter)} has none. Take "
            f"{changed_parameter}={getattr(DEFAULTS, changed_parameter)}, or tags=false",
        )


def _check_preemption(config: PipelineConfig, policies: dict[Stage, Policy]) -> None:
    preempting = policies[Stage.T10]
    if isinstance(preempting, NoPreemption):
        return

    if config.T3 in BACKFILLING:
        raise InputError(
            "pipeline:T10",
            f"{config.T3} reserves by the ends of running tasks, and preemption changes them; take T3=skip or strict",
        )

    if isinstance(preempting, ByFairness):
        order = policies[Stage.T2]
        if not isinstance(order, PoorestUser) or order.shares != preempting.shares:
            expected = f"drf/shares:{preempting.shares}" if preempting.shares else "drf"
            raise InputError(
                "pipeline:T10", f"T10=fairness serves users below their share first, so it needs T2={expected}"
            )


def starts_gangs(config: PipelineConfig) -> bool:
    """True if gangs are started whole: one scheduler places each task once, on machines that are always on."""
    return not config.J2.startswith("managed") and not any(_is_set(config, name) for name in GANGLESS)


def unused(config: Any) -> frozenset[str]:
    """The declared features that a configuration does not use."""
    return frozenset() if starts_gangs(config) else frozenset({GANGS, RACKS})


def assembly(config: PipelineConfig) -> Assembly:
    """The assembly that a configuration describes.

    Raises:
        InputError: as `chosen`.
    """
    return Assembly(
        {stage.value: policy for stage, policy in chosen(config).items()},
        config.T3,
        round(config.cycle_s * SECOND),
        config.cycle_cost_us,
        config.task_cost_us,
        config.J4,
        config.T3 in BACKFILLING and config.backfilling == "per-instant",
        round(config.alloc_s * SECOND),
        starts_gangs=starts_gangs(config),
    )


def _check_machines(config: PipelineConfig, cluster: Cluster, machine_count: int) -> None:
    if config.reliable and config.T11 != "none":
        raise InputError(
            "pipeline:reliable",
            "reliable and T11 exclude each other: behind lossy links a partitioned node looks failed. Set one of them",
        )
    if (config.M1 != "none") != (config.broker_machines > 0):
        raise InputError(
            "pipeline:broker_machines",
            "a broker needs machines and a policy of M1; set broker_machines and M1, or neither",
        )

    if machine_count < max(1, config.lrms):
        count = len(cluster.constraints)
        raise InputError("pipeline", f"{count} machines are too few for {config.lrms} LRMs and the broker's machines")

    if config.T6.startswith("reclaim") and not cluster.resources:
        raise InputError(
            "pipeline:T6",
            f"{config.T6!r} gives away amounts that tasks reserve and do not use, and the machines offer slots alone; "
            "give machines with amounts, or T6=none",
        )


def _schedulers(
    cluster: Cluster, config: PipelineConfig, parts: Assembly, streams: Streams, rental: Rental | None
) -> tuple[dict[Address, Component], dict[int, Address], list[Cycle]]:
    """The components that place tasks, the manager of each machine that is not the scheduler's, and their cycles."""
    count = len(cluster.constraints)
    own_count = count - config.broker_machines

    components: dict[Address, Component] = {}
    manager_of: dict[int, Address] = {}
    cycles: list[Cycle] = []
    broker = None

    def cycle(
        address: Address, inventory: MachineInventory, rental: Rental | None, delay: DelayScheduling | None = None
    ) -> Cycle:
        stream = streams.of(address)
        machines = MachineTargets(inventory, parts.policies, stream)
        targets: Targets = TaggedTargets(machines) if config.tags else machines
        cycles.append(_cycle(targets, parts, stream, rental, delay))
        return cycles[-1]

    if config.broker_machines:
        inventory = _inventory(cluster, range(own_count, count))
        broker = Broker(inventory, parts.policies["M1"])

        components[BROKER] = LocalManager(cycle(BROKER, inventory, None), ENTRY, round(config.broker_delay_s * SECOND))
        manager_of |= dict.fromkeys(inventory.numbers, BROKER)
    if config.lrms:
        inventories = [_inventory(cluster, numbers) for numbers in split_evenly(own_count, config.lrms)]
        managers = [f"lrm/{number}" for number in range(config.lrms)]
        stream = streams.of(ENTRY)
        upper = _upper(parts)
        targets = ManagerTargets(inventories, managers, upper.policies, stream)

        components[ENTRY] = _scheduler(_cycle(targets, upper, stream), upper, broker)
        for address, inventory in zip(managers, inventories, strict=True):
            components[address] = LocalManager(cycle(address, inventory, rental), ENTRY)
            manager_of |= dict.fromkeys(inventory.numbers, address)
    else:
        inventory = _inventory(cluster, range(own_count))
        waits_us = parts.policies["R3"].waits_us()

        delay = DelayScheduling(inventory.cluster, ByTime(*waits_us)) if waits_us else None
        components[ENTRY] = _scheduler(cycle(ENTRY, inventory, rental, delay), parts, broker, delay)
    return components, manager_of, cycles


MESSAGES = sent_by(Scheduler, LocalManager, Node)


def build(cluster: Cluster, config: PipelineConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: a policy that there is not, or that goes with amounts on machines with slots alone, or machines and
            managers that do not add up.
    """
    count = len(cluster.constraints)
    own_count = count - config.broker_machines
    _check_machines(config, cluster, own_count)

    parts = assembly(config)
    eligibility = parts.policies["J2"]
    slot_count = sum(cluster.slots[:own_count])
    if getattr(eligibility, "managed", False) and not cluster.resources and eligibility.jobs >= slot_count:
        problem = f"{eligibility.jobs} masters could take all of the {slot_count} slots, and wait for each other"
        raise InputError("pipeline:J2", f"{problem}; take managed/jobs:N with fewer")
    rental = None if config.R7 == "none" else _rental(config, own_count, units_per_processor(cluster.resources))
    components, manager_of, cycles = _schedulers(cluster, config, parts, streams, rental)

    first_machines = {machine for cycle_ in cycles for machine in cycle_.first_machines}
    use = Use(round(config.use_least * 1000), round(config.use_most * 1000), config.use_jumps)
    upkeep = Upkeep(config.T8 != "none", parts.policies["T6"].every_us(), use)

    def node(machine: int, incarnation: int) -> Node:
        rented = machine if rental is not None and machine < own_count else -1
        manager = manager_of.get(machine, ENTRY)
        on = not incarnation and machine in first_machines
        stream = streams.of(node_address(machine), incarnation) if upkeep.report_us else None
        return Node(manager, incarnation, rented, on=on, upkeep=upkeep, stream=stream)

    machines = {node_address(machine): machine for machine in range(count)}
    components |= {address: node(machine, 0) for address, machine in machines.items()}

    capabilities = _capabilities(config, parts, rental)
    checkpoint_us = parts.policies["T11"].period_us()
    if checkpoint_us is not None:
        pairs = tuple([(manager_of.get(machine, ENTRY), node) for node, machine in machines.items()])
        detection_us = round(config.detection_s * SECOND)
        capabilities.append(CrashRecovery(lambda address, number: node(machines[address], number), pairs, detection_us))

    deployment = Deployment(components, machines, lambda _: ENTRY, capabilities=tuple(capabilities))
    return linked(deployment, MESSAGES) if config.reliable and checkpoint_us is None else deployment


def _capabilities(config: PipelineConfig, parts: Assembly, rental: Rental | None) -> list[object]:
    """Capabilities that follow from parameters, beside the rebuilding of nodes."""
    # With local managers what runs is theirs, and no share can be kept by preemption above them.
    preempting = parts.policies["T10"]
    shares = preempting.due() if isinstance(preempting, ByFairness) and not config.lrms else {}

    is_resumed = config.progress == "keep" or config.T12 != "none"
    capabilities: list[object] = [DueShares(shares), Resumption(is_resumed, parts.policies["T11"].period_us() or 0)]
    capabilities += [Replication(ATTEMPT_MAX)] if config.T9 != "none" else []
    capabilities += [Overcommitment(2)] if config.T6.startswith("reclaim") else []  # reclaimed is what is reserved
    capabilities += [rental.billing] if rental is not None else []
    capabilities += [TagPlacement()] if config.tags else []
    capabilities += [GangPlacement(racks=True)] if parts.starts_gangs else []
    return capabilities


def _rental(config: PipelineConfig, count: int, per_processor: int) -> Rental:
    """The terms on which the first machines of a cluster, so many, are had; a processor may be several units."""
    boot_us, every_us, rest_us, interval_us = [
        round(seconds * SECOND) for seconds in (config.boot_s, config.scale_s, config.rest_s, config.billing_s)
    ]

    unit_price = config.unit_price / per_processor
    factors = tuple(price_factors(config.prices))

    billing = Billing(frozenset(range(count)), interval_us, config.machine_price, unit_price, factors)
    return Rental(boot_us, max(every_us, 1), rest_us, billing)


def _cycle(
    targets: Targets,
    assembly: Assembly,
    stream: Random,
    rental: Rental | None = None,
    delay: DelayScheduling | None = None,
) -> Cycle:
    policies = assembly.policies
    has_masters = getattr(policies["J2"], "managed", False)
    monitor = Monitor(policies["T6"]) if policies["T6"].every_us() else None
    parts = CycleParts(
        speculation=None if isinstance(policies["T9"], NoCopies) else Speculation(policies["T9"]),
        migration=Migration(policies["T12"]) if policies["T12"].every_us() else None,
        autoscaler=None if rental is None else Autoscaler(rental, policies["R6"], policies["R7"]),
        delay=delay,
        monitor=monitor,
        allocs=Allocs(assembly.alloc_us, monitor, has_masters=has_masters)
        if assembly.alloc_us or has_masters
        else None,
    )
    cycle = Cycle(targets, assembly, stream, parts)
    if isinstance(targets, TaggedTargets):
        targets.watch(cycle.queue.classes)
    return cycle


def _scheduler(cycle: Cycle, parts: Assembly, broker: Broker | None, delay: DelayScheduling | None = None) -> Scheduler:
    policies = parts.policies
    return Scheduler(cycle, policies["J2"], policies["J5"], policies["J7"], broker, delay)


def _upper(parts: Assembly) -> Assembly:
    """The assembly of a scheduler above local managers: what runs is theirs."""
    iteration = "skip" if parts.iteration in BACKFILLING else parts.iteration

    policies = {**parts.policies, "T6": NoMonitor(), "T9": NoCopies(), "T10": NoPreemption(), "T12": NoMigration()}
    return msgspec.structs.replace(parts, iteration=iteration, policies=policies, per_instant=False, alloc_us=0)


def node_address(machine: int) -> Address:
    """The address of a machine's node."""
    return f"node/{machine}"


def _inventory(cluster: Cluster, numbers: range) -> MachineInventory:
    """The inventory of some machines of a cluster, which users know by their numbers in the whole."""
    low = numbers.start
    high = numbers.stop

    part = msgspec.structs.replace(
        cluster,
        constraints=cluster.constraints[low:high],
        slots=cluster.slots[low:high],
        capacities=cluster.capacities[low:high],
        speeds=cluster.speeds[low:high],
        racks=cluster.racks[low:high],
    )
    return MachineInventory(part, [node_address(machine) for machine in numbers], numbers)


def named(config: Any) -> dict[Stage, str]:
    """Per stage, the policy that a configuration names; those of stages that it leaves out are not named."""
    policy_names = {stage: str(getattr(config, stage)) for stage in (*POLICY_STAGES, Stage.T3)}

    absent_stages = ([] if config.lrms else [Stage.M4, Stage.M5]) + ([] if config.broker_machines else [Stage.M1])
    absent_stages += [Stage.R6, Stage.R7] if config.R7 == "none" else []
    absent_stages += [
        stage
        for stage in (Stage.R3, Stage.J5, Stage.J7, Stage.T6, Stage.T8, Stage.T9, Stage.T10, Stage.T11, Stage.T12)
        if getattr(config, stage) == "none"
    ]

    return {stage: policy for stage, policy in policy_names.items() if stage not in absent_stages}


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J2: Realisation("Scheduler.admit", "full", "by policy"),
    Stage.J3: Realisation("Cycle.enqueue", "full", "by policy, between tasks that T2 leaves alike"),
    Stage.J4: Realisation("Scheduler.admit", "full", "one after another"),
    Stage.J5: Realisation("Scheduler._set_up", "full", "by policy: time to stage in", "J5=stage-in"),
    Stage.J6: Realisation("Scheduler._settle", "full", "JobDone after the last task"),
    Stage.J7: Realisation("Scheduler._clean_up", "full", "by policy: time to delete files", "J7=delete/files:10"),
    Stage.T1: Realisation("Scheduler._ready", "full", "dependencies finished"),
    Stage.T2: Realisation("Cycle.next_task", "full", "by policy"),
    Stage.T3: Realisation("Cycle.run", "full", "skip, strict, easy or conservative backfilling"),
    Stage.T4: Realisation("Cycle.submit_task"),
    Stage.T5: Realisation("Node.on_launch", "full", "by policy: time to stage in, then launched"),
    Stage.T6: Realisation("Monitor.reported", "full", "by policy: reports of nodes", "T6=overrun/period_s:0.1"),
    Stage.T8: Realisation("Node.clean", "full", "by policy: time to delete files", "T8=delete/files:10"),
    Stage.T9: Realisation("Speculation.replicate", "full", "by policy: the first to finish wins", "T9=fixed"),
    Stage.T10: Realisation("Cycle.preempt", "full", "by policy: killed, and back to the queue", "T10=priority"),
    Stage.T11: Realisation("Cycle.lose", "full", "by policy: restart or checkpoint", "T11=restart"),
    Stage.T12: Realisation("Migration.migrate", "full", "by policy, periodic", "T12=consolidate"),
    Stage.T7: Realisation("Scheduler.finish"),
    Stage.B: Realisation("LocalManager.on_pass", "partial", "a stub: machines of its own after a delay", "M1=long"),
    Stage.M1: Realisation("Scheduler._pass_to_broker", "full", "by policy", "M1=long"),
    Stage.M2: Realisation("ManagerTargets.count", "full", "distributed", "lrms=4"),
    Stage.M3: Realisation("ManagerTargets.fitting", "full", "all managers", "lrms=4"),
    Stage.M4: Realisation("ManagerTargets.fitting", "full", "by policy", "lrms=4"),
    Stage.M5: Realisation("ManagerTargets.select", "full", "by policy", "lrms=4"),
    Stage.M6: Realisation("ManagerTargets.message", "full", "passed to the LRM, which queues it", "lrms=4"),
    Stage.R1: Realisation("MachineTargets.fitting", "full", "all machines that are online"),
    Stage.R2: Realisation("Cycle.kind", "full", "by policy"),
    Stage.R3: Realisation("Cycle.kind", "full", "constraint bit vectors; by policy also distance from input"),
    Stage.R4: Realisation("MachineTargets.fitting", "full", "slots, or enough of each resource, as asked for"),
    Stage.R5: Realisation("MachineTargets.select", "full", "by policy"),
    Stage.R6: Realisation("Autoscaler.provision", "full", "by policy: machines boot and are paid for", "R7=react"),
    Stage.R7: Realisation("Autoscaler.wanted", "full", "by policy, periodic", "R7=react"),
}

PIPELINE = Architecture(
    name="pipeline",
    summary="the reference architecture made executable: a scheduler assembled from stage policies by name",
    source="Andreadis et al., SC18, section III",
    defaults=DEFAULTS,
    messages=MESSAGES | LINK_MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(
        hops=2, tolerates=frozenset({"duplication", "crash:node"}), fault_parameters={"T11": "restart"}, tags="tags"
    ),
    features={
        "constraints": "",
        "users": "J2=per-user or J3=bands|drf|hdrf or T2=bands|drf|hdrf|usage or R2=acl",
        "priorities": "J3=priority|bands or T2=priority|bands or T6=reclaim or T10=priority",
        "deadlines": "J3=edf or T2=edf",
        "limits": "T3=easy|conservative",
        "locality": "R3=delay",
        "amounts": "",
        "dependencies": "",
        "gangs": "",
        "racks": "",
    },
    capabilities=(PolicyNames(named), UnusedFeatures(unused)),
)
