"""alsched (Tumanov et al., SoCC 2012) and TetriSched (the same, EuroSys 2016): utility maximised over space, and time.

Roles    Scheduler (one, sees every slot and estimates when it comes free), Node (one per machine).
Flow     Submit > (cycle) > compute: expressions, plan > Launch > Completed; Cancel > Kill.
Deviates Neither text was at hand in full: what is recalled or chosen is marked in docs/reference/utility.md. A machine
         of several slots counts as that many machines. There is no reservation system in front: every deadline is taken
         as accepted, and one that cannot be met any more makes its job best effort, unless drop_penalty is set. A
         scheduler that was idle plans at once, then at most once per cycle; with a cycle of 0, whenever something
         changes. A gap leaves room, which jobs fill one by one (the papers do not say how). A gang that the empty
         cluster cannot hold is refused. alsched is the same program without time: preferred machines are worth 1,
         others as much less as they are slower, and deadlines are not known to it. The solver's work is limited by
         nodes of its search and jobs per plan, never by a clock; larger plans are made by prices, whose bound shows
         the gap (prices.py). Running tasks are neither moved nor preempted; one
         that exceeds its estimate is expected to take one more quantum, again and again. Of machines alike to a plan
         those with the fewest constraints are taken.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from volery.architectures.tetrisched.milp import Limits, check_solver
from volery.architectures.tetrisched.plan import Solver
from volery.architectures.tetrisched.requests import RequestSetting, Soft
from volery.architectures.tetrisched.scheduler import CycleSetting, Scheduler
from volery.core.bounds import (
    Count,
    Microseconds,
    Milliseconds,
    Parameters,
    Period,
    PositiveCount,
    PositiveRatio,
    Ratio,
    Seconds,
    param,
)
from volery.core.capabilities import GangPlacement
from volery.core.component import Architecture, Conformance, Deployment
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import NODE_MESSAGES, SCHEDULER, Node, with_nodes


class PlanConfig(Parameters, frozen=True):
    """Parameters that alsched and TetriSched have in common."""

    cycle_s: Seconds = param(4.0, "from one plan to the next, seconds; 0: whenever something changes")
    solver: Solver = param("optimal", "all jobs together (optimal, to the gap), or one after the other (greedy)")
    gap: Ratio = param(0.1, "a plan may be worth so much less than the best, as a share of it")
    nodes_max: Count = param(100, "nodes of the solver's search per plan; its work is limited by nothing else")
    jobs_max: PositiveCount = param(100, "jobs per plan, those with deadlines first")
    program_jobs: Count = param(
        64, "a plan with more simple jobs (nCk, max of nCk), or 3/4 of it if machines are alike, is made by prices"
    )
    gangs: bool = param(True, "tasks of a job start together; otherwise each starts where it can")
    decision_ms: Milliseconds = param(0.0, "modelled time of a decision, in the lab alone")
    leaf_us: Microseconds = param(0.0, "... and more per leaf of the expressions of a plan, microseconds")


class AlschedConfig(PlanConfig, frozen=True, forbid_unknown_fields=True):
    constraints: Soft = param("soft", "preferences of jobs: weighed (soft), insisted on (hard), or ignored (none)")


class TetrischedConfig(PlanConfig, frozen=True, forbid_unknown_fields=True):
    plan_ahead_s: Seconds = param(96.0, "how far ahead jobs may be planned to start, seconds; 0: no plan-ahead (NP)")
    quantum_s: Period = param(4.0, "unit of planned time, seconds")
    heterogeneity: bool = param(True, "know which machines a job prefers; false: any, at the slow estimate (NH)")
    preferences: Literal["soft", "hard"] = param("soft", "preferred machines are weighed (soft), or insisted on (hard)")
    deadline_value: PositiveRatio = param(
        1000.0, "of a job that meets its deadline, where best effort is worth up to 1"
    )
    budget: Literal["equal", "priority"] = param("equal", "these values for every job, or times 1 + its priority")
    grace_s: Seconds = param(0.0, "a job that is late loses its value over so many seconds; 0: at once")
    drop_penalty: Ratio = param(
        0.0, "loss by not running a job that has a deadline, however late it is; 0: it becomes best effort when late"
    )


QUANTUM_OF_ALSCHED_US = 4 * SECOND
"""Quantum of alsched; of no account to what it decides: it knows now alone."""


def build_alsched(cluster: Cluster, config: AlschedConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: the solver is not installed.
    """
    request_setting = RequestSetting(config.gangs, False, config.constraints, 1.0)
    setting = _setting("alsched", config, QUANTUM_OF_ALSCHED_US, 0, request_setting)
    return _deployed(cluster, setting)


def _deployed(cluster: Cluster, setting: CycleSetting) -> Deployment:
    deployment = with_nodes(cluster, SCHEDULER, Scheduler(cluster, setting))
    return msgspec.structs.replace(deployment, capabilities=(GangPlacement(shapes=False),))


def build(cluster: Cluster, config: TetrischedConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: more quanta than a plan can hold, or the solver is not installed.
    """
    quantum_us = round(config.quantum_s * SECOND)

    quanta_ahead = round(config.plan_ahead_s * SECOND) // max(1, quantum_us)
    if not quantum_us or quanta_ahead > QUANTA_MAX:
        problem = (
            f"{config.plan_ahead_s:g} s are {quanta_ahead} quanta of {config.quantum_s:g} s; "
            f"at most {QUANTA_MAX} are planned"
        )
        raise InputError("tetrisched:plan_ahead_s", problem)

    request_setting = RequestSetting(
        config.gangs,
        not config.heterogeneity,
        None,
        config.deadline_value,
        by_priority=config.budget == "priority",
        insists=config.preferences == "hard",
        grace_us=round(config.grace_s * SECOND),
        drop_penalty=config.drop_penalty,
    )

    setting = _setting("tetrisched", config, quantum_us, quanta_ahead, request_setting)
    return _deployed(cluster, setting)


QUANTA_MAX = 1000


def _setting(
    name: str, config: PlanConfig, quantum_us: int, quanta_ahead: int, request_setting: RequestSetting
) -> CycleSetting:
    if config.solver == "optimal":
        check_solver(f"{name}:solver")

    return CycleSetting(
        cycle_us=round(config.cycle_s * SECOND),
        quantum_us=quantum_us,
        ahead=quanta_ahead,
        solver=config.solver,
        limits=Limits(config.gap, config.nodes_max, config.program_jobs),
        jobs_max=config.jobs_max,
        decision_us=round(config.decision_ms * 1000),
        leaf_us=config.leaf_us,
        asking=request_setting,
    )


STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J2: Realisation("Scheduler._plan", "full", "with a deadline that can be met first, as many as a plan holds"),
    Stage.J4: Realisation("Scheduler._plan", "full", "all jobs of a cycle together, or one after the other"),
    Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last task"),
    Stage.T3: Realisation("Scheduler._plan", "full", "the tasks of a job that wait are a gang"),
    Stage.T4: Realisation("Scheduler._launch", "full", "what the plan starts now"),
    Stage.T5: Realisation(Node.on_launch.__qualname__, "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_completed"),
    Stage.R1: Realisation("Scheduler._plan", "full", "every slot, exactly; when it comes free, by estimate"),
    Stage.R3: Realisation("Scheduler._plan", "full", "equivalence sets: constraints and preferences"),
    Stage.R4: Realisation("Scheduler._plan", "full", "slots that are idle now, or will be"),
    Stage.R5: Realisation("Scheduler._plan", "full", "utility is maximised"),
}
PROMPT: dict[str, Any] = {"cycle_s": 0.0, "jobs_max": 2}

TETRISCHED = Architecture(
    name="tetrisched",
    summary="plans all jobs together in space and time by integer programming; deadlines, gangs, preferred machines",
    source="Tumanov, Zhu, Park, Kozuch, Harchol-Balter, Ganger: TetriSched, EuroSys 2016",
    defaults=TetrischedConfig(),
    messages=NODE_MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(
        hops=2, tolerates=frozenset({"duplication"}), gangs="gangs", immediate={**PROMPT, "plan_ahead_s": 0.0}
    ),
    features={
        "constraints": "",
        "deadlines": "",
        "preferences": "heterogeneity",
        "priorities": "budget=priority",
        "gangs": "",
    },
)

ALSCHED = msgspec.structs.replace(
    TETRISCHED,
    name="alsched",
    summary="maximises the utility of soft constraints over what is free now, optimally or greedily",
    source="Tumanov, Cipar, Ganger, Kozuch: alsched, SoCC 2012",
    defaults=AlschedConfig(),
    build=build_alsched,
    conformance=msgspec.structs.replace(TETRISCHED.conformance, immediate=PROMPT),
    features={"constraints": "", "preferences": "constraints=soft|hard", "gangs": ""},
)
