"""Azure's traces for packing: the database of 2020 (zones, types of machines), and tables of requests made of it."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.formats.source import (
    SQLITE_MAGIC,
    Format,
    Head,
    Noticed,
    amount,
    fields,
    known,
    microseconds,
    place,
    span,
    table_rows,
)
from volery.workload.table import TaskRow

DAY: Final = 86_400 * SECOND
MILLISECOND: Final = 1000
REQUESTS: Final = ("id", "cores", "memory_mb", "disk_mb", "duration_ms", "start_ms", "mode", "type")
QUERY: Final = """
    select vm.vmId, vm.tenantId, vm.priority, vm.starttime, vm.endtime, kind.core, kind.memory, kind.hdd, kind.ssd
    from vm left join (
        select vmTypeId, min(core) as core, min(memory) as memory, min(hdd) as hdd, min(ssd) as ssd
        from vmType group by vmTypeId
    ) as kind on kind.vmTypeId = vm.vmTypeId order by vm.rowid
"""
"""A type asks for another share of each model of machine: that of the largest is the smallest."""


def _rows_packing(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    try:
        with closing(sqlite3.connect(f"file:{path.absolute()}?mode=ro", uri=True)) as base:
            for number, row in enumerate(base.execute(QUERY), 1):
                vm, tenant, level, began, ended, core, memory, hdd, ssd = row
                with place(path, number, "Azure packing"):
                    start = None if began is None else microseconds(began, DAY)
                    end = None if ended is None else microseconds(ended, DAY)
                    made = TaskRow(
                        job=None if vm is None else str(vm), task="0",
                        user=None if tenant is None else str(tenant),
                        submit_us=start, start_us=start, end_us=end, runtime_us=span(start, end),
                        cpu_share=core, memory_share=memory,
                        disk_share=max((share for share in (hdd, ssd) if share is not None), default=None),
                        status="running" if end is None else "finished", line=number,
                        priority=None if level is None else -int(level),
                    )  # fmt: skip
                noticed["machines that begin before the trace"] += start is not None and start < 0
                noticed["machines that outlive the trace"] += end is None
                yield made
    except sqlite3.Error as error:
        raise InputError(str(path), f"is no Azure packing database: {error}; fetch it again") from None


def _rows_requests(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    for number, row in table_rows(path, REQUESTS):
        with place(path, number, "Azure requests"):
            start, runtime = microseconds(row["start_ms"], MILLISECOND), microseconds(row["duration_ms"], MILLISECOND)
            made = TaskRow(
                job=known(row["id"]),
                task="0",
                submit_us=start,
                runtime_us=runtime,
                cpu_milli=amount(row["cores"], 1000),
                memory_mb=amount(row["memory_mb"]),
                disk_mb=amount(row["disk_mb"]),
                line=number,
            )
        noticed["rows of mode " + (row["mode"] or "unknown")] += 1
        yield made


def _fits_requests(head: Head) -> bool:
    rows = [fields(line) for line in head.lines]
    return bool(rows) and all(
        len(row) == len(REQUESTS)
        and all(_is_number(word) for word in row[:6])
        and row[6].isalpha()
        and row[7].isalpha()
        for row in rows
    )


def _is_number(text: str) -> bool:
    return text.replace(".", "", 1).isdigit()


AZURE: Final = (
    Format(
        "azure-packing", "Azure packing", lambda head: head.start == SQLITE_MAGIC, rows=_rows_packing,
        remarks=(
            "times are days from the trace's beginning, and negative before it; a machine that outlives it has no end",
            "a request is a share of the model of machine that is largest for it",
            "0 is a high priority there and 1 a low one, which may be evicted: 0 and -1 here",
        ),
    ),
    Format(
        "azure-requests", "Azure requests", _fits_requests, rows=_rows_requests,
        remarks=("made of the packing trace with arrivals and durations of the maker's own",),
    ),
)  # fmt: skip
