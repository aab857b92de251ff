"""Quincy (Isard et al., SOSP 2009) and Firmament (Gog et al., OSDI 2016): scheduling as a minimum-cost flow.

Roles    Scheduler (one, sees every slot), Node (one per machine).
Flow     Submit > (something has changed) > compute: network, cheapest flow > Launch, Kill > Completed > ..
Deviates Neither text was at hand: costs and prices are those of Firmament's published code, the rest is restated or
         chosen (docs/reference/flow.md). All input of a task is one piece of `input_gb`, whole on each machine that
         holds it. Constraints have aggregators of their own. A job's least number of tasks is bought at a price above
         everything else instead of being demanded, so that there is always a flow; it is a share of the slots, and what
         some cannot use others may. Instead of looking again and again, the scheduler works out when waiting will be
         dearer than what is free. A network holds, of each place and cost, the tasks that have waited longest, as many
         as there are slots to be had: more would change no flow. Nor do tasks that run on or wait in every cheapest
         flow, which are left out where all slots are alike (docs/decisions/0060). Between equal flows prices and the
         order of tasks decide, so that solvers agree; a cluster of at most 100 slots with at most 1,000 tasks has whole
         networks under shares, so which of equal tasks starts may change with the size. Firmament's two solvers are one
         here, which may begin from the prices of the flow before; a solver of OR-tools (cost scaling) can take its
         place.
"""

from __future__ import annotations

import msgspec

from volery.architectures.quincy.costs import UNIT, FlowCosts, LoadSpreading, NetworkAware, QuincyCosts, Rates
from volery.architectures.quincy.ortools_solver import check_solver
from volery.architectures.quincy.scheduler import QuincyConfig, Scheduler
from volery.core.component import Architecture, Conformance, Deployment
from volery.core.model import Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import NODE_MESSAGES, SCHEDULER, Node, with_nodes


def build(cluster: Cluster, config: QuincyConfig, streams: Streams) -> Deployment:
    """Build the components for a cluster.

    Raises:
        InputError: the solver is not installed.
    """
    if config.solver == "scaling":
        check_solver("quincy:solver")

    return with_nodes(cluster, SCHEDULER, Scheduler(cluster, _costs(cluster, config), config))


def _costs(cluster: Cluster, config: QuincyConfig) -> FlowCosts:
    if config.policy == "load-spreading":
        return LoadSpreading(cluster)
    if config.policy == "network-aware":
        return NetworkAware(cluster, config.input_gb, config.machine_mbps)

    rates = (config.wait_cost, config.rack_cost, config.core_cost, config.run_cost)
    wait_cost, rack_cost, core_cost, run_cost = (round(rate * UNIT) for rate in rates)
    return QuincyCosts(cluster, Rates(wait_cost, rack_cost, core_cost, config.input_gb, run_cost))


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J3: Realisation("Scheduler._bounds", "full", "equal shares; otherwise the longest wait"),
    Stage.J4: Realisation("Scheduler._solve", "full", "all jobs together"),
    Stage.J6: Realisation("Scheduler.on_ended", "full", "JobDone after the last task"),
    Stage.T2: Realisation("Scheduler._solve", "full", "the cheapest to place of all tasks, by where their input lies"),
    Stage.T3: Realisation("Scheduler._solve", "full", "all tasks together"),
    Stage.T4: Realisation("Scheduler._follow", "full", "by the flow"),
    Stage.T5: Realisation(Node.on_launch.__qualname__, "partial", "launch without staging"),
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
    conformance=Conformance(
        hops=2, tolerates=frozenset({"duplication"}), immediate={"cycle_s": 0.0, "preemption": False}
    ),
    features={"constraints": "", "locality": "policy=quincy|network-aware"},
)

FIRMAMENT = msgspec.structs.replace(
    QUINCY,
    name="firmament",
    summary="Quincy's flow without shares and preemption, by several policies, solved anew whenever something changes",
    source="Gog, Schwarzkopf, Gleave, Watson, Hand: Firmament, OSDI 2016",
    defaults=QuincyConfig(fairness=False, preemption=False, cycle_s=0.0),
    conformance=msgspec.structs.replace(QUINCY.conformance, immediate={"cycle_s": 0.0}),
)
