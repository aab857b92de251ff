"""Pipeline: the reference architecture made executable, a scheduler assembled from stage policies by name.

Andreadis, Versluis, Mastenbroek, Iosup: A Reference Architecture for Datacenter Scheduling, SC18 (arXiv 1808.04224).

Roles    Scheduler (one), Node (one per machine).
Flow     Submit > J2, J3, J5 > T1 > (cycle: T2, T3, R2-R5, T4 per task) > Launch > (T5) > Completed > T7, J6.
Deviates Which policies there are, and what their parameters are, is ours where the paper names none; see
         docs/reference/pipeline.md. Jobs are handled one after another; a job's order (J3) decides between tasks that
         the order of tasks (T2) leaves alike. R4 counts what was asked for, never what is used.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec

from volery.architectures.pipeline.messages import MESSAGES
from volery.architectures.pipeline.node import Node
from volery.architectures.pipeline.placing import Assembly, Place
from volery.architectures.pipeline.scheduler import Scheduler
from volery.core.component import Architecture, Component, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Address, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.policies.stages import Policy, parse

Named = Annotated[str, msgspec.Meta(description="see `volery policy list`")]


class PipelineConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A policy per stage, as NAME or NAME/parameter:value/...; `volery policy list` names them."""

    J2: Annotated[str, msgspec.Meta(description="which jobs are eligible")] = "all"
    J3: Annotated[str, msgspec.Meta(description="order of jobs: between tasks that T2 leaves alike")] = "fifo"
    J4: Annotated[
        int, msgspec.Meta(ge=1, description="tasks that are decided on at once; divides what they cost (task_cost_us)")
    ] = 1
    J5: Annotated[str, msgspec.Meta(description="what a job needs before its tasks are queued")] = "none"
    T2: Annotated[str, msgspec.Meta(description="order of tasks")] = "by-job"
    T3: Annotated[
        Literal["skip", "strict", "easy"],
        msgspec.Meta(description="behind a task that does not fit: all are tried, none, or those that do not delay it"),
    ] = "skip"
    T5: Annotated[str, msgspec.Meta(description="what a task needs on its machine before it runs")] = "none"
    R2: Annotated[str, msgspec.Meta(description="machines that a user may have")] = "all"
    R5: Annotated[str, msgspec.Meta(description="which machine a task takes, of those with enough")] = "best-fit"
    cycle_s: Annotated[float, msgspec.Meta(ge=0, description="period of cycles; 0: whenever something changes")] = 0.0
    cycle_cost_us: Annotated[int, msgspec.Meta(ge=0, description="what a cycle costs")] = 0
    task_cost_us: Annotated[int, msgspec.Meta(ge=0, description="what a cycle costs more per task tried")] = 0


POLICY_STAGES = (Stage.J2, Stage.J3, Stage.J5, Stage.T2, Stage.T5, Stage.R2, Stage.R5)


def chosen(config: PipelineConfig) -> dict[Stage, Policy]:
    """The policies that a configuration names, by stage.

    Raises:
        InputError: naming stage and policy, when one is unknown, or two do not go together.
    """
    found = {stage: parse(stage, getattr(config, stage), f"pipeline:{stage}") for stage in POLICY_STAGES}
    turns = hasattr(found[Stage.T2], "turns")
    drawn = getattr(found[Stage.T2], "drawn", False)
    if hasattr(found[Stage.J3], "turns") and config.T2 != "by-job":
        raise InputError("pipeline:J3", f"{config.J3!r} decides anew before every task; it needs T2=by-job")
    if config.T3 == "easy" and (turns or drawn or hasattr(found[Stage.J3], "turns")):
        name = config.T2 if turns or drawn else config.J3
        raise InputError("pipeline:T3", f"easy reserves for the first task, and {name!r} decides anew who that is")
    return found


def assembly(config: PipelineConfig) -> Assembly:
    """What a configuration says.

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
    )


def build(cluster: Cluster, config: PipelineConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: a policy that there is not.
    """
    count = len(cluster.constraints)
    machines = {f"node/{machine}": machine for machine in range(count)}
    components: dict[Address, Component] = {}
    entry = "scheduler/0"
    place = Place(cluster, list(machines), range(count))
    components[entry] = Scheduler(place, assembly(config), streams.of(entry))
    for address in machines:
        components[address] = Node(entry)
    return Deployment(components, machines, lambda _: entry)


def named(config: Any) -> dict[Stage, str]:
    """Per stage, the policy that a configuration names."""
    return {stage: str(getattr(config, stage)) for stage in (*POLICY_STAGES, Stage.T3)}


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J2: Realisation("Scheduler._admit", "full", "by policy"),
    Stage.J3: Realisation("Scheduler._next_task", "full", "by policy, between tasks that T2 leaves alike"),
    Stage.J4: Realisation("Scheduler._admit", "full", "one after another"),
    Stage.J5: Realisation("Scheduler._set_up", "full", "by policy: time to stage in"),
    Stage.J6: Realisation("Scheduler._settle", "full", "JobDone after the last task"),
    Stage.J7: Realisation("Scheduler._settle", "partial", "records are forgotten; there are no files"),
    Stage.T1: Realisation("Scheduler._ready", "full", "dependencies finished"),
    Stage.T2: Realisation("Scheduler._next_task", "full", "by policy"),
    Stage.T3: Realisation("Scheduler._next_task", "full", "skip, strict or easy backfilling"),
    Stage.T4: Realisation("Scheduler._submit_task"),
    Stage.T5: Realisation("Node.on_launch", "full", "by policy: time to stage in, then launched"),
    Stage.T7: Realisation("Scheduler._account"),
    Stage.R1: Realisation("Scheduler._fitting", "full", "all machines that are online"),
    Stage.R2: Realisation("Scheduler._kind", "full", "by policy"),
    Stage.R3: Realisation("Scheduler._kind", "full", "constraint bit vectors"),
    Stage.R4: Realisation("Scheduler._fitting", "full", "slots, or enough of each resource, as asked for"),
    Stage.R5: Realisation("Scheduler._select", "full", "by policy"),
}

PIPELINE = Architecture(
    name="pipeline",
    summary="the reference architecture made executable: a scheduler assembled from stage policies by name",
    source="Andreadis et al., SC18, section III",
    defaults=PipelineConfig(),
    messages=MESSAGES,
    stages=STAGES,
    build=build,
    hops=2,
    tolerates=frozenset({"duplication"}),
    vectors=True,
    graphs=True,
)
