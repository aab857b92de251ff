"""Slurm: a controller with a main loop and a backfill loop over whole jobs, as in Slurm 22.05.

Yoo, Jette, Grondona, JSSPP 2003; slurm.conf(5), the guides of the scheduler, and the source of Slurm 22.05.8.

Roles    Controller (one, slurmctld), Node (one per machine, slurmd).
Flow     Submit > (main loop, backfill loop) > Launch per task > Completed per task > JobDone.
Deviates A job is a gang, or an array with an element per task, or one task. Times are whole seconds, limits whole
         minutes; a job without a limit is planned by its estimate. Passes of the loops take no time and are never
         interrupted, and a loop runs only when something has changed: the main loop at half seconds, the backfill loop
         at whole ones. All resources are consumed, memory too. A requeued job is eligible after cred_expire.
         PreemptMode=CANCEL gives up the tasks. Not modelled: SUSPEND and gang scheduling, GraceTime, features,
         licenses, topology beyond one rack for a gang, limits of associations and QOS, CompleteWait, federations,
         heterogeneous jobs.
"""

from __future__ import annotations

from collections.abc import Callable

from volery.architectures.slurm.configuration import (
    partitions_of,
    preemption_of,
    priorities_of,
    reservations_of,
    weights_of,
)
from volery.architectures.slurm.controller import Controller
from volery.architectures.slurm.jobs import PendingQueue
from volery.architectures.slurm.nodes import NodeFacts, Nodes
from volery.architectures.slurm.parameters import PLACE, SlurmConfig
from volery.architectures.slurm.priority import ClusterSize
from volery.architectures.slurm.site import Fit, SlurmSite
from volery.core.capabilities import GangPlacement, Refusals
from volery.core.component import Architecture, Conformance, Deployment
from volery.core.errors import InputError
from volery.core.model import Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import NODE_MESSAGES, SCHEDULER, Node, with_nodes


def build(cluster: Cluster, config: SlurmConfig, streams: Streams) -> Deployment:
    """Build the controller and a node per machine.

    Raises:
        InputError: a partition, a weight or another parameter does not fit the cluster.
    """
    return build_with(Controller, cluster, config)


def build_with(controller_class: Callable[..., Controller], cluster: Cluster, config: SlurmConfig) -> Deployment:
    """As `build`, with another controller, as one that repeats recorded times.

    Raises:
        InputError: see `build`.
    """
    if config.conf:
        problem = "a slurm.conf is read by comparisons and studies alone; give its parameters one by one"
        raise InputError(f"{PLACE}conf", problem)
    table = NodeFacts(cluster, weights_of(config, len(cluster.slots)))
    partitions, default = partitions_of(config, table.every)
    is_exclusive, is_divided = config.SelectType == "select/linear", bool(config.PartitionName)
    site = SlurmSite(partitions, default, is_exclusive, reservations_of(config, table.every), is_divided)
    fit = Fit(table, cluster.resources, site)

    core_count = sum([fit.node_cores(node) for node in range(len(cluster.slots))])
    priorities = priorities_of(config, ClusterSize(len(cluster.slots), core_count), partitions)

    controller = controller_class(table, site, fit, config, priorities, preemption_of(config))
    deployment = with_nodes(cluster, SCHEDULER, controller)
    return deployment.replaced(Refusals(fit.refuses)).replaced(GangPlacement(unlike_members=False, racks=True))


SLURM = Architecture(
    name="slurm",
    summary="Slurm: multifactor priorities, a main loop and a backfill loop, partitions, preemption, arrays",
    source="Yoo et al., JSSPP 2003; slurm.conf(5) and source of Slurm 22.05",
    defaults=SlurmConfig(),
    messages=NODE_MESSAGES,
    stages={
        Stage.J1: Realisation("Controller.on_submit"),
        Stage.J2: Realisation("Fit.is_possible", "full", "the limits and nodes of a partition"),
        Stage.J3: Realisation(PendingQueue.add.__qualname__, "full", "tier, priority, submission"),
        Stage.J4: Realisation("Controller.on_submit", "full", "one job at a time"),
        Stage.J6: Realisation("Controller.on_completed", "full", "JobDone after the last task"),
        Stage.T2: Realisation(
            PendingQueue.add.__qualname__, "full", "tasks of a job together, or as elements of an array"
        ),
        Stage.T3: Realisation("Controller._pass", "full", "main loop, and backfilling with a plan"),
        Stage.T4: Realisation("Controller._start"),
        Stage.T5: Realisation(Node.on_launch.__qualname__, "partial", "launch without staging"),
        Stage.T7: Realisation("Controller.on_completed"),
        Stage.T10: Realisation("Controller._victims", "full", "by partition or QOS", "PreemptType"),
        Stage.R1: Realisation(Nodes.choose.__qualname__, "full", "the nodes of a partition"),
        Stage.R2: Realisation("Controller._pass", "full", "partitions and advance reservations"),
        Stage.R3: Realisation(Nodes.choose.__qualname__, "full", "constraint bit vectors"),
        Stage.R4: Realisation(Nodes.choose.__qualname__, "full", "cores and other resources, or whole nodes"),
        Stage.R5: Realisation(Nodes.choose.__qualname__, "full", "tightest set of consecutive nodes"),
    },
    build=build,
    conformance=Conformance(
        hops=2,
        tolerates=frozenset({"duplication"}),
        immediate={"batch_sched_delay": 0, "bf_interval": 1, "Epilog": True, "interactive": True},
    ),
    features={
        "constraints": "",
        "amounts": "",
        "gangs": "",
        "racks": "",
        "priorities": "",
        "partitions": "PartitionName",
        "users": "PriorityWeightFairshare or qos or reservations or bf_max_job_user or bf_max_job_user_part",
    },
)
