"""Pigeon's distributor: hands the tasks of a job to the masters at once, without knowing their load."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Sequence
from random import Random
from typing import Literal

from volery.architectures.pigeon.balance import QueueView
from volery.architectures.pigeon.gangs import GangSupply
from volery.architectures.pigeon.groups import GroupSupply
from volery.architectures.pigeon.messages import (
    Completed,
    GangTasks,
    GroupTasks,
    Lost,
    QueueLengths,
    Report,
    VoteRequest,
    Withdraw,
    Withdrawn,
)
from volery.architectures.pigeon.resends import DistributorRecovery, SentGang
from volery.core.component import Component, Sends, sent_to
from volery.core.events import Cancel, MoreTasks, Submit
from volery.core.model import Address, JobId, Task, TaskId, Time
from volery.core.port import Port
from volery.roles.recovery.leases import LeaderStatus, Result
from volery.roles.submission import ANSWERS, GangChunks, GatheredGang, JobLedger, refuse_gang

Distribution = Literal["even", "supply"]
Deal = Literal["turns", "blocks"]
RECOVERY = frozenset({Result, Report, Lost, LeaderStatus, VoteRequest})
"""The messages to a distributor with a recovery."""


class Distributor(Component):
    """Splits jobs over groups and counts their results.

    Args:
        distribution: With "even" the tasks that have no constraint are dealt evenly, with a random remainder (Pigeon);
            "supply" draws a master for each task, weighted by the units that satisfy it (PigeonC). Tasks with
            constraints, and all tasks where groups are unequal, are always drawn.
        deal: Order of an even distribution: "turns" gives each master the next task in turn, "blocks" the first master
            the first tasks of the job, as figure 6 of the paper draws it.
        cutoffs_us: Ascending limits: the first parts short jobs (at most this) from long ones, the next the types of
            long jobs.
        reports_us: Period of reports of queue lengths, by which jobs are spread while tasks wait anywhere; 0: none.

    Attributes:
        masters: The leading master of each group.
    """

    def __init__(
        self,
        supply: GroupSupply,
        gangs: GangSupply,
        *,
        distribution: Distribution,
        deal: Deal,
        cutoffs_us: Sequence[Time],
        stream: Random,
        recovery: DistributorRecovery | None = None,
        reports_us: Time = 0,
    ) -> None:
        self._supply = supply
        self._gangs = gangs
        totals = supply.cumulative(0, True)
        # An even deal is fair only where groups have the same number of units (Pigeon, section 6.2).
        has_equal_groups = all(total * supply.group_count == totals[-1] * (i + 1) for i, total in enumerate(totals))
        self._even = distribution == "even" and has_equal_groups

        self._in_blocks = deal == "blocks"
        self._cutoffs_us = tuple(cutoffs_us)
        self._stream = stream
        self.masters = [f"master/{group}" for group in range(supply.group_count)]
        self._numbers = [0] * supply.group_count
        self._outstanding: dict[TaskId, JobId] = {}
        self._recovery = recovery
        self._view = QueueView(supply, reports_us, stream) if reports_us else None

    def bind(self, port: Port) -> None:
        super().bind(port)
        if self._recovery is not None:
            self._recovery.bind(self, port)

    def takes(self) -> Collection[type]:
        unused = RECOVERY if self._recovery is None else {Completed}
        return self.receives.keys() - unused - ({QueueLengths} if self._view is None else set())

    def emits(self) -> Sends:
        plain = sent_to("master", GroupTasks)
        return self.sends - (plain if self._recovery is not None else DistributorRecovery.sends)

    def start(self, now: Time) -> None:
        self._jobs = JobLedger(self._port.send)
        self._chunks = GangChunks()

    def on_submit(self, message: Submit, source: Address, now: Time) -> None:
        """Distribute a job; tasks that fit no worker are reported and the others run."""
        tasks = self._jobs.admit(message, source, 0)
        if message.job.gang is None:
            self._distribute(tasks, bisect_left(self._cutoffs_us, message.job.estimate_us), now)
        elif tasks:
            self._place_gang(self._chunks.begin(message.job, tasks))

    def on_more_tasks(self, message: MoreTasks, source: Address, now: Time) -> None:
        tasks = self._jobs.more(message)
        if message.job in self._chunks:
            self._place_gang(self._chunks.add(message.job, tasks))
        elif tasks:
            self._distribute(tasks, bisect_left(self._cutoffs_us, tasks[0].estimate_us), now)

    def _place_gang(self, gang: GatheredGang | None) -> None:
        """Send a gang whose tasks have all come to a group that holds it; report one that no group holds."""
        if gang is None:
            return
        kind = bisect_left(self._cutoffs_us, gang.estimate_us)
        group = self._gangs.draw(gang.tasks, gang.shape, not kind, self._stream)
        if group < 0:
            refuse_gang(gang, self._jobs, self._port)
            return

        self._outstanding.update(dict.fromkeys([task.id for task in gang.tasks], gang.job))
        if self._recovery is not None:
            self._recovery.send_gang(SentGang(group, kind, gang.shape, {task.id: task for task in gang.tasks}))
            return
        number = self._numbers[group] = self._numbers[group] + 1
        self._port.send(self.masters[group], GangTasks(number, kind, gang.shape, gang.tasks))

    def _distribute(self, tasks: Sequence[Task], kind: int, now: Time) -> None:
        """Choose a group for each task, and send each group its share."""
        shares: dict[int, list[Task]] = {}
        # Reported queues decide while anything waits; an idle cluster is spread as the paper has it.
        if self._view is not None and self._view.any_waits():
            shares, unfit = self._view.spread(tasks, kind, now)
            for task in unfit:
                self._jobs.unsatisfiable(task.job)
            tasks = ()
        elif self._even:
            # Tasks without constraints fit everywhere; another could be dealt to a group without a worker for it.
            unconstrained_tasks = [task for task in tasks if not task.constraints]
            self._deal(unconstrained_tasks, shares)
            tasks = [task for task in tasks if task.constraints] if len(unconstrained_tasks) < len(tasks) else ()

        self._draw(tasks, not kind, shares)

        outstanding = self._outstanding
        for group in sorted(shares):
            share = tuple(shares[group])
            for task in share:
                outstanding[task.id] = task.job
            self._hand_out(group, kind, share)

    def _hand_out(self, group: int, kind: int, share: tuple[Task, ...]) -> None:
        if self._recovery is not None:
            self._recovery.deal(group, kind, share)
            return

        number = self._numbers[group] = self._numbers[group] + 1
        self._port.send(self.masters[group], GroupTasks(number, not kind, share, max(0, kind - 1)))

    def _deal(self, tasks: Sequence[Task], shares: dict[int, list[Task]]) -> None:
        """Deal each master as many; the remainder goes to distinct random masters (Pigeon, section 2.2)."""
        group_count = self._supply.group_count
        dealt = len(tasks) - len(tasks) % group_count
        size = dealt // group_count
        for group in range(group_count if dealt else 0):
            share = tasks[group * size :][:size] if self._in_blocks else tasks[group:dealt:group_count]
            shares[group] = list(share)

        groups_with_more = self._stream.sample(range(group_count), len(tasks) - dealt)
        for group, task in zip(groups_with_more, tasks[dealt:], strict=True):
            shares.setdefault(group, []).append(task)

    def _draw(self, tasks: Sequence[Task], short: bool, shares: dict[int, list[Task]]) -> None:
        """A weighted random master for each task (PigeonC, section 4.2; unequal groups, Pigeon section 6.2)."""
        random, totals_of = self._stream.random, self._supply.known[short]

        for task in tasks:
            totals = totals_of.get(task.constraints) or self._supply.cumulative(task.constraints, short)
            if not totals[-1]:
                self._jobs.unsatisfiable(task.job)
                continue

            group = bisect_right(totals, int(random() * totals[-1]))
            share = shares.get(group)
            if share is None:
                shares[group] = [task]
            else:
                share.append(task)

    def on_completed(self, message: Completed, source: Address, now: Time) -> None:
        """Count the result; a repeated one is ignored."""
        job = self._outstanding.pop(message.task, None)
        if job is not None:
            self._jobs.finished(job)

    def count(self, task: TaskId) -> None:
        """Count a result; a repeated one is ignored."""
        if self._recovery is not None:
            self._recovery.forget(task)

        job = self._outstanding.pop(task, None)
        if job is not None:
            self._jobs.finished(job)

    def is_cancelled(self, job: JobId) -> bool:
        """True for a job that its submitter has given up."""
        return job in self._jobs.cancelled

    def on_cancel(self, message: Cancel, source: Address, now: Time) -> None:
        """Withdraw the job's tasks from all masters: which one has which is not kept."""
        if not self._jobs.cancel(message, source):
            return
        if gathered_count := self._chunks.drop(message.job):
            self._jobs.finished(message.job, gathered_count)
        for task in self._recovery.returned_tasks(message.job) if self._recovery is not None else ():
            self.count(task)

        withdraw = Withdraw(tuple(task for task, job in self._outstanding.items() if job == message.job))

        for master in self.masters:
            self._port.send(master, withdraw)

    def on_withdrawn(self, message: Withdrawn, source: Address, now: Time) -> None:
        """Tasks that will never run count as results; members of a gang that was recalled start again."""
        for task in message.tasks if self._recovery is None else self._recovery.take_back(message.tasks, source):
            self.count(task)

    def on_queue_lengths(self, message: QueueLengths, source: Address, now: Time) -> None:
        """Note how much waits in the group of a master that leads."""
        assert self._view is not None, "masters report"

        # A deposed master may still report; its queues are not those of the group.
        if source in self.masters:
            self._view.learn(self.masters.index(source), message.lengths, now)

    def on_result(self, message: Result, source: Address, now: Time) -> None:
        """Count the result, of any attempt."""
        assert self._recovery is not None, "results come of attempts"
        self._recovery.result(message, source)

    def on_report(self, message: Report, source: Address, now: Time) -> None:
        """Send to the master that leads now."""
        assert self._recovery is not None, "a master may crash"
        former_masters = list(self.masters)

        self._recovery.report(message, source)

        # The lengths that the former master reported are void: its successor began with empty queues.
        if self._view is not None and source in self.masters and source not in former_masters:
            self._view.learn(self.masters.index(source), (), now)

    def on_lost(self, message: Lost, source: Address, now: Time) -> None:
        """Send the tasks of lost attempts again."""
        assert self._recovery is not None, "a machine may crash"
        self._recovery.lost(message, source)

    def on_standing(self, message: LeaderStatus, source: Address, now: Time) -> None:
        """Answer with the epoch that is known."""
        assert self._recovery is not None, "a master may crash"
        self._recovery.answer_epoch(source)

    def on_vote_request(self, message: VoteRequest, source: Address, now: Time) -> None:
        """Promise an epoch, or refuse."""
        assert self._recovery is not None, "a master may crash"
        self._recovery.claim(message, source)

    def check(self) -> None:
        assert len(self._jobs) or not self._outstanding, "tasks without an open job"

    def check_rest(self) -> None:
        open_count = len(self._outstanding) + len(self._jobs)
        assert not open_count, "tasks are left"

    receives = {  # noqa: RUF012 - the base class reads the table once and replaces it
        Submit: on_submit,
        MoreTasks: on_more_tasks,
        Cancel: on_cancel,
        Withdrawn: on_withdrawn,
        Completed: on_completed,
        QueueLengths: on_queue_lengths,
        Result: on_result,
        Report: on_report,
        Lost: on_lost,
        LeaderStatus: on_standing,
        VoteRequest: on_vote_request,
    }
    sends = ANSWERS | sent_to("master", GroupTasks, GangTasks, Withdraw) | DistributorRecovery.sends
