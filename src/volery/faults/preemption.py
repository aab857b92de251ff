"""The judge's rule for designs that preempt: no user loses a running task within its share, by the news at that time.

Schedulers that preempt receive ends of tasks with delay: a few hops without faults, and else as long as faults, retries
and leases last. An end or a beginning within that time of the loss may be unknown to them. Ends of tasks that were
preempted before are known, since schedulers decided on them, too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Final

from volery.core.model import SECOND, Time
from volery.core.records import Records
from volery.core.shares import Share
from volery.faults.checks import Attempts
from volery.faults.scenario import Scenario
from volery.sim.orders import Reweighed

HOPS: Final = 8
"""From the decision on a preemption to the end of the task there are fewer."""
AFTERMATH_US: Final[Time] = 300 * SECOND
"""After a fault, leases may expire and messages be repeated for this long: links that have backed off send few."""


def losses_below_guarantee(
    records: Records, scenario: Scenario, guarantees: Guarantees, attempts: Attempts
) -> Iterator[str]:
    """The problems of preemptions that left a user less than its guaranteed share.

    Args:
        records: of the run.
        scenario: that was run.
        guarantees: of users.
        attempts: of all tasks.
    """
    trace = records.trace
    users = [trace.user[job] if trace.user else "" for job in trace.job_of_task()]
    offered = scenario.capacities or tuple([(count,) for count in scenario.slots])
    whole = [sum(column) for column in zip(*offered, strict=True)]
    decided = {(lost.task, lost.attempt) for lost in records.preemptions}
    unknown = _Unknown(scenario)
    for lost in records.preemptions:
        user = users[lost.task]
        if user not in guarantees:
            continue
        at_us = records.killed.get((lost.task, lost.attempt), lost.at_us)  # the fact may come late
        since, until = unknown.around(at_us)
        had = [0] * len(whole)
        for task in range(trace.task_count):
            if users[task] == user:
                for start, end, _, number, _ in attempts.get(task, ()):
                    known_end = at_us if (task, number) in decided else since
                    if start <= until and end > known_end:
                        had = [a + b for a, b in zip(had, scenario.request_of(trace, task), strict=True)]
                        break
        due = guarantees.least(user, since, until)
        left = max(Fraction(amount, all_of_it) for amount, all_of_it in zip(had, whole, strict=True))
        if left < due:
            yield (
                f"task {lost.task} was preempted at {at_us} us for task {lost.beneficiary}: {user!r} is due "
                f"{float(due):.3f} of the cluster and was left with {float(left):.3f}"
            )


class Guarantees:
    """Guaranteed shares of users, by the weights of the beginning and those that came after.

    Args:
        due: per user, by the weights of the beginning.
        shares: of all users by other weights; needed where there are any.
        reweighs: changes of weights.
    """

    def __init__(
        self, due: Mapping[str, Fraction], shares: Callable[[Mapping[str, int]], Sequence[Share]] | None = None,
        reweighs: Sequence[Reweighed] = (),
    ) -> None:  # fmt: skip
        self._from: list[Time] = [0]
        self._due: list[Mapping[str, Fraction]] = [due]
        weights: dict[str, int] = {}
        for change in sorted(reweighs, key=lambda change: change.at_us):
            assert shares is not None, "weights change where there are any"
            weights[change.name] = change.weight
            self._from.append(change.at_us)
            self._due.append({share.name: share.due for share in shares(weights) if not share.members})

    def __contains__(self, user: object) -> bool:
        """True if a user has a share."""
        return user in self._due[0]

    def least(self, user: str, since: Time, until: Time) -> Fraction:
        """The least that a user was due at some moment between: weights may be known as late as ends are."""
        first = max(0, bisect_right(self._from, since) - 1)
        return min(due[user] for due in self._due[first : max(first + 1, bisect_right(self._from, until))])


class _Unknown:
    """Times around a moment whose events may not be known then, from the plan alone."""

    def __init__(self, scenario: Scenario) -> None:
        plan = scenario.plan
        spans = [(each.start_us, each.end_us) for each in plan.messages]
        spans += [(each.start_us, each.end_us) for each in plan.partitions]
        spans += [(crash.at_us, crash.back_us) for crash in plan.crashes]
        self._hops_us = 1 + HOPS * (scenario.delay_us + scenario.jitter_us)
        self._from: list[Time] = []
        self._to: list[Time] = []
        for start, end in sorted(spans):
            if self._to and start - self._hops_us <= self._to[-1]:
                self._to[-1] = max(self._to[-1], end + AFTERMATH_US)
            else:
                self._from.append(start - self._hops_us)
                self._to.append(end + AFTERMATH_US)

    def around(self, at_us: Time) -> tuple[Time, Time]:
        """Ends after the first, and beginnings before the second, may count as not known."""
        place = bisect_right(self._from, at_us) - 1
        if place >= 0 and at_us <= self._to[place] + self._hops_us:
            return self._from[place], self._to[place] + self._hops_us
        return at_us - self._hops_us, at_us + self._hops_us
