"""Checks of safety and progress: what a design may never do, what it must finish, and whom it may preempt."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import msgspec

from volery.conformance.cases import MACHINES, Case, all_cases, busy_cases, edge_cases, limited_cases, trace_of
from volery.conformance.outcomes import (
    attempts,
    demand_all_finished,
    demand_capacity,
    demand_constraints,
    demand_limits,
    demand_sound,
)
from volery.conformance.verdict import Echo, Interceptor, check, demand, run
from volery.core.capabilities import DueShares
from volery.core.component import Architecture, Component
from volery.core.events import Event, JobDone, JobRejected, MoreTasks, Submit, TimerFired
from volery.core.model import SECOND, SUBMITTER, Address, Cluster, JobId, Key, Message, Task, TaskId, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.core.streams import Streams
from volery.sim import Network, Options
from volery.sim.network import MessageFaultRates

FAULT_SEEDS = 3
LATE_MAX_US = 5_000


@check
def check_every_task_finishes_once(architecture: Architecture) -> None:
    """On a reliable network every task that fits some machine runs exactly once, and every job is answered."""
    for case in all_cases(vectors=architecture.vectors):
        demand_all_finished(case, run(architecture, case), architecture)


@check
def check_capacity_and_constraints(architecture: Architecture) -> None:
    """No machine ever gives more than it has, nor runs a task whose constraints it does not meet."""
    for case in busy_cases(1, architecture.vectors):
        records = run(architecture, case)
        demand_capacity(case, records)
        demand_constraints(case, records)


@check
def check_invariants(architecture: Architecture) -> None:
    """The components' own `check()` passes after each of their events."""
    for case in busy_cases(2, architecture.vectors):
        demand_all_finished(case, run(architecture, case, options=Options(check=True)), architecture)


@check
def check_limits(architecture: Architecture) -> None:
    """No attempt runs past the limit of its job; a task that a limit has ended is over, and its job is answered."""
    for case in limited_cases(9, architecture.vectors):
        records = run(architecture, case, options=Options(check=True))
        demand(bool(records.over_limit), f"no limit ended a task of case {case.name!r}")
        demand_sound(case, records, architecture)
        demand_limits(case, records)


class _Answers(Interceptor):
    """Counts JobDone per job."""

    def __init__(self) -> None:
        self.done: dict[JobId, int] = {}

    def sent(self, port: Port, to: Address, message: Message) -> None:
        if to == SUBMITTER and isinstance(message, JobDone):
            self.done[message.job] = self.done.get(message.job, 0) + 1
        port.send(to, message)


@check
def check_done_is_said_once(architecture: Architecture) -> None:
    """Each job is reported done once."""
    for case in all_cases(3, architecture.vectors):
        answers = _Answers()
        run(architecture, case, interceptor=answers)
        for job in range(case.trace.job_count):
            count = answers.done.get(job, 0)
            demand(count == 1, f"job {job} of case {case.name!r} was reported done {count} times")


class _Alarms(Interceptor):
    """Counts events since the last JobDone, timers among them."""

    def __init__(self) -> None:
        self.timers_since_done = 0

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        self.timers_since_done += isinstance(event, TimerFired)
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        if isinstance(message, JobDone):
            self.timers_since_done = 0
        port.send(to, message)


@check
def check_goes_quiet(architecture: Architecture) -> None:
    """The system becomes quiet after all work has ended: no timer goes on.

    A run returns only when nothing is left to happen; `run` bounds how long that may take. A few last timers per
    component are allowed (news that are still to be sent).
    """
    for case in edge_cases(seed=4):
        alarms = _Alarms()
        run(architecture, case, interceptor=alarms)
        components = len(architecture.build(case.cluster, architecture.defaults, Streams(0)).components)
        allowed = 3 * components
        demand(alarms.timers_since_done <= allowed, f"{alarms.timers_since_done} timers fired after the last answer")


@check
def check_ties_are_safe(architecture: Architecture) -> None:
    """In whatever order the messages of one instant arrive (each link stays FIFO), all rules hold."""
    for tie_seed in range(4):
        for case in busy_cases(5, architecture.vectors):
            records = run(architecture, case, options=Options(check=True, tie_shuffle=tie_seed))
            demand_all_finished(case, records, architecture)
            demand_capacity(case, records)


@check
def check_jitter_is_safe(architecture: Architecture) -> None:
    """With random delays on FIFO links, all rules hold and everything finishes."""
    for case in busy_cases(6, architecture.vectors):
        records = run(architecture, case, network=Network(jitter_us=2_000), options=Options(check=True))
        demand_all_finished(case, records, architecture)
        demand_capacity(case, records)


class LateTimers(Interceptor):
    """Lets every timer fire up to some milliseconds late."""

    def __init__(self, seed: int) -> None:
        self._random = Streams(seed).of("conformance/late timers").random

    def timed(self, port: Port, key: Key, at: Time) -> None:
        port.set_timer(key, max(at, self.now) + 1 + int(self._random() * LATE_MAX_US))


@check
def check_late_timers_are_safe(architecture: Architecture) -> None:
    """With timers that fire late, as all do in a process, all rules hold and everything finishes.

    The design waits for its heartbeats here, also where other checks let it report at once.
    """
    own = type(architecture.defaults)()
    waits = {name: getattr(own, name) for name in architecture.conformance.immediate}
    design = msgspec.structs.replace(architecture, defaults=msgspec.structs.replace(architecture.defaults, **waits))
    for case in busy_cases(10, design.vectors):
        records = run(design, case, options=Options(check=True), interceptor=LateTimers(case.seed))
        demand_all_finished(case, records, design)
        demand_capacity(case, records)


class _Launches(Interceptor):
    """Notes every (task, attempt) that is launched twice, whatever the driver does about it."""

    def __init__(self) -> None:
        self.twice: list[tuple[TaskId, int]] = []
        self._seen: set[tuple[TaskId, int]] = set()

    def launched(self, port: Port, task: Task, attempt: int, waited_us: Time) -> None:
        if (task.id, attempt) in self._seen:
            self.twice.append((task.id, attempt))
        self._seen.add((task.id, attempt))
        port.launch(task, attempt, waited_us)


@check
def check_repeated_messages(architecture: Architecture) -> None:
    """Repeated, late and overtaken messages never start a task twice; a design that bears repeats finishes all work."""
    for seed in range(FAULT_SEEDS):
        for case in busy_cases(7 + seed, architecture.vectors):
            for faults in (MessageFaultRates(repeat=0.3), MessageFaultRates(repeat=0.3, delay=0.2, drop=0.02)):
                launches = _Launches()
                records = run(architecture, case, seed=seed, options=Options(faults=faults), interceptor=launches)
                demand(not launches.twice, f"(task, attempt) {launches.twice[:3]} were launched twice")
                demand_capacity(case, records)
                demand_constraints(case, records)
                if "duplication" in architecture.conformance.tolerates and not faults.delay:
                    demand_all_finished(case, records, architecture)


@check
def check_submitting_twice(architecture: Architecture) -> None:
    """A job that is submitted twice, chunks included, is answered twice and runs once."""
    for case in all_cases(8, architecture.vectors):
        records = run(architecture, case, interceptor=Echo((Submit, MoreTasks)))
        demand_all_finished(case, records, architecture)
        demand_capacity(case, records)


class _Late(Interceptor):
    """Submits each job again, long after it was done, and notes what comes back."""

    def __init__(self) -> None:
        self.doors: dict[JobId, tuple[Component, Submit]] = {}
        self.answers: list[Message] = []
        self.other: list[str] = []
        self.listening = False

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        if isinstance(event, Submit):
            self.doors[event.job.id] = (component, event)
        component.handle(event, source, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        if not self.listening:
            port.send(to, message)
        elif to == SUBMITTER:
            self.answers.append(message)
        else:
            self.other.append(f"{type(message).__name__} to {to}")

    def resubmit(self) -> None:
        self.listening = True
        for component, submission in self.doors.values():
            component.handle(submission, SUBMITTER, self.now)


@check
def check_submitting_again_when_done(architecture: Architecture) -> None:
    """A finished job that is submitted again is reported done again, with the same count, and starts nothing."""
    for case in all_cases(9, architecture.vectors):
        late = _Late()
        records = run(architecture, case, interceptor=late)
        late.resubmit()
        demand(not late.other, f"a finished job that was submitted again made {late.other[:2]}")
        for job in range(case.trace.job_count):
            expected = JobDone(job, records.unsatisfiable[job])
            demand(expected in late.answers, f"job {job}, submitted again when done, was not answered {expected}")
        demand(not any(isinstance(a, JobRejected) for a in late.answers), "a finished job was rejected")


SLOTS = 2
CLUSTER = Cluster.uniform(MACHINES, SLOTS)
TASKS = 600
"""The number of tasks of each user: six times what the machines run at once."""
JOBS = 10
IN_FLIGHT_US = 2_000
"""An end within this time before a preemption may be unknown to the scheduler that decided on it: four hops."""


def contended_case(users: Sequence[str], seed: int = 0) -> Case:
    """Each user wants the whole cluster for a while; the second comes when the first has it, and so on."""
    stream = Streams(seed).of("conformance/contended")
    came, durations = [], []
    for place in range(len(users) * JOBS):
        came.append(place // JOBS * SECOND // 2 + place % JOBS * 1000)
        durations.append([int((0.25 + stream.random() / 2) * SECOND) for _ in range(TASKS // JOBS)])
    trace = trace_of("contended", came, durations)
    owners = tuple(user for user in users for _ in range(JOBS))
    return Case("contended", seed, msgspec.structs.replace(trace, user=owners), CLUSTER)


@check
def check_nobody_loses_what_it_is_due(architecture: Architecture) -> None:
    """No user loses a running task within its share, and no two users take tasks from each other.

    Concerns designs whose deployment declares guaranteed shares.
    """
    shares = architecture.build(CLUSTER, architecture.defaults, Streams(0)).capability(DueShares)
    due = shares.guaranteed if shares is not None else {}

    for seed in range(3 if due else 0):
        case = contended_case(list(due), seed)
        records = run(architecture, case, seed=seed)

        demand_all_finished(case, records, architecture)
        demand(bool(records.preemptions), f"nothing was preempted in case {case.name!r}, where some lack their share")

        user_of_task = [case.trace.user[job] for job in case.trace.job_of_task()]

        for user, share in due.items():
            _demand_kept(records, user_of_task, user, share * CLUSTER.slot_count)

        _demand_no_return(records, user_of_task)


def _demand_kept(records: Records, user_of_task: Sequence[str], user: str, due: Fraction) -> None:
    """After each of its losses the user has its slots; tasks count whose ends were not known yet."""
    # The end of a killed attempt is known to those who ordered it; others' ends travel for a while.
    killed = {(task, at) for (task, _), at in records.killed.items()}
    stays = [
        (start, end if (task, end) in killed else end + IN_FLIGHT_US)
        for intervals in attempts(records).values()
        for start, end, task in intervals
        if user_of_task[task] == user
    ]

    for lost in records.preemptions:
        if user_of_task[lost.task] == user:
            slots_left = sum(start <= lost.at_us < end for start, end in stays)
            subject = f"task {lost.task} was preempted at {lost.at_us} us for task {lost.beneficiary}"
            demand(slots_left >= due, f"{subject}: {user!r} is due {float(due):g} slots and was left with {slots_left}")


def _demand_no_return(records: Records, user_of_task: Sequence[str]) -> None:
    """No two users take tasks from each other, though each always wants more."""
    pairs = {(user_of_task[lost.task], user_of_task[lost.beneficiary]): lost for lost in records.preemptions}
    for (loser, winner), lost in pairs.items():
        demand(loser != winner, f"{loser!r} lost task {lost.task} to its own task {lost.beneficiary}")
        demand((winner, loser) not in pairs, f"{loser!r} and {winner!r} have taken tasks from each other")
