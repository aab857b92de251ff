"""Rows of a mapped file as rows of the trace table.

A job with `nodes` has a gang: as many tasks as nodes, or as `tasks` says, each with its part of what the job asks for.
Parts of cores and devices are whole: what does not divide is rounded up, and counted as changed. A row without a state
runs if it has a start and no end, and has not started if it has neither.
"""

from __future__ import annotations

import fnmatch
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from zoneinfo import ZoneInfo

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from volery.core.errors import InputError
from volery.workload.formats.columns.functions import FUNCTIONS
from volery.workload.formats.columns.maps import TARGETS, ColumnMap, Filter, SourceColumn
from volery.workload.formats.columns.records import READERS, Chunk
from volery.workload.formats.columns.values import Kind, Values, zone_of
from volery.workload.formats.source import Noticed
from volery.workload.omissions import ENDED_BADLY, true_mask
from volery.workload.table import SCHEMA

FILTERED: Final = "rows that the filter of {} passes over"
AFTER_WINDOW: Final = "rows submitted after the window"
BEFORE_WINDOW: Final = "rows that ended before the window"
CAME_BEFORE: Final = "submitted before the window, and come with its begin"
UNEVEN: Final = "cores or devices that do not divide by the nodes or tasks are rounded up for each"
BRIEF: Final = "ended at the time of their start without finishing, so held no machine"
ATTEMPTS: Final = "rows of further attempts of a job, each of which is replayed"
UNLIKE_RUNTIME: Final = "rows whose runtime is not end minus start, of which the runtime counts"
TYPES: Final = {
    "time": pa.int64(),
    "duration": pa.int64(),
    "count": pa.int64(),
    "priority": pa.int64(),
    "cores": pa.float64(),
    "memory": pa.float64(),
}
"""Types of values by their kinds; text where there is none."""
MISFIT_US: Final = 1_000_000
"""Difference of a runtime and its times that comes of seconds that were cut."""

CLOCKS: Final = ("submit_us", "start_us", "end_us", "deadline_us", "task_submit_us")
UNIT: Final = 1000.0
"""Thousandths in a core or device."""
DEPENDENCY: Final = re.compile(r"[^\s,;:?|&!()\[\]\"']+")
"""Words of a dependency, as `afterok:101:102,afterany:103_2`, `done(a)` or `a;b`."""
NO_DEPENDENCY: Final = re.compile(
    r"(after|before)(any|ok|notok|corr|burstbuffer)?|singleton|expand|on|done|ended|exit|started|(un)?fulfilled|failed"
    r"|null|none|nan|n/a|-1",
    re.IGNORECASE,
)
"""Words of a dependency that are no ids of jobs."""
NO_END: Final = np.iinfo(np.int64).min
"""End of a row that states none."""
ATTEMPT_COLUMNS: Final = ("task", "submit_us", "task_submit_us", "parents")

Mask = NDArray[np.bool_]


class MappedRows:
    """The rows of a file by a map.

    Raises:
        InputError: the file lacks a column, a value is none of its kind, or no row lies in the window.
    """

    def __init__(self, path: Path, column_map: ColumnMap, place: str, noticed: Noticed) -> None:
        self._path = path
        self._map = column_map
        self._place = place
        self._noticed = noticed

        self._zone = zone_of(column_map.source.zone, f"{place}: source.zone")
        self._values = Values(column_map.source.decimal, self._zone)
        self._missing = frozenset(["", *column_map.source.missing])
        self._window_us = self._moments()
        self._ends_us: dict[int, int | None] = {}
        self._alone = np.empty((2, 0), np.int64)
        self._attempt_counts: Counter[int] = Counter()
        self._first_cluster = ""
        self._rows = self._rows_in_window = 0

    def batches(self) -> Iterator[pa.RecordBatch]:
        """The rows as batches of the trace table."""
        for chunk in READERS[self._map.source.form](self._path, self._map, self._noticed):
            chunk = self._filtered(chunk)
            if not len(chunk.lines):
                continue
            self._rows += len(chunk.lines)
            batch = self._in_window(self._batch(chunk))
            self._rows_in_window += batch.num_rows
            if batch.num_rows:
                yield batch

        if self._rows and not self._rows_in_window:
            problem = f"holds none of the {self._rows:,} rows of {self._path.name}; name times of the file"
            raise InputError(f"{self._place}: window", problem)

    def _moments(self) -> tuple[int | None, int | None]:
        """The window in microseconds, by the clock of the submissions.

        Raises:
            InputError: a moment is none, or the window is empty.
        """
        clock = (self._map.given("submit") or self._map.given("start"))[0]
        moments = []
        for key, value in (("from", self._map.window.since), ("to", self._map.window.until)):
            try:
                moments.append(None if value is None else self._value(clock, "time", str(value)))
            except ValueError as error:
                raise InputError(f"{self._place}: window.{key}", f"{error}; write it as the file does") from None

        since_us, until_us = moments
        if since_us is not None and until_us is not None and until_us <= since_us:
            problem = f"is empty: it ends at {self._map.window.until}, not after {self._map.window.since}"
            raise InputError(f"{self._place}: window", f"{problem}; exchange or widen them")
        return since_us, until_us

    def _filtered(self, chunk: Chunk) -> Chunk:
        """The rows that no filter passes over."""
        for rule in self._map.filter:
            if rule.column not in chunk.columns:
                continue
            mask = _passes(rule, chunk.columns[rule.column])
            if mask.all():
                continue
            self._noticed[rule.reason or FILTERED.format(rule.column)] += int(np.count_nonzero(~mask))
            lines: list[int] = np.asarray(chunk.lines)[mask].tolist()
            columns = {name: texts.filter(pa.array(mask)) for name, texts in chunk.columns.items()}
            chunk = Chunk(lines, columns)
        return chunk

    def _value(self, entry: SourceColumn, kind: Kind, text: str) -> Any:
        """The value of a text.

        Raises:
            ValueError: it is none of its kind.
        """
        return self._status(text) if kind == "state" else self._values.read(kind, text, entry.unit, entry.format)

    def _status(self, text: str) -> str:
        for status, patterns in self._map.states.items():
            if any(fnmatch.fnmatchcase(text, pattern) for pattern in patterns):
                return status
        raise ValueError(f"{text!r} is no state of the map; add it to a list of [states], as failed")

    def _column(self, target: str, chunk: Chunk) -> pa.Array:
        """The values of a target: of each row, the first that one of its columns has."""
        column = _unknown(chunk, target)
        for entry in self._map.given(target):
            if entry.column in chunk.columns and column.null_count:
                column = pc.coalesce(column, self._converted(entry, target, chunk))
        return column

    def _amounts(self, target: str, chunk: Chunk, counts: dict[str, Any]) -> pa.Array:
        """Requests of whole jobs, of columns that state it for each of some things, too."""
        column = _unknown(chunk, target)
        for entry in self._map.given(target):
            if entry.column in chunk.columns and column.null_count:
                amounts = self._converted(entry, target, chunk)
                column = pc.coalesce(column, amounts if entry.per == "job" else pc.multiply(amounts, counts[entry.per]))
        return column

    def _converted(self, entry: SourceColumn, target: str, chunk: Chunk) -> pa.Array:
        """The values of a column, each distinct text read once.

        Raises:
            InputError: a text is no value; the message names its first line.
        """
        kind = TARGETS[target]
        encoded = pc.dictionary_encode(pc.utf8_trim_whitespace(chunk.columns[entry.column]))
        pattern = re.compile(entry.pattern) if entry.pattern else None
        values = []

        for place, text in enumerate(encoded.dictionary.to_pylist()):
            try:
                value: Any = None if text in self._missing else text
                if value is not None and entry.function:
                    value = FUNCTIONS[entry.function](value)
                if value is not None and pattern is not None:
                    match = pattern.search(str(value))
                    value = match[1] if match else None
                values.append(None if value is None or value == "" else self._value(entry, kind, str(value)))
            except (ValueError, OverflowError) as error:
                row = pc.index(encoded.indices, place).as_py()
                problem = f"{entry.column} gives no {target}: {error}; mend it, or columns.{target} of the map"
                raise InputError(f"{self._path}:{chunk.lines[row]}", problem) from None

        return pa.array(values, TYPES.get(kind, pa.string())).take(encoded.indices)

    def _times(self, chunk: Chunk) -> dict[str, Any]:
        """Submissions, starts, ends and runtimes, of which some are made of others, and whether these misfit."""
        times = {target: self._column(target, chunk) for target in ("submit", "start", "end", "wait", "runtime")}
        times["start"] = self._after(times["submit"], "start", chunk, times["start"])
        times["start"] = pc.coalesce(times["start"], pc.add(times["submit"], times.pop("wait")))
        times["end"] = self._after(times["start"], "end", chunk, times["end"])

        span_us = pc.subtract(times["end"], times["start"])
        span_us = pc.if_else(pc.less(span_us, 0), pa.scalar(None, pa.int64()), span_us)
        times["misfit"] = pc.greater(pc.abs(pc.subtract(times["runtime"], span_us)), MISFIT_US)
        times["runtime"] = pc.coalesce(times["runtime"], span_us)
        times["end"] = pc.coalesce(times["end"], pc.add(times["start"], times["runtime"]))
        return times

    def _after(self, before: Any, target: str, chunk: Chunk, times: Any) -> Any:
        """Times, of which those that seem to lie before the time before them are the second of an hour shown twice."""
        early = np.flatnonzero(true_mask(pc.less(times, before)))
        entry = next((entry for entry in self._map.given(target) if entry.column in chunk.columns), None)
        if entry is None or entry.unit or not len(early) or not isinstance(self._zone, ZoneInfo):
            return times

        mended_us = times.to_pylist()
        for row in early.tolist():
            text = str(chunk.columns[entry.column][row]).strip()
            # A value of another column, or one that a function made, has no hour that could be meant.
            if text not in self._missing and not (entry.function or entry.pattern):
                mended_us[row] = self._values.time(text, "", entry.format, before[row].as_py())
        return pa.array(mended_us, pa.int64())

    def _batch(self, chunk: Chunk) -> pa.RecordBatch:
        columns: dict[str, Any] = {
            name: self._column(name, chunk) for name in ("job", "task", "user", "group", "partition", "priority")
        }
        columns["job"] = self._job_ids(columns["job"], chunk)
        columns["task"] = pc.fill_null(columns["task"], "0")
        columns["line"] = pa.array(chunk.lines, pa.int64())
        columns["parents"] = self._dependencies(chunk)
        columns["limit_us"] = self._column("limit", chunk)
        columns["deadline_us"] = self._column("deadline", chunk)
        columns["estimate_us"] = pc.coalesce(self._column("estimate", chunk), columns["limit_us"])
        columns |= self._shape(chunk)

        times = self._times(chunk)
        columns["status"] = status = _status_of(self._column("state", chunk), times)
        columns |= {f"{name}_us": times[name] for name in ("submit", "start", "end", "runtime")}
        # What has not ended has no end, and what has not started has not run for no time.
        is_open = _true(pc.is_in(status, value_set=pa.array(["running", "waiting"])))
        has_no_start = _true(pc.and_(pc.is_null(times["start"]), pc.equal(times["runtime"], 0)))
        self._noticed[UNLIKE_RUNTIME] += pc.sum(pc.and_(times["misfit"], pc.invert(is_open))).as_py() or 0
        columns["end_us"] = _null_where(is_open, columns["end_us"])
        # Managers estimate when a job that waits will start.
        columns["start_us"] = _null_where(_true(pc.equal(status, "waiting")), columns["start_us"])
        has_started = pc.and_(pc.is_valid(times["start"]), pc.equal(times["runtime"], 0))
        is_brief = _true(pc.and_(pc.is_in(status, value_set=ENDED_BADLY), has_started))
        columns["left_out"] = _null_where(pc.invert(is_brief), pa.array([BRIEF] * len(status)))
        columns["runtime_us"] = _null_where(pc.or_(pc.or_(is_open, has_no_start), is_brief), columns["runtime_us"])
        if self._map.source.attempts:
            columns |= self._attempts(columns)

        rows = len(chunk.lines)
        arrays = [pc.cast(columns.get(field.name, pa.nulls(rows, field.type)), field.type) for field in SCHEMA]
        return pa.RecordBatch.from_arrays(arrays, schema=SCHEMA)

    def _shape(self, chunk: Chunk) -> dict[str, Any]:
        """Tasks, nodes, and what a row asks for: the tasks of a gang together, else each of its tasks."""
        one = pa.scalar(1, pa.int64())
        nodes, tasks, array = (self._column(name, chunk) for name in ("nodes", "tasks", "array"))
        counts = {"node": pc.fill_null(nodes, 1), "task": pc.coalesce(tasks, nodes, one)}
        # What ran had a node and a task, also where its source states 0 of them.
        if self._map.states_runs:
            counts = {name: pc.max_element_wise(count, 1) for name, count in counts.items()}
        # Each node holds a part of the job, and be it without a task.
        size = pc.max_element_wise(counts["task"], counts["node"]) if self._map.given("nodes") else counts["task"]
        # Each of the jobs that a row of an array stands for asks for all that the row states.
        size = pc.if_else(pc.is_valid(array), 1, size)

        cores = self._amounts("cores", chunk, counts)
        counts["core"] = pc.divide(cores, UNIT)
        devices, memory = (self._amounts(name, chunk, counts) for name in ("devices", "memory"))
        amounts = {"cores": cores, "devices": devices}
        shares = [_share(amount, size, is_exact=self._is_per_task(name)) for name, amount in amounts.items()]
        is_uneven = pc.or_(*[uneven for _, uneven in shares])

        # Of an array that has not started a row stands for many jobs, none of them with others.
        is_gang = _true(pc.and_(pc.and_(pc.greater(size, 1), pc.is_null(array)), self._map.has_gangs))
        parts = [*(part for part, _ in shares), pc.divide(memory, _parts(size))]
        cpu_milli, gpu_milli, memory_mb = (pc.multiply(part, pc.if_else(is_gang, _parts(size), 1.0)) for part in parts)
        return {
            "instances": pc.coalesce(array, pc.if_else(is_gang, one, size)),
            "gang_tasks": _null_where(pc.invert(is_gang), size),
            "gang_nodes": _null_where(pc.invert(is_gang), nodes),
            "gang_rack": _null_where(pc.invert(is_gang), self._column("rack", chunk)),
            "cpu_milli": cpu_milli,
            "gpu_milli": gpu_milli,
            "memory_mb": memory_mb,
            "changed": _null_where(pc.invert(is_uneven), pa.array([UNEVEN] * len(size))),
        }

    def _is_per_task(self, target: str) -> bool:
        """True where a map states what each task asks for, so that no part has to be whole."""
        return all(entry.per == "task" for entry in self._map.given(target))

    def _job_ids(self, jobs: pa.Array, chunk: Chunk) -> pa.Array:
        """Ids of jobs: those of other clusters than the first of the file begin with the cluster, as `B/5`."""
        clusters = self._column("cluster", chunk)
        if clusters.null_count == len(clusters):
            return jobs
        self._first_cluster = self._first_cluster or str(pc.drop_null(clusters)[0])
        is_other = _true(pc.not_equal(clusters, self._first_cluster))
        return pc.if_else(is_other, pc.binary_join_element_wise(clusters, jobs, "/"), jobs)

    def _attempts(self, columns: dict[str, Any]) -> dict[str, pa.Array]:
        """Tasks and submissions of rows, where further ones of a job are attempts: a task each, one by one."""
        submits_us, tasks = columns["submit_us"].to_pylist(), columns["task"].to_pylist()
        starts_us, ends_us = columns["start_us"].to_pylist(), columns["end_us"].to_pylist()
        keys = np.array(list(map(hash, zip(columns["job"].to_pylist(), tasks, strict=True))), np.int64)
        has_tasks = bool(self._map.given("task"))
        # Dependencies make one job of all rows of a job: only waits and submissions keep its attempts apart there.
        parents = columns["parents"].to_pylist() if self._map.given("dependency") else None
        comes_us: list[int | None] = [None] * len(tasks)

        for row in np.flatnonzero(self._have_several(keys, columns["end_us"])).tolist():
            key, task, submit_us, start_us = int(keys[row]), tasks[row], submits_us[row], starts_us[row]
            if key in self._ends_us:
                self._attempt_counts[key] += 1
                self._noticed[ATTEMPTS] += 1
                number = self._attempt_counts[key]
                tasks[row] = f"{task}+{number}" if has_tasks else str(number)
                # Without a submission of its own it came when the attempt before ended, as a requeued job does.
                if submit_us is not None and (earlier_end_us := self._ends_us[key]) is not None:
                    # Rows that ran at the same time are none of one job; a submission stays before its start.
                    latest_us = earlier_end_us if start_us is None else min(earlier_end_us, start_us)
                    submits_us[row] = max(submit_us, latest_us)
                if parents is not None:
                    comes_us[row] = submits_us[row]
                    earlier = f"{task}+{number - 1}" if has_tasks else str(number - 1)
                    parents[row] = [*(parents[row] or ()), task if number == 1 else earlier]
            self._ends_us[key] = ends_us[row]

        values = tasks, submits_us, comes_us, columns["parents"] if parents is None else parents
        return {
            name: pa.array(texts, SCHEMA.field(name).type) for name, texts in zip(ATTEMPT_COLUMNS, values, strict=True)
        }

    def _have_several(self, keys: NDArray[np.int64], ends_us: pa.Array) -> Mask:
        """Rows of jobs that have several so far; `_ends_us` holds the last ends of these, as of the rows before.

        Jobs with a row alone, of which there are millions, are kept as two columns: sorted hashes, and ends.
        """
        alone_keys, alone_ends_us = self._alone
        _, places, row_counts = np.unique(keys, return_inverse=True, return_counts=True)
        at = np.searchsorted(alone_keys, keys)
        is_second = np.append(alone_keys, NO_END)[at] == keys

        for row in np.flatnonzero(is_second).tolist():
            end_us = int(alone_ends_us[at[row]])
            self._ends_us.setdefault(int(keys[row]), None if end_us == NO_END else end_us)
        is_several: Mask = (row_counts[places] > 1) | is_second | np.isin(keys, list(self._ends_us))

        new = np.stack([keys, pc.fill_null(ends_us, NO_END).to_numpy(zero_copy_only=False)])[:, ~is_several]
        both = np.concatenate([self._alone, new], axis=1)
        self._alone = both[:, np.argsort(both[0], kind="stable")]
        return is_several

    def _dependencies(self, chunk: Chunk) -> pa.Array:
        """Jobs that a job waits for; they are no tasks of it, so that a run counts the waits and does not heed them."""
        texts = self._column("dependency", chunk)
        if texts.null_count == len(texts):
            return pa.nulls(len(texts), SCHEMA.field("parents").type)
        waits = [
            [f"job {word}" for word in DEPENDENCY.findall(text or "") if not NO_DEPENDENCY.fullmatch(word)]
            for text in texts.to_pylist()
        ]
        return pa.array(waits, SCHEMA.field("parents").type)

    def _in_window(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The rows of the window, on a clock that begins with it."""
        since_us, until_us = self._window_us
        came_us = pc.coalesce(batch.column("submit_us"), batch.column("start_us"))
        is_after = (
            true_mask(pc.greater_equal(came_us, until_us))
            if until_us is not None
            else np.zeros(batch.num_rows, np.bool_)
        )
        is_past = (
            true_mask(pc.less_equal(batch.column("end_us"), since_us)) if since_us is not None else ~is_after & is_after
        )

        self._noticed[AFTER_WINDOW] += int(np.count_nonzero(is_after))
        self._noticed[BEFORE_WINDOW] += int(np.count_nonzero(is_past))
        batch = batch.filter(pa.array(~(is_after | is_past)))
        if since_us is None:
            return batch

        # A job that waited when the window began is there from its begin; what ran is cut where rows are judged.
        waited = pc.and_(
            pc.less(batch.column("submit_us"), since_us), pc.greater_equal(batch.column("start_us"), since_us)
        )
        changed = pc.if_else(pc.fill_null(waited, False), CAME_BEFORE, batch.column("changed"))
        columns = dict(zip(SCHEMA.names, batch.columns, strict=True)) | {"changed": changed}
        columns |= {name: pc.subtract(columns[name], since_us) for name in CLOCKS}
        columns["task_submit_us"] = pc.if_else(pc.less(columns["task_submit_us"], 0), 0, columns["task_submit_us"])
        return pa.RecordBatch.from_arrays(list(columns.values()), schema=SCHEMA)


def _passes(rule: Filter, texts: pa.Array) -> Mask:
    """Rows that a filter does not pass over."""
    encoded = pc.dictionary_encode(pc.fill_null(pc.utf8_trim_whitespace(texts), ""))
    passes = []
    for text in encoded.dictionary.to_pylist():
        is_kept = not rule.keep or any(fnmatch.fnmatchcase(text, pattern) for pattern in rule.keep)
        passes.append(is_kept and not any(fnmatch.fnmatchcase(text, pattern) for pattern in rule.drop))
    return true_mask(pa.array(passes, pa.bool_()).take(encoded.indices))


def _unknown(chunk: Chunk, target: str) -> pa.Array:
    return pa.nulls(len(chunk.lines), TYPES.get(TARGETS[target], pa.string()))


def _status_of(states: pa.Array, times: dict[str, Any]) -> pa.Array:
    """The status of each row: as it states, or else as its times show."""
    has_no_end = pc.and_(pc.is_null(times["end"]), pc.is_null(times["runtime"]))
    unstarted = pc.and_(has_no_end, pc.is_null(times["start"]))
    shown = pc.if_else(unstarted, "waiting", pc.if_else(has_no_end, "running", pa.scalar(None, pa.string())))
    return pc.coalesce(states, shown)


def _true(values: Any) -> pa.Array:
    """Rows of which something is true; unknown is false."""
    return pc.fill_null(values, False)


def _null_where(mask: pa.Array, values: pa.Array) -> pa.Array:
    return pc.if_else(mask, pa.scalar(None, values.type), values)


def _parts(size: pa.Array) -> pa.Array:
    return pc.cast(pc.max_element_wise(size, 1), pa.float64())


def _is_whole(amount: pa.Array) -> pa.Array:
    return _true(pc.equal(pc.multiply(pc.floor(pc.divide(amount, UNIT)), UNIT), amount))


def _share(amount: pa.Array, size: pa.Array, *, is_exact: bool) -> tuple[pa.Array, pa.Array]:
    """The part of each task, in whole cores or devices if the job has whole ones; and the rows where that is more."""
    part = pc.divide(amount, _parts(size))
    if is_exact:
        return part, pa.array([False] * len(part))
    is_uneven = pc.and_(pc.and_(_is_whole(amount), pc.is_valid(part)), pc.invert(_is_whole(part)))
    return pc.if_else(is_uneven, pc.multiply(pc.ceil(pc.divide(part, UNIT)), UNIT), part), is_uneven
