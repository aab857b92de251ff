"""Google's cluster traces: 2011 (task and job events, reduced task rows) and 2019 (instance events, usage slices).

Requests are shares of the largest machine. The event tables are clusterdata-2011-2 (schema.csv) and version 3 of 2019
(clusterdata_trace_format_v3.proto), the latter as its export to JSON, one event per line.

Events of a task are put together into rows. A row is complete when its task ends or the file does, so memory holds the
tasks alive at once, and the last attempts of tasks that may come back. Each attempt of a task is a row. One that starts
again without a new submission was submitted when the attempt before it ended.

Instances of an alloc set (2019) reserve what tasks run in. Either what ran in an alloc set is replayed, or, where
nothing of that is in the file, the reservation.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, Final, NamedTuple

import msgspec

from volery.workload.files import numbered_lines
from volery.workload.formats.source import (
    PRIORITY_END,
    Format,
    Head,
    Noticed,
    amount,
    fields,
    is_number,
    known,
    looked_up,
    microseconds,
    place,
    priority,
    row_like,
    span,
    table_rows,
)
from volery.workload.table import TaskRow

TASK_EVENTS: Final = (
    "time",
    "missing",
    "job",
    "task",
    "machine",
    "event",
    "user",
    "class",
    "priority",
    "cpu",
    "memory",
    "disk",
    "different_machine",
)
JOB_EVENTS: Final = ("time", "missing", "job", "event", "user", "class", "name", "logical_name")
REDUCED: Final = tuple(str(k) for k in range(10))
USAGE: Final = frozenset({"collection_id", "resource_request", "start_time", "end_time"})
KINDS_2011: Final = {
    "0": "submit",
    "1": "schedule",
    "2": "evict",
    "3": "fail",
    "4": "finish",
    "5": "kill",
    "6": "lost",
    "7": "update",
    "8": "update",
}
KINDS_2019: Final = dict(
    enumerate(("submit", "queue", "enable", "schedule", "evict", "fail", "finish", "kill", "lost", "update", "update"))
)
AFTER_TRACE: Final = str((1 << 63) - 1)
"""The time of what happened later than the trace."""
BEFORE_TRACE_US: Final = 0
"""The time of events before the trace, in both years."""
COMES_BACK: Final = frozenset({"evict", "fail", "lost"})
"""Ends after which a task may run again."""
BEGINS: Final = frozenset({"submit", "schedule"})
BEGUN_TWICE: Final = "an attempt that began again without an end between, of which the last start counts"
NEW_REQUEST: Final = "a request that was changed while the task ran, of which the first counts"
RESERVATION: Final = "rows of an alloc set, passed over, as what ran in it is replayed"
ALLOC_SETS: Final = "of an alloc set, what ran in it is a row each; where nothing did, what it reserved"
ALLOC_SET: Final = frozenset({"1", "ALLOC_SET"})
NO_ALLOC_SET: Final = frozenset({"", "0", "-1"})
ENDS: Final = {"evict": "evicted", "fail": "failed", "finish": "finished", "kill": "killed", "lost": "lost"}
RELATIONS: Final = ("=", "!=", "<", ">", "<=", ">=", " present", " absent")
_CPUS, _MEMORY = re.compile(r"'cpus': ([0-9.e+-]+)"), re.compile(r"'memory': ([0-9.e+-]+)")


class Event(NamedTuple):
    """A change of a task's state; fields of the row that the event does not state are None.

    Attributes:
        alloc_set: id of the alloc set in which the task runs.
        reserves: it is an instance of an alloc set.
    """

    time_us: int
    kind: str
    row: TaskRow
    alloc_set: str | None = None
    reserves: bool = False


class _Reservations:
    """Rows of alloc sets, kept until the end of the file: what ran in a set repeats its row, which is no work then."""

    def __init__(self, noticed: Noticed) -> None:
        self._noticed = noticed
        self._used: set[str] = set()
        self._open: list[TaskRow] = []

    def ran_in(self, alloc_set: str) -> None:
        """A task of the file has run in this alloc set."""
        self._used.add(alloc_set)

    def add(self, row: TaskRow) -> None:
        """Take in the row of an instance."""
        if row.job in self._used:
            self._noticed[RESERVATION] += 1
        else:
            self._open.append(row)

    def rest(self) -> Iterator[TaskRow]:
        """The rows of sets in which nothing ran, after the last row of the file."""
        for row in self._open:
            if row.job in self._used:
                self._noticed[RESERVATION] += 1
            else:
                yield row


def _rows_of_events(events: Iterator[Event], noticed: Noticed) -> Iterator[TaskRow]:
    """A row per attempt of a task, in order of its end; those still alive at the end come last."""
    alive: dict[tuple[str | None, str | None], TaskRow] = {}
    ended: dict[tuple[str | None, str | None], TaskRow] = {}
    sets: set[str | None] = set()
    reservations = _Reservations(noticed)

    for event in events:
        key = (event.row.job, event.row.task)
        row = alive.get(key)
        if row is None:
            row = alive[key] = event.row
            earlier_attempt = ended.pop(key, None)
            if earlier_attempt is not None:
                _complete(row, earlier_attempt)
            # An attempt that follows another without a submission of its own is waiting since the end of that one.
            if event.kind != "submit":
                row.submit_us = row.task_submit_us = None if earlier_attempt is None else earlier_attempt.end_us
                noticed["attempts whose submission is not in the file"] += earlier_attempt is None
        else:
            if event.kind == "update":
                _update(row, event.row)
            elif event.kind in BEGINS and row.start_us is not None:
                row.changed = BEGUN_TWICE
            _complete(row, event.row)

        if event.reserves:
            sets.add(row.job)

        if event.kind == "submit" and row.submit_us is None:
            row.submit_us = row.task_submit_us = event.time_us
            noticed["attempts submitted before the trace begins"] += event.time_us <= BEFORE_TRACE_US
        elif event.kind == "schedule":
            row.start_us = event.time_us
            row.status = "running"
            if event.alloc_set is not None:
                reservations.ran_in(event.alloc_set)

        elif event.kind in ENDS:
            row.end_us = event.time_us
            row.status = ENDS[event.kind]
            row.runtime_us = span(row.start_us, event.time_us)
            del alive[key]

            # An evicted or failed attempt may be followed by another, which is asked for as this one was.
            if event.kind in COMES_BACK:
                ended[key] = row
            if row.job in sets:
                reservations.add(row)
            else:
                yield row

    for row in alive.values():
        row.status = row.status or "waiting"
        noticed["attempts that do not end in the file"] += 1
        if row.job in sets:
            reservations.add(row)
        else:
            yield row

    yield from reservations.rest()


def _complete(row: TaskRow, stated: TaskRow) -> None:
    """Fill in what another event of the task states."""
    row.cpu_share = stated.cpu_share if row.cpu_share is None else row.cpu_share
    row.memory_share = stated.memory_share if row.memory_share is None else row.memory_share
    row.user = row.user or stated.user
    row.constraints = stated.constraints if row.constraints is None else row.constraints
    row.priority = stated.priority if row.priority is None else row.priority


def _update(row: TaskRow, stated: TaskRow) -> None:
    """A task that waits asks for what it is changed to; one that runs holds what it has."""
    for name in ("cpu_share", "memory_share"):
        request_before, request_after = getattr(row, name), getattr(stated, name)
        if request_after is None or request_after == request_before:
            continue

        if row.start_us is None:
            setattr(row, name, request_after)
        elif request_before is not None:
            row.changed = NEW_REQUEST


def _events_2011(path: Path, names: tuple[str, ...], title: str, noticed: Noticed) -> Iterator[Event]:
    for number, row in table_rows(path, names):
        if row["time"] == AFTER_TRACE:
            noticed["events after the trace ends, passed over"] += 1
            continue

        with place(path, number, title):
            noticed["events that were not recorded but inferred"] += bool(row["missing"])
            is_spread = row.get("different_machine") == "1"

            stated = TaskRow(
                job=known(row["job"]),
                task=known(row["task"]) if "task" in row else "0",
                user=known(row["user"]),
                instances=1 if "task" in row else None,
                cpu_share=amount(row.get("cpu", "")),
                memory_share=amount(row.get("memory", "")),
                disk_share=amount(row.get("disk", "")),
                constraints=["different_machine"] if is_spread else None,
                line=number,
                priority=priority(row.get("priority", "")),
            )

            event = Event(microseconds(row["time"], 1), looked_up(KINDS_2011, row["event"], "type of event"), stated)
        yield event


def _task_events(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    yield from _rows_of_events(_events_2011(path, TASK_EVENTS, "Google 2011 task_events", noticed), noticed)


def _job_events(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    yield from _rows_of_events(_events_2011(path, JOB_EVENTS, "Google 2011 job_events", noticed), noticed)


def _reduced(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    first = None
    for number, row in table_rows(path, REDUCED, separator=";"):
        with place(path, number, "Google 2011 tasks"):
            begin, end = microseconds(row["0"], 1), microseconds(row["6"], 1)

            row_made = TaskRow(
                job=known(row["1"]),
                task=known(row["2"]),
                user=known(row["3"]),
                submit_us=begin,
                end_us=end,
                runtime_us=span(begin, end),
                cpu_share=amount(row["8"]),
                memory_share=amount(row["9"]),
                line=number,
                priority=priority(row["5"]),
            )

        first = begin if first is None else first
        noticed["rows that begin with the first"] += begin == first
        yield row_made


def _usage_2019(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    cpus = _CPUS.search(row["resource_request"])
    memory = _MEMORY.search(row["resource_request"])
    begin = microseconds(row["start_time"], 1) if row["start_time"] else None
    end = microseconds(row["end_time"], 1) if row["end_time"] else None
    conditions = row.get("constraint", "")

    row_made = TaskRow(
        job=known(row["collection_id"]),
        task=known(row["instance_index"]) if "instance_index" in row else None,
        user=known(row.get("user", "")),
        submit_us=begin,
        start_us=begin,
        end_us=end,
        runtime_us=span(begin, end),
        cpu_share=amount(cpus[1]) if cpus else None,
        memory_share=amount(memory[1]) if memory else None,
        constraints=None if not conditions else [] if conditions == "[]" else [conditions],
        line=number,
        priority=priority(row.get("priority", "")),
    )

    noticed["rows with constraints"] += bool(row_made.constraints)
    return row_made


def _usage(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    used = {words.get("alloc_collection_id", "") for _, words in table_rows(path, (), header=USAGE)} - NO_ALLOC_SET
    for number, words in table_rows(path, (), header=USAGE):
        with place(path, number, "Google 2019 instances"):
            row = _usage_2019(words, number, noticed)
        if words.get("collection_type") in ALLOC_SET and row.job in used:
            noticed[RESERVATION] += 1
        else:
            yield row


Level = Annotated[int, msgspec.Meta(gt=-PRIORITY_END, lt=PRIORITY_END)]


class Resources(msgspec.Struct):
    """A request, in shares of the largest machine."""

    cpus: float | None = None
    memory: float | None = None


class Condition(msgspec.Struct):
    """A condition on the machine of a task."""

    name: str = ""
    value: str | None = None
    relation: int | str = 0


class InstanceEvent(msgspec.Struct):
    """A line of the table of instance events; numbers of 64 bits may be text."""

    time: int
    type: int
    collection_id: int
    instance_index: int | None = None
    collection_type: int | str = 0
    alloc_collection_id: int | None = None
    resource_request: Resources | None = None
    constraint: list[Condition] | None = None
    missing_type: int | None = None
    priority: Level | None = None


def _events_2019(path: Path, noticed: Noticed) -> Iterator[Event]:
    for number, line in numbered_lines(path):
        if not line.strip():
            continue
        with place(path, number, "Google 2019 instance_events"):
            event_read = msgspec.convert(msgspec.json.decode(line), InstanceEvent, strict=False)
            noticed["events that were not recorded but inferred"] += bool(event_read.missing_type)
            if str(event_read.time) == AFTER_TRACE:
                noticed["events after the trace ends, passed over"] += 1
                continue

            request = event_read.resource_request or Resources()
            row = TaskRow(
                job=str(event_read.collection_id),
                task=None if event_read.instance_index is None else str(event_read.instance_index),
                cpu_share=request.cpus,
                memory_share=request.memory,
                constraints=None
                if event_read.constraint is None
                else [_condition(condition) for condition in event_read.constraint],
                line=number,
                priority=event_read.priority,
            )

            alloc_set_id = str(event_read.alloc_collection_id or "")
            event = Event(
                microseconds(str(event_read.time), 1),
                looked_up(KINDS_2019, event_read.type, "type of event"),
                row,
                None if alloc_set_id in NO_ALLOC_SET else alloc_set_id,
                str(event_read.collection_type) in ALLOC_SET,
            )
        yield event


def _condition(condition: Condition) -> str:
    relation: Any = condition.relation
    sign = RELATIONS[relation] if isinstance(relation, int) and 0 <= relation < len(RELATIONS) else f" {relation} "
    return f"{condition.name}{sign}{condition.value or ''}"


def _instance_events(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    yield from _rows_of_events(_events_2019(path, noticed), noticed)


def _has(head: Head, names: tuple[str, ...], separator: str = ",") -> bool:
    rows = [fields(line, separator) for line in head.lines]
    kinds = names.index("event") if "event" in names else None
    return bool(rows) and all(
        len(row) == len(names) and row[0].isdigit() and (kinds is None or row[kinds] in KINDS_2011) for row in rows
    )


def _fits_json(head: Head) -> bool:
    return bool(head.lines) and all(
        line.startswith("{") and '"collection_id"' in line and '"type"' in line for line in head.lines
    )


def _fits_job_events(head: Head) -> bool:
    """Names are hashes, and there are four classes: eight bare fields alone could be anything."""
    return _has(head, JOB_EVENTS) and all(
        not is_number(row[4]) and row[5] in ("", *"0123") for row in map(fields, head.lines)
    )


GOOGLE: Final = (
    Format(
        "google-2011",
        "Google 2011 task_events",
        lambda head: _has(head, TASK_EVENTS),
        rows=_task_events,
        like=row_like("nnnnnnwnnnnnn"),
        remarks=("requests are shares of the largest machine; each attempt of a task is a row",),
    ),
    Format(
        "google-2011-jobs",
        "Google 2011 job_events",
        _fits_job_events,
        rows=_job_events,
        like=row_like("nnnnwnww"),
        remarks=("the table has no tasks: a row is a job, its number of instances is unknown",),
    ),
    Format(
        "google-2011-reduced",
        "Google 2011 tasks",
        lambda head: _has(head, REDUCED, ";"),
        rows=_reduced,
        like=row_like("nnn.nnnnnn", ";"),
        remarks=("not the raw table; the seventh field is taken for the end of a task",),
    ),
    Format(
        "google-2019-usage",
        "Google 2019 instances",
        lambda head: head.names() >= USAGE,
        rows=_usage,
        columns=USAGE,
        remarks=("times are windows of measured usage, of five minutes at most, not runtimes", ALLOC_SETS),
    ),
    Format(
        "google-2019",
        "Google 2019 instance_events",
        _fits_json,
        rows=_instance_events,
        columns=frozenset({"time", "type", "collection_id"}),
        remarks=("requests are shares of the largest machine; each attempt of an instance is a row", ALLOC_SETS),
    ),
)
