"""Decisions of a Global Master, reported with their reasons or not at all; it decides the same either way.

What is passed over is counted on the view that each task met: the tasks of a batch are reported one by one, in the
order in which they were matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from volery.architectures.megha.capacity_view import CapacityView
from volery.architectures.megha.fairness import KINDS_MAX, WeightedFairness
from volery.architectures.megha.messages import (
    AttemptsLost,
    PreemptionRequest,
    Refusal,
    ResyncReply,
    StateUpdate,
    TasksEnded,
)
from volery.architectures.megha.users import sum_of
from volery.core.events import Event
from volery.core.model import Address, Amounts, Task, TaskId, Time
from volery.core.why import Chosen, Decision, Reason, Rejection, Scope

if TYPE_CHECKING:
    from volery.architectures.megha.global_master import GlobalMaster

NEWS: Final = (StateUpdate, TasksEnded, Refusal, PreemptionRequest, ResyncReply, AttemptsLost)
"""Messages of a Local Master with news of its cluster."""
REASONS: Final = (Reason.CONSTRAINT, Reason.RESOURCE, Reason.BUSY, Reason.SHARE)


class SilentNarrator:
    """No reports of what a Global Master decides: it places tasks by the view."""

    def join(self, gm: GlobalMaster) -> None:
        """Become the narrator of this Global Master."""
        self._view = gm.view

    def start(self, now: Time) -> None:
        """Begin: the view is that of an empty cluster, which is true now."""

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request tasks by the view; return those that fit nowhere."""
        return self._view.place(tasks)

    def requested(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Report tasks that waited for these units."""

    def refused(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose placements were invalid."""

    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None:
        """Report tasks that had to let this one go first."""

    def dropped(self, tasks: Iterable[Task]) -> None: ...

    def claimed(self, task: Task) -> None:
        """Report a task that takes the place of others."""

    def ousted(self, task: TaskId) -> None:
        """Report a task that was preempted."""

    def lost(self, tasks: Iterable[TaskId]) -> None:
        """Report tasks whose attempts are dead."""


class DecisionNarrator:
    """Reports a `Decision` per task that is placed, cannot be placed, or is refused, preempted or lost.

    A taken machine that holds back a task which finds nothing does so by reason of `share`, not `busy`, where what runs
    there would go to another user if it ended now; see `FirstCalls`. A task that has no such report, because it has
    waited since before the others did, gets one: when it could have had what came free, and a user below its share
    got it.
    """

    def join(self, gm: GlobalMaster) -> None:
        self._gm = gm
        self._view = gm.view
        self._calls: FirstCalls | None = None
        if isinstance(gm.fairness, WeightedFairness) and isinstance(gm.view, CapacityView):
            self._calls = FirstCalls(gm, gm.fairness, gm.view)
        self._told_of_shares: set[TaskId] = set()
        self._matching = False
        vars(gm)["receives"] = dict.fromkeys(type(gm).receives, _noted)

    def start(self, now: Time) -> None:
        self._now = now
        self._heard_at = [now] * len(self._gm.lms)

    def note(self, event: Event, source: Address, now: Time) -> None:
        """Keep the time, and that of the last message from the leader of each cluster."""
        self._now = now
        if isinstance(event, NEWS):
            gm, lm = self._gm, self._gm.lm_at[source]
            new_leader = isinstance(event, ResyncReply) and event.is_whole and event.epoch > gm.recovery.epochs[lm]
            if new_leader or gm.lms[lm] == source:
                self._heard_at[lm] = now

    def place(self, tasks: Iterable[Task]) -> list[Task]:
        """Match and request, then report what each task met."""
        view, chosen = self._view, list(tasks)
        copies, start = view.copies(), view.next
        if self._calls is not None:
            self._calls.forget()
        self._matching = True
        unplaced = view.place(chosen)
        self._matching = False
        waiting = {task.id for task in unplaced}
        for task in chosen:
            order = view.search.orders[start]
            if task.id in waiting:
                fits = view.satisfiable(task)
                self._tell(task, "queued" if fits else "unsatisfiable", self._waits_for(task, copies, order))
                continue
            _, partition, position = view.placed[task.id]
            passed = self._passed(task, copies, order[: order.index(partition)])
            view.take_off(copies, task)
            self._tell(task, "placed", passed, partition, position)
            start = view.search.after[partition]
        return unplaced

    def _waits_for(self, task: Task, copies: Sequence[Any], order: Sequence[int]) -> tuple[Rejection, ...]:
        """Reasons for which a task found nothing."""
        if self._calls is None:
            return self._passed(task, copies, order)
        rejected = self._passed(task, copies, order, self._calls.against(task))
        if any(one.reason is Reason.SHARE for one in rejected):
            self._told_of_shares.add(task.id)
        return rejected

    def _passed(
        self, task: Task, copies: Sequence[Any], partitions: Iterable[int], called: Sequence[int] = ()
    ) -> tuple[Rejection, ...]:
        counts: dict[tuple[Scope, Reason], int] = {}
        for partition in partitions:
            scope = self._scope(partition)
            found = self._view.reasons(copies[partition], task, partition, called[partition] if called else 0)
            for reason, count in zip(REASONS, found, strict=True):
                counts[scope, reason] = counts.get((scope, reason), 0) + count
        return tuple([Rejection(*key, count) for key, count in counts.items() if count])

    def _scope(self, partition: int) -> Scope:
        return "external" if self._view.search.external[partition] else "internal"

    def requested(self, partition: int, tasks: Sequence[Task], places: Sequence[int]) -> None:
        """Report tasks that waited for these units: they have passed over nothing."""
        if not self._matching:
            for task, position in zip(tasks, places, strict=True):
                self._tell(task, "placed", (), partition, position)

    def refused(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            if task in self._view.placed:
                self._tell_of(task, "refused", Reason.INCONSISTENCY)

    def dequeued(self, task: Task, partition: int, offered: int, free: int) -> None:
        if self._calls is None:
            return
        self._told_of_shares.discard(task.id)
        for other in self._calls.lines.overtaken(task, offered, free):
            if other.id not in self._told_of_shares:
                self._told_of_shares.add(other.id)
                self._tell(other, "queued", (Rejection(self._scope(partition), Reason.SHARE, 1),))

    def dropped(self, tasks: Iterable[Task]) -> None:
        self._told_of_shares.difference_update([task.id for task in tasks])

    def claimed(self, task: Task) -> None:
        """Report where the task is to run; what was passed over was reported when it began to wait."""
        self._told_of_shares.discard(task.id)
        self._tell_of(task.id, "placed")

    def ousted(self, task: TaskId) -> None:
        self._tell_of(task, "preempted", Reason.SHARE)

    def lost(self, tasks: Iterable[TaskId]) -> None:
        for task in tasks:
            self._tell_of(task, "lost")

    def _tell_of(self, number: TaskId, chosen: Chosen, reason: Reason | None = None) -> None:
        task, partition, position = self._view.placed[number]
        rejected = () if reason is None else (Rejection(self._scope(partition), reason, 1),)
        self._tell(task, chosen, rejected, partition, position)

    def _tell(
        self, task: Task, chosen: Chosen, rejected: tuple[Rejection, ...], partition: int = -1, position: int = -1
    ) -> None:
        gm = self._gm
        if partition < 0:
            asked, machine, age_us = "", -1, self._now - min(self._heard_at)
        else:
            lm = gm.layout.lm_of[partition]
            asked, machine = gm.lms[lm], gm.layout.machines[partition][position]
            age_us = self._now - self._heard_at[lm]
        gm.observe(Decision(task.id, task.job, chosen, partition, machine, asked, age_us, rejected))


def _noted(gm: GlobalMaster, event: Event, source: Address, now: Time) -> None:
    """Let the narrator note an event, then call the handler of the master's class.

    The handler is looked up with each event: a clock of stages may change the class, and a snapshot takes functions by
    their names alone.
    """
    assert isinstance(gm.narrator, DecisionNarrator), "a narrator that reports"
    gm.narrator.note(event, source, now)
    type(gm).receives[type(event)](gm, event, source, now)


class FirstCalls:
    """Machines on which others than a task's user have first call, once something comes free there.

    The task's user would have its share even without what it has there, and another user of this GM would not, and
    waits with a task that the empty machine can take. That is the rule by which a GM gives away what comes free
    (`UserLines.pop_fitting`). Users of other GMs are not seen waiting: what they take is reported as "preempted". Per
    user at most `KINDS_MAX` kinds of waiting tasks are looked at, as for preemption.

    Cost: once per event that leaves tasks waiting, a look at each task that runs for a user who waits; per task that is
    taken from a queue, a look at the kinds that wait.
    """

    def __init__(self, gm: GlobalMaster, fairness: WeightedFairness, view: CapacityView) -> None:
        self.lines = fairness.lines
        self._matches = gm.layout.matches
        self._fairness = fairness
        self._account = fairness.account
        self._view = view
        self._called: dict[int, list[int]] = {}

    def forget(self) -> None:
        """Drop the results of the last look."""
        self._called.clear()

    def against(self, task: Task) -> list[int]:
        """Per partition, the machines that go to others before the task's user."""
        user = self._fairness.user_of(task)
        if user not in self._called:
            self._called[user] = self._called_by_others(user)
        return self._called[user]

    def _called_by_others(self, user: int) -> list[int]:
        matches, capacities = self._matches, self._view.capacities
        called = [0] * len(matches)
        if self._account.is_short(user):
            return called
        for other in self.lines.users():
            if other == user:
                continue
            short = self._short_without(other)
            for mask, request in islice(self.lines.kinds_of(other), KINDS_MAX) if any(short) else ():
                need = capacities.ladders[request]
                for partition, machines in enumerate(short):
                    fitting = capacities.whole[partition].fitting(need, machines & matches[partition][mask])
                    called[partition] |= fitting
        return [machines & ~own for machines, own in zip(called, self._short_without(user), strict=True)]

    def _short_without(self, user: int) -> list[int]:
        """Per partition, the machines without which the user would have less than its share."""
        if self._account.is_short(user):
            return [of_partition.every for of_partition in self._matches]
        packing = self._view.packing
        there: dict[tuple[int, int], list[Amounts]] = {}
        for held in self._account.running[user].values():
            there.setdefault((held.partition, held.position), []).append(held.request)
        machines, enough = [0] * len(self._matches), dict[Amounts, bool]()
        for (partition, position), requests in there.items():
            losing = sum_of([packing.asked(request) for request in requests])
            if losing not in enough:
                enough[losing] = self._account.keeps_share(user, losing)
            if not enough[losing]:
                machines[partition] |= 1 << position
        return machines


Narrator = SilentNarrator | DecisionNarrator
