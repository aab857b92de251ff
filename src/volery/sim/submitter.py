"""The lab's submitter: the only part of a run that knows when jobs arrive."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from msgspec.structs import replace

from volery.core.assignment import Assignments, Owner
from volery.core.events import Event, JobAccepted, JobDone, JobRejected, PeerBack, PeerLost, Submit
from volery.core.model import NEVER, SUBMITTER, Address, JobId, Message, Time

if TYPE_CHECKING:
    from volery.sim.hosts import Counter
    from volery.sim.kernel import Kernel

FAR: Time = 1 << 62
"""Later than anything."""


class Submitter:
    """The lab's submitter: sends jobs in on time, takes the answers, and tries again when it is told to.

    Args:
        kernel: of the run.
        assignments: the entry of every job.
    """

    def __init__(self, kernel: Kernel, assignments: Assignments) -> None:
        self._kernel = kernel
        self._assignments = assignments
        self.submitted = 0
        self.due_us = kernel.trace.arrival_us[0] if kernel.trace.job_count else FAR
        self.jobs_done = 0
        self.message_count = 0
        self._counter: Counter | None = None
        self._moves_at: dict[Address, Time] = {}

    def stand_on(self, counter: Counter) -> None:
        """Speak and hear through a host of its own."""
        self._counter = counter

    def submit_due(self, now: Time) -> None:
        """Submit every job that arrives now, in the order of the trace."""
        arrivals = self._kernel.trace.arrival_us
        self._kernel.enter(0)
        while self.due_us == now:
            users = self._kernel.trace.user
            self._assignments.assign(self.submitted, users[self.submitted] if users else "")
            self.submit(self.submitted)
            self.submitted += 1
            self.due_us = arrivals[self.submitted] if self.submitted < len(arrivals) else FAR

    def _submit_again(self, job: JobId, _: None, _now: Time) -> None:
        self.submit(job)

    def resubmit(self, entry: Address) -> None:
        """Submit all that is not done to an entry that has begun anew: it knows no job any more."""
        self._kernel.enter(0)
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
        at = self._moves_at[origin] = self._kernel.now + self._assignments.grace_us
        self._kernel.schedule(at, self._maybe_move, origin, None)

    def _maybe_move(self, origin: Address, _: None, now: Time) -> None:
        if self._moves_at.get(origin) != now:  # it has answered since, and perhaps failed again
            return
        del self._moves_at[origin]
        move = self._assignments.next_move(origin)
        if move is None:
            if self._assignments.is_lost(origin) and any(self._open_jobs()):
                self._move_later(origin)
            return
        moved = self._assignments.make(move, self._open_jobs())
        for entry in (move.heir, move.origin):
            for message in self._assignments.greeting(entry):
                self._send_to(entry, [message])
        for job in moved:
            self.submit(job)

    def _open_jobs(self) -> list[tuple[JobId, str]]:
        answered, users = self._kernel.records.answered_us, self._kernel.trace.user
        return [(job, users[job] if users else "") for job in range(self.submitted) if answered[job] == NEVER]

    def _owner_of(self, job: JobId) -> Owner:
        users = self._kernel.trace.user
        return self._assignments.owner(job, users[job] if users else "")

    def submit(self, job: JobId) -> None:
        """Send a job to its entry, in chunks where it is large, without delay; of a workflow what may be sent now."""
        flow = self._kernel.flow
        self.send(job, self._kernel.trace.submission(job) if flow is None else flow.submission(job))

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
        if self._counter is not None and self._kernel.host_at(entry) is not None:
            for message in messages:
                self._counter.send(entry, message)
            return
        lane, receiver, handlers = self._kernel.routes_of(SUBMITTER).to(entry)
        for message in messages:
            lane.sent.append((receiver, handlers, message, SUBMITTER))

    def handle(self, event: Event, source: Address, now: Time) -> None:
        """Hear an answer."""
        self.message_count += 1
        records = self._kernel.records
        if isinstance(event, JobDone):
            if records.answered_us[event.job] == NEVER:
                records.answered_us[event.job] = now
                records.unsatisfiable[event.job] = event.unsatisfiable
                self.jobs_done += 1
                if flow := self._kernel.flow:
                    records.unsatisfiable[event.job] += flow.barred(event.job)
                    flow.forget(event.job)
        elif isinstance(event, JobRejected):
            records.rejections += 1
            self._kernel.schedule(now + max(1, event.retry_after_us), self._submit_again, event.job, None)
        elif not isinstance(event, JobAccepted):
            raise TypeError(f"{source} sent the submitter a {type(event).__name__}")
