"""Task ids and dependencies, kept on disk in parts, so that a trace of any length is checked in bounded memory.

Ids are compared by 64-bit hashes: two of a hundred million tasks share one by chance in one trace of four thousand. All
tasks of a job are in the same part.
"""

from __future__ import annotations

import heapq
import tempfile
from array import array
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from volery.core.errors import InputError
from volery.core.trace import longs
from volery.workload.arrays import Integers

PARTS: Final = 64
PLACES_MAX: Final = 5
"""First places of a defect that are named."""
KEPT_BYTES: Final = 1 << 18
"""A part goes to disk beyond this."""
EDGES_MAX: Final = 50_000_000
"""Between tasks; of two groups of equal tasks each of the one waits for each of the other."""
Gone = Mapping[str, Sequence[str]]
"""Rows of a job that were passed over, with what they wait for."""


class Spill:
    """Rows of whole numbers, by part."""

    def __init__(self, width: int, stack: ExitStack) -> None:
        self._width = width
        self._files: list[Any] = []
        for _ in range(PARTS):
            file: Any = tempfile.SpooledTemporaryFile(max_size=KEPT_BYTES)  # noqa: SIM115 - the stack closes it
            self._files.append(stack.enter_context(file))
        self.rows = 0

    def add(self, records: Integers) -> None:
        """Keep rows; the first column decides the part."""
        self.rows += len(records)
        parts = records[:, 0] & (PARTS - 1)
        order = np.argsort(parts, kind="stable")
        bounds = np.searchsorted(parts[order], np.arange(PARTS + 1))
        for part in np.flatnonzero(np.diff(bounds)):
            self._files[part].write(records[order[bounds[part] : bounds[part + 1]]].tobytes())

    def part(self, number: int) -> Integers:
        """The rows of a part, in the order they came in."""
        file = self._files[number]
        file.seek(0)
        return np.frombuffer(file.read(), dtype=np.int64).reshape(-1, self._width)


class Broken(NamedTuple):
    """Defects of ids and graphs, by number of row.

    Attributes:
        rows: rule -> rows, in order.
        edges: rule -> (row, hash of the parent) to cut, in the same order.
        lines: rule -> lines of the first rows.
    """

    rows: dict[str, Integers]
    edges: dict[str, Integers]
    lines: dict[str, list[int]]


class TaskGraph:
    """All ids and edges of a trace; close it when it is no longer needed."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._tasks = Spill(4, self._stack)
        self._edges = Spill(5, self._stack)

    def close(self) -> None:
        self._stack.close()

    def add(self, batch: pa.RecordBatch, first_row: int) -> None:
        """Take in the ids and parents of a batch; rows without ids are passed over."""
        jobs = batch.column("job").to_pylist()
        tasks = batch.column("task").to_pylist()
        known_rows = [k for k in range(batch.num_rows) if jobs[k] is not None and tasks[k] is not None]

        job_keys = np.fromiter((hash(jobs[k]) for k in known_rows), np.int64, len(known_rows))
        keys = np.fromiter((hash((jobs[k], tasks[k])) for k in known_rows), np.int64, len(known_rows))
        rows = np.asarray(known_rows, dtype=np.int64) + first_row
        lines = pc.fill_null(batch.column("line"), 0).to_numpy(zero_copy_only=False)

        self._tasks.add(np.column_stack((job_keys, keys, rows, lines[known_rows])))

        if edges := list(_edges(batch, jobs, tasks, first_row, lines.tolist())):
            self._edges.add(np.array(edges, dtype=np.int64))

    @property
    def waits(self) -> int:
        """The count of edges."""
        return self._edges.rows

    def broken(self) -> Broken:
        """Duplicates, unknown parents and cycles."""
        hits: dict[str, list[Integers]] = {"duplicate": [], "unknown-parent": [], "cycle": []}
        for part in range(PARTS):
            tasks = self._tasks.part(part)
            waits = self._edges.part(part)
            order = np.argsort(tasks[:, 1], kind="stable")
            keys = tasks[order, 1]
            repeated = tasks[order[1:][keys[1:] == keys[:-1]]]
            hits["duplicate"].append(repeated[:, [2, 1, 3]])

            is_known = np.isin(waits[:, 3], keys)
            hits["unknown-parent"].append(waits[~is_known][:, 2:])
            hits["cycle"].append(waits[is_known][_on_a_cycle(waits[is_known])][:, 2:])

        records_of = {rule: np.concatenate(parts) for rule, parts in hits.items()}

        rows, lines = {}, {}
        for rule, records in records_of.items():
            rows[rule], first = np.unique(records[:, 0], return_index=True)
            lines[rule] = records[first[:PLACES_MAX], 2].tolist()

        return Broken(rows, {rule: records[:, :2] for rule, records in records_of.items()}, lines)


def _edges(
    batch: pa.RecordBatch, jobs: list[str | None], tasks: list[str | None], first_row: int, lines: list[int]
) -> Iterator[tuple[int, ...]]:
    column = batch.column("parents")
    if column.null_count == batch.num_rows or not len(column.flatten()):
        return
    for k, parents in enumerate(column.to_pylist()):
        if parents and jobs[k] is not None and tasks[k] is not None:
            job, key = hash(jobs[k]), hash((jobs[k], tasks[k]))
            for parent in parents:
                yield job, key, first_row + k, hash((jobs[k], parent)), lines[k]


def _on_a_cycle(waits: Integers) -> NDArray[np.bool_]:
    """A mask of the edges left after repeated removal of tasks without parents and tasks without children."""
    is_left = np.ones(len(waits), dtype=np.bool_)
    # From the top, then from the bottom: what is left lies on a cycle, or between two of them.
    for child, parent in ((1, 3), (3, 1)):
        edges = np.flatnonzero(is_left)
        open_edges: dict[int, int] = defaultdict(int)
        of_parent: dict[int, list[int]] = defaultdict(list)
        for k in edges.tolist():
            open_edges[int(waits[k, child])] += 1
            of_parent[int(waits[k, parent])].append(k)

        ready = [key for key in of_parent if key not in open_edges]
        while ready:
            for k in of_parent.pop(ready.pop(), ()):
                is_left[k] = False
                child_key = int(waits[k, child])
                open_edges[child_key] -= 1
                if not open_edges[child_key]:
                    ready.append(child_key)

    return is_left


class CycleError(ValueError):
    """Rows wait for each other in a circle."""


class Arranged:
    """The rows of a job in an order in which parents come first; as they stand where they do so already.

    Args:
        parents: per row, ids of what it waits for.
        passed_over: rows that were passed over.

    Attributes:
        order: places of the rows.
        parents: per row of that order, places in the order.
        stated: number of ids of parents; the parents of a row that was passed over count in its place.
        unknown: number of these ids that are no rows.
        waiting: per row, whether it has an unknown one.
        alike: per row, whether another has its id.

    Raises:
        CycleError: there is no such order.
    """

    def __init__(self, tasks: Sequence[str | None], parents: Sequence[Sequence[str]], passed_over: Gone) -> None:
        self.stated = self.unknown = 0
        self.waiting: list[bool] = []
        rows_of: dict[str, list[int]] = {}
        for row, task in enumerate(tasks):
            if task is not None:
                rows_of.setdefault(task, []).append(row)

        self.alike = [task is not None and len(rows_of[task]) > 1 for task in tasks]
        waits = [sorted(self._found(ids, rows_of, passed_over)) for ids in parents]
        children: list[list[int]] = [[] for _ in tasks]
        for row, parent_rows in enumerate(waits):
            for parent in parent_rows:
                children[parent].append(row)

        waits_left = [len(parent_rows) for parent_rows in waits]
        ready = [row for row, count in enumerate(waits_left) if not count]

        self.order: list[int] = []
        while ready:
            # The smallest number first, so that rows keep the order of the file where the waits allow it.
            row = heapq.heappop(ready)
            self.order.append(row)
            for child in children[row]:
                waits_left[child] -= 1
                if not waits_left[child]:
                    heapq.heappush(ready, child)

        # Rows in a circle, and those that wait for them, never have all their parents behind them.
        if len(self.order) < len(tasks):
            raise CycleError(f"{len(tasks) - len(self.order)} tasks wait for each other in a circle or below one")

        place = {row: k for k, row in enumerate(self.order)}
        self.parents = [sorted(place[parent] for parent in waits[row]) for row in self.order]

    def _found(self, ids: Sequence[str], rows_of: Mapping[str, list[int]], passed_over: Gone) -> set[int]:
        parent_rows: set[int] = set()

        open_ids = list(ids)
        ids_seen = set(ids)
        unknown_before = self.unknown
        while open_ids:
            parent_id = open_ids.pop()
            self.stated += parent_id in rows_of or parent_id not in passed_over
            if parent_id in rows_of:
                parent_rows.update(rows_of[parent_id])
            elif parent_id in passed_over:
                # A parent that was passed over lends its own parents: who waited for it waits for them.
                grandparents = [parent for parent in passed_over[parent_id] if parent not in ids_seen]
                ids_seen.update(grandparents)
                open_ids += grandparents
            else:
                self.unknown += 1

        self.waiting.append(self.unknown > unknown_before)
        return parent_rows


class Edges:
    """The dependency columns of a trace, made job by job."""

    def __init__(self) -> None:
        self.first = longs(1)
        self.parents = longs()

    def add(self, begin: int, instances: Sequence[int], parents: Sequence[Sequence[int]]) -> None:
        """A job's rows in order, each of which stands for so many tasks.

        Args:
            begin: number of the first task.
            instances: number of tasks per row.
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
    """The columns of submissions of jobs and their tasks, made job by job."""

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
            arrival_us: arrival of the job, and of rows without a submission of their own.
            came_us: time of submission per row; None where it has none of its own.
            instances, parents: see `Edges`.
        """
        if not self._apart:
            self._jobs.append(arrival_us)
            return

        submissions_us: list[int] = []
        for came, parent_places in zip(came_us, parents, strict=True):
            submissions_us.append(
                max([arrival_us if came is None else came, *[submissions_us[place] for place in parent_places]])
            )

        for count, at in zip(instances, submissions_us, strict=True):
            self._tasks.extend(longs(count, at))

        self._jobs.append(min(submissions_us))
        self._late = self._late or max(submissions_us) > min(submissions_us)

    @property
    def begin_us(self) -> int:
        """The first submission, on the source's clock."""
        return min(self._jobs)

    def columns(self) -> tuple[array[int], array[int]]:
        """`arrival_us` and `submit_us` of a trace; the latter is empty where all tasks come with their jobs."""
        begin = self.begin_us
        arrival_us = array("q", [at - begin for at in self._jobs])
        return arrival_us, array("q", [at - begin for at in self._tasks]) if self._late else longs()
