"""Waiting tasks of several users: a line per user, and a fair order of the users.

Each queue stands where the queue of first come first served stands. Inside a user's line it is first come first served
among the tasks that fit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

from volery.core.model import JobId, Task
from volery.core.resources import Packing
from volery.policies.fairness.drf import FairOrder
from volery.policies.fairness.shares import Resources
from volery.policies.queues import ConstraintQueue, Kind, VectorQueue

SLOT: Resources = (1,)

Line = TypeVar("Line", ConstraintQueue, VectorQueue)


class FairLines(Generic[Line]):
    """Base of both queues: a line of tasks per user.

    Args:
        order: Order of the users.
        make_line: Makes an empty line.

    Attributes:
        length: Count of waiting tasks.
    """

    __slots__ = ("_lines", "_make_line", "_order", "_user", "length")

    def __init__(self, order: FairOrder, make_line: Callable[[], Line]) -> None:
        self._order = order
        self._make_line: Callable[[], Line] = make_line
        self._lines: dict[str, Line] = {}
        self._user: dict[JobId, str] = {}
        self.length = 0

    def belongs(self, job: JobId, user: str) -> None:
        """Set the user of a job; called before anything of it is pushed or launched."""
        self._user[job] = user

    def launched(self, task: Task) -> None:
        """The task takes its request from now on."""
        self._order.launched(self._user[task.job], task.request or SLOT)

    def ended(self, task: Task) -> None:
        """The task has given its request back."""
        self._order.ended(self._user[task.job], task.request or SLOT)

    def push(self, task: Task) -> None:
        """Join the user's line at its tail."""
        user = self._user[task.job]
        line = self._lines.get(user)
        if line is None:
            line = self._lines[user] = self._make_line()
        line.push(task)
        self.length += 1
        self._on_added(user, task)

    def remove(self, is_unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take every task of this sort out; the others keep their places."""
        removed = []
        for user, line in self._lines.items():
            removed_from_line = line.remove(is_unwanted)
            self.length -= len(removed_from_line)
            for task in removed_from_line:
                self._on_removed(user, task)
            removed += removed_from_line
        return removed

    def _turn(self, take: Callable[[Line], Task | None]) -> Task | None:
        """The task that is taken from the line of whoever is next and has one to be taken."""
        taken_tasks: list[Task] = []

        # The order asks by taking: a task that fits leaves its line at once, so that lines are searched once.
        def accepts(user: str) -> bool:
            task = take(self._lines[user])
            if task is not None:
                taken_tasks.append(task)
            return task is not None

        user = self._order.choose(accepts)
        if user is None:
            return None

        self.length -= 1
        self._on_removed(user, taken_tasks[0])
        return taken_tasks[0]

    def _on_added(self, user: str, task: Task) -> None:  # noqa: ARG002 - slots are all alike, vectors are not
        """Report the user's wish to the order: a task has joined its line."""
        if self._lines[user].length == 1:
            self._order.wants(user, SLOT)

    def _on_removed(self, user: str, task: Task) -> None:  # noqa: ARG002 - slots are all alike, vectors are not
        """Report the user's wish to the order: a task has left its line."""
        if not self._lines[user].length:
            self._order.wants(user, None)

    def check(self) -> None:
        """Raise AssertionError where lines and order disagree."""
        assert self.length == sum(line.length for line in self._lines.values())
        self._order.check()


class FairQueue(FairLines[ConstraintQueue]):
    """Over slots: see `ConstraintQueue`.

    Args:
        order: Order of the users; its capacity is the number of slots.
    """

    __slots__ = ()

    def __init__(self, order: FairOrder) -> None:
        super().__init__(order, ConstraintQueue)

    def masks(self) -> list[int]:
        """The distinct constraint sets that wait."""
        return list(dict.fromkeys(mask for line in self._lines.values() for mask in line.masks()))

    def pop_fitting(self, offered: int) -> Task | None:
        """Take the next task of the user whose turn it is among those with a task that such a worker satisfies."""
        return self._turn(lambda line: line.pop_fitting(offered))


class FairVectorQueue(FairLines[VectorQueue]):
    """Over several resources: see `VectorQueue`.

    One task of each kind that waits stands in a line for all, so that no user is asked where nothing fits. What a user
    wants is, per resource, the least that any of its waiting tasks asks for: one of whom not even that is
    free anywhere is blocked, and whether a task fits the machine in question is seen when it is the user's turn.

    Args:
        order: Order of the users; its capacity is that of all machines together.
    """

    __slots__ = ("_examples", "_kinds", "_waiting")

    def __init__(self, order: FairOrder, packing: Packing) -> None:
        super().__init__(order, lambda: VectorQueue(packing))
        self._examples = VectorQueue(packing)
        self._kinds: dict[Kind, int] = {}
        self._waiting: dict[str, dict[Resources, int]] = {}

    def kinds(self) -> list[Kind]:
        """The distinct constraint sets and requests that wait."""
        return list(self._kinds)

    def pop_fitting(self, offered: int, free: int) -> Task | None:
        """Take the next task of the user whose turn it is among those with a task that the machine can take.

        Args:
            offered: Constraints that the machine meets.
            free: Free amounts of the machine, packed and guarded.
        """
        # One look at the kinds spares a look at every user's line where nothing fits.
        if not self._examples.any_fitting(offered, free):
            return None
        return self._turn(lambda line: line.pop_fitting(offered, free))

    def _on_added(self, user: str, task: Task) -> None:
        kind = (task.constraints, task.request)
        if kind not in self._kinds:
            self._kinds[kind] = 0
            self._examples.push(task)
        self._kinds[kind] += 1

        waiting = self._waiting.setdefault(user, {})
        request = task.request or SLOT
        count_before = waiting.get(request, 0)
        waiting[request] = count_before + 1
        if not count_before:
            self._tell(user, waiting)

    def _on_removed(self, user: str, task: Task) -> None:
        kind = (task.constraints, task.request)

        self._kinds[kind] -= 1
        if not self._kinds[kind]:
            del self._kinds[kind]
            self._examples.remove(lambda example: (example.constraints, example.request) == kind)

        waiting = self._waiting[user]
        request = task.request or SLOT
        waiting[request] -= 1
        if not waiting[request]:
            del waiting[request]
            self._tell(user, waiting)

    def _tell(self, user: str, waiting: dict[Resources, int]) -> None:
        self._wants(user, tuple([min(amounts) for amounts in zip(*waiting, strict=True)]) or None)

    def _wants(self, user: str, demand: Resources | None) -> None:
        self._order.wants(user, demand)

    def check(self) -> None:
        """Also check that the kinds are those that wait."""
        super().check()
        kinds = {kind for line in self._lines.values() for kind in line.kinds()}
        assert kinds == set(self._kinds) == set(self._examples.kinds()), "the kinds are not those that wait"
