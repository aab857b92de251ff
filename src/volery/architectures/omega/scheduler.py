"""Schedulers of a shared cell state, which decide on copies of their own and commit their decisions."""

from __future__ import annotations

import msgspec

from volery.architectures.omega.jobs import JOB_EVENTS, JobQueue, PendingJob
from volery.architectures.omega.messages import Changes, Commit, Ended, Preempted, Refresh, Verdict, Withdraw
from volery.architectures.omega.placement import (
    ANYWHERE,
    Contest,
    FreeCopy,
    Layout,
    PlacementAnswer,
    PlacementProblem,
    place,
    place_over,
)
from volery.core.component import Component, sent_to
from volery.core.events import Computed, JobAccepted, JobDone, TimerFired
from volery.core.model import Address, TaskId, Time
from volery.core.port import Port, Problem
from volery.policies.tags import TagIndex
from volery.roles.submission import ANSWERS

NEXT = "next"


class Attempt(msgspec.Struct, eq=False):
    """A transaction, from its beginning to its verdict."""

    work: PendingJob
    began_us: Time
    decision_us: Time = 0
    placing: PlacementProblem | None = None


class LowerHolds:
    """A scheduler's copy of what tasks of each priority hold on the machines."""

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._bands: dict[int, tuple[tuple[int, int], ...]] = {}
        self._lost_attempt: dict[TaskId, int] = {}

    def learn(self, message: Changes) -> None:
        """Take over the holds of changed machines."""
        for machine, bands in zip(message.machines, message.lower, strict=True):
            self._bands.pop(machine, None)
            if bands:
                decoded = [(priority, self._layout.decode(amounts)[0]) for priority, amounts in bands]
                self._bands[machine] = tuple(decoded)

    def contest(self, placing: PlacementProblem, priority: int) -> Contest | None:
        """The problem of a job that may claim what lower priorities hold; None: they hold nothing."""
        lower: dict[int, dict[int, int]] = {}

        for machine, bands in self._bands.items():
            for band, amounts in bands:
                if band < priority:
                    lower.setdefault(band, {})[machine] = amounts

        return Contest(placing, [lower[band] for band in sorted(lower)]) if lower else None

    def is_news(self, message: Preempted) -> bool:
        """True if the loss of this attempt was not reported before."""
        if message.attempt <= self._lost_attempt.get(message.task.id, -1):
            return False

        self._lost_attempt[message.task.id] = message.attempt
        return True

    def ended(self, task: TaskId) -> None:
        """Forget a task that cannot be lost any more."""
        self._lost_attempt.pop(task, None)


class Scheduler(Component):
    """Serves one job at a time: refreshes its copy of the cell state, decides for as long as that takes, and commits.

    Args:
        decides_first: Whether it is the only one, and refreshes its copy when the decision time is over.
        tags: The scheduler's copy of what is counted of tags; None: tags are not heeded.
    """

    def __init__(
        self,
        jobs: JobQueue,
        *,
        lower: LowerHolds | None = None,
        decides_first: bool = False,
        tags: TagIndex | None = None,
    ) -> None:
        self.jobs = jobs
        self._layout = jobs.layout
        self._setting = jobs.setting
        self._cell = jobs.cell

        self._lower = lower
        self._tags = tags
        self._decides_first = decides_first
        self._copy = FreeCopy(jobs.layout)
        self._sequences = [0] * len(jobs.layout.whole)
        self._attempt: Attempt | None = None
        self._number = 0

    def bind(self, port: Port) -> None:
        super().bind(port)
        self.jobs.bind(self, port)

    def queued(self, now: Time) -> None:
        """Begin with a job that has joined the queue, if no other is being tried."""
        if self._attempt is None:
            self._begin_next(now)

    def _begin_next(self, now: Time) -> None:
        queue = self.jobs.queue
        while queue:
            work = queue.popleft()
            if work.tasks:
                self._attempt = Attempt(work, now)
                self._number += 1
                self._begin(self._attempt)
                return
            work.queued = False

    def _begin(self, attempt: Attempt) -> None:
        # The only scheduler decides first: it places on the master copy when the time of the decision is over.
        if self._decides_first:
            count = self.jobs.count(attempt.work, self._copy.free)
            attempt.decision_us = self._setting.deciding.decision_us(attempt.work.workload, count or 1)
            self._port.compute(self._number, Problem(nothing, None, attempt.decision_us))
        else:
            self._port.send(self._cell, Refresh(self._number))

    def on_changes(self, message: Changes, source: Address, now: Time) -> None:
        """Update the copy of the cell state, and decide."""
        attempt = self._attempt
        # An answer to an earlier transaction, or a repeated one.
        if message.number != self._number or attempt is None or attempt.placing is not None:
            return

        put = self._copy.put
        sequences = self._sequences

        amounts = self._layout.decode(message.free)
        for machine, amount, sequence in zip(message.machines, amounts, message.sequences, strict=True):
            put(machine, amount)
            sequences[machine] = sequence

        if self._lower is not None:
            self._lower.learn(message)

        if self._tags is not None:
            for machine, tag_counts in zip(message.machines, message.tags, strict=True):
                self._tags.set(machine, tag_counts)

        count = self.jobs.count(attempt.work, self._copy.free)
        if count:
            self._decide(attempt, count)
        else:
            self._park(attempt, now)

    def _decide(self, attempt: Attempt, count: int) -> None:
        work = attempt.work
        decision_us = 0

        # A copy that is known to be full needs no search for the answer that nothing fits.
        search_count = count if self._lower is not None or self._copy.has_room(work.kinds) else 0

        placing = attempt.placing = self._placing(work, search_count)

        if not self._decides_first:
            decision_us = attempt.decision_us = self._setting.deciding.decision_us(work.workload, count)

        contest = self._lower.contest(placing, work.priority) if self._lower is not None else None
        problem = Problem(place, placing, decision_us) if contest is None else Problem(place_over, contest, decision_us)

        self._port.compute(self._number, problem)

    def _placing(self, work: PendingJob, count: int) -> PlacementProblem:
        """The problem of placing the first tasks of a job on the copy."""
        suitable = self._layout.rings.suitable
        whole = (work.shape or ANYWHERE) if work.gang else None
        placing = self.jobs.placing(work.tasks[:count], self._copy.free, suitable, whole=whole)

        if self._tags is None or all(task.tags is None for task in placing.tasks):
            return placing
        # The search counts the tags of what it places; the copy must not, before the cell agrees.
        return placing._replace(tags=self._tags.copy())

    def _park(self, attempt: Attempt, now: Time) -> None:
        """Put off a job that was cancelled, or that runs as many tasks as it may until one of them has ended."""
        attempt.work.queued = False
        self._attempt = None
        self._port.set_timer(NEXT, now)

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Commit the claims; where there is no room for any, or the job was cancelled meanwhile, there are none."""
        attempt = self._attempt
        assert attempt is not None, "no transaction waits for this decision"

        if self._decides_first and attempt.placing is None:
            self._port.send(self._cell, Refresh(self._number))
            return

        assert attempt.placing is not None, "a decision about nothing"

        answer: PlacementAnswer = PlacementAnswer(*event.answer)
        if not answer.places or not attempt.work.tasks:
            # A cancelled job's tasks are gone, which says nothing about the copy.
            if not answer.places:
                self._copy.found_full()
            self._end(attempt, 0, now)
            return

        attempt.work.claimed = [attempt.placing.tasks[place] for place in answer.places]

        sequences: list[int] = []
        claims: dict[int, int] = {}
        for machine in answer.machines:
            earlier_claims = claims.get(machine, 0)
            # The scheduler's own earlier claims of this transaction raise the number, too.
            sequences.append(self._sequences[machine] + earlier_claims)
            claims[machine] = earlier_claims + 1

        work = attempt.work
        tasks = tuple(answer.claims(attempt.placing.tasks))
        commit = Commit(self._number, work.gang, tasks, answer.machines, tuple(sequences), work.priority)

        self._port.send(self._cell, commit)

    def on_verdict(self, message: Verdict, source: Address, now: Time) -> None:
        """End the transaction: accepted claims run, refused ones are tried again."""
        attempt = self._attempt
        if message.number != self._number or attempt is None or not attempt.work.claimed:
            return

        refused_tasks = set(message.refused)
        attempt.work.claimed = [task for task in attempt.work.claimed if task.id not in refused_tasks]
        self._end(attempt, len(refused_tasks), now)

    def _end(self, attempt: Attempt, refused: int, now: Time) -> None:
        self._attempt = None

        work = attempt.work
        placed_tasks = work.claimed
        work.claimed = []
        self.jobs.tried(
            work,
            now,
            began_us=attempt.began_us,
            decision_us=attempt.decision_us,
            placed_tasks=placed_tasks,
            refused=refused,
            is_whole=attempt.placing is not None and 0 < len(placed_tasks) == len(attempt.placing.tasks),
        )

        if self.jobs.queue:
            # A timer, as what comes next has not come by the messages of this attempt.
            self._port.set_timer(NEXT, now)

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """Begin with the next job, or queue one again after its pause."""
        if event.key != NEXT:
            assert isinstance(event.key, int), event.key
            self.jobs.retry(event.key, now)
        elif self._attempt is None:
            self._begin_next(now)

    def on_ended(self, message: Ended, source: Address, now: Time) -> None:
        """Count the task; its job may use its place for another."""
        if self._lower is not None:
            self._lower.ended(message.task)
        self.jobs.ended(message, now)

    def on_preempted(self, message: Preempted, source: Address, now: Time) -> None:
        """Queue the task again, unless its job was cancelled."""
        work = self.jobs.open.get(message.task.job)
        # A repeated notice, or a task that has ended meanwhile.
        if work is None or message.task.id not in work.running:
            return

        if self._lower is None or self._lower.is_news(message):
            self.jobs.lost(message.task, now)

    def release_held(self, work: PendingJob) -> None:
        """Do nothing: no machine is kept for gangs."""

    def take_back(self, work: PendingJob) -> int:
        """Cancel nothing: no task is placed before its transaction is sent."""
        return 0

    def check(self) -> None:
        self.jobs.check()

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        **JOB_EVENTS,
        Changes: on_changes,
        Computed: on_computed,
        Verdict: on_verdict,
        Ended: on_ended,
        Preempted: on_preempted,
        TimerFired: on_timer,
    }
    sends = ANSWERS | sent_to("front", JobAccepted, JobDone) | sent_to("cell", Refresh, Commit, Withdraw)


def nothing(_: None) -> None:
    """Solve nothing: the time of the decision alone counts."""
