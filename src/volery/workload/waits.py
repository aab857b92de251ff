"""Who waits for whom in a table of tasks, and when who comes: rows by their ids become tasks by number, parents first.

A row that is passed over holds nobody up: what waits for it waits for what it would have waited for itself.
"""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Mapping, Sequence
from typing import Final

from volery.core.errors import InputError
from volery.core.trace import longs

EDGES_MAX: Final = 50_000_000
"""Between tasks; of two groups of equal tasks each of the one waits for each of the other."""

Gone = Mapping[str, Sequence[str]]
"""Rows of a job that were passed over, with what they wait for."""


class CycleError(ValueError):
    """Rows wait for each other in a circle."""


class Arranged:
    """The rows of a job in an order in which parents come first; as they stand where they do so already.

    Args:
        tasks: per row, its id.
        parents: per row, ids of what it waits for.
        gone: rows that were passed over.

    Attributes:
        order: places of the rows.
        parents: per row of that order, places in the order.
        unknown: how many ids of parents are no rows.

    Raises:
        CycleError: there is no such order.
    """

    def __init__(self, tasks: Sequence[str | None], parents: Sequence[Sequence[str]], gone: Gone) -> None:
        self.unknown = 0
        rows_of: dict[str, list[int]] = {}
        for row, task in enumerate(tasks):
            if task is not None:
                rows_of.setdefault(task, []).append(row)
        waits = [sorted(self._found(ids, rows_of, gone)) for ids in parents]
        children: list[list[int]] = [[] for _ in tasks]
        for row, found in enumerate(waits):
            for parent in found:
                children[parent].append(row)
        left = [len(found) for found in waits]
        ready = [row for row, count in enumerate(left) if not count]
        self.order: list[int] = []
        while ready:
            row = heapq.heappop(ready)
            self.order.append(row)
            for child in children[row]:
                left[child] -= 1
                if not left[child]:
                    heapq.heappush(ready, child)
        if len(self.order) < len(tasks):
            raise CycleError(f"{len(tasks) - len(self.order)} tasks wait for each other in a circle or below one")
        place = {row: k for k, row in enumerate(self.order)}
        self.parents = [sorted(place[parent] for parent in waits[row]) for row in self.order]

    def _found(self, ids: Sequence[str], rows_of: Mapping[str, list[int]], gone: Gone) -> set[int]:
        found: set[int] = set()
        open_ids, seen = list(ids), set(ids)
        while open_ids:
            one = open_ids.pop()
            if one in rows_of:
                found.update(rows_of[one])
            elif one in gone:
                more = [parent for parent in gone[one] if parent not in seen]
                seen.update(more)
                open_ids += more
            else:
                self.unknown += 1
        return found


class Edges:
    """Columns of who waits for whom, made job by job.

    Attributes:
        first, parents: see `Trace.parent_first`.
    """

    def __init__(self) -> None:
        self.first = longs(1)
        self.parents = longs()

    def add(self, begin: int, instances: Sequence[int], parents: Sequence[Sequence[int]]) -> None:
        """A job's rows in order, each of which stands for so many tasks.

        Args:
            begin: number of the first task.
            instances: per row.
            parents: per row, places of rows; all empty where nobody waits.

        Raises:
            InputError: these would be too many edges.
        """
        starts = longs(1, begin)
        for count in instances:
            starts.append(starts[-1] + count)
        for count, places in zip(instances, parents, strict=True):
            waits = array("q", [task for place in places for task in range(starts[place], starts[place + 1])])
            if len(self.parents) + count * len(waits) > EDGES_MAX:
                problem = f"more than {EDGES_MAX} tasks wait for tasks, each instance for each; read fewer jobs"
                raise InputError("parents", problem)
            for _ in range(count):
                self.parents.extend(waits)
                self.first.append(len(self.parents))

    def columns(self) -> tuple[array[int], array[int]]:
        """`parent_first` and `parents` of a trace."""
        return (self.first, self.parents) if self.parents else (longs(), longs())


class Submissions:
    """Columns of when jobs and their tasks are submitted, made job by job.

    Args:
        apart: whether some row says when it was submitted itself.
    """

    def __init__(self, *, apart: bool) -> None:
        self._apart = apart
        self._late = False
        self._jobs = longs()
        self._tasks = longs()

    def add(
        self, arrival_us: int, came_us: Sequence[int | None], instances: Sequence[int], parents: Sequence[Sequence[int]]
    ) -> None:
        """A job's rows in order; none comes before those that it waits for, as no scheduler knew of these.

        Args:
            arrival_us: of the job, and of rows that do not say.
            came_us: per row, when it was submitted itself.
            instances, parents: as for `Edges`.
        """
        if not self._apart:
            self._jobs.append(arrival_us)
            return
        found: list[int] = []
        for came, above in zip(came_us, parents, strict=True):
            found.append(max([arrival_us if came is None else came, *[found[place] for place in above]]))
        for count, at in zip(instances, found, strict=True):
            self._tasks.extend(longs(count, at))
        self._jobs.append(min(found))
        self._late = self._late or max(found) > min(found)

    @property
    def begin_us(self) -> int:
        """The first submission, on the source's clock."""
        return min(self._jobs)

    def columns(self) -> tuple[array[int], array[int]]:
        """`arrival_us` and `submit_us` of a trace; the latter is empty where all tasks come with their jobs."""
        begin = self.begin_us
        arrival_us = array("q", [at - begin for at in self._jobs])
        return arrival_us, array("q", [at - begin for at in self._tasks]) if self._late else longs()
