"""Demands on the records of any run, judged outside the components."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from volery.conformance.cases import Case
from volery.conformance.verdict import demand
from volery.core.component import Architecture
from volery.core.locality import Pace
from volery.core.model import NEVER, Time
from volery.core.records import PATH_SHIFT, Records
from volery.core.workflows import comes_in_parts

Interval = tuple[Time, Time, int]
"""Start, end, and task or amount of one attempt."""


def demand_all_finished(case: Case, records: Records, design: Architecture | None = None) -> None:
    """Every task that fits some machine ran for its true duration, or its limit, no other did, all jobs were answered.

    A task that the design declares to refuse fits none. What a preempted attempt has done counts where the next one
    goes on from there.

    Raises:
        NonconformanceError: naming the first task or job of which this is not true.
    """
    trace, first = case.trace, case.trace.first
    pace = Pace(trace, case.cluster)
    satisfiable, kept_us = case.satisfiable(design), defaultdict[int, Time](int)
    for lost in records.lost:
        kept_us[lost.task] += pace.done_us(lost.task, lost.kept_us, lost.worker)

    for job in range(trace.job_count):
        end_us = trace.arrival_us[job]
        for task in range(first[job], first[job + 1]):
            start, finish = records.start_us[task], records.finish_us[task]
            subject = f"task {task} of job {job} in case {case.name!r}"

            if not satisfiable[task]:
                demand(start == finish == NEVER, f"{subject} fits no machine and ran")
                continue

            demand(start != NEVER, f"{subject} never started")
            demand(finish != NEVER, f"{subject} started at {start} us and never finished")
            demand(start >= trace.arrival_us[job], f"{subject} started before its job arrived")

            ran_us = pace.attempt_us(task, trace.duration_us[task] - kept_us[task], records.worker[task])
            if trace.limit_us and trace.limit_us[job] != NEVER:
                ran_us = min(ran_us, trace.limit_us[job])
            demand(finish - start == ran_us, f"{subject} did not run for its duration")
            end_us = max(end_us, finish)

        answered = records.answered_us[job]
        demand(answered != NEVER, f"job {job} of case {case.name!r} was never answered")
        demand(
            answered >= end_us,
            f"job {job} of case {case.name!r} was answered at {answered} us, before its end {end_us}",
        )

        lacking = sum(not satisfiable[task] for task in range(first[job], first[job + 1]))
        count = records.unsatisfiable[job]
        demand(count == lacking, f"job {job} has {lacking} tasks that fit no machine, and {count} were reported")


def attempts(records: Records) -> dict[int, list[Interval]]:
    """Per machine, the attempts that occupied it, lost ones too."""
    intervals_of: dict[int, list[Interval]] = defaultdict(list)
    for task, start in enumerate(records.start_us):
        if start != NEVER:
            attempt = records.attempt[task]
            end = records.killed.get((task, attempt), records.finish_us[task])
            intervals_of[records.worker[task]].append((start, end, task))

    for lost in records.lost:
        intervals_of[lost.worker].append(
            (lost.start_us, records.killed.get((lost.task, lost.attempt), lost.finish_us), lost.task)
        )

    return intervals_of


def demand_capacity(case: Case, records: Records) -> None:
    """At no time does a machine run more tasks than it has slots, or give more of a resource than it has.

    An attempt holds what it takes from its start until just before its end. One of duration 0 comes between the ends
    and the starts of its instant, alone, so what it takes must be free beside those that run before and after.

    Raises:
        NonconformanceError: naming machine and time.
    """
    cluster, trace = case.cluster, case.trace

    names = cluster.resources or ("slots",)
    needs = trace.requests if cluster.resources else ((1,),)
    need_of = trace.request if cluster.resources else [0] * trace.task_count

    for machine, intervals in attempts(records).items():
        offered = cluster.capacities[machine] if cluster.resources else (cluster.slots[machine],)
        for k, name in enumerate(names):
            uses = [(start, end, needs[need_of[task]][k]) for start, end, task in intervals]
            _demand_amount(uses, offered[k], f"machine {machine} has {offered[k]} {name}")


def _demand_amount(uses: Sequence[Interval], offered: int, subject: str) -> None:
    """Demand that attempts (start, end and amount each) never use more than is offered."""
    ended, started, instantaneous = (
        defaultdict[Time, int](int),
        defaultdict[Time, int](int),
        defaultdict[Time, int](int),
    )

    for start, end, amount in uses:
        # An attempt of no duration lies between the ends and the starts of its instant, and beside no other such one.
        if start == end:
            instantaneous[start] = max(instantaneous[start], amount)
        else:
            started[start] += amount
            ended[end] += amount

    running = 0
    for time_us in sorted({*ended, *started, *instantaneous}):
        running -= ended[time_us]
        demand(running + instantaneous[time_us] <= offered, f"{subject}, more are used at {time_us} us")
        running += started[time_us]
        demand(running <= offered, f"{subject}; {running} are in use at {time_us} us")


def demand_limits(case: Case, records: Records) -> None:
    """No attempt, lost ones among them, ran past the limit of its job.

    Raises:
        NonconformanceError: naming the task.
    """
    limits_us = case.trace.limit_us
    job_of_task = case.trace.job_of_task()
    for machine, intervals in attempts(records).items():
        for start, end, task in intervals:
            limit_us = limits_us[job_of_task[task]]
            problem = f"task {task} ran from {start} to {end} us on machine {machine}, past its limit of {limit_us} us"
            demand(limit_us == NEVER or end - start <= limit_us, problem)


def demand_constraints(case: Case, records: Records) -> None:
    """Every task ran on a machine that meets its constraints.

    Raises:
        NonconformanceError: naming the task.
    """
    for task, need in enumerate(case.trace.constraints):
        machine = records.worker[task]
        if machine >= 0:
            lacking = need & ~case.cluster.constraints[machine]
            demand(not lacking, f"task {task} needs {need:#x}; machine {machine} lacks {lacking:#x} of it")


def demand_parents_first(case: Case, records: Records) -> None:
    """No task started before it was submitted and all that it waits for had finished: then it became ready.

    Raises:
        NonconformanceError: naming the task.
    """
    trace = case.trace
    for job in range(trace.job_count):
        for task in range(trace.first[job], trace.first[job + 1]):
            start, parents = records.start_us[task], trace.parents_of(task)

            if start == NEVER or not comes_in_parts(trace):
                continue

            submitted = trace.submit_us[task] if trace.submit_us else trace.arrival_us[job]
            ends = [submitted, *[records.finish_us[parent] for parent in parents]]
            subject = f"task {task} of case {case.name!r}, started at {start} us,"
            demand(NEVER not in ends, f"{subject} waits for one that never finished")

            ready = max(ends)
            demand(start >= ready, f"{subject} could not start before {ready} us")
            demand(records.ready_us[task] == ready, f"{subject} is recorded as ready at {records.ready_us[task]} us")


def path_us(records: Records, task: int) -> Time:
    """Communication and processing along the chain of messages that led to a task's start."""
    path = records.path[task]
    return (path >> PATH_SHIFT) + (path & ((1 << PATH_SHIFT) - 1))


def demand_sound(case: Case, records: Records, design: Architecture | None = None) -> None:
    """All that can run has run, within what machines offer, where its constraints are met.

    Raises:
        NonconformanceError: naming what is not so.
    """
    demand_all_finished(case, records, design)
    demand_capacity(case, records)
    demand_constraints(case, records)
