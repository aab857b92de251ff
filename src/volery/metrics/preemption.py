"""The account of preemption: losses between users, work in vain, and the share of the cluster that each user had."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt

from volery.core.events import MILLIONTHS, Preemption
from volery.core.model import SECOND, Cluster, TaskId, Time
from volery.core.records import Records
from volery.metrics.arrays import view
from volery.metrics.occupancy import stays_on_machines

Times = npt.NDArray[np.int64]


class Loss(msgspec.Struct, frozen=True):
    """The losses of one user to another.

    Args:
        loser, winner: Users; "" where a trace names none.
        tasks: Count of attempts that were preempted.
        wasted_s: Time that they had run in vain, in task seconds.
        wasted: Resource time in vain, by resource ("slots" where there are no others): amount x seconds.
    """

    loser: str
    winner: str
    tasks: int
    wasted_s: float
    wasted: dict[str, float]


class PreemptionSummary(msgspec.Struct, frozen=True):
    """The account of a run in which tasks were preempted.

    Args:
        tasks: Count of attempts that were preempted.
        wasted_s: Time that they had run in vain, in task seconds.
        wasted_fraction: Resource time in vain / resource time in use, of the resource of which that is most (0 to 1).
        losses: Losses by loser and winner, the largest waste first.
        taken_back: Count of preemptions by which a place went back to a user who had lost it before.
        shares: Dominant share of the cluster that each user had on average from first submit to last finish.
        below_due: Count of preemptions after which a user was left with less than it was due, whatever the scheduler
            believed.
    """

    tasks: int
    wasted_s: float
    wasted_fraction: float
    losses: tuple[Loss, ...]
    taken_back: int
    shares: dict[str, float]
    below_due: int = 0


def preemption_summary(records: Records, cluster: Cluster) -> PreemptionSummary | None:
    """The account of a run; None where nothing was preempted."""
    if not records.preemptions:
        return None
    usage = _Usage(records, cluster)

    ends = [end for _, end, _ in usage.all]
    begin = records.trace.arrival_us[0]
    end = max(ends)

    losses = _losses(records, usage)
    wasted = [sum(loss.wasted[name] for loss in losses) for name in usage.names]
    used = [amount / SECOND for amount in usage.used(begin, end, None)]
    return PreemptionSummary(
        len(records.preemptions),
        sum(loss.wasted_s for loss in losses),
        max(vain / amount if amount else 0.0 for vain, amount in zip(wasted, used, strict=True)),
        losses,
        len(taken_back(records.preemptions, usage.users)),
        user_shares(records, cluster, begin, end),
        _below_due(records, usage),
    )


def user_shares(records: Records, cluster: Cluster, begin_us: Time, end_us: Time) -> dict[str, float]:
    """The largest of each user's shares of a resource, averaged over a time; 0 for those who had nothing."""
    trace = records.trace
    stays = stays_on_machines(records)
    names, user_of_job = np.unique(trace.user or [""] * trace.job_count, return_inverse=True)
    users = np.repeat(user_of_job, np.diff(view(trace.first)))[stays.task]

    overlap_us = np.maximum(np.minimum(stays.end_us, end_us) - np.maximum(stays.begin_us, begin_us), 0)
    capacities = cluster.capacities if cluster.resources else tuple([(count,) for count in cluster.slots])
    requests = np.array(trace.requests if cluster.resources else [(1,)], dtype=np.float64)
    request = view(trace.request)[stays.task] if cluster.resources else np.zeros(len(users), dtype=np.int64)

    shares = np.zeros(len(names))
    for place, column in enumerate(zip(*capacities, strict=True)):
        used = np.bincount(users, weights=requests[request, place] * overlap_us, minlength=len(names))
        shares = np.maximum(shares, used / (max(sum(column), 1) * max(end_us - begin_us, 1)))
    return dict(zip(names.tolist(), shares.tolist(), strict=True))


def taken_back(preemptions: Sequence[Preemption], user_of_task: Sequence[str]) -> list[tuple[str, str]]:
    """Winner and loser of each preemption by which a place went back to a user who had lost it before.

    A place is followed from a preempted task to the task that ran there instead, and on when that is preempted. While
    nobody's demand changes, such a circle would be a waste for nothing.
    """
    losers_of: dict[TaskId, frozenset[str]] = {}
    returns = []
    for preemption in preemptions:
        loser, winner = user_of_task[preemption.task], user_of_task[preemption.beneficiary]
        earlier_losers = losers_of.pop(preemption.task, frozenset())
        if winner in earlier_losers:
            returns.append((winner, loser))

        losers_of[preemption.beneficiary] = (
            losers_of.get(preemption.beneficiary, frozenset()) | earlier_losers | {loser}
        )
    return returns


class _Usage:
    """Use of the machines: begin, end and task of all attempts that ran.

    Attributes:
        names: Names of the resources, "slots" where there are no others.
        totals: Amount of each that all machines offer together.
        users: Users of the tasks.
    """

    def __init__(self, records: Records, cluster: Cluster) -> None:
        trace = records.trace
        self.names: Sequence[str] = cluster.resources or ("slots",)
        capacities = cluster.capacities or tuple([(count,) for count in cluster.slots])
        self.totals = [sum(column) for column in zip(*capacities, strict=True)]

        self._requests = trace.requests if cluster.resources else ((1,),)
        # Without resources every task has the one request, for a slot.
        self._request_of: Sequence[int] | Mapping[int, int] = trace.request if cluster.resources else defaultdict(int)
        self.users = [trace.user[job] for job in trace.job_of_task()] if trace.user else [""] * trace.task_count
        self.all = list(zip(*(column.tolist() for column in stays_on_machines(records)), strict=True))
        self._by_user: dict[str, list[tuple[Time, Time, TaskId]]] = defaultdict(list)
        for stay in self.all:
            self._by_user[self.users[stay[2]]].append(stay)

    def amounts(self, task: TaskId) -> Sequence[int]:
        """The request of the task, per resource."""
        return self._requests[self._request_of[task]]

    def columns(self, user: str) -> tuple[Times, Times, Times]:
        """Begin, end and amounts of the attempts of a user."""
        begin, end, tasks = zip(*self._by_user[user], strict=True)
        return np.array(begin), np.array(end), np.array([self.amounts(task) for task in tasks])

    def used(self, begin_us: Time, end_us: Time, user: str | None) -> list[float]:
        """Amount x microseconds of each resource that a user, or everybody, had in a time."""
        totals = [0.0] * len(self.names)
        for start, end, task in self.all if user is None else self._by_user[user]:
            overlap = min(end, end_us) - max(start, begin_us)
            if overlap > 0:
                for place, amount in enumerate(self.amounts(task)):
                    totals[place] += amount * overlap
        return totals


def _below_due(records: Records, usage: _Usage) -> int:
    """Preemptions after which what the loser still ran was less than its share."""
    stays: dict[str, tuple[Times, Times, Times]] = {}
    below_due_count = 0
    for preemption in records.preemptions:
        if preemption.loser is None:
            continue
        # The time of the kill, not of the report: a scheduler reports before its order has arrived.
        at_us = records.killed.get((preemption.task, preemption.attempt), preemption.at_us)
        user = usage.users[preemption.task]

        if user not in stays:
            stays[user] = usage.columns(user)
        begin, end, amounts = stays[user]

        remaining = amounts[(begin <= at_us) & (end > at_us)].sum(axis=0)
        dominant_share = max(
            [int(amount) * MILLIONTHS // total for amount, total in zip(remaining, usage.totals, strict=True) if total],
            default=0,
        )
        below_due_count += dominant_share < preemption.loser.due
    return below_due_count


def _losses(records: Records, usage: _Usage) -> tuple[Loss, ...]:
    kept_us = {(lost.task, lost.attempt): lost.kept_us for lost in records.lost}
    started_us = {(lost.task, lost.attempt): lost.start_us for lost in records.lost}
    runs_by_users: dict[tuple[str, str], list[tuple[TaskId, float]]] = defaultdict(list)

    for preemption in records.preemptions:
        key = (preemption.task, preemption.attempt)
        ran_us = (
            records.killed.get(key, preemption.at_us)
            - started_us.get(key, records.start_us[preemption.task])
            - kept_us.get(key, 0)
        )
        runs_by_users[usage.users[preemption.task], usage.users[preemption.beneficiary]].append(
            (preemption.task, ran_us / SECOND)
        )

    losses = []
    for (loser, winner), runs in runs_by_users.items():
        wasted = {
            name: sum(usage.amounts(task)[place] * seconds for task, seconds in runs)
            for place, name in enumerate(usage.names)
        }
        losses.append(Loss(loser, winner, len(runs), sum(seconds for _, seconds in runs), wasted))
    return tuple(sorted(losses, key=lambda loss: (-loss.wasted_s, loss.loser, loss.winner)))
