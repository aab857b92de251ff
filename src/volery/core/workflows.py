"""Workflows: parents of tasks, critical paths of jobs, and checks of both.

Tasks of a job are numbered so that parents come before their children: one pass over the numbers meets every task after
all that it waits for, and no cycle can be written down.
"""

from __future__ import annotations

import itertools
from array import array
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from volery.core.capabilities import Refusals
from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.model import TaskId, Time
from volery.core.trace import Trace, longs

if TYPE_CHECKING:
    from volery.core.component import Deployment


def has_workflows(trace: Trace) -> bool:
    """True if any task waits for another."""
    return bool(trace.parents)


def comes_in_parts(trace: Trace) -> bool:
    """True if some tasks come later than their job: they wait for others, or are submitted later."""
    return bool(trace.parents or trace.submit_us)


def with_parents(trace: Trace, parents: Sequence[Sequence[TaskId]]) -> Trace:
    """The trace with these parents per task; without the columns where no task has any.

    Raises:
        InputError: see `check_workflows`.
    """
    flat = array("q", [parent for group in parents for parent in group])
    first = array("q", itertools.accumulate(map(len, parents), initial=0))
    workflow = msgspec.structs.replace(trace, parent_first=first if flat else longs(), parents=flat)
    check_workflows(workflow)
    return workflow


def check_workflows(trace: Trace) -> None:
    """Refuse columns that are no workflows.

    Raises:
        InputError: offsets that do not fit the tasks, or a parent of another job, or one that comes after its child;
            a task that is submitted before its job, or before a task that it waits for; none that is with its job.
    """
    _check_submissions(trace)
    first, parents = trace.parent_first, trace.parents
    if not first and not parents:
        return

    if len(first) != trace.task_count + 1 or first[0] or first[-1] != len(parents):
        raise InputError(
            trace.name, f"{len(first)} places of first parents for {trace.task_count} tasks; give one more"
        )

    for job in range(trace.job_count):
        low = trace.first[job]
        for task in range(low, trace.first[job + 1]):
            if first[task] > first[task + 1]:
                raise InputError(trace.name, f"the places of first parents decrease at task {task}")
            for place in range(first[task], first[task + 1]):
                if not low <= parents[place] < task:
                    problem = (
                        f"task {task} of job {job} waits for task {parents[place]}; "
                        f"parents are tasks of the job with smaller numbers, here from {low}"
                    )
                    raise InputError(trace.name, problem)


def _check_submissions(trace: Trace) -> None:
    if not trace.submit_us:
        return

    if len(trace.submit_us) != trace.task_count:
        raise InputError(trace.name, f"{len(trace.submit_us)} submissions for {trace.task_count} tasks; give one each")

    for job, (low, high) in enumerate(job_bounds(trace)):
        if low < high and (begin := min(trace.submit_us[low:high])) != trace.arrival_us[job]:
            problem = (
                f"the first task of job {job} is submitted at {begin} us; the job is at {trace.arrival_us[job]} us"
            )
            raise InputError(trace.name, problem)

        for task in range(low, high):
            earliest_us = max(
                [trace.submit_us[parent] for parent in trace.parents_of(task)], default=trace.arrival_us[job]
            )
            if trace.submit_us[task] < earliest_us:
                problem = (
                    f"task {task} of job {job} is submitted at {trace.submit_us[task]} us; "
                    f"here not before {earliest_us}"
                )
                raise InputError(trace.name, problem)


def children_of(trace: Trace) -> tuple[array[int], array[int]]:
    """The place of each task's first child, with the count of all at the end; and the children, in order."""
    first = longs(trace.task_count + 1)
    for parent in trace.parents:
        first[parent + 1] += 1
    # Counting sort: the counts become places, so that all children of a trace are in one array.
    for task in range(trace.task_count):
        first[task + 1] += first[task]

    next_place = first[:]
    children = longs(len(trace.parents))
    for task in range(trace.task_count if trace.parents else 0):
        for place in range(trace.parent_first[task], trace.parent_first[task + 1]):
            parent = trace.parents[place]
            children[next_place[parent]] = task
            next_place[parent] += 1
    return first, children


def delays_us(trace: Trace) -> array[int]:
    """The delay of each task's submission after its job's; nothing where all are with their jobs."""
    if not trace.submit_us:
        return longs()
    bounds = enumerate(job_bounds(trace))
    return array("q", [trace.submit_us[task] - trace.arrival_us[job] for job, ends in bounds for task in range(*ends)])


def ends_us(trace: Trace, duration_us: Sequence[Time] | None = None) -> array[int]:
    """The ideal end of each task after its job's submission: only its parents and its own submission hold it up.

    Args:
        duration_us: Duration of each task, if not the trace's.
    """
    durations = trace.duration_us if duration_us is None else duration_us
    ends = array("q", durations)

    first, parents = trace.parent_first, trace.parents
    # Parents have smaller numbers than their children, so that their ends are known when a task is met.
    if delays := delays_us(trace):
        for task, delay in enumerate(delays):
            task_parents = parents[first[task] : first[task + 1]] if parents else ()
            ends[task] += max([delay, *[ends[parent] for parent in task_parents]])
        return ends

    if parents:
        for task in range(trace.task_count):
            low, high = first[task], first[task + 1]
            if low < high:
                ends[task] += max([ends[parent] for parent in parents[low:high]])
    return ends


def critical_paths_us(trace: Trace, duration_us: Sequence[Time] | None = None) -> array[int]:
    """The longest chain of tasks of each job that wait for each other, submitted at once; 0 without tasks.

    Args:
        duration_us: Duration of each task, if not the trace's.
    """
    return spans_us(_at_once(trace), duration_us)


def spans_us(trace: Trace, duration_us: Sequence[Time] | None = None) -> array[int]:
    """The ideal response time of each job: its critical path, or longer where tasks come late; 0 without tasks.

    Args:
        duration_us: Duration of each task, if not the trace's.
    """
    ends = ends_us(trace, duration_us)
    return array("q", [max(ends[low:high], default=0) for low, high in job_bounds(trace)])


def _at_once(trace: Trace) -> Trace:
    return msgspec.structs.replace(trace, submit_us=longs()) if trace.submit_us else trace


def job_bounds(trace: Trace) -> list[tuple[TaskId, TaskId]]:
    """The first task of each job and the one after its last."""
    return [(trace.first[job], trace.first[job + 1]) for job in range(trace.job_count)]


def levels(trace: Trace) -> array[int]:
    """The count of tasks in the longest chain above each task."""
    unit_durations = longs(trace.task_count, 1)
    return array("q", [end - 1 for end in ends_us(_at_once(trace), unit_durations)])


def refused(trace: Trace, deployment: Deployment) -> list[bool]:
    """Flags of the tasks that the design runs on no machine, though one suits; see `Refusals`."""
    is_refused = [False] * trace.task_count
    refusals = deployment.capability(Refusals)

    if refusals is None:
        return is_refused

    for number in range(trace.job_count):
        low, high = trace.first[number], trace.first[number + 1]
        tasks = trace.tasks_of(number, range(low, high))
        submit = trace.messages(number, tasks, high - low)[0]
        assert isinstance(submit, Submit)
        is_refused[low:high] = [refusals.refuses(submit.job, task) for task in tasks]
    return is_refused


def below(trace: Trace, roots: Sequence[bool]) -> list[bool]:
    """Flags of the tasks that wait, directly or not, for one of the roots."""
    is_below = [False] * trace.task_count
    first, parents = trace.parent_first, trace.parents
    # One pass: a parent is decided before its children.
    for task in range(trace.task_count if parents else 0):
        is_below[task] = any(is_below[parent] or roots[parent] for parent in parents[first[task] : first[task + 1]])
    return is_below
