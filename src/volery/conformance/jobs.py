"""Checks of jobs: cancellation, failed tasks, workflows and gangs."""

from __future__ import annotations

import msgspec

from volery.conformance.cases import (
    GANG_MACHINES,
    MACHINES,
    Case,
    all_cases,
    flow_cases,
    gang_cases,
    mixed_cases,
    rigid_cases,
)
from volery.conformance.outcomes import demand_capacity, demand_parents_first, demand_sound
from volery.conformance.verdict import Echo, Interceptor, check, demand, run
from volery.core.capabilities import GangPlacement
from volery.core.component import Architecture, Component
from volery.core.errors import InputError
from volery.core.events import Cancel, Event, JobDone, MoreTasks, Submit, TaskFinished
from volery.core.features import GANGS, used_features
from volery.core.gangs import gangs_beyond_parts, with_gangs
from volery.core.model import NEVER, REQUIRES_RACK, SUBMITTER, Address, Cluster, JobId, Message, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.core.streams import Streams
from volery.core.trace import NO_GANG
from volery.sim import Network, Options

DELAY_US = 500
CANCELLED_EVERY = 3
"""Every third job is cancelled."""
EVENTS_BEFORE = (0, 0, 3, 20, 150, 700)
"""Numbers of events between submission and cancellation: before more chunks, while requests travel, while tasks run."""
FAILS_EVERY = 3
"""One of so many tasks fails."""
SEEDS = 3


class Cancels(Interceptor):
    """Cancels some jobs, each some events after its submission and once more a little later."""

    def __init__(self) -> None:
        self.cancelled_at: dict[JobId, Time] = {}
        self.answers: dict[JobId, list[Time]] = {}
        self._due: dict[int, list[tuple[Component, JobId]]] = {}
        self._events = 0
        self._entries: dict[JobId, Component] = {}

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Count, and cancel what is due."""
        self._events += 1
        component.handle(event, source, self.now)

        if isinstance(event, Submit) and event.job.id % CANCELLED_EVERY == 0:
            job = event.job.id
            self._entries[job] = component
            wait = EVENTS_BEFORE[job // CANCELLED_EVERY % len(EVENTS_BEFORE)]
            # A second Cancel follows soon, as from an impatient user: it must do no harm.
            for at in (self._events + wait, self._events + wait + 10):
                self._due.setdefault(at, []).append((component, job))

        for entry, job in self._due.pop(self._events, ()):
            if job in self.cancelled_at or not self.answers.get(job):
                self.cancelled_at.setdefault(job, self.now)
                entry.handle(Cancel(job), SUBMITTER, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """Remember when jobs are reported done."""
        if to == SUBMITTER and isinstance(message, JobDone):
            self.answers.setdefault(message.job, []).append(self.now)
        port.send(to, message)

    def again(self) -> dict[JobId, int]:
        """Cancel all of them after the end; per job, how often it is reported done for that."""
        answers_before = {job: len(answers) for job, answers in self.answers.items()}

        for job in self.cancelled_at:
            self._entries[job].handle(Cancel(job), SUBMITTER, self.now)

        return {job: len(self.answers[job]) - answers_before.get(job, 0) for job in self.cancelled_at}


@check
def check_cancel(architecture: Architecture) -> None:
    """A cancelled job is reported done: waiting tasks never run, running ones are killed, other jobs are untouched."""
    for case in all_cases(10, architecture.vectors) + flow_cases(10, architecture.vectors):
        cancels = Cancels()
        network = Network(delay_us=DELAY_US)
        records = run(architecture, case, network=network, options=Options(check=True), interceptor=cancels)

        grace = architecture.conformance.hops * DELAY_US
        _demand_others_untouched(case, records, cancels, architecture)

        for job, at in cancels.cancelled_at.items():
            _demand_ended(case, records, job, at, grace)
            answers = cancels.answers.get(job, [])
            demand(len(answers) >= 1, f"job {job} was cancelled at {at} us and never reported done")
            late = answers[0] - at
            demand(late <= 2 * grace, f"job {job}, cancelled at {at} us, was reported done {late} us later")

        demand_capacity(case, records)
        for job, count in cancels.again().items():
            demand(count == 1, f"job {job}, cancelled again when done, was reported done {count} times for that")


def _demand_ended(case: Case, records: Records, job: JobId, at: Time, grace: Time) -> None:
    """Nothing of the job starts or goes on longer than messages are under way."""
    trace = case.trace
    for task in range(trace.first[job], trace.first[job + 1]):
        start, finish = records.start_us[task], records.finish_us[task]
        subject = f"task {task} of job {job}, cancelled at {at} us,"

        if start == NEVER:
            continue

        demand(start <= at + grace, f"{subject} started at {start} us")
        if finish == NEVER:
            killed = records.killed.get((task, records.attempt[task]), NEVER)
            demand(killed != NEVER and killed <= at + grace, f"{subject} was not killed in time")
        else:
            demand(finish <= at + grace, f"{subject} ran on until {finish} us")


def _demand_others_untouched(case: Case, records: Records, cancels: Cancels, architecture: Architecture) -> None:
    trace, satisfiable = case.trace, case.satisfiable(architecture)
    for job in range(trace.job_count):
        count = len(cancels.answers.get(job, []))
        if job in cancels.cancelled_at:
            continue
        demand(count == 1, f"job {job} was not cancelled and was reported done {count} times")
        for task in range(trace.first[job], trace.first[job + 1]):
            ran = records.start_us[task] != NEVER and records.finish_us[task] != NEVER
            demand(ran == satisfiable[task], f"task {task} of job {job}, which was not cancelled, did not finish")


class _Failures(Interceptor):
    """Reports to nodes that some tasks have failed."""

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        if isinstance(event, TaskFinished) and event.outcome == "finished" and event.task.id % FAILS_EVERY == 0:
            event = msgspec.structs.replace(event, outcome="failed")
        super().event(component, event, source, address)


@check
def check_failed_tasks_are_over(architecture: Architecture) -> None:
    """With every third task failing at its end instead of succeeding, the digest is the same."""
    for case in mixed_cases(seed=14):
        plain = run(architecture, case).digest()
        failing = run(architecture, case, interceptor=_Failures()).digest()
        demand(plain == failing, f"tasks that fail change the result of case {case.name!r}")


@check
def check_workflows(architecture: Architecture) -> None:
    """Tasks that wait for others start after them, all run once, and those below one that fits nowhere are counted.

    Also without any delay, with ties in another order, with jitter, and when all submissions come twice.
    """
    checked = Options(check=True)
    for case in flow_cases(11, architecture.vectors):
        for records in (
            run(architecture, case, options=checked),
            run(architecture, case, network=Network(delay_us=0)),
            run(architecture, case, options=Options(check=True, tie_shuffle=11)),
            run(architecture, case, network=Network(jitter_us=2_000)),
            run(architecture, case, interceptor=Echo((Submit, MoreTasks))),
        ):
            demand_sound(case, records, architecture)
            demand_parents_first(case, records)


@check
def check_gangs(architecture: Architecture) -> None:
    """A gang starts at one instant; one that the empty cluster cannot hold never runs, and its tasks are reported.

    Concerns designs that declare a parameter for gangs.
    """
    if not architecture.conformance.gangs:
        return

    defaults = msgspec.structs.replace(architecture.defaults, **{architecture.conformance.gangs: True})
    design = msgspec.structs.replace(architecture, defaults=defaults)

    for seed in range(SEEDS):
        for case in gang_cases(seed):
            records = run(design, case, seed=seed, options=Options(check=True))
            demand_sound(case, records, design)
            _demand_together(case, records)

            demand_sound(case, run(design, case, seed=seed, options=Options(tie_shuffle=seed)), design)
            demand_sound(case, run(design, case, seed=seed, network=Network(jitter_us=2_000)), design)
            demand_sound(case, run(design, case, seed=seed, interceptor=Echo((Submit, MoreTasks))), design)

    for case in flow_cases():
        case = msgspec.structs.replace(case, gangs=True)
        demand_sound(case, run(design, case, options=Options(check=True)), design)


@check
def check_gangs_start_whole(architecture: Architecture) -> None:
    """All gangs start whole, in their shapes, and no member waits on its machine for others.

    Concerns designs that start gangs whole, which declare the feature and the capability; also with ties in another
    order, jitter, and repeated submissions.
    """
    machines = GANG_MACHINES
    try:
        deployment = architecture.build(Cluster.uniform(machines), architecture.defaults, Streams(0))
    except InputError:  # a design that needs more machines gets as many as in other cases
        machines = MACHINES
        deployment = architecture.build(Cluster.uniform(machines), architecture.defaults, Streams(0))
    placement = deployment.capability(GangPlacement)
    is_declared = GANGS in used_features(architecture, architecture.defaults)
    demand(is_declared == (placement is not None), "the feature gangs and the capability GangPlacement disagree")
    if placement is None:
        return

    for seed in range(SEEDS):
        cases = rigid_cases(
            seed,
            has_shapes=placement.shapes,
            has_amounts=architecture.vectors,
            has_racks=placement.racks,
            machines=machines,
        )
        # The first case has members with different constraints, which such a design may take for too much.
        for each in cases if placement.unlike_members else cases[1:]:
            case = _within_parts(each, architecture)
            records = run(architecture, case, seed=seed, options=Options(check=True))
            demand_sound(case, records, architecture)
            _demand_together(case, records)
            held_task = next(iter(records.held_us), None)
            demand(held_task is None, f"task {held_task} held its machine while others of its gang waited")

            for records in (
                run(architecture, case, seed=seed, options=Options(tie_shuffle=seed)),
                run(architecture, case, seed=seed, network=Network(jitter_us=2_000)),
                run(architecture, case, seed=seed, interceptor=Echo((Submit, MoreTasks))),
            ):
                demand_sound(case, records, architecture)
                _demand_together(case, records)


def _within_parts(case: Case, architecture: Architecture) -> Case:
    """The case without gangs that are larger than the parts into which a design divides its cluster."""
    placement = architecture.build(case.cluster, architecture.defaults, Streams(0)).capability(GangPlacement)
    nodes = list(case.trace.gang_nodes)
    for job, _ in gangs_beyond_parts(case.trace, placement) if placement is not None else ():
        nodes[job] = NO_GANG
    return msgspec.structs.replace(case, trace=with_gangs(case.trace, nodes, case.trace.gang_racks))


def _demand_together(case: Case, records: Records) -> None:
    first = case.trace.first
    for job in range(case.trace.job_count):
        if not case.gangs and case.trace.gang_of(job) is None:
            continue
        starts = set(records.start_us[first[job] : first[job + 1]]) - {NEVER}
        demand(len(starts) <= 1, f"the tasks of gang {job} started at {len(starts)} different times")
        gang = case.trace.gang_of(job)
        if gang is not None and gang.rack == REQUIRES_RACK:
            racks = {case.cluster.racks[machine] for machine in records.worker[first[job] : first[job + 1]]}
            demand(len(racks) == 1, f"gang {job} requires one rack, and its tasks ran in {len(racks)}")
