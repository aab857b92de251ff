"""The judge of a storm: safety while faults last, progress when they have ended. It stands outside the components.

While faults last, the driver refuses what must never happen (a slot taken twice, a constraint ignored, a task started
while an earlier attempt runs) and every component checks itself after each of its events. When all is quiet, every job
has been told done, every task has run for its duration, nobody holds anything, and every view is true.
"""

from __future__ import annotations

from collections import defaultdict
from itertools import pairwise
from operator import le

import msgspec

from volery.core.component import Architecture
from volery.core.model import NEVER, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.workflows import below
from volery.sim.kernel import Kernel, Options
from volery.sim.network import Network
from volery.storm.scenario import Scenario
from volery.storm.sharing import losses_below_due


class Failure(AssertionError):  # noqa: N818 - it is a verdict
    """A design did not weather a storm.

    Args:
        kind: what is the same in scenarios that fail alike.
        problem: what happened.
    """

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"{kind}: {problem}")
        self.kind = kind
        self.problem = problem


class Outcome(msgspec.Struct, frozen=True):
    """A storm that was weathered: how much went wrong, and what it cost."""

    faults: int
    tasks: int
    killed: int
    repeated: int
    messages: int
    quiet_us: Time
    digest: str


def weather(architecture: Architecture, scenario: Scenario) -> Outcome:
    """Run a scenario.

    Raises:
        Failure: naming the rule that was broken.
    """
    try:
        return _run(architecture, scenario)
    except Failure:
        raise
    except Exception as error:
        raise Failure(type(error).__name__, str(error)) from error


def _run(architecture: Architecture, scenario: Scenario) -> Outcome:
    cluster, trace = scenario.cluster(), scenario.trace()
    deployment = architecture.build(cluster, scenario.config(architecture), Streams(scenario.seed))
    options = Options(check=True, tie_shuffle=scenario.tie_shuffle, plan=scenario.plan, graphs=architecture.graphs)
    network = Network(delay_us=scenario.delay_us, jitter_us=scenario.jitter_us)
    kernel = Kernel(deployment, trace, cluster, network, scenario.seed, options)
    records = kernel.run(None)
    _demand_capacity(records, scenario)
    _demand_order(records)
    _demand_results(records, scenario)
    for problem in losses_below_due(records, scenario, deployment.due, attempts_of(records)) if deployment.due else ():
        raise Failure("within its share", problem)
    assert kernel.unreliable is not None, "the run has a plan"
    kernel.unreliable.demand_rest(scenario.slots)
    plan = scenario.plan
    return Outcome(
        faults=len(plan.messages) + len(plan.partitions) + len(plan.crashes),
        tasks=trace.task_count,
        killed=len(records.killed),
        repeated=len(records.lost),
        messages=records.counters["messages"],
        quiet_us=kernel.now,
        digest=records.digest(),
    )


def _demand(condition: bool, kind: str, problem: str) -> None:
    if not condition:
        raise Failure(kind, problem)


def attempts_of(records: Records) -> dict[TaskId, list[tuple[Time, Time, int, int]]]:
    """Per task: start, end, worker and number of its attempts, in order."""
    found: dict[TaskId, list[tuple[Time, Time, int, int]]] = defaultdict(list)
    for lost in records.lost:
        end = records.killed.get((lost.task, lost.attempt), lost.finish_us)
        found[lost.task].append((lost.start_us, end, lost.worker, lost.attempt))
    for task, start in enumerate(records.start_us):
        if start != NEVER:
            attempt = records.attempt[task]
            end = records.killed.get((task, attempt), records.finish_us[task])
            found[task].append((start, end, records.worker[task], attempt))
    return found


def _demand_order(records: Records) -> None:
    """Attempts of a task follow each other and are numbered upwards."""
    for task, attempts in attempts_of(records).items():
        for (_, end, worker, number), (start, _, other, following) in pairwise(attempts):
            problem = f"task {task} ran on machine {worker} until {end} us and from {start} us on {other}"
            _demand(end <= start, "runs twice", problem)
            _demand(number < following, "numbers", f"task {task}: attempt {following} after attempt {number}")


def _demand_capacity(records: Records, scenario: Scenario) -> None:
    """No machine runs more than it has slots, or amounts, for."""
    trace = records.trace
    offered = scenario.capacities or tuple([(count,) for count in scenario.slots])
    what = [f"{name} of tasks" for name in trace.resources] or ["tasks"]
    changes: dict[int, list[tuple[Time, int, TaskId]]] = defaultdict(list)
    for task, attempts in attempts_of(records).items():
        for start, end, worker, _ in attempts:
            if end > start:
                changes[worker] += [(start, 1, task), (end, -1, task)]
    for worker, events in changes.items():
        running = [0] * len(what)
        for at, change, task in sorted(events):
            for place, amount in enumerate(scenario.request_of(trace, task)):
                running[place] += change * amount
                problem = f"machine {worker} runs {running[place]} {what[place]} at {at} us"
                _demand(running[place] <= offered[worker][place], "capacity", problem)


def _demand_results(records: Records, scenario: Scenario) -> None:
    """Every job was told done, and by then some attempt of each of its tasks had run for its duration.

    It need not be the last one: of an attempt that was given up, cut off with its node, the result may come after all.
    """
    trace, attempts, ended = records.trace, attempts_of(records), dict[TaskId, Time]()
    machines = set(zip(scenario.constraints, scenario.capacities or ((1,),) * len(scenario.slots), strict=True))
    alone = [
        any(needs & ~offers == 0 and all(map(le, scenario.request_of(trace, task), has)) for offers, has in machines)
        for task, needs in enumerate(trace.constraints)
    ]
    barred = below(trace, [not fit for fit in alone])
    for job in range(trace.job_count):
        answered, lacking = records.answered_us[job], 0
        for task in range(trace.first[job], trace.first[job + 1]):
            if alone[task] and not barred[task]:
                whole = [
                    end
                    for start, end, _, number in attempts[task]
                    if end - start == trace.duration_us[task] and (task, number) not in records.killed
                ]
                what = f"task {task} of job {job}, answered at {answered} us,"
                _demand(bool(whole), "lost", f"{what} never finished")
                _demand(min(whole) <= answered, "early", f"{what} finished at {min(whole)} us")
                ended[task] = min(whole)
                ready = max([ended[parent] for parent in trace.parents_of(task)], default=0)
                begun = attempts[task][0][0]
                _demand(begun >= ready, "too soon", f"{what} began at {begun} us, a parent finished at {ready} us")
            else:
                lacking += 1
        told = records.unsatisfiable[job]
        _demand(told == lacking, "unsatisfiable", f"job {job} has {lacking} tasks that fit nowhere; told {told}")
