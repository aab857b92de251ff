"""Decisions of a Global Master, reported with their reasons or not at all; it decides the same either way.

What is passed over is counted on the view that each task met: the tasks of a batch are reported one by one, in the
order in which they were matched.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from volery.architectures.megha.amounts.view import CapacityView
from volery.architectures.megha.hosts import MasterHost
from volery.architectures.megha.messages import Refusal, StateUpdate, TasksEnded
from volery.architectures.megha.partitions import Layout
from volery.architectures.megha.recovery.messages import ResyncReply
from volery.architectures.megha.shares.fairness import KINDS_MAX, WeightedFairness
from volery.architectures.megha.shares.messages import AttemptsLost, PreemptionRequest
from volery.architectures.megha.shares.users import sum_of
from volery.architectures.megha.view import ClusterView
from volery.core.events import Event
from volery.core.model import Address, Amounts, Task, TaskId, Time
from volery.core.why import Chosen, Decision, Reason, Rejection, Scope

NEWS: Final = (StateUpdate, TasksEnded, Refusal, PreemptionRequest, ResyncReply, AttemptsLost)
"""Messages of a Local Master with news of its cluster."""
REASONS: Final = (Reason.CONSTRAINT, Reason.RESOURCE, Reason.BUSY, Reason.SHARE)


class DecisionNarrator:
    """Reports a `Decision` per task that is placed, cannot be placed, or is refused, preempted or lost.

    A taken machine that holds back a task which finds nothing does so by reason of `share`, not `busy`, where what runs
    there would go to another user if it ended now; see `FirstCalls`. A task that has no such report, because it has
    waited since before the others did, gets one: when it could have had what came free, and a user below its share
    got it.

    Args:
        epochs: Epoch of the leader of each cluster; empty: it never changes.
    """

    def __init__(
        self,
        host: MasterHost,
        layout: Layout,
        view: ClusterView,
        fairness: WeightedFairness | None,
        epochs: Sequence[int],
    ) -> None:
        self._host = host
        self._epochs = epochs
        self._layout = layout
        self._view = view
        self._calls: FirstCalls | None = None
        if fairness is not None and isinstance(view, CapacityView):
            self._calls = FirstCalls(layout, fairness, view)
        self._tasks_with_share_report: set[TaskId] = set()
        self._matching = False

    def start(self, now: Time) -> None:
        self._now = now
        self._heard_at = [now] * self._layout.lm_count

    def receive(self, event: Event, source: Address, now: Time) -> None:
        """Keep the time, and that of the last message from the leader of each cluster."""
        self._now = now
        host = self._host
        if isinstance(event, NEWS) and source in host.lm_at:
            lm = host.lm_at[source]
            new_leader = isinstance(event, ResyncReply) and event.is_whole and event.epoch > self._epochs[lm]
            if new_leader or host.lms[lm] == source:
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
            # The view has moved on with the batch: each task is judged by a copy from before it.
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
            self._tasks_with_share_report.add(task.id)
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
        self._tasks_with_share_report.discard(task.id)
        for other in self._calls.lines.overtaken(task, offered, free):
            if other.id not in self._tasks_with_share_report:
                self._tasks_with_share_report.add(other.id)
                self._tell(other, "queued", (Rejection(self._scope(partition), Reason.SHARE, 1),))

    def dropped(self, tasks: Iterable[Task]) -> None:
        self._tasks_with_share_report.difference_update([task.id for task in tasks])

    def claimed(self, task: Task) -> None:
        """Report where the task is to run; what was passed over was reported when it began to wait."""
        self._tasks_with_share_report.discard(task.id)
        self._tell_of(task.id, "placed")

    def preempted(self, task: TaskId) -> None:
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
        host, layout = self._host, self._layout
        if partition < 0:
            leader, machine, age_us = "", -1, self._now - min(self._heard_at)
        else:
            lm = layout.lm_of[partition]
            leader, machine = host.lms[lm], layout.machines[partition][position]
            age_us = self._now - self._heard_at[lm]
        host.observe(Decision(task.id, task.job, chosen, partition, machine, leader, age_us, rejected))


class FirstCalls:
    """Machines on which others than a task's user have first call, once something comes free there.

    The task's user would have its share even without what it has there, and another user of this GM would not, and
    waits with a task that the empty machine can take. That is the rule by which a GM gives away what comes free
    (`UserLines.pop_fitting`). Users of other GMs are not seen waiting: what they take is reported as "preempted". Per
    user at most `KINDS_MAX` kinds of waiting tasks are looked at, as for preemption.

    Cost: once per event that leaves tasks waiting, a look at each task that runs for a user who waits; per task that is
    taken from a queue, a look at the kinds that wait.
    """

    def __init__(self, layout: Layout, fairness: WeightedFairness, view: CapacityView) -> None:
        self.lines = fairness.lines
        self._matches = layout.matches
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
        requests_at: dict[tuple[int, int], list[Amounts]] = {}
        for holding in self._account.running[user].values():
            requests_at.setdefault((holding.partition, holding.position), []).append(holding.request)
        machines, enough = [0] * len(self._matches), dict[Amounts, bool]()
        for (partition, position), requests in requests_at.items():
            losing = sum_of([packing.asked(request) for request in requests])
            if losing not in enough:
                enough[losing] = self._account.keeps_share(user, losing)
            if not enough[losing]:
                machines[partition] |= 1 << position
        return machines
