"""The check of cancelling: a job that is given up ends, at once and alone."""

from __future__ import annotations

from volery.conformance.cases import Case, all_cases, flow_cases
from volery.conformance.outcomes import demand_capacity
from volery.conformance.verdict import check, demand, run
from volery.conformance.watching import Watch
from volery.core.component import Architecture, Component
from volery.core.events import Cancel, Event, JobDone, Submit
from volery.core.model import NEVER, SUBMITTER, Address, JobId, Message, Time
from volery.core.port import Port
from volery.core.records import Records
from volery.sim import Network, Options

DELAY_US = 500
EVERY = 3
"""Every third job is cancelled."""
EVENTS_BEFORE = (0, 0, 3, 20, 150, 700)
"""So many events after its submission: with chunks still to come, while requests are under way, while tasks run."""


class Cancels(Watch):
    """Cancels some jobs, each some events after its submission and once more a little later."""

    def __init__(self) -> None:
        self.cancelled_at: dict[JobId, Time] = {}
        self.answers: dict[JobId, list[Time]] = {}
        self._due: dict[int, list[tuple[Component, JobId]]] = {}
        self._events = 0
        self._doors: dict[JobId, Component] = {}

    def event(self, component: Component, event: Event, source: Address, address: Address) -> None:
        """Count, and cancel what is due."""
        self._events += 1
        component.handle(event, source, self.now)
        if isinstance(event, Submit) and event.job.id % EVERY == 0:
            job = event.job.id
            self._doors[job] = component
            wait = EVENTS_BEFORE[job // EVERY % len(EVENTS_BEFORE)]
            for at in (self._events + wait, self._events + wait + 10):
                self._due.setdefault(at, []).append((component, job))
        for door, job in self._due.pop(self._events, ()):
            if job in self.cancelled_at or not self.answers.get(job):
                self.cancelled_at.setdefault(job, self.now)
                door.handle(Cancel(job), SUBMITTER, self.now)

    def sent(self, port: Port, to: Address, message: Message) -> None:
        """Remember when jobs are told done."""
        if to == SUBMITTER and isinstance(message, JobDone):
            self.answers.setdefault(message.job, []).append(self.now)
        port.send(to, message)

    def again(self) -> dict[JobId, int]:
        """Cancel all of them after the end; per job, how often it was told done for that."""
        before = {job: len(told) for job, told in self.answers.items()}
        for job in self.cancelled_at:
            self._doors[job].handle(Cancel(job), SUBMITTER, self.now)
        return {job: len(self.answers[job]) - before.get(job, 0) for job in self.cancelled_at}


@check
def check_cancel(architecture: Architecture) -> None:
    """Of a cancelled job waiting tasks never run, running ones are killed, it is told done; others are untouched."""
    for case in all_cases(10, architecture.vectors) + flow_cases(10, architecture.vectors):
        cancels = Cancels()
        network = Network(delay_us=DELAY_US)
        records = run(architecture, case, network=network, options=Options(check=True), watch=cancels)
        grace = architecture.hops * DELAY_US
        _demand_others_untouched(case, records, cancels)
        for job, at in cancels.cancelled_at.items():
            _demand_ended(case, records, job, at, grace)
            told = cancels.answers.get(job, [])
            demand(len(told) >= 1, f"job {job} was cancelled at {at} us and never told done")
            late = told[0] - at
            demand(late <= 2 * grace, f"job {job}, cancelled at {at} us, was told done {late} us later")
        demand_capacity(case, records)
        for job, count in cancels.again().items():
            demand(count == 1, f"job {job}, cancelled again when done, was told done {count} times for that")


def _demand_ended(case: Case, records: Records, job: JobId, at: Time, grace: Time) -> None:
    """Nothing of the job starts or goes on longer than messages are under way."""
    trace = case.trace
    for task in range(trace.first[job], trace.first[job + 1]):
        start, finish = records.start_us[task], records.finish_us[task]
        what = f"task {task} of job {job}, cancelled at {at} us,"
        if start == NEVER:
            continue
        demand(start <= at + grace, f"{what} started at {start} us")
        if finish == NEVER:
            killed = records.killed.get((task, records.attempt[task]), NEVER)
            demand(killed != NEVER and killed <= at + grace, f"{what} was not killed in time")
        else:
            demand(finish <= at + grace, f"{what} ran on until {finish} us")


def _demand_others_untouched(case: Case, records: Records, cancels: Cancels) -> None:
    trace, satisfiable = case.trace, case.satisfiable()
    for job in range(trace.job_count):
        told = len(cancels.answers.get(job, []))
        if job in cancels.cancelled_at:
            continue
        demand(told == 1, f"job {job} was not cancelled and told done {told} times")
        for task in range(trace.first[job], trace.first[job + 1]):
            ran = records.start_us[task] != NEVER and records.finish_us[task] != NEVER
            demand(ran == satisfiable[task], f"task {task} of job {job}, which was not cancelled, did not finish")
