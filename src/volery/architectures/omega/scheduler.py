"""Schedulers of a shared cell state: each decides on its own copy and commits what it has decided."""

from __future__ import annotations

from random import Random

from volery.architectures.omega.firstfit import Placed, Placing, place
from volery.architectures.omega.layout import Layout
from volery.architectures.omega.messages import Changes, Commit, Ended, Refresh, Verdict, Withdraw
from volery.architectures.omega.placer import Placer, Setting, Waiting
from volery.core.component import sent_to
from volery.core.events import Cancel, Computed, MoreTasks, Submit, TimerFired
from volery.core.model import Address, Task, Time
from volery.core.port import Problem

NEXT = "next"


class Attempt:
    """A transaction, from its beginning to its verdict."""

    __slots__ = ("began_us", "claimed", "decision_us", "placing", "work")

    def __init__(self, work: Waiting, began_us: Time) -> None:
        self.work = work
        self.began_us = began_us
        self.decision_us = 0
        self.placing: Placing | None = None
        self.claimed: list[Task] = []


class Scheduler(Placer):
    """Serves one job at a time: refreshes its copy of the cell state, decides for as long as that takes, and commits.

    Args:
        layout: of the cluster.
        setting: what all of them share.
        cell: address of the master copy.
        stream: of draws.
    """

    __slots__ = ("_attempt", "_free", "_number", "_sequences")

    def __init__(self, layout: Layout, setting: Setting, cell: Address, stream: Random) -> None:
        super().__init__(layout, setting, cell, stream)
        self._free = list(layout.whole)
        self._sequences = [0] * len(layout.whole)
        self._attempt: Attempt | None = None
        self._number = 0

    def _on_queued(self, now: Time) -> None:
        if self._attempt is None:
            self._begin_next(now)

    def _begin_next(self, now: Time) -> None:
        while self._queue:
            work = self._queue.popleft()
            if work.tasks:
                self._attempt = Attempt(work, now)
                self._number += 1
                self._begin(self._attempt)
                return
            work.queued = False

    def _begin(self, attempt: Attempt) -> None:
        self._port.send(self._cell, Refresh(self._number))

    def on_changes(self, message: Changes, source: Address, now: Time) -> None:
        """The copy is as the master was: decide."""
        attempt = self._attempt
        if message.number != self._number or attempt is None or attempt.placing is not None:
            return
        free, sequences = self._free, self._sequences
        amounts = self._layout.decode(message.free)
        for machine, left, sequence in zip(message.machines, amounts, message.sequences, strict=True):
            free[machine] = left
            sequences[machine] = sequence
        work = attempt.work
        count = self._count(work, self._free) if work.tasks else 0
        if count:
            attempt.placing = self._placing(work, count, self._free)
            self._decide(attempt, count)
        else:
            self._park(attempt, now)

    def _decide(self, attempt: Attempt, count: int) -> None:
        work = attempt.work
        attempt.decision_us = self._setting.deciding.decision_us(work.workload, count)
        self._port.compute(self._number, Problem(place, attempt.placing, attempt.decision_us))

    def _park(self, attempt: Attempt, now: Time) -> None:
        """The job runs as many tasks as it may, and comes again when one of them has ended; or it was cancelled."""
        attempt.work.queued = False
        self._attempt = None
        self._port.set_timer(NEXT, now)

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Commit the claims; where there is no room for any, or the job was cancelled meanwhile, there are none."""
        attempt = self._attempt
        assert attempt is not None, "a decision that nobody waits for"
        assert attempt.placing is not None, "a decision about nothing"
        answer: Placed = Placed(*event.answer)
        if not answer.places or not attempt.work.tasks:
            self._end(attempt, 0, now)
            return
        attempt.claimed = [attempt.placing.tasks[place] for place in answer.places]
        sequences: list[int] = []
        claims: dict[int, int] = {}
        for machine in answer.machines:
            before = claims.get(machine, 0)
            sequences.append(self._sequences[machine] + before)
            claims[machine] = before + 1
        tasks, work = tuple(answer.claims(attempt.placing.tasks)), attempt.work
        commit = Commit(self._number, work.gang, tasks, answer.machines, tuple(sequences), work.priority)
        self._port.send(self._cell, commit)

    def on_verdict(self, message: Verdict, source: Address, now: Time) -> None:
        """The transaction has ended."""
        attempt = self._attempt
        if message.number != self._number or attempt is None or not attempt.claimed:
            return
        refused = set(message.refused)
        attempt.claimed = [task for task in attempt.claimed if task.id not in refused]
        self._end(attempt, len(refused), now)

    def _end(self, attempt: Attempt, refused: int, now: Time) -> None:
        self._attempt = None
        self._tried(
            attempt.work,
            now,
            began_us=attempt.began_us,
            decision_us=attempt.decision_us,
            placed=attempt.claimed,
            refused=refused,
            whole=attempt.placing is not None and len(attempt.claimed) == len(attempt.placing.tasks),
        )
        if self._queue:
            self._port.set_timer(NEXT, now)  # what comes next has not come by the messages of this attempt

    def on_timer(self, event: TimerFired, source: Address, now: Time) -> None:
        """The next job's turn, or the end of a pause."""
        if event.key != NEXT:
            assert isinstance(event.key, int), event.key
            self.on_retry(event.key, now)
        elif self._attempt is None:
            self._begin_next(now)

    def _claimed(self, work: Waiting) -> list[Task]:
        attempt = self._attempt
        return attempt.claimed if attempt is not None and attempt.work is work else []

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: Placer.on_submit,
        MoreTasks: Placer.on_more_tasks,
        Cancel: Placer.on_cancel,
        Changes: on_changes,
        Computed: on_computed,
        Verdict: on_verdict,
        Ended: Placer.on_ended,
        TimerFired: on_timer,
    }
    sends = Placer.sends | sent_to("cell", Refresh, Commit, Withdraw)


class MasterScheduler(Scheduler):
    """Places on the master copy itself: it looks when it has decided, and nobody else claims anything."""

    __slots__ = ()

    def _begin(self, attempt: Attempt) -> None:
        work = attempt.work
        count = self._count(work, self._free)
        attempt.decision_us = self._setting.deciding.decision_us(work.workload, count or 1)
        self._port.compute(self._number, Problem(nothing, None, attempt.decision_us))

    def _decide(self, attempt: Attempt, count: int) -> None:
        self._port.compute(self._number, Problem(place, attempt.placing))

    def on_computed(self, event: Computed, source: Address, now: Time) -> None:
        """Look, and then place."""
        attempt = self._attempt
        if attempt is not None and attempt.placing is None:
            self._port.send(self._cell, Refresh(self._number))
        else:
            super().on_computed(event, source, now)


def nothing(_: None) -> None:
    """A decision whose time alone counts."""
