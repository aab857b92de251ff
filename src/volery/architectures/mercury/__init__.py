"""Mercury: central scheduling of guaranteed containers, distributed of queueable ones (Karanasos et al., ATC 2015).

Roles    Scheduler (many; jobs come in here), Coordinator (one; also the central scheduler), Node (one per machine).
Flow     queueable: Submit > Place > (Returned > Place)* > Completed. Guaranteed: Submit > GuaranteedRequest >
         Start > Completed. Every heartbeat with news: Heartbeat > Loads, Limit.
Deviates The paper was not at hand, only its abstract: "a hybrid resource management framework that supports the full
         spectrum of scheduling, from centralized to distributed", with an interface to "trade-off between scheduling
         overhead and execution guarantees". The rest is from the documentation of its implementation in Apache Hadoop
         (YARN, "Opportunistic Containers"): guaranteed containers only where no guaranteed one holds the resources,
         started at once, in place of the queueable ("opportunistic") ones that have started last; others queued, first
         come first served; distributed schedulers that go round the least loaded nodes, of which the central side tells
         them (10 nodes, every 1,000 ms); limits of queues (mean plus 1 standard deviation, from 5 to 15), beyond which
         a node discards containers, to be placed elsewhere; a percentage of a job's tasks in queueable containers. The
         order by what is short or belongs to a job near its end is "future work" there (YARN-5886). Restated, not read
         in a text at hand: heartbeats every second; that nodes are compared by estimated wait (the code of YARN can;
         its default is the length); that the short tasks are the ones to be queueable.
         Ours: a wait is estimated by the jobs' mean durations, and a limit of waits has no bounds (YARN's has); a
         scheduler adds its own placements to what it was told, draws one of the least loaded nodes, and keeps tasks
         while all queues are full; a container is shed three times at most; a guaranteed container avoids busy nodes
         where it can and is started by the central scheduler itself, which saves the way through the job's own
         manager; killed work begins anew. Left out: shares of users, locality, overcommitment, promotion, pausing.
"""

from __future__ import annotations

from volery.architectures.mercury.coordinator import Coordinator, LoadView, Shaping
from volery.architectures.mercury.node import COORDINATOR, Load, Node, NodeParameters, QueueOrder
from volery.architectures.mercury.scheduler import Containers, Kinds, LeastLoaded, Scheduler
from volery.core.bounds import Components, Parameters, Period, PositiveCount, Ratio, Seconds, param
from volery.core.component import Architecture, Component, Deployment, sent_by
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import Anchors, Matches
from volery.roles.node import Heartbeats
from volery.roles.recovery.channel import LINK_MESSAGES, linked
from volery.roles.reservations import Numbers


class MercuryConfig(Parameters, frozen=True):
    """Kinds of containers, measures and limits of load, and periods of reports."""

    schedulers: Components = param(10, "distributed schedulers")
    containers: Containers = param(
        "hybrid", "kind of container: all guaranteed, all queueable, a share of the tasks queueable, or the short ones"
    )
    cutoff_s: Seconds = param(1129.532, "with hybrid: jobs with at most this mean task duration are short, seconds")
    share: float = param(0.5, "with mixed: share of the tasks in queueable containers", ge=0, le=1)
    load: Load = param("wait", "measure of a node's load: estimated wait, or length of the queue")
    nodes_used: PositiveCount = param(10, "least loaded nodes of which a container goes to a random one")
    order: QueueOrder = param("fifo", "queue of a node: arrival, fewest tasks left in the job, or shortest task")
    balance: bool = param(True, "nodes shed what waits beyond the limit; it is placed elsewhere")
    limit_deviations: Ratio = param(1.0, "limit: mean load of all nodes plus this many standard deviations")
    queue_min: PositiveCount = param(5, "with load=length: least limit, containers")
    queue_max: PositiveCount = param(15, "containers in the queue of a node, beyond which none is sent to it")
    heartbeat_s: Period = param(1.0, "between two heartbeats of a node, seconds")
    sort_s: Period = param(1.0, "between two messages about loads to the schedulers, seconds")
    reliable: bool = param(False, "bear faults: numbered and acknowledged messages; costs more of them")


MESSAGES = sent_by(Scheduler, Coordinator, Node)


def build(cluster: Cluster, config: MercuryConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: heartbeats too frequent for so many nodes, or a least limit above the largest.
    """
    if config.queue_min > config.queue_max:
        raise InputError("mercury:queue_min", f"{config.queue_min} is above queue_max {config.queue_max}")

    nodes = [f"node/{machine}" for machine in range(len(cluster.slots))]
    try:
        clock = Heartbeats(round(config.heartbeat_s * SECOND), len(nodes))
    except ValueError as error:
        raise InputError("mercury:heartbeat_s", str(error)) from None

    schedulers = tuple([f"scheduler/{number}" for number in range(config.schedulers)])
    matches = Matches(cluster.constraints, Anchors(cluster.constraints))

    components: dict[str, Component] = {}

    for number, address in enumerate(schedulers):
        random = streams.of(address).random
        places = LeastLoaded(cluster, matches, config.load, config.nodes_used, config.queue_max, random)
        kinds = Kinds(config.containers, config.share, round(config.cutoff_s * SECOND))
        components[address] = Scheduler(kinds, places, matches, Numbers(number, config.schedulers))

    components[COORDINATOR] = Coordinator(
        cluster,
        schedulers,
        matches,
        streams.of(COORDINATOR).random,
        LoadView(cluster, config.load),
        round(config.sort_s * SECOND),
        Shaping(config.load, config.limit_deviations, config.queue_min, config.queue_max) if config.balance else None,
    )

    setting = NodeParameters(schedulers, clock, config.load, config.order)
    seats = list(range(len(nodes)))
    # Machines report in a random order, so that those of one kind do not report one after the other.
    streams.of("mercury/heartbeats").shuffle(seats)
    for machine, address in enumerate(nodes):
        components[address] = Node(cluster.slots[machine], seats[machine], setting)

    machines = {address: machine for machine, address in enumerate(nodes)}
    deployment = Deployment(components, machines, lambda job: schedulers[job % len(schedulers)])
    return linked(deployment, MESSAGES) if config.reliable else deployment


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J4: Realisation("Scheduler.on_submit", "full", "schedulers in parallel"),
    Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("Node._in_order", "full", "arrival, fewest tasks left in the job, or shortest task"),
    Stage.T3: Realisation("Scheduler._schedule", "full", "by kind of container, and by constraints"),
    Stage.T4: Realisation("Scheduler._place", "full", "early: a queueable container waits on its node"),
    Stage.T5: Realisation("Node._next", "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_completed"),
    Stage.T10: Realisation("Node.on_start", "full", "the queueable container that has started last"),
    Stage.T12: Realisation("Node.on_limit", "partial", "queued containers, not running ones, move", "balance"),
    Stage.M2: Realisation("Scheduler._schedule", "full", "guaranteed containers central, queueable ones distributed"),
    Stage.M3: Realisation("Scheduler._place", "full", "all nodes"),
    Stage.M5: Realisation("LeastLoaded.choose", "full", "the least loaded nodes"),
    Stage.M6: Realisation("Scheduler._place", "full", "the task itself, which waits there"),
    Stage.R1: Realisation("Coordinator.on_heartbeat", "full", "loads and ends, by heartbeats"),
    Stage.R3: Realisation("LeastLoaded.choose", "full", "nodes that satisfy the constraints"),
    Stage.R4: Realisation("Coordinator.on_request", "full", "slots without guaranteed containers; queues with room"),
    Stage.R5: Realisation("LeastLoaded.choose", "full", "one of the nodes with the least estimated wait"),
}

CAPTIONS = {
    "Submit": "Job {job}{user} comes to {receiver}, a scheduler: {tasks_of_job}.",
    "GuaranteedRequest": "{sender} asks for guaranteed containers for {tasks}: to start at once and never be killed.",
    "Start": "{sender} has found a slot that no guaranteed container holds: {receiver} starts {tasks} at once.",
    "Place": "{sender} queues {tasks} at {receiver}, one of the least loaded nodes that it was told of.",
    "Returned": "{sender} could not keep {tasks}: it was shed or had to make room, and is placed again.",
    "Heartbeat": "{sender} reports how long a task would wait there, and which guaranteed containers have ended.",
    "Loads": "{sender} passes on how loaded the nodes are.",
    "Limit": "{sender} has found {receiver} far above the mean load: it is to shed what waits beyond the limit.",
    "Completed": "{sender} tells {receiver} that {tasks} has finished.",
}
"""Texts of recordings, for readers who do not know the design."""

MERCURY = Architecture(
    name="mercury",
    summary="hybrid: guaranteed containers start at once, centrally; others queue at the nodes with the least wait",
    source="Karanasos, Rao, Curino, Douglas et al.: Mercury, USENIX ATC 2015; Apache Hadoop: Opportunistic Containers",
    defaults=MercuryConfig(),
    messages=MESSAGES | LINK_MESSAGES,
    stages=STAGES,
    build=build,
    hops=2,
    tolerates=frozenset({"loss", "duplication", "delay", "partition"}),
    bearing={"reliable": True},
    fuzzed={"containers": ("guaranteed", "queueable", "mixed"), "load": ("wait", "length"), "queue_max": (5, 15)},
    features={"constraints": ""},
    captions=CAPTIONS,
)
