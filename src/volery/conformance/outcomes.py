"""What must hold of the records of any run, judged outside the components."""

from __future__ import annotations

from collections import defaultdict

from volery.conformance.cases import Case
from volery.conformance.verdict import demand
from volery.core.model import Time
from volery.core.records import PATH_SHIFT, Records
from volery.core.trace import NEVER

Interval = tuple[Time, Time, int]
"""Start, end and task of one attempt."""


def demand_all_finished(case: Case, records: Records) -> None:
    """Every task that fits some machine ran for its true duration after its job came, no other did, all were answered.

    Raises:
        NonconformanceError: naming the first task or job of which this is not true.
    """
    trace, first = case.trace, case.trace.first
    satisfiable = case.satisfiable()
    for job in range(trace.job_count):
        done = trace.arrival_us[job]
        for task in range(first[job], first[job + 1]):
            start, finish = records.start_us[task], records.finish_us[task]
            what = f"task {task} of job {job} in case {case.name!r}"
            if not satisfiable[task]:
                demand(start == finish == NEVER, f"{what} fits no machine and ran")
                continue
            demand(start != NEVER, f"{what} never started")
            demand(finish != NEVER, f"{what} started at {start} us and never finished")
            demand(start >= trace.arrival_us[job], f"{what} started before its job arrived")
            demand(finish - start == trace.duration_us[task], f"{what} did not run for its duration")
            done = max(done, finish)
        answered = records.answered_us[job]
        demand(answered != NEVER, f"job {job} of case {case.name!r} was never answered")
        demand(
            answered >= done, f"job {job} of case {case.name!r} was answered at {answered} us, before its end {done}"
        )
        lacking = sum(not satisfiable[task] for task in range(first[job], first[job + 1]))
        told = records.unsatisfiable[job]
        demand(told == lacking, f"job {job} has {lacking} tasks that fit no machine; the submitter was told {told}")


def attempts(records: Records) -> dict[int, list[Interval]]:
    """Per machine, the attempts that occupied it, lost ones too."""
    found: dict[int, list[Interval]] = defaultdict(list)
    for task, start in enumerate(records.start_us):
        if start != NEVER:
            attempt = records.attempt[task]
            end = records.killed.get((task, attempt), records.finish_us[task])
            found[records.worker[task]].append((start, end, task))
    for lost in records.lost:
        found[lost.worker].append(
            (lost.start_us, records.killed.get((lost.task, lost.attempt), lost.finish_us), lost.task)
        )
    return found


def demand_capacity(case: Case, records: Records) -> None:
    """At no time does a machine run more tasks than it has slots.

    An attempt holds its slot from its start until just before its end. One of duration 0 comes between the ends and
    the starts of its instant, so it needs a slot beside those that hold theirs before and after.

    Raises:
        NonconformanceError: naming machine and time.
    """
    for machine, intervals in attempts(records).items():
        slots = case.cluster.slots[machine]
        moments: dict[Time, list[int]] = defaultdict(lambda: [0, 0, 0])
        for start, end, _ in intervals:
            if start == end:
                moments[start][1] = 1
            else:
                moments[start][2] += 1
                moments[end][0] += 1
        running = 0
        for at in sorted(moments):
            ended, instantaneous, started = moments[at]
            running -= ended
            demand(running + instantaneous <= slots, f"machine {machine} has {slots} slots, more are used at {at} us")
            running += started
            demand(running <= slots, f"machine {machine} has {slots} slots and runs {running} tasks at {at} us")


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


def path_us(records: Records, task: int) -> Time:
    """Communication and processing along the chain of messages that led to a task's start."""
    path = records.path[task]
    return (path >> PATH_SHIFT) + (path & ((1 << PATH_SHIFT) - 1))
