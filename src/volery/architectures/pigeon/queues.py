"""The weighted fair queues of a master, one per type of jobs (Pigeon, section 2.2 and its footnote)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, Literal

from volery.core.model import Task
from volery.policies.queues import ConstraintQueue

WeightCounting = Literal["paper", "short-per-long", "published-code"]
INFINITE: Final = 1 << 62
_PASSED_BEYOND_WEIGHT: Final = {"paper": -1, "short-per-long": 0, "published-code": 1}


class FairQueues:
    """Serves the type with the shortest jobs first, and lets no other type starve.

    A weight W stands between a type and all types after it: out of every W tasks of these at least one is of a later
    type, while one waits. A task that does not fit the worker is passed over (PigeonC, section 4.2).

    Args:
        weights: The weight W of each type but the last, the shortest jobs first; 0 = infinite.
        counting: With "short-per-long" W tasks pass one of a later type (PigeonC, section 4.2), with "published-code"
            W + 1, and those that pass nothing are counted, too.

    Attributes:
        length: Number of tasks that wait; a field, because it is read once per task.
    """

    __slots__ = ("_count_all", "_passed_counts", "_passes_max", "_queues", "length")

    def __init__(self, weights: Sequence[int], counting: WeightCounting) -> None:
        self._count_all = counting == "published-code"
        tasks_beyond_weight = _PASSED_BEYOND_WEIGHT[counting]
        self._passes_max = [weight + tasks_beyond_weight if weight else INFINITE for weight in weights]
        self._passed_counts = [0] * len(weights)
        self._queues = [ConstraintQueue() for _ in range(len(weights) + 1)]
        self.length = 0

    def lengths(self) -> tuple[int, ...]:
        """The number of tasks that wait, of each type."""
        return tuple([queue.length for queue in self._queues])

    def waits(self, kind: int) -> bool:
        """Find out whether tasks of a type wait."""
        return self._queues[kind].length > 0

    def masks(self) -> Iterator[tuple[int, int]]:
        """Types, and the constraint sets that wait in each."""
        for kind, queue in enumerate(self._queues):
            for mask in queue.masks():
                yield kind, mask

    def push(self, task: Task, kind: int) -> None:
        """Join the queue of a type; 0: the shortest jobs."""
        self._queues[kind].push(task)
        self.length += 1

    def pop_shortest(self, offered: int) -> Task | None:
        """Take a task of the shortest jobs, for a reserved worker that offers these constraints."""
        task = self._queues[0].pop_fitting(offered)
        if task is not None:
            self.length -= 1
            if self._count_all:
                self._passed_counts[0] += 1

        return task

    def pop(self, offered: int) -> Task | None:
        """Take the next task that a worker with these constraints satisfies."""
        task = self._pop_from(0, self.length, offered)
        if task is not None:
            self.length -= 1
        return task

    def _pop_from(self, kind: int, waiting: int, offered: int) -> Task | None:
        """The next task of a type and all later ones; `waiting`: the number of their tasks."""
        queue = self._queues[kind]
        later = waiting - queue.length

        # The type may pass the later ones as often as W allows; if none of them waits, it passes nothing.
        if queue.length and (not later or self._passed_counts[kind] < self._passes_max[kind]):
            task = queue.pop_fitting(offered)
            if task is not None:
                if (later or self._count_all) and kind < len(self._passed_counts):
                    self._passed_counts[kind] += 1
                return task

        if later:
            task = self._pop_from(kind + 1, later, offered)
            if task is not None:
                self._passed_counts[kind] = 0
                return task

        # No task of a later type fits this worker: it would idle if the turn were kept for them.
        return queue.pop_fitting(offered) if queue.length else None

    def remove(self, is_unwanted: Callable[[Task], bool]) -> list[Task]:
        """Take these tasks out, wherever they wait."""
        removed = [task for queue in self._queues for task in queue.remove(is_unwanted)]
        self.length -= len(removed)

        later = self.length
        for kind in range(len(self._passed_counts)):
            later -= self._queues[kind].length
            # Nothing later waits any more, so there is nothing that the earlier tasks have passed.
            if removed and not (later or self._count_all):
                self._passed_counts[kind] = 0

        return removed

    def clear(self) -> None:
        """Take all tasks out, and forget what has passed."""
        self.remove(lambda _: True)
        self._passed_counts = [0] * len(self._passed_counts)
