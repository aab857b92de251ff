"""The judge of a scenario: safety while faults last, progress when they have ended, checked outside the components.

While faults last, the driver refuses what must never happen (a slot taken twice, a constraint ignored, a task started
while an earlier attempt runs) and every component checks itself after each of its events. When all is quiet, every job
has been reported done, every task has run for its duration, nothing is occupied, and every view is true.

The rules over attempts judge real processes, too: there attempts come from files that tasks write (`make chaos`). Times
are microseconds of one clock.

No user loses a running task within its share, by the news at that time. Schedulers that preempt receive ends of tasks
with delay: a few hops without faults, and else as long as faults, retries and leases last. An end or a beginning within
that time of the loss may be unknown to them. Ends of tasks that were preempted before are known, since schedulers
decided on them, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise
from operator import le
from typing import Final, NamedTuple

import msgspec

from volery.core.capabilities import DueShares, Share
from volery.core.component import Architecture, Deployment
from volery.core.model import NEVER, SECOND, Amounts, JobId, Tags, TaskId, Time
from volery.core.records import Records
from volery.core.tags import waits_for_others
from volery.core.trace import Trace
from volery.core.workflows import below, refused
from volery.faults.scenario import Scenario
from volery.sim.kernel import Kernel, Options
from volery.sim.network import Network
from volery.sim.orders import Reweighed


class Failure(AssertionError):  # noqa: N818 - it is a verdict
    """A design does not tolerate a scenario.

    Args:
        kind: kind of the failure; the same in scenarios that fail alike.
        problem: the failure in words.
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

    deployment = scenario.build(architecture)
    options = Options(
        check=True,
        tie_shuffle=scenario.tie_shuffle,
        plan=scenario.plan,
        graphs=architecture.graphs,
        reweighs=scenario.reweighs,
    )

    network = Network(delay_us=scenario.delay_us, jitter_us=scenario.jitter_us)
    kernel = Kernel(deployment, trace, cluster, network, scenario.seed, options)
    records = kernel.run(None)

    _demand_capacity(records, scenario)
    _demand_order(records)
    _demand_none(parts_of_gangs(attempts_of(records), records.trace))
    _demand_results(records, scenario, deployment)

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
    attempts: dict[TaskId, list[AttemptRecord]] = defaultdict(list)

    durations = records.trace.duration_us

    def note(task: TaskId, number: int, worker: int, start: Time, finish: Time) -> None:

        killed = records.killed.get((task, number))
        end = finish if killed is None else killed
        is_whole = killed is None and end - start == durations[task]
        attempts[task].append(AttemptRecord(start, end, worker, number, is_whole))

    for lost in records.lost:
        note(lost.task, lost.attempt, lost.worker, lost.start_us, lost.finish_us)
    for task, start in enumerate(records.start_us):
        if start != NEVER:
            note(task, records.attempt[task], records.worker[task], start, records.finish_us[task])
    return attempts


def _demand_order(records: Records) -> None:
    """Attempts of a task follow each other and are numbered upwards."""
    _demand_none(overlaps(attempts_of(records)))


def _demand_capacity(records: Records, scenario: Scenario) -> None:
    """No machine runs more than it has slots, or amounts, for."""
    trace = records.trace
    offered = scenario.capacities or tuple([(count,) for count in scenario.slots])
    names = [f"{name} of tasks" for name in trace.resources] or ["tasks"]
    _demand_none(excesses(attempts_of(records), offered, names, lambda task: scenario.request_of(trace, task)))


def _demand_results(records: Records, scenario: Scenario, deployment: Deployment) -> None:
    """Every job was reported done after its tasks, with the count of those that fit nowhere; none began early."""
    trace, attempts = records.trace, attempts_of(records)

    machines = set(zip(scenario.constraints, scenario.capacities or ((1,),) * len(scenario.slots), strict=True))
    can_run = [
        any(needs & ~offers == 0 and all(map(le, scenario.request_of(trace, task), has)) for offers, has in machines)
        for task, needs in enumerate(trace.constraints)
    ]

    can_run = [fit and not is_refused for fit, is_refused in zip(can_run, refused(trace, deployment), strict=True)]

    waiting = {job for job in range(trace.job_count) if _waits(trace.tags_of(job))}
    for task, job in enumerate(trace.job_of_task()):
        if job in waiting and not any(own_attempt.whole for own_attempt in attempts[task]):
            can_run[task] = False  # it was given up: the tasks that it needs near it had ended

    waits_in_vain = below(trace, [not fit for fit in can_run])
    jobs = {
        job: [
            task for task in range(trace.first[job], trace.first[job + 1]) if can_run[task] and not waits_in_vain[task]
        ]
        for job in range(trace.job_count)
    }

    _demand_none(losses(attempts, jobs, records.answered_us.__getitem__))

    ended = {
        task: min(attempt.end_us for attempt in attempts[task] if attempt.whole)
        for tasks in jobs.values()
        for task in tasks
    }
    for job, tasks in jobs.items():
        for task in tasks:
            ready = max([ended[parent] for parent in trace.parents_of(task)], default=0)
            started_us = attempts[task][0].start_us
            if started_us < ready:
                problem = f"task {task} of job {job} began at {started_us} us, a parent finished at {ready} us"
                raise Failure("too soon", problem)

        lacking = trace.first[job + 1] - trace.first[job] - len(tasks)
        if (count := records.unsatisfiable[job]) != lacking:
            raise Failure("unsatisfiable", f"job {job} has {lacking} tasks that fit nowhere, and {count} were reported")


def _waits(tags: Tags | None) -> bool:
    """True if tasks with these tags start only where others run."""
    return tags is not None and any(waits_for_others(constraint, tags) for constraint in tags.constraints)


class AttemptRecord(NamedTuple):
    """An attempt that has run.

    Args:
        start_us, end_us: bounds of its time on the machine.
        worker: the machine's number.
        number: number of the attempt.
        whole: it came to its own end.
    """

    start_us: Time
    end_us: Time
    worker: int
    number: int
    whole: bool


Attempts = Mapping[TaskId, Sequence[AttemptRecord]]
"""The attempts of each task, in the order of their beginnings."""


class Breach(NamedTuple):
    """A rule that was broken.

    Args:
        kind: kind of the breach; the same in failures alike.
        problem: the breach in words.
    """

    kind: str
    problem: str


def overlaps(attempts: Attempts) -> Iterator[Breach]:
    """Attempts of a task follow each other and are numbered upwards."""
    for task, of_task in attempts.items():
        for earlier, later in pairwise(of_task):
            if earlier.end_us > later.start_us:
                yield Breach(
                    "runs twice",
                    f"task {task} ran on machine {earlier.worker} until {earlier.end_us} us "
                    f"and from {later.start_us} us on {later.worker}",
                )
            if earlier.number >= later.number:
                yield Breach("numbers", f"task {task}: attempt {later.number} after attempt {earlier.number}")


def excesses(
    attempts: Attempts,
    offered: Sequence[Amounts],
    names: Sequence[str],
    request_of: Callable[[TaskId], Amounts],
) -> Iterator[Breach]:
    """No machine runs more than it has room for.

    Args:
        attempts: attempts of all tasks.
        offered: amounts per machine.
        names: names of the resources, for messages.
        request_of: amounts that a task takes.
    """
    changes: dict[int, list[tuple[Time, int, TaskId]]] = defaultdict(list)
    for task, of_task in attempts.items():
        for attempt in of_task:
            if attempt.end_us > attempt.start_us:
                changes[attempt.worker] += [(attempt.start_us, 1, task), (attempt.end_us, -1, task)]

    for worker, events in changes.items():
        running = [0] * len(names)
        for at, change, task in sorted(events):
            for place, amount in enumerate(request_of(task)):
                running[place] += change * amount
                if running[place] > offered[worker][place]:
                    yield Breach("capacity", f"machine {worker} runs {running[place]} {names[place]} at {at} us")


def losses(
    attempts: Attempts, jobs: Mapping[JobId, Sequence[TaskId]], answered_us: Callable[[JobId], Time]
) -> Iterator[Breach]:
    """Every job was reported done, and by then some attempt of each of its tasks had come to its own end.

    It need not be the last attempt: the result of one that was cut off with its node may arrive later.

    Args:
        attempts: attempts of all tasks.
        jobs: every job that was accepted, and its tasks that fit somewhere.
        answered_us: gives the time at which a job was reported done; `NEVER`: it was not.
    """
    for job, tasks in jobs.items():
        answered = answered_us(job)
        if answered == NEVER:
            yield Breach("lost", f"job {job} was never reported done")
            continue

        for task in tasks:
            ends = [attempt.end_us for attempt in attempts.get(task, ()) if attempt.whole]
            subject = f"task {task} of job {job}, answered at {answered} us,"

            if not ends:
                yield Breach("lost", f"{subject} never finished")
            elif min(ends) > answered:
                yield Breach("early", f"{subject} finished at {min(ends)} us")


def parts_of_gangs(attempts: Attempts, trace: Trace) -> Iterator[Breach]:
    """Attempts of a gang's members that began where others neither began with them, ran, nor had finished."""
    for job in range(trace.job_count):
        members = range(trace.first[job], trace.first[job + 1]) if trace.gang_of(job) is not None else ()
        # A member that was ended before its gang began has run for no time.
        runs = {
            task: [run for run in attempts.get(task, ()) if run.whole or run.end_us > run.start_us] for task in members
        }
        for begin_us in {run.start_us for task_runs in runs.values() for run in task_runs}:
            for task, task_runs in runs.items():
                if not any(run.start_us <= begin_us and (run.whole or begin_us < run.end_us) for run in task_runs):
                    problem = f"members of gang {job} began at {begin_us} us, and task {task} did not run"
                    yield Breach("part of a gang", problem)


def reported_twice(reported: Mapping[TaskId, Collection[int]]) -> Iterator[Breach]:
    """No task has two attempts that were reported to have succeeded.

    A task may run again, and come to its end again, where the report of an attempt was lost with its machine or its
    masters. In the lab jobs are answered, not tasks, and the driver refuses what may not run again.

    Args:
        reported: per task, the attempts that were reported to have succeeded.
    """
    for task, numbers in reported.items():
        if len(numbers) > 1:
            yield Breach("succeeded twice", f"task {task}: attempts {sorted(numbers)} were reported to have succeeded")


HOPS: Final = 8
"""A bound of the messages between the decision on a preemption and the end of the task."""
AFTERMATH_US: Final[Time] = 300 * SECOND
"""After a fault, leases may expire and messages be repeated for this long: links that have backed off send few."""


def losses_below_guarantee(
    records: Records, scenario: Scenario, guarantees: Guarantees, attempts: Attempts
) -> Iterator[str]:
    """The problems of preemptions that left a user less than its guaranteed share.

    Args:
        records: records of the run.
        scenario: the scenario of the run.
        guarantees: guaranteed shares of users.
        attempts: attempts of all tasks.
    """
    trace = records.trace

    users = [trace.user[job] if trace.user else "" for job in trace.job_of_task()]
    offered = scenario.capacities or tuple([(count,) for count in scenario.slots])
    totals = [sum(column) for column in zip(*offered, strict=True)]
    decided = {(lost.task, lost.attempt) for lost in records.preemptions}
    # While messages are lost, or a machine is down, a scheduler cannot know which tasks have ended.
    unknown_spans = _Unknown(scenario)

    for lost in records.preemptions:
        user = users[lost.task]
        if user not in guarantees:
            continue

        at_us = records.killed.get((lost.task, lost.attempt), lost.at_us)  # the fact may come late
        since, until = unknown_spans.around(at_us)

        amounts_left = [0] * len(totals)
        for task in range(trace.task_count):
            if users[task] == user:
                for start, end, _, number, _ in attempts.get(task, ()):
                    known_end = at_us if (task, number) in decided else since
                    if start <= until and end > known_end:
                        amounts_left = [
                            a + b for a, b in zip(amounts_left, scenario.request_of(trace, task), strict=True)
                        ]
                        break

        due = guarantees.least(user, since, until)
        share_left = max(Fraction(amount, total) for amount, total in zip(amounts_left, totals, strict=True))
        if share_left < due:
            yield (
                f"task {lost.task} was preempted at {at_us} us for task {lost.beneficiary}: {user!r} is due "
                f"{float(due):.3f} of the cluster and was left with {float(share_left):.3f}"
            )


class Guarantees:
    """Guaranteed shares of users, by the weights of the beginning and those that came after.

    Args:
        due: guaranteed share per user, by the weights of the beginning.
        shares: gives the shares of all users by other weights; needed where weights change.
        reweighs: changes of weights.
    """

    def __init__(
        self,
        due: Mapping[str, Fraction],
        shares: Callable[[Mapping[str, int]], Sequence[Share]] | None = None,
        reweighs: Sequence[Reweighed] = (),
    ) -> None:
        self._from: list[Time] = [0]
        self._due: list[Mapping[str, Fraction]] = [due]

        weights: dict[str, int] = {}
        for change in sorted(reweighs, key=lambda change: change.at_us):
            assert shares is not None, "weights change where there are any"
            weights[change.name] = change.weight
            self._from.append(change.at_us)
            self._due.append({share.name: share.due for share in shares(weights) if not share.members})

    def __contains__(self, user: object) -> bool:
        """True if a user has a share."""
        return user in self._due[0]

    def least(self, user: str, since: Time, until: Time) -> Fraction:
        """The least that a user was due at some moment between: weights may be known as late as ends are."""
        first = max(0, bisect_right(self._from, since) - 1)
        return min(due[user] for due in self._due[first : max(first + 1, bisect_right(self._from, until))])


class _Unknown:
    """Times around a moment whose events may not be known then, from the plan alone."""

    def __init__(self, scenario: Scenario) -> None:
        plan = scenario.plan

        spans = [(fault.start_us, fault.end_us) for fault in plan.messages]
        spans += [(fault.start_us, fault.end_us) for fault in plan.partitions]
        spans += [(crash.at_us, crash.back_us) for crash in plan.crashes]

        self._hops_us = 1 + HOPS * (scenario.delay_us + scenario.jitter_us)

        self._from: list[Time] = []
        self._to: list[Time] = []

        for start, end in sorted(spans):
            if self._to and start - self._hops_us <= self._to[-1]:
                self._to[-1] = max(self._to[-1], end + AFTERMATH_US)
            else:
                self._from.append(start - self._hops_us)
                self._to.append(end + AFTERMATH_US)

    def around(self, at_us: Time) -> tuple[Time, Time]:
        """Ends after the first, and beginnings before the second, may count as not known."""
        place = bisect_right(self._from, at_us) - 1
        if place >= 0 and at_us <= self._to[place] + self._hops_us:
            return self._from[place], self._to[place] + self._hops_us
        return at_us - self._hops_us, at_us + self._hops_us
