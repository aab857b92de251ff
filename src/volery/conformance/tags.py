"""The check of tag constraints: affinity, anti-affinity and cardinality hold, and nothing waits for ever.

It reads the records alone, apart from the rule by which the lab refuses launches.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from volery.conformance.cases import Case, tag_cases
from volery.conformance.interceptor import Echo
from volery.conformance.outcomes import demand_capacity, demand_constraints
from volery.conformance.verdict import check, demand, run
from volery.core.component import Architecture
from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.locality import racks_of
from volery.core.model import NEVER, UNLIMITED, JobId, TagConstraint, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.tags import check_heeded
from volery.sim import Network, Options

SEEDS = 2
DELAY_US = 500


class _FinishedTask(NamedTuple):
    """A task that has run."""

    task: TaskId
    job: JobId
    machine: int
    start: Time
    end: Time


@check
def check_tag_constraints(architecture: Architecture) -> None:
    """Tag constraints hold between all tasks that run, and tasks that wait for tags of others run, or are given up.

    Concerns designs that declare a parameter for tags, unless others exclude it.
    """
    if not architecture.conformance.tags:
        return

    defaults = msgspec.structs.replace(architecture.defaults, **{architecture.conformance.tags: True})
    design = msgspec.structs.replace(architecture, defaults=defaults)

    if _is_excluded(design):
        return

    network = Network(delay_us=DELAY_US)
    for seed in range(SEEDS):
        for case in tag_cases(seed):
            for records in (
                run(design, case, seed=seed, network=network, options=Options(check=True)),
                run(design, case, seed=seed, network=network, interceptor=Echo((Submit, MoreTasks))),
            ):
                _demand_tags(case, records, first_of_all=True)
            _demand_tags(case, run(design, case, seed=seed, network=Network(jitter_us=2_000)), first_of_all=False)


def _is_excluded(design: Architecture) -> bool:
    """True where other parameters exclude tags."""
    case = tag_cases()[0]
    try:
        check_heeded(case.trace, design.build(case.cluster, design.defaults, Streams(0)), design.name)
    except InputError as refusal:
        if refusal.place.endswith(f":{design.tags}"):
            return True
        raise
    return False


def _demand_tags(case: Case, records: Records, *, first_of_all: bool) -> None:
    """Demand the constraints of all tasks; `least` alone where orders to start arrive as they were sent."""
    demand_capacity(case, records)
    demand_constraints(case, records)
    runs = list(_runs(case, records))
    racks = racks_of(case.cluster)

    for subject in runs:
        tags = case.trace.tags_of(subject.job)
        for constraint in tags.constraints if tags is not None else ():
            near = [
                other_task
                for other_task in runs
                if other_task.task != subject.task
                and _is_target(case, other_task, constraint)
                and (
                    other_task.machine == subject.machine
                    if constraint.group == "node"
                    else racks[other_task.machine] == racks[subject.machine]
                )
            ]
            _demand_most(subject, near, constraint)

            if first_of_all and constraint.least:
                everywhere = [
                    other_task
                    for other_task in runs
                    if other_task.task != subject.task and _is_target(case, other_task, constraint)
                ]
                _demand_least(case, subject, near, everywhere, constraint)

    for job in range(case.trace.job_count):
        _demand_ended(case, records, job)


def _runs(case: Case, records: Records) -> Iterator[_FinishedTask]:
    first = case.trace.first
    for job in range(case.trace.job_count):
        for task in range(first[job], first[job + 1]):
            if records.start_us[task] != NEVER:
                start, end = records.start_us[task], records.finish_us[task]
                yield _FinishedTask(task, job, records.worker[task], start, end)


def _is_target(case: Case, run: _FinishedTask, constraint: TagConstraint) -> bool:
    tags = case.trace.tags_of(run.job)
    return tags is not None and set(constraint.target) <= set(tags.names)


def _demand_most(subject: _FinishedTask, near: list[_FinishedTask], constraint: TagConstraint) -> None:
    """At the start of the subject, and of each target while it runs, there are no more of these than `most`."""
    if constraint.most == UNLIMITED:
        return
    moments = [
        subject.start,
        *[other_task.start for other_task in near if subject.start < other_task.start < subject.end],
    ]
    for at in moments:
        count = sum(other_task.start <= at < other_task.end for other_task in near)
        crowd = f"{count} targets of {constraint} are near task {subject.task} at {at} us"
        demand(count <= constraint.most, crowd)


def _demand_least(
    case: Case,
    subject: _FinishedTask,
    near: list[_FinishedTask],
    everywhere: list[_FinishedTask],
    constraint: TagConstraint,
) -> None:
    """At the start of the subject there are `least` targets, for all that a scheduler can know.

    The end of a target is known a hop later; a subject that is a target itself may join all that there are.
    """
    known_us = case.trace.arrival_us[subject.job] - DELAY_US

    count = sum(other_task.start <= subject.start and other_task.end >= known_us for other_task in near)
    elsewhere = [
        other_task
        for other_task in everywhere
        if other_task.start < subject.start < other_task.end and other_task not in near
    ]
    gathers = _is_target(case, subject, constraint) and not elsewhere

    demand(count >= constraint.least or gathers, f"task {subject.task} started near {count} targets of {constraint}")


def _demand_ended(case: Case, records: Records, job: JobId) -> None:
    """The job is answered, and its tasks have run, but for those that waited for tags of tasks that had all ended."""
    trace = case.trace

    demand(records.answered_us[job] != NEVER, f"job {job} was never answered")
    tasks = range(trace.first[job], trace.first[job + 1])
    unfinished = [task for task in tasks if records.finish_us[task] == NEVER]
    count = records.unsatisfiable[job]

    demand(
        count == len(unfinished),
        f"{len(unfinished)} tasks of job {job} never ran to their end, and {count} were reported",
    )

    if not unfinished:
        return

    tags = trace.tags_of(job)
    runs = list(_runs(case, records))
    waits = (
        [
            constraint
            for constraint in tags.constraints
            if constraint.least and not set(constraint.target) <= set(tags.names)
        ]
        if tags
        else []
    )
    demand(bool(waits), f"job {job}, which waits for no tags, was given up")

    coming = [
        sum(_is_target(case, run, constraint) and run.end > records.answered_us[job] for run in runs) < constraint.least
        for constraint in waits
    ]
    demand(any(coming), f"job {job} was given up, and the tags that it waits for were still there")
