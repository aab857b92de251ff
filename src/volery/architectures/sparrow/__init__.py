"""Sparrow: batch sampling with late binding, by schedulers that share nothing (Ousterhout et al., SOSP 2013).

Roles    Scheduler (many), NodeMonitor (one per machine); EarlyScheduler and EarlyNodeMonitor without late binding.
Flow     Submit > Probe (a reservation) > (a slot frees) > TaskRequest > Assign | NoTask > Completed; Withdraw.
         Without late binding: Submit > Probe > QueueLength > Place > Completed.
Deviates Jobs go to schedulers round robin. A job of more than 4,096 tasks is probed for chunk by chunk. Tasks of a job
         that need the same constraints are sampled as one batch, and reservations are shared between a job's batches
         where the node fits, its own first (the public code: a list of tasks per node). Users' priorities and weights
         are parameters, since jobs carry none; the weights' policy is unspecified in the paper. Schedulers do not fail
         over. See docs/papers.md.
"""

from __future__ import annotations

from volery.architectures.sparrow.node import EarlyNodeMonitor, NodeMonitor, NodeSetting
from volery.architectures.sparrow.scheduler import Batches, EarlyScheduler, Scheduler, SparrowConfig
from volery.core.component import Architecture, Component, Deployment, sent_by
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.match import Anchors, Matches, Sampler
from volery.roles.recovery.channel import LINK_MESSAGES, linked
from volery.roles.reservations import Numbers

MESSAGES = sent_by(Scheduler, EarlyScheduler, NodeMonitor, EarlyNodeMonitor)


def build(cluster: Cluster, config: SparrowConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: a weight that is not above 0.
    """
    for user, weight in config.weights.items():
        if weight <= 0:
            raise InputError(f"sparrow:weights.{user}", f"a weight must be above 0, not {weight}")

    nodes = [f"node/{machine}" for machine in range(len(cluster.constraints))]
    schedulers = tuple(f"scheduler/{number}" for number in range(config.schedulers))
    matches = Matches(cluster.constraints, Anchors(cluster.constraints))
    constraints_of = dict(zip(nodes, cluster.constraints, strict=True))
    cutoff_us = round(config.cutoff_s * SECOND)

    components: dict[str, Component] = {}
    for number, address in enumerate(schedulers):
        numbers = Numbers(number, config.schedulers)
        random = streams.of(address).random
        sampler = Sampler(cluster.constraints, matches, random, replacement=config.replacement)
        batches = Batches(nodes, sampler, config, numbers)
        if config.late_binding:
            components[address] = Scheduler(batches, constraints_of, config, numbers)
        else:
            components[address] = EarlyScheduler(batches, numbers)
    node_role = NodeMonitor if config.late_binding else EarlyNodeMonitor
    node_setting = NodeSetting(schedulers, cutoff_us, config.queue, config.priorities, config.weights)

    for machine, address in enumerate(nodes):
        components[address] = node_role(cluster.slots[machine], node_setting)

    machines = {address: machine for machine, address in enumerate(nodes)}
    deployment = Deployment(components, machines, lambda job: schedulers[job % len(schedulers)])
    return linked(deployment, MESSAGES) if config.reliable else deployment


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J4: Realisation("Scheduler.on_submit", "full", "schedulers in parallel, sharing nothing"),
    Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last result"),
    Stage.T2: Realisation("NodeMonitor._next", "full", "first come, strict priority or weighted fair, per worker"),
    Stage.T3: Realisation("Batches._send", "full", "batches of tasks with the same constraints"),
    Stage.T4: Realisation("Scheduler.on_task_request", "full", "late binding"),
    Stage.T5: Realisation("NodeMonitor.on_assign", "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_completed"),
    Stage.M2: Realisation("Batches._send", "full", "schedulers over node monitors"),
    Stage.M3: Realisation("Batches._send", "full", "the node monitors of all workers"),
    Stage.M5: Realisation("Batches._send", "full", "random sample, some more than there are tasks"),
    Stage.M6: Realisation("NodeMonitor.on_probe", "full", "a reservation, which the node asks to have filled"),
    Stage.R3: Realisation("Batches._send", "full", "probes go to machines that satisfy the constraints"),
    Stage.R4: Realisation("NodeMonitor.on_probe", "full", "reservations wait for a free slot"),
    Stage.R5: Realisation("Scheduler.on_task_request", "full", "the sampled nodes that have a free slot first"),
}

CAPTIONS = {
    "Submit": "Job {job}{user} comes to {receiver}, a scheduler: {tasks_of_job}. It knows of no machine what it does.",
    "Probe": (
        "{sender} probes {receiver}, drawn at random: a reservation without a task. It sends more probes than tasks."
    ),
    "TaskRequest": "{sender} has a free slot, and asks {receiver} for the task that its reservation stands for.",
    "Assign": "{sender} binds late: {receiver} was among the first to have a slot, and gets {tasks}.",
    "NoTask": "{sender} has no task left for {receiver}: other machines were faster. Its reservation is void.",
    "Place": "{sender} has counted queues, and gives {tasks} to {receiver}.",
    "Completed": "{sender} tells {receiver} that {tasks} has finished.",
}
"""Texts of recordings, for readers who do not know the design."""

SPARROW = Architecture(
    name="sparrow",
    summary="decentralised: random probes leave reservations, and the workers that are free first get the tasks",
    source="Ousterhout, Wendell, Zaharia, Stoica: Sparrow, SOSP 2013, sections 3 and 4",
    defaults=SparrowConfig(),
    messages=MESSAGES | LINK_MESSAGES,
    stages=STAGES,
    build=build,
    hops=4,
    tolerates=frozenset({"loss", "duplication", "delay", "partition"}),
    bearing={"reliable": True},
    features={"constraints": "", "users": "queue=fair|priority"},
    captions=CAPTIONS,
)
