"""Quincy (Isard et al., SOSP 2009) and Firmament (Gog et al., OSDI 2016): scheduling as a minimum-cost flow.

Roles    Scheduler (one, sees every slot), Node (one per machine).
Flow     Submit > (something has changed) > compute: network, cheapest flow > Launch, Kill > Completed > ..
Deviates Neither text was at hand: costs and prices are those of Firmament's published code, the rest is restated or
         chosen (docs/reference/flow.md). All input of a task is one piece of `input_gb`, whole on each machine that
         holds it. Constraints have aggregators of their own. A job's least number of tasks is bought at a price above
         everything else instead of being demanded, so that there is always a flow; it is a share of the slots, and what
         some cannot use others may. Instead of looking again and again, the scheduler works out when waiting will be
         dearer than what is free. A network holds, of each job and place, the tasks that have waited longest, as many
         as there are slots to be had: more would change no flow. Between equal flows prices and the order of tasks
         decide, so that solvers agree. Firmament's two solvers are one here, which may begin from the prices of the
         flow before; a solver of OR-tools (cost scaling) can take its place.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from volery.architectures.quincy.costs import UNIT, FlowCosts, LoadSpreading, NetworkAware, QuincyCosts, Rates
from volery.architectures.quincy.ortools_solver import check_solver
from volery.architectures.quincy.scheduler import FlowSetting, Scheduler
from volery.architectures.quincy.solver import Solver
from volery.core.bounds import COUNT_MAX, Count, Microseconds, Milliseconds, Parameters, Seconds, param
from volery.core.component import Architecture, Component, Deployment
from volery.core.model import SECOND, Address, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import NODE_MESSAGES, SCHEDULER, Node


class QuincyConfig(Parameters, frozen=True):
    """Parameters of Quincy and Firmament."""

    policy: Literal["quincy", "load-spreading", "network-aware"] = param(
        "quincy", "what costs: moving input and waiting, tasks per machine, or bandwidth in use"
    )
    fairness: bool = param(True, "each job has an equal share of the slots before anything else counts")
    preemption: bool = param(True, "running tasks may be stopped or moved where that is cheaper; they begin anew")
    job_max: Count = param(0, "tasks of one job that run at once at most; 0: any number")
    cycle_s: Seconds = param(1.0, "from one flow to the next, seconds; 0: whenever something changes")
    input_gb: float = param(1.0, "what a task with input reads, gigabytes", ge=0, le=1e6)
    rack_cost: float = param(1.0, "of a gigabyte within a rack", ge=0, le=1e6)
    core_cost: float = param(2.0, "of a gigabyte between racks; 20 where these are badly connected", ge=0, le=1e6)
    wait_cost: float = param(0.5, "of a second of waiting", ge=0, le=1e6)
    run_cost: float = param(1.0, "what a second of running is worth, that would be lost", ge=0, le=1e6)
    machine_mbps: int = param(10_000, "what a machine's network carries (network-aware), Mbit/s", ge=100, le=COUNT_MAX)
    solver: Solver = param("augmenting", "built in (augmenting), or of OR-tools (scaling); they find the same flow")
    warm: bool = param(True, "begin with the prices of the flow before; changes the work alone")
    decision_ms: Milliseconds = param(0.0, "modelled time of a decision, in the lab alone")
    arc_us: Microseconds = param(0.0, "... and more per arc of its network, microseconds")


def build(cluster: Cluster, config: QuincyConfig, streams: Streams) -> Deployment:
    """Build the components for a cluster.

    Raises:
        InputError: the solver is not installed.
    """
    if config.solver == "scaling":
        check_solver("quincy:solver")
    setting = FlowSetting(
        cycle_us=round(config.cycle_s * SECOND),
        preemption=config.preemption,
        fairness=config.fairness,
        job_max=config.job_max,
        solver=config.solver,
        warm=config.warm,
        decision_us=round(config.decision_ms * 1000),
        arc_us=config.arc_us,
    )
    components: dict[Address, Component] = {SCHEDULER: Scheduler(cluster, _costs(cluster, config), setting)}
    machines = {f"node/{machine}": machine for machine in range(len(cluster.constraints))}
    for address in machines:
        components[address] = Node(SCHEDULER)
    return Deployment(components, machines, lambda _: SCHEDULER)


def _costs(cluster: Cluster, config: QuincyConfig) -> FlowCosts:
    if config.policy == "load-spreading":
        return LoadSpreading(cluster)
    if config.policy == "network-aware":
        return NetworkAware(cluster, config.input_gb, config.machine_mbps)
    rates = (config.wait_cost, config.rack_cost, config.core_cost, config.run_cost)
    wait, rack, core, ran = (round(rate * UNIT) for rate in rates)
    return QuincyCosts(cluster, Rates(wait, rack, core, config.input_gb, ran))


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J3: Realisation("Scheduler._bounds", "full", "equal shares; otherwise the longest wait"),
    Stage.J4: Realisation("Scheduler._solve", "full", "all jobs together"),
    Stage.J6: Realisation("Scheduler.on_ended", "full", "JobDone after the last task"),
    Stage.T2: Realisation("Scheduler._solve", "full", "the cheapest to place of all tasks, by where their input lies"),
    Stage.T3: Realisation("Scheduler._solve", "full", "all tasks together"),
    Stage.T4: Realisation("Scheduler._follow", "full", "by the flow"),
    Stage.T5: Realisation("Node.on_launch", "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_ended"),
    Stage.T10: Realisation("Scheduler._follow", "full", "what is cheaper elsewhere or not at all", "preemption"),
    Stage.T12: Realisation("Scheduler._follow", "partial", "moved tasks begin anew", "preemption"),
    Stage.R1: Realisation("Scheduler._solve", "full", "every slot, exactly"),
    Stage.R3: Realisation("Scheduler._solve", "full", "an aggregator per constraint set"),
    Stage.R4: Realisation("Scheduler._solve", "full", "idle slots, and with preemption all"),
    Stage.R5: Realisation("Scheduler._solve", "full", "the cheapest flow"),
}

QUINCY = Architecture(
    name="quincy",
    summary="all tasks and slots as one minimum-cost flow: locality against waiting, fair shares, preemption",
    source="Isard, Prabhakaran, Currey, Wieder, Talwar, Goldberg: Quincy, SOSP 2009",
    defaults=QuincyConfig(),
    messages=NODE_MESSAGES,
    stages=STAGES,
    build=build,
    hops=2,
    tolerates=frozenset({"duplication"}),
    immediate={"cycle_s": 0.0, "preemption": False},
    features={"constraints": "", "locality": "policy=quincy|network-aware"},
)

FIRMAMENT = msgspec.structs.replace(
    QUINCY,
    name="firmament",
    summary="Quincy's flow without shares and preemption, by several policies, solved anew whenever something changes",
    source="Gog, Schwarzkopf, Gleave, Watson, Hand: Firmament, OSDI 2016",
    defaults=QuincyConfig(fairness=False, preemption=False, cycle_s=0.0),
    immediate={"cycle_s": 0.0},
)
