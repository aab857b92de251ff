"""Local limits of schedulers, the only fairness between them (Omega, section 3.4)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from volery.core.model import Amounts, Task, TaskId
from volery.core.resources import SLOT


class LocalLimit:
    """Limits what the tasks of one scheduler hold of the cell: a share of each resource (section 3.4).

    There is no central fairness: every scheduler counts what its own tasks hold, and claims no more.
    """

    def __init__(self, share: float, capacity: Amounts) -> None:
        self._limits = tuple([int(share * amount) for amount in capacity])
        self._held_amounts = [0] * len(capacity)
        self._tasks: dict[TaskId, Amounts] = {}

    def room(self, tasks: Sequence[Task]) -> int:
        """The number of first tasks that may be claimed beside what is held."""
        return _fitting(
            tasks, [limit - held_amount for limit, held_amount in zip(self._limits, self._held_amounts, strict=True)]
        )

    def allows(self, tasks: Sequence[Task]) -> bool:
        """True if all these tasks may be held at once, with nothing else."""
        return _fitting(tasks, list(self._limits)) == len(tasks)

    def take(self, tasks: Iterable[Task]) -> None:
        """Count tasks that were placed."""
        for task in tasks:
            amounts = self._tasks[task.id] = task.request or SLOT
            self._held_amounts = [
                held_amount + amount for held_amount, amount in zip(self._held_amounts, amounts, strict=True)
            ]

    def give(self, task: TaskId) -> None:
        """Count a task no longer."""
        amounts = self._tasks.pop(task)
        self._held_amounts = [
            held_amount - amount for held_amount, amount in zip(self._held_amounts, amounts, strict=True)
        ]

    def check(self, running: int) -> None:
        assert len(self._tasks) == running, "tasks that do not run count against the limit, or some that run do not"
        assert all(held_amount <= limit for held_amount, limit in zip(self._held_amounts, self._limits, strict=True)), (
            "beyond the limit"
        )


def _fitting(tasks: Sequence[Task], room: list[int]) -> int:
    for count, task in enumerate(tasks):
        room = [amount - task_amount for amount, task_amount in zip(room, task.request or SLOT, strict=True)]
        if min(room) < 0:
            return count
    return len(tasks)
