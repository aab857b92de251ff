"""The lab's submitter: it alone reads the arrival times of jobs, and a run stalls in which it is not answered.

A run has stalled when everything is quiet and a job has no answer, or when simulated time goes on and nothing is ever
done: schedulers retry, keep and give back machines, or send heartbeats, and no task ends. Long waits look the same for
a while. So two things must hold: many instants have passed without a result, and everything that was pending in the
middle of them (an end of a task, a timer, a boot) has come.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from volery.core.assignment import Assignments, Owner
from volery.core.events import Cancel, Event, JobAccepted, JobDone, JobRejected, PeerBack, PeerLost, Submit
from volery.core.model import NEVER, SUBMITTER, Address, JobId, Message, Time
from volery.sim.lab import FAR, Door, Lab


class Source(Protocol):
    """Jobs whose tasks are not all sent when the job arrives."""

    def submission(self, job: JobId) -> list[Message]:
        """The messages that submit a job, with the tasks that may be sent by now."""

    def barred(self, job: JobId) -> int:
        """The count of tasks of a job that are never sent."""

    def forget(self, job: JobId) -> None:
        """The job is done."""


class Carrier(Protocol):
    """Takes the submitter's messages instead of the lanes."""

    def carry(self, to: Address, messages: Sequence[Message]) -> bool:
        """Send messages to a component; False where its messages go by lanes."""


class Submitter:
    """The lab's submitter: sends jobs on time, takes the answers, and tries again when it is asked to.

    Args:
        lab: Shared state of the run.
        assignments: Entries of all jobs.

    Attributes:
        door: Receiver of messages to the submitter.
        submitted, jobs_done: Counts of jobs that were submitted, and that are done.
        due_us: Arrival time of the next job.
        message_count: Count of messages from and to the submitter.
        source: Source of tasks that wait for others; None: all tasks are sent with their job.
        carrier: Carrier of the submitter's messages; None: the lanes.
        answered: Listeners, called with each job that is done, and the time.
    """

    def __init__(self, lab: Lab, assignments: Assignments) -> None:
        self._lab = lab
        self._assignments = assignments
        self.submitted = 0
        self.due_us = lab.trace.arrival_us[0] if lab.trace.job_count else FAR
        self.jobs_done = 0
        self.message_count = 0
        self.door = lab.doors[SUBMITTER] = Door.through(self.handle)
        self.source: Source | None = None
        self.carrier: Carrier | None = None
        self.answered: list[Callable[[JobId, Time], None]] = []
        self._moves_at: dict[Address, Time] = {}
        self._cancelled: set[JobId] = set()

    def submit_due(self, now: Time) -> None:
        """Submit every job that arrives now, in the order of the trace."""
        arrivals = self._lab.trace.arrival_us
        self._lab.enter(0)

        while self.due_us == now:
            users = self._lab.trace.user
            self._assignments.assign(self.submitted, users[self.submitted] if users else "")
            self.submit(self.submitted)
            self.submitted += 1
            # FAR is beyond all times of the calendar, so the kernel needs no test for a trace that is over.
            self.due_us = arrivals[self.submitted] if self.submitted < len(arrivals) else FAR

    def _submit_again(self, job: JobId, _: None, _now: Time) -> None:
        self.submit(job)

    def resubmit(self, entry: Address) -> None:
        """Submit all that is not done to an entry that was restarted and has no job any more."""
        self._lab.enter(0)
        self._greet(entry)

        for job, _ in self._open_jobs():
            if self._owner_of(job).entry == entry:
                self.submit(job)

    def on_peer(self, event: PeerLost | PeerBack) -> None:
        """Move the jobs of an entry that does not answer, unless it comes back soon."""
        if isinstance(event, PeerBack):
            self._greet(event.peer)
        elif self._assignments.is_moving:
            self._assignments.lost(event.peer)
            self._move_later(event.peer)

    def _greet(self, entry: Address) -> None:
        self._assignments.back(entry)
        self._moves_at.pop(entry, None)
        for message in self._assignments.greeting(entry):
            self._send_to(entry, [message])

    def _move_later(self, origin: Address) -> None:
        at = self._moves_at[origin] = self._lab.now + self._assignments.grace_us
        self._lab.schedule(at, self._maybe_move, origin, None)

    def _maybe_move(self, origin: Address, _: None, now: Time) -> None:
        if self._moves_at.get(origin) != now:  # it has answered since, and perhaps failed again
            return

        del self._moves_at[origin]
        move = self._assignments.next_move(origin)

        # While no other entry answers there is no heir: the move is tried again as long as any job is open.
        if move is None:
            if self._assignments.is_lost(origin) and any(self._open_jobs()):
                self._move_later(origin)
            return

        moved_jobs = self._assignments.make(move, self._open_jobs())

        for entry in (move.heir, move.origin):
            for message in self._assignments.greeting(entry):
                self._send_to(entry, [message])

        for job in moved_jobs:
            self.submit(job)

    def _open_jobs(self) -> list[tuple[JobId, str]]:
        answered, users = self._lab.records.answered_us, self._lab.trace.user
        return [(job, users[job] if users else "") for job in range(self.submitted) if answered[job] == NEVER]

    def _owner_of(self, job: JobId) -> Owner:
        users = self._lab.trace.user
        return self._assignments.owner(job, users[job] if users else "")

    def submit(self, job: JobId) -> None:
        """Send a job to its entry, in chunks where it is large, without delay; of a workflow what may be sent now."""
        messages = self._lab.trace.submission(job) if self.source is None else self.source.submission(job)
        self.send(job, [*messages, Cancel(job)] if job in self._cancelled else messages)

    def cancel(self, job: JobId) -> None:
        """Cancel a job; where it is submitted again, because its entry was gone, it is cancelled again."""
        self._cancelled.add(job)
        self.send(job, [Cancel(job)])

    def send(self, job: JobId, messages: Sequence[Message]) -> None:
        """Send messages about a job to its entry, without delay."""
        owner = self._owner_of(job)

        if owner.epoch:
            messages = [
                replace(message, epoch=owner.epoch) if isinstance(message, Submit) else message for message in messages
            ]

        self._send_to(owner.entry, messages)

    def _send_to(self, entry: Address, messages: Sequence[Message]) -> None:
        self.message_count += len(messages)
        if self.carrier is not None and self.carrier.carry(entry, messages):
            return
        lane, receiver, handlers = self._lab.routes_of(SUBMITTER).to(entry)
        for message in messages:
            lane.sent.append((receiver, handlers, message, SUBMITTER))

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Take the answer of a component."""
        self.message_count += 1

        records = self._lab.records
        # A job that was moved or submitted again may be answered by both entries: the first answer counts.
        if isinstance(event, JobDone):
            if records.answered_us[event.job] == NEVER:
                records.answered_us[event.job] = now
                records.unsatisfiable[event.job] = event.unsatisfiable
                self.jobs_done += 1
                if self.source is not None:
                    records.unsatisfiable[event.job] += self.source.barred(event.job)
                    self.source.forget(event.job)
                for listener in self.answered:
                    listener(event.job, now)
        elif isinstance(event, JobRejected):
            records.rejections += 1
            # At least one microsecond later: without it a design that rejects at once makes an instant without an
            # end.
            self._lab.schedule(now + max(1, event.retry_after_us), self._submit_again, event.job, None)
        elif not isinstance(event, JobAccepted):
            raise TypeError(f"{source} sent the submitter a {type(event).__name__}")


INSTANTS_MAX: Final = 200_000
"""Instants without any result, half of them after which all that was pending must have come."""
STEPS_MAX: Final = 20_000_000
"""Steps of one instant without any result."""


class Stalled(RuntimeError):  # noqa: N818 - it names a state, not a mistake of the caller
    """Some submitter is never answered: everything is quiet, or nothing that still happens ends a task."""


class Deadlock(Stalled):
    """Gangs hold machines and wait for each other."""


class Stalls:
    """Watches a run for results: submissions, ends of tasks, answers, and starts where attempts keep their progress.

    Args:
        lab, submitter: Shared state and submitter of the run.
        starts_count: True if a start is a result, as an attempt keeps its progress when it ends.

    Attributes:
        deadlock: Function that returns in words which gangs wait for others, empty where none does; None: no gangs.
    """

    def __init__(self, lab: Lab, submitter: Submitter, *, starts_count: bool) -> None:
        self._lab = lab
        self._submitter = submitter
        self._starts_count = starts_count
        self._results: tuple[int, ...] = ()
        self._instants = 0
        self._pending_until: Time | None = None
        self.deadlock: Callable[[], str] | None = None

    def passed(self, instants: int) -> None:
        """Count instants that have passed.

        Raises:
            Stalled: too many without a result.
        """
        lab = self._lab
        results = self._result_counts()
        if results != self._results:
            self._results = results
            self._instants = 0
            self._pending_until = None
            return

        self._instants += instants
        if self._instants < INSTANTS_MAX // 2:
            return

        # A long wait (a boot, a long task) also passes many instants of heartbeats: it is no stall before it has had
        # its turn.
        if self._pending_until is None:
            due_us = self._submitter.due_us
            self._pending_until = max(lab.pending_until(), due_us if due_us != FAR else 0)
        elif self._instants >= INSTANTS_MAX and lab.now > self._pending_until:
            problem = f"time goes on and nothing is done: {self._instants:,} instants without a result"
            if self.deadlock is not None and (holders := self.deadlock()):
                raise Deadlock(f"{problem}, {holders}")
            raise Stalled(f"{problem}, {self.state()}")

    def demand_answers(self) -> None:
        """Demand, when nothing is left to happen, that every job was answered.

        Raises:
            Deadlock: members of gangs wait for others.
            Stalled: a job was forgotten.
        """
        if self.deadlock is not None and (holders := self.deadlock()):
            raise Deadlock(f"all is quiet, {holders}")
        if NEVER in self._lab.records.answered_us:
            raise Stalled(f"all is quiet, {self.state()}")

    def in_one_instant(self) -> None:
        """Raise Stalled if the steps of one instant have no end."""
        if self._result_counts() == self._results:
            raise Stalled(f"one instant has no end: {STEPS_MAX:,} steps without a result, {self.state()}")
        self._results = self._result_counts()

    def _result_counts(self) -> tuple[int, ...]:
        lab, submitter = self._lab, self._submitter
        started = len(lab.records.lost) if self._starts_count else 0
        return submitter.submitted, submitter.jobs_done, lab.finished_count, started

    def state(self) -> str:
        """The open jobs in words, with the first task that has not finished."""
        lab, submitter = self._lab, self._submitter

        trace, records = lab.trace, lab.records
        submitted_jobs = range(submitter.submitted)
        open_jobs = [job for job in submitted_jobs if records.answered_us[job] == NEVER]
        if not open_jobs:
            return f"at {lab.now} us every job is answered and the design does not become quiet"

        tasks = range(trace.first[open_jobs[0]], trace.first[open_jobs[0] + 1])
        open_tasks = [task for task in tasks if records.finish_us[task] == NEVER]
        first_open = next(itertools.chain(open_tasks, tasks), None)

        task = (
            ""
            if first_open is None
            else f", {len(open_tasks)} of its {len(tasks)} tasks not finished, the first is task {first_open}"
        )

        count = f"{len(open_jobs)} of {trace.job_count} jobs were never answered"
        return f"at {lab.now} us {count}; the first is job {open_jobs[0]}{task}"
