"""Jockey (Ferguson, Bodik, Kandula, Boutin, Fonseca, EuroSys 2012): recurring jobs meet deadlines with few resources.

Roles    Scheduler (one: tokens, and the control loop of every job), Node (one per machine).
Flow     Submit > (period) allocation from C(progress, allocation) > Launch > Completed; a job that deviates > compute:
         simulate it anew; Cancel > Kill.
Deviates The text was not at hand in full: docs/reference/deadlines.md marks what is recalled, and what chosen. A token
         is a slot. Spare tokens go to the job that runs least; nothing is evicted when a guarantee is called in: the
         job gets the next tokens that come free. Runs of a recurring job carry its name as their user. Stages are read
         from the graph of tasks. Queueing comes out of the simulation, which the lab's kernel runs on these components;
         that of earlier runs only weighs progress. Attempts that fail are not told apart: a task's run time includes
         them. A job of which no earlier run is known is controlled by Amdahl's law on its estimates. While a job runs
         it is simulated anew by a list scheduler instead of the kernel, from its own graph and the times of its stages
         so far. Where guarantees exceed the cluster, marginal utility decides; a job that arrives between two periods
         is given what is left until the next.
"""

from __future__ import annotations

import msgspec

from volery.architectures.jockey.control import DEFAULT, Control, ControlSetting, Deviation, Loop, parsed
from volery.architectures.jockey.profiles import JobModel, learned
from volery.architectures.jockey.rehearsal import RehearsalSetting
from volery.architectures.jockey.scheduler import Scheduler
from volery.architectures.jockey.stages import Indicator
from volery.core.bounds import ROUNDS_MAX, Parameters, Period, PositiveCount, PositiveRatio, Seconds, param
from volery.core.capabilities import GangPlacement
from volery.core.component import Architecture, Conformance, Deployment, Learning, Simulate
from volery.core.model import SECOND, Cluster
from volery.core.records import Records
from volery.core.stages import Realisation, Stage
from volery.core.streams import Streams
from volery.roles.node import NODE_MESSAGES, SCHEDULER, Node, with_nodes


class JockeyConfig(Parameters, frozen=True):
    control: Control = param(
        "adaptive", "allocations: adapted every period, chosen once (first), or always the most (max)"
    )
    simulator: bool = param(True, "times left by simulated runs where earlier ones are known; else by Amdahl's law")
    indicator: Indicator = param("totalworkWithQ", "how progress is measured")
    percentile: float = param(100.0, "of the times left at equal progress; 100: the worst", gt=0, le=100)
    utility: str = param(DEFAULT, "of being done, SECONDS:UTILITY+..., seconds from the deadline; linear between")
    slack: PositiveRatio = param(1.2, "times left are reckoned so many times as long")
    alpha: float = param(0.2, "hysteresis: share of the way to what is wanted, per period", gt=0, le=1)
    dead_zone_s: Seconds = param(180.0, "jobs aim at so much before their deadline, and hold while so near to it")
    period_s: Period = param(60.0, "of the control loop, seconds")
    tokens_step: PositiveCount = param(10, "allocations are multiples of it, tokens")
    tokens_max: PositiveCount = param(100, "the largest allocation, tokens")
    repetitions: int = param(20, "simulated runs per allocation", ge=1, le=ROUNDS_MAX)
    deviation: Deviation = param(
        "resimulate", "a job that is not as its model: simulate it anew, let it share, or ignore that"
    )
    deviation_percent: PositiveRatio = param(50.0, "work beyond that of the model, from which on a job deviates")
    deviation_periods: PositiveCount = param(3, "... in so many periods in a row")
    rehearsal_s: Seconds = param(10.0, "modelled time of simulating a job anew, in the lab alone")
    spare: bool = param(True, "jobs with deadlines may use idle tokens beyond guarantees")
    models: tuple[JobModel, ...] = param((), "what earlier runs have taught; the lab fills it in (--history)")


def build(cluster: Cluster, config: JockeyConfig, streams: Streams) -> Deployment:
    """Components for a cluster.

    Raises:
        InputError: the utility is no curve.
    """
    setting = _setting(cluster, config)
    scheduler = Scheduler(cluster, setting, config.models, spare=config.spare)
    return with_nodes(cluster, SCHEDULER, scheduler).replaced(GangPlacement())


def _grid(config: JockeyConfig, tokens: int) -> tuple[int, ...]:
    largest = min(config.tokens_max, tokens)
    return (*range(config.tokens_step, largest, config.tokens_step), largest)


def _setting(cluster: Cluster, config: JockeyConfig) -> ControlSetting:
    grid = _grid(config, cluster.slot_count)
    period_us = max(1, round(config.period_s * SECOND))

    return ControlSetting(
        control=config.control,
        simulator=config.simulator,
        utility=parsed(config.utility, "jockey:utility"),
        loop=Loop(config.slack, config.alpha, round(config.dead_zone_s * SECOND), grid),
        period_us=period_us,
        deviation=config.deviation,
        off=1 + config.deviation_percent / 100,
        off_periods=config.deviation_periods,
        rehearsing=RehearsalSetting(grid, config.repetitions, config.indicator, config.percentile, period_us),
        rehearsal_us=round(config.rehearsal_s * SECOND),
    )


def learn(config: JockeyConfig, earlier: Records, simulate: Simulate) -> tuple[JobModel, ...]:
    """A profile and a table of every recurring job of earlier runs."""
    # The shape of a rehearsal's cluster is given per run; here only the grid of allocations counts.
    setting = _setting(Cluster.uniform(config.tokens_max), config)
    plain = msgspec.structs.replace(config, models=(), control="max")
    return learned(earlier, setting.rehearsing, lambda cluster: build(cluster, plain, Streams(0)), simulate)


LEARNED_BY = ("tokens_step", "tokens_max", "repetitions", "indicator", "percentile", "period_s")
STAGES = {
    Stage.J1: Realisation("Scheduler.on_submit"),
    Stage.J2: Realisation("Scheduler.on_timer", "partial", "all at once; those with deadlines have tokens guaranteed"),
    Stage.J6: Realisation("Scheduler.on_completed", "full", "JobDone after the last task"),
    Stage.T1: Realisation("Scheduler.on_completed", "full", "parents have finished"),
    Stage.T2: Realisation("Scheduler._hand_out", "full", "below the guarantee first, then who runs least"),
    Stage.T4: Realisation("Scheduler._hand_out"),
    Stage.T5: Realisation(Node.on_launch.__qualname__, "partial", "launch without staging"),
    Stage.T7: Realisation("Scheduler.on_completed"),
    Stage.R1: Realisation("Scheduler.on_completed", "full", "every slot, exactly"),
    Stage.R3: Realisation("Scheduler._hand_out", "full", "constraints"),
    Stage.R4: Realisation("Scheduler._hand_out", "full", "slots that are idle"),
    Stage.R5: Realisation("Scheduler._hand_out", "full", "machines that satisfy few constraints first"),
}

JOCKEY = Architecture(
    name="jockey",
    summary="guarantees each job as few tokens as meet its deadline, by what earlier runs and simulation have taught",
    source="Ferguson, Bodik, Kandula, Boutin, Fonseca: Jockey, EuroSys 2012",
    defaults=JockeyConfig(),
    messages=NODE_MESSAGES,
    stages=STAGES,
    build=build,
    conformance=Conformance(hops=2, tolerates=frozenset({"duplication"})),
    features={"constraints": "", "deadlines": "", "users": "models", "dependencies": "", "gangs": ""},
    capabilities=(Learning("models", LEARNED_BY, learn),),
)
