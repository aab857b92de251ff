"""Checks of features of a workload: those that a design uses change a run, others do not, and distance costs time.

The check of tag constraints reads the records alone, apart from the rule by which the lab refuses launches.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator, Mapping
from random import Random
from typing import Any, NamedTuple

import msgspec

from volery.conformance.cases import MACHINES, Case, mixed_cases, tag_cases
from volery.conformance.outcomes import demand_capacity, demand_constraints, demand_sound
from volery.conformance.verdict import Echo, check, demand, run
from volery.core.component import AMOUNTS, DEPENDENCIES, Architecture
from volery.core.errors import InputError
from volery.core.events import MoreTasks, Submit
from volery.core.features import (
    CONSTRAINTS,
    DEADLINES,
    FEATURES,
    LIMITS,
    LOCALITY,
    PARTITIONS,
    PRIORITIES,
    USERS,
    alternatives,
    features_of,
    used_features,
)
from volery.core.locality import racks_of, with_replicas
from volery.core.model import NEVER, SECOND, UNLIMITED, JobId, TagConstraint, TaskId, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.tags import check_heeded
from volery.core.trace import longs
from volery.sim import Network, Options

RACKS = 5
REPLICAS = 3
AS_NEAR = (1000, 1000)
FARTHER = (1500, 2300)
WITHOUT: Mapping[str, Mapping[str, Any]] = {
    USERS: {"user": ()},
    PRIORITIES: {"priority": longs()},
    DEADLINES: {"deadline_us": longs()},
    LIMITS: {"limit_us": longs()},
    LOCALITY: {"replica_first": longs(), "replicas": array("i")},
    PARTITIONS: {"partition": ()},
}
"""The columns of a trace without a feature, by the feature."""


def rich_cases(seed: int, far_permille: tuple[int, int]) -> list[Case]:
    """Jobs of several users and partitions with priorities, deadlines and limits, whose tasks have input or none.

    Limits are longer than the tasks: they change what designs know, and not the work.
    """
    cases = []
    for case in mixed_cases(seed):
        stream = Streams(seed).of(f"conformance/rich/{case.name}")
        trace = case.trace

        replicas = [stream.sample(range(MACHINES), REPLICAS * (stream.random() < 0.8)) for _ in range(trace.task_count)]
        trace = with_replicas(trace, replicas, far_permille)
        trace = msgspec.structs.replace(
            trace,
            priority=array("q", [stream.randrange(3) for _ in range(trace.job_count)]),
            deadline_us=array("q", [_deadline_us(at, stream) for at in trace.arrival_us]),
            limit_us=array("q", [_limit_us(max(trace.duration_us), stream) for _ in range(trace.job_count)]),
            partition=tuple([stream.choice(("", "a", "b")) for _ in range(trace.job_count)]),
        )

        racks = tuple(machine % RACKS for machine in range(MACHINES))
        cases.append(Case(f"{case.name}, rich", seed, trace, msgspec.structs.replace(case.cluster, racks=racks)))
    return cases


def _deadline_us(arrival_us: int, stream: Random) -> int:
    """The deadline of some jobs: a design may treat jobs with one otherwise, not only the earlier one first."""
    return arrival_us + stream.randrange(1, 60 * SECOND) if stream.random() < 0.7 else NEVER


def _limit_us(longest_us: Time, stream: Random) -> int:
    """The limit of some jobs, beyond the longest task wherever that runs."""
    return 3 * longest_us + stream.randrange(1, 60 * SECOND) if stream.random() < 0.7 else NEVER


@check
def check_features_are_declared(architecture: Architecture) -> None:
    """Features that a design uses are declared by known names, constraints among them: every design keeps these."""
    for feature, condition in architecture.features.items():
        demand(feature in FEATURES, f"uses {feature!r}, which is not one of {', '.join(FEATURES)}")
        fields = architecture.defaults.__struct_fields__
        is_parameter = all(not parameter or parameter in fields for parameter, _ in alternatives(condition))
        demand(is_parameter, f"uses {feature} when {condition}, but there is no such parameter")

    for feature in (AMOUNTS, DEPENDENCIES):
        condition = architecture.features.get(feature, "")
        demand(not condition, f"uses {feature} when {condition}; a design uses it always or never")

    demand(
        architecture.features.get(CONSTRAINTS) == "",
        "does not declare the features that it uses; constraints at least, always",
    )


@check
def check_ignored_features_change_nothing(architecture: Architecture) -> None:
    """A workload runs alike with and without a feature that a design ignores, and not alike if it always uses it."""
    used = used_features(architecture, architecture.defaults)
    changed = dict.fromkeys(WITHOUT, False)

    for case in rich_cases(12, AS_NEAR):
        digest = run(architecture, case).digest()
        for feature, columns in WITHOUT.items():
            demand(feature in features_of(case.trace), f"case {case.name!r} has no {feature}")
            without_feature = msgspec.structs.replace(case, trace=msgspec.structs.replace(case.trace, **columns))
            changed[feature] |= run(architecture, without_feature).digest() != digest

    for feature, differs in changed.items():
        demand(feature in used or not differs, f"declares that it ignores {feature}; without them a run changes")
        # By a parameter it may be no more than a rule for ties.
        is_always_used = architecture.features.get(feature) == ""
        demand(differs or not is_always_used, f"declares that it uses {feature}; without them no run changes")


@check
def check_locality(architecture: Architecture) -> None:
    """Wherever a task runs, it lasts as long as the distance from its input makes it, and all other rules hold."""
    for case in rich_cases(13, FARTHER):
        for options in (Options(check=True), Options(check=True, tie_shuffle=13), Options(copy_messages=True)):
            demand_sound(case, run(architecture, case, options=options), architecture)


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
        if refusal.place.endswith(f":{design.conformance.tags}"):
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
