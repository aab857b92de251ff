"""Reservations: what a task needs is set aside on one machine, if it is passed over for too long on its user's turn.

Where nothing idles that anybody wants, a task that needs several resources at once may wait for ever: what comes free
of one of them is taken before the others do (docs/reference/fairness.md). YARN's schedulers therefore reserve a
container on a node for the application that is due and does not fit, and give the reservation up where the container
starts elsewhere (Cloudera, "Improvements in the Hadoop YARN Fair Scheduler", 2013; "Application reservations" of its
Capacity Scheduler). Volcano elects one pending job at a time, of the highest priority and long in waiting (release
1.1.0, change 1044). This is both: one reservation at a time, after some patience, of what the task needs and no more:
others have the rest of the machine. Durations are not known, so nothing else is let in, as backfilling would.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from volery.core.model import Task, TaskId, Time
from volery.core.resources import Packing
from volery.policies.fairness.drf import FairOrder, WeightedDrf
from volery.policies.fairness.hdrf import HierarchicalDrf, TreeNode
from volery.policies.fairness.queue import SLOT, FairVectorQueue
from volery.policies.fairness.shares import Resources, Sharer, minus

BOUNDLESS: Final = 1 << 128
"""Amount of a resource that all tasks together do not ask for."""
SERVED_BITS: Final = 64
NOT_YET: Final[tuple[TaskId, Time]] = (-1, 0)


class Reservation:
    """A reservation: amounts of a machine that are set aside for a task, until it has all that it needs.

    Per resource what is set aside never becomes less, so it is complete at the latest when everything has ended that
    ran on the machine when it was made.

    Args:
        need: Amounts that the task needs there, with the devices that are waited for.

    Attributes:
        kept: Amounts that are set aside by now.
    """

    __slots__ = ("_need", "kept", "machine", "task")

    def __init__(self, task: Task, machine: int, need: Resources) -> None:
        self.task = task
        self.machine = machine
        self._need = need
        self.kept: Resources = (0,) * len(need)

    def set_aside(self, free: Resources) -> Resources:
        """Keep the needed part of the free amounts, which include those kept already; returns the rest."""
        self.kept = tuple(map(min, self._need, free))
        return minus(free, self.kept)


class DrfTurns(WeightedDrf):
    """DRF without regard to what is free: the poorest user; of equally poor ones, the one served longest ago.

    Without the latter, the first of several users who have nothing would be next for ever.

    Args:
        capacity, weights: See `WeightedDrf`.
    """

    __slots__ = ("_last_turns", "_turn_count")

    def __init__(self, capacity: Sequence[int], weights: Mapping[str, int] | None = None) -> None:
        self._turn_count = 0
        self._last_turns: list[int] = []
        super().__init__(capacity, weights)
        self._total = self._free = (BOUNDLESS,) * len(self._capacity)

    def _join(self, user: str, weight: int) -> int:
        self._last_turns.append(0)
        return super()._join(user, weight)

    def _key(self, number: int) -> int:
        return super()._key(number) << SERVED_BITS | self._last_turns[number]

    def launched(self, user: str, demand: Resources) -> None:
        """Count a task of the user that starts."""
        self._turn_count += 1
        self._last_turns[self._number(user)] = self._turn_count
        super().launched(user, demand)


class HdrfTurns(HierarchicalDrf):
    """DRF by `DrfTurns`, level by level of the tree: no user is blocked for lack, and no resource saturated.

    Args:
        capacity, tree: See `HierarchicalDrf`.
    """

    __slots__ = ("_last_turns", "_turn_count")

    def __init__(self, capacity: Sequence[int], tree: Sharer | None = None) -> None:
        self._turn_count = 0
        self._last_turns: dict[int, int] = {}
        super().__init__(capacity, tree)
        self._total = self._free = (BOUNDLESS,) * len(self._capacity)

    def _key(self, node: TreeNode) -> int:
        return super()._key(node) << SERVED_BITS | self._last_turns.get(node.number, 0)

    def launched(self, user: str, demand: Resources) -> None:
        """Count a task of the user that starts; its organisations have been served, too."""
        super().launched(user, demand)
        self._turn_count += 1

        node = self._leaf(user)
        while node.parent is not None:
            self._last_turns[node.number] = self._turn_count
            # Another of equally poor members may be its poorest.
            self._stale[node.parent.number] = None

            if node.parent.rank.key(node.number) is not None:
                node.parent.rank.place(node.number, self._key(node))
            node = node.parent


class PatientVectorQueue(FairVectorQueue):
    """A fair queue that finds the first tasks of users that were passed over for too long.

    A user's turn is when it would be next if everything fitted (`DrfTurns`, `HdrfTurns`). The count begins when, all
    else done, it is a user's turn and its first task waits still; it goes on, also during other users' turns, until
    that task leaves the queue. One entry per user; an event costs a second decision, and a look at the kinds in a line.

    Args:
        order: Order between users.
        turns: The same order, where everything fits.
        patience_us: Time for which a task may be passed over.
    """

    __slots__ = ("_passed_over", "_patience_us", "_turns")

    def __init__(self, order: FairOrder, turns: FairOrder, packing: Packing, patience_us: Time) -> None:
        super().__init__(order, packing)
        self._turns = turns
        self._patience_us = patience_us
        self._passed_over: dict[str, tuple[TaskId, Time]] = {}

    def launched(self, task: Task) -> None:
        """Count a task that starts."""
        super().launched(task)
        self._turns.launched(self._user[task.job], task.request or SLOT)

    def ended(self, task: Task) -> None:
        """Count a task that has ended."""
        super().ended(task)
        self._turns.ended(self._user[task.job], task.request or SLOT)

    def _wants(self, user: str, demand: Resources | None) -> None:
        super()._wants(user, demand)
        self._turns.wants(user, demand)

    def note(self, now: Time) -> None:
        """Note the user whose turn it is: its first task was passed over."""
        user = self._turns.choose()
        if user is not None:
            first = self._lines[user].first().id
            if self._passed_over.get(user, NOT_YET)[0] != first:
                self._passed_over[user] = (first, now)

    def overdue(self, now: Time) -> Task | None:
        """The first task of the user whose turn it is, if it has been passed over for too long."""
        user = self._turns.choose()
        if user is None:
            return None
        first = self._lines[user].first()

        task, since = self._passed_over.get(user, NOT_YET)
        return first if task == first.id and now - since >= self._patience_us else None

    def take(self, task: Task) -> None:
        """Take out a task that is the first of its kind in its user's line."""
        user = self._user[task.job]

        first_task = self._lines[user].pop_kind((task.constraints, task.request))
        assert first_task.id == task.id, f"{first_task.id} is before {task.id}"
        self.length -= 1
        self._on_removed(user, task)

    def check(self) -> None:
        """Check the turns, too."""
        super().check()
        self._turns.check()
