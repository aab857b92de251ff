"""Google's tables of events, 2011 and 2019: what happened to a task, put together into rows.

A task's row is given when it ends or at the end of the file, so that memory holds the tasks alive at once. A task that
is submitted again after its end has a row per attempt.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from volery.workload.formats.source import Noticed, span
from volery.workload.table import TaskRow

BEFORE_TRACE_US: Final = 0
"""Both traces give events before their beginning this time."""


class Event(NamedTuple):
    """What happened to a task at a time; what is left out is None."""

    time_us: int
    kind: str
    row: TaskRow


ENDS: Final = {"evict": "evicted", "fail": "failed", "finish": "finished", "kill": "killed", "lost": "lost"}


def rows_of_events(events: Iterator[Event], noticed: Noticed) -> Iterator[TaskRow]:
    """A row per attempt of a task, in order of its end; those still alive at the end come last."""
    alive: dict[tuple[str | None, str | None], TaskRow] = {}
    for time_us, kind, said in events:
        key = (said.job, said.task)
        row = alive.get(key)
        if row is None:
            row = alive[key] = said
            if kind != "submit":
                noticed["attempts whose submission is not in the file"] += 1
        else:
            row.cpu_share = said.cpu_share if row.cpu_share is None else row.cpu_share
            row.memory_share = said.memory_share if row.memory_share is None else row.memory_share
            row.user = row.user or said.user
            row.constraints = said.constraints if row.constraints is None else row.constraints
            row.priority = said.priority if row.priority is None else row.priority
        if kind == "submit" and row.submit_us is None:
            row.submit_us = row.task_submit_us = time_us
            noticed["attempts submitted before the trace begins"] += time_us <= BEFORE_TRACE_US
        elif kind == "schedule":
            row.start_us, row.status = time_us, "running"
        elif kind in ENDS:
            row.end_us, row.status = time_us, ENDS[kind]
            row.runtime_us = span(row.start_us, time_us)
            yield alive.pop(key)
    for row in alive.values():
        row.status = row.status or "waiting"
        noticed["attempts that do not end in the file"] += 1
        yield row
