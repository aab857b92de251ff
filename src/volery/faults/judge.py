"""The judge of a scenario: safety while faults last, progress when they have ended, checked outside the components.

While faults last, the driver refuses what must never happen (a slot taken twice, a constraint ignored, a task started
while an earlier attempt runs) and every component checks itself after each of its events. When all is quiet, every job
has been reported done, every task has run for its duration, nothing is occupied, and every view is true.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from operator import le

import msgspec

from volery.core.capabilities import DueShares
from volery.core.component import Architecture
from volery.core.model import NEVER, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.workflows import below
from volery.faults.checks import AttemptRecord, Breach, excesses, losses, overlaps
from volery.faults.preemption import Guarantees, losses_below_guarantee
from volery.faults.scenario import Scenario
from volery.sim.kernel import Kernel
from volery.sim.network import Network
from volery.sim.options import Options


class Failure(AssertionError):  # noqa: N818 - it is a verdict
    """A design does not tolerate a scenario.

    Args:
        kind: of the failure; the same in scenarios that fail alike.
        problem: in words.
    """

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"{kind}: {problem}")
        self.kind = kind
        self.problem = problem


class ScenarioResult(msgspec.Struct, frozen=True):
    """Counts of a scenario that was tolerated."""

    faults: int
    tasks: int
    killed: int
    repeated: int
    messages: int
    quiet_us: Time
    digest: str


def run_scenario(architecture: Architecture, scenario: Scenario) -> ScenarioResult:
    """Run a scenario, and check it.

    Raises:
        Failure: naming the rule that was broken.
    """
    try:
        return _run(architecture, scenario)
    except Failure:
        raise
    except Exception as error:
        raise Failure(type(error).__name__, str(error)) from error


def _run(architecture: Architecture, scenario: Scenario) -> ScenarioResult:
    cluster, trace = scenario.cluster(), scenario.trace()
    deployment = architecture.build(cluster, scenario.config(architecture), Streams(scenario.seed))
    options = Options(
        check=True, tie_shuffle=scenario.tie_shuffle, plan=scenario.plan, graphs=architecture.graphs,
        reweighs=scenario.reweighs,
    )  # fmt: skip
    network = Network(delay_us=scenario.delay_us, jitter_us=scenario.jitter_us)
    kernel = Kernel(deployment, trace, cluster, network, scenario.seed, options)
    records = kernel.run(None)
    _demand_capacity(records, scenario)
    _demand_order(records)
    _demand_results(records, scenario)
    shares = deployment.capability(DueShares)
    if shares is not None and shares.guaranteed:
        guarantees = Guarantees(shares.guaranteed, shares.under, scenario.reweighs)
        for problem in losses_below_guarantee(records, scenario, guarantees, attempts_of(records)):
            raise Failure("within its share", problem)
    kernel.check_rest()
    plan = scenario.plan
    return ScenarioResult(
        faults=len(plan.messages) + len(plan.partitions) + len(plan.crashes),
        tasks=trace.task_count,
        killed=len(records.killed),
        repeated=len(records.lost),
        messages=records.counters["messages"],
        quiet_us=kernel.lab.now,
        digest=records.digest(),
    )


def _demand_none(breaches: Iterable[Breach]) -> None:
    for breach in breaches:
        raise Failure(*breach)


def attempts_of(records: Records) -> dict[TaskId, list[AttemptRecord]]:
    """Per task, its attempts in order."""
    found: dict[TaskId, list[AttemptRecord]] = defaultdict(list)
    durations = records.trace.duration_us

    def note(task: TaskId, number: int, worker: int, start: Time, finish: Time) -> None:
        killed = records.killed.get((task, number))
        end = finish if killed is None else killed
        whole = killed is None and end - start == durations[task]
        found[task].append(AttemptRecord(start, end, worker, number, whole))

    for lost in records.lost:
        note(lost.task, lost.attempt, lost.worker, lost.start_us, lost.finish_us)
    for task, start in enumerate(records.start_us):
        if start != NEVER:
            note(task, records.attempt[task], records.worker[task], start, records.finish_us[task])
    return found


def _demand_order(records: Records) -> None:
    """Attempts of a task follow each other and are numbered upwards."""
    _demand_none(overlaps(attempts_of(records)))


def _demand_capacity(records: Records, scenario: Scenario) -> None:
    """No machine runs more than it has slots, or amounts, for."""
    trace = records.trace
    offered = scenario.capacities or tuple([(count,) for count in scenario.slots])
    what = [f"{name} of tasks" for name in trace.resources] or ["tasks"]
    _demand_none(excesses(attempts_of(records), offered, what, lambda task: scenario.request_of(trace, task)))


def _demand_results(records: Records, scenario: Scenario) -> None:
    """Every job was reported done after its tasks, with the count of those that fit nowhere; none began early."""
    trace, attempts = records.trace, attempts_of(records)
    machines = set(zip(scenario.constraints, scenario.capacities or ((1,),) * len(scenario.slots), strict=True))
    alone = [
        any(needs & ~offers == 0 and all(map(le, scenario.request_of(trace, task), has)) for offers, has in machines)
        for task, needs in enumerate(trace.constraints)
    ]
    barred = below(trace, [not fit for fit in alone])
    jobs = {
        job: [task for task in range(trace.first[job], trace.first[job + 1]) if alone[task] and not barred[task]]
        for job in range(trace.job_count)
    }
    _demand_none(losses(attempts, jobs, records.answered_us.__getitem__))
    ended = {task: min(it.end_us for it in attempts[task] if it.whole) for tasks in jobs.values() for task in tasks}
    for job, tasks in jobs.items():
        for task in tasks:
            ready = max([ended[parent] for parent in trace.parents_of(task)], default=0)
            begun = attempts[task][0].start_us
            if begun < ready:
                problem = f"task {task} of job {job} began at {begun} us, a parent finished at {ready} us"
                raise Failure("too soon", problem)
        lacking = trace.first[job + 1] - trace.first[job] - len(tasks)
        if (count := records.unsatisfiable[job]) != lacking:
            raise Failure("unsatisfiable", f"job {job} has {lacking} tasks that fit nowhere, and {count} were reported")
