"""Queue lengths that masters report to distributors, which balance the groups by them (Pigeon, section 6.2).

The paper names the report and not the rule. Here a task goes to the group where the fewest tasks wait per worker that
may run it: those of the last report, and those that the distributor itself has sent within a period.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from random import Random
from typing import Final

from volery.architectures.pigeon.groups import GroupSupply
from volery.architectures.pigeon.messages import QueueLengths
from volery.core.model import Address, Task, Time
from volery.core.port import Port

REPORT: Final = "queue lengths"


class QueueReports:
    """Reports a master's queue lengths to every distributor, once per period while they change."""

    _port: Port

    def __init__(
        self, lengths: Callable[[], tuple[int, ...]], distributors: Sequence[Address], period_us: Time
    ) -> None:
        self._lengths = lengths
        self._distributors = distributors
        self._period_us = period_us
        self._sent = lengths()
        self._is_due = False

    def bind(self, port: Port) -> None:
        """Take the master's port."""
        self._port = port

    def look(self, now: Time) -> None:
        """Report within a period if a length has changed."""
        if not self._is_due and self._lengths() != self._sent:
            self._is_due = True
            self._port.set_timer(REPORT, now + self._period_us)

    def forget(self) -> None:
        """Report again, even if nothing changes: the distributors know no length of a master that begins to lead."""
        self._sent = ()

    def send(self) -> None:
        """Send the lengths, if they differ from those that were sent before."""
        self._is_due = False
        lengths = self._lengths()
        if lengths != self._sent:
            self._sent = lengths
            for distributor in self._distributors:
                self._port.send(distributor, QueueLengths(lengths))


class QueueView:
    """A distributor's view of the queues of all masters."""

    def __init__(self, supply: GroupSupply, period_us: Time, stream: Random) -> None:
        self._supply = supply
        self._period_us = period_us
        self._stream = stream
        self._lengths: dict[int, tuple[int, ...]] = {}
        self._sent = [0] * supply.group_count
        self._since = [-period_us] * supply.group_count

    def learn(self, group: int, lengths: tuple[int, ...], now: Time) -> None:
        """Take a report; it holds what was sent before."""
        self._sent[group] = 0
        self._since[group] = now

        if any(lengths):
            self._lengths[group] = lengths
        else:
            # Lengths of zero are not kept, so that `any_waits` is one look.
            self._lengths.pop(group, None)

    def any_waits(self) -> bool:
        """Find out whether tasks wait anywhere, as far as is known."""
        return bool(self._lengths)

    def spread(self, tasks: Sequence[Task], kind: int, now: Time) -> tuple[dict[int, list[Task]], list[Task]]:
        """Choose a group for each task: shares by group, and tasks that fit no worker."""
        shares: dict[int, list[Task]] = {}
        unfit_tasks: list[Task] = []
        by_set: dict[int, list[Task]] = {}
        for task in tasks:
            by_set.setdefault(task.constraints, []).append(task)

        for constraints, similar_tasks in by_set.items():
            short = kind == 0
            totals = self._supply.known[short].get(constraints) or self._supply.cumulative(constraints, short)
            if totals[-1]:
                self._fill(similar_tasks, self._levels(totals, kind, now), shares)
            else:
                unfit_tasks += similar_tasks

        return shares, unfit_tasks

    def _levels(self, totals: array[int], kind: int, now: Time) -> list[tuple[float, float, int, int]]:
        """The level of each group that suits: waiting tasks per worker, a random number, the group and its workers."""
        levels: list[tuple[float, float, int, int]] = []
        cumulated = 0
        random = self._stream.random

        for group, total in enumerate(totals):
            workers = total - cumulated
            cumulated = total

            if workers:
                # Tasks sent longer ago than a period are in a report by now, or have begun: count them once.
                if now - self._since[group] >= self._period_us:
                    self._sent[group] = 0
                    self._since[group] = now

                waiting = sum(self._lengths.get(group, ())[: kind + 1]) + self._sent[group]
                levels.append((waiting / workers, random(), group, workers))

        return levels

    def _fill(
        self, tasks: Sequence[Task], levels: list[tuple[float, float, int, int]], shares: dict[int, list[Task]]
    ) -> None:
        """Give each task to the lowest level, which rises by the task; ties are broken at random."""
        heapify(levels)
        for task in tasks:
            level, tie, group, workers = levels[0]
            shares.setdefault(group, []).append(task)
            self._sent[group] += 1
            heapreplace(levels, (level + 1 / workers, tie, group, workers))
