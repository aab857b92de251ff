"""Microsoft's traces: Azure's for packing (2020), and Philly's GPU clusters (2017).

Azure's database holds zones and types of machines; tables of requests were made of it. Philly has a log of jobs (JSON),
and a table of durations made of it. Its times are local, `2017-10-09 07:01:55`, some with a zone behind them. A row is
an attempt: it holds its GPUs from its start to its end, and the next attempt of the job waits for it. A job states how
many GPUs it needs, and runs when it has all of them, on whichever machines (Jeon et al., USENIX ATC 2019):
each is a task, and these run only together. The machines in the log are a choice of Philly's scheduler.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.formats.source import (
    PACIFIC,
    SQLITE_MAGIC,
    UNKNOWN_STATUS,
    Format,
    Head,
    Noticed,
    always,
    amount,
    document,
    fields,
    is_number,
    known,
    microseconds,
    moment,
    place,
    row_like,
    span,
    table_format,
)
from volery.workload.table import TaskRow

DAY: Final = 86_400 * SECOND
MILLISECOND: Final = 1000
AZURE_COLUMNS: Final = ("id", "cores", "memory_mb", "disk_mb", "duration_ms", "start_ms", "mode", "type")
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
                    start = None if began is None else microseconds(float(began), DAY)
                    end = None if ended is None else microseconds(float(ended), DAY)
                    shares = [None if share is None else float(share) for share in (core, memory, hdd, ssd)]

                    row_made = TaskRow(
                        job=None if vm is None else str(vm),
                        task="0",
                        user=None if tenant is None else str(tenant),
                        submit_us=start,
                        start_us=start,
                        end_us=end,
                        runtime_us=span(start, end),
                        cpu_share=shares[0],
                        memory_share=shares[1],
                        disk_share=max((share for share in shares[2:] if share is not None), default=None),
                        status="running" if end is None else "finished",
                        line=number,
                        priority=None if level is None else -int(level),
                    )

                noticed["machines that begin before the trace"] += start is not None and start < 0
                noticed["machines that outlive the trace"] += end is None
                yield row_made
    except sqlite3.Error as error:
        raise InputError(str(path), f"is no Azure packing database: {error}; fetch it again") from None


def _row_requests(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    start, runtime = microseconds(row["start_ms"], MILLISECOND), microseconds(row["duration_ms"], MILLISECOND)
    row_made = TaskRow(
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
    return row_made


def _fits_requests(head: Head) -> bool:
    rows = [fields(line) for line in head.lines]
    return bool(rows) and all(
        len(row) == len(AZURE_COLUMNS)
        and all(not word or is_number(word) for word in row[:6])
        and not any(map(is_number, row[6:]))
        for row in rows
    )


AZURE: Final = (
    Format(
        "azure-packing",
        "Azure packing",
        lambda head: head.start == SQLITE_MAGIC,
        rows=_rows_packing,
        remarks=(
            "times are days from the trace's beginning, and negative before it; a machine that outlives it has no end",
            "a request is a share of the model of machine that is largest for it",
            "0 is a high priority there and 1 a low one, which may be evicted: 0 and -1 here",
        ),
    ),
    table_format(
        "azure-requests",
        "Azure requests",
        _row_requests,
        names=AZURE_COLUMNS,
        fits=_fits_requests,
        like=row_like("nnnnnnww"),
        remarks=("made of the packing trace with arrivals and durations of the maker's own",),
    ),
)


PHILLY_COLUMNS: Final = frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"})
PHILLY_STATUS: Final = {"Pass": "finished", "Killed": "killed", "Failed": "failed"}


def _time(text: str | None, after_us: int | None = None) -> int | None:
    return None if not text or text == "None" else moment(text, PACIFIC, after_us)


def _gang_tasks(gpus: float | None) -> int | None:
    """The count of the tasks of a job, one for each GPU; None where it is one task."""
    return int(gpus) if gpus is not None and gpus > 1 and gpus == gpus // 1 else None


def _row_durations(row: dict[str, str], number: int, noticed: Noticed) -> TaskRow:
    gpus = amount(row["num_gpus"])
    row_made = TaskRow(
        job=str(number),
        task="0",
        user=known(row["cluster"]),
        submit_us=_time(row["timestamp"]),
        runtime_us=microseconds(row["duration"]) if row["duration"] else None,
        gpu_milli=None if gpus is None else gpus * 1000,
        line=number,
        gang_tasks=_gang_tasks(gpus),
    )

    noticed["jobs that ask for no GPU"] += gpus == 0
    return row_made


class LoggedMachine(msgspec.Struct):
    """A machine of an attempt, with its GPUs."""

    ip: str | None = None
    gpus: list[str] = []


class LoggedAttempt(msgspec.Struct):
    """An attempt of a job."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[LoggedMachine] = []

    @property
    def gpus(self) -> int:
        """The number of GPUs that it holds, on all its machines."""
        return sum(len(machine.gpus) for machine in self.detail)


class LoggedJob(msgspec.Struct):
    """An entry of the log."""

    jobid: str
    submitted_time: str | None = None
    status: str | None = None
    user: str | None = None
    attempts: list[LoggedAttempt] = []


OTHER_GPUS: Final = "an attempt without its GPUs, which holds as many as the others of its job"
NO_START: Final = "an attempt whose start is not in the log, so that its runtime is not known"


def _rows_log(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The attempts of all entries; an entry is a job, even of the id of another, as in Philly's own analysis."""
    entries: dict[str, list[LoggedJob]] = {}
    for number, job in enumerate(document(path, list[LoggedJob], "log of Philly's jobs"), 1):
        same_ids = entries.setdefault(job.jobid, [])
        if job.jobid and job in same_ids:  # the same GPUs cannot be held twice at once
            noticed["entries that repeat another entry, passed over"] += 1
            continue

        same_ids.append(job)
        noticed["entries with the id of another job, jobs of their own"] += len(same_ids) > 1 and bool(job.jobid)
        name = f"{job.jobid} ({len(same_ids)})" if len(same_ids) > 1 else job.jobid

        with place(path, number, "Philly job log"):
            rows = _attempts(job, name if job.jobid else None, number)

        noticed[UNKNOWN_STATUS] += bool(job.status) and job.status not in PHILLY_STATUS
        noticed["jobs of several attempts"] += len(job.attempts) > 1
        noticed["jobs that never started"] += all(row.start_us is None for row in rows)
        yield from rows


def _attempts(job: LoggedJob, name: str | None, line: int) -> list[TaskRow]:
    """The attempts of a job, each of which waits for the one before; a job without any is a row that never started."""
    submitted = last_us = _time(job.submitted_time)
    gpus_max = max((attempt.gpus for attempt in job.attempts), default=0)

    rows: list[TaskRow] = []
    for number, attempt in enumerate(job.attempts or [LoggedAttempt()]):
        start = _time(attempt.start_time, last_us)
        last_us = last_us if start is None else start
        end = _time(attempt.end_time, last_us)
        last_us = last_us if end is None else end

        # The log states the status of a job; all its attempts but the last have failed.
        is_last = number >= len(job.attempts) - 1
        status = PHILLY_STATUS.get(job.status or "") if is_last else "failed"
        if is_last and start is not None and end is None:  # it ran on when the log was taken, by its description
            status = "running"

        gpus = attempt.gpus or gpus_max
        rows.append(
            TaskRow(
                job=name,
                task=str(number),
                user=job.user,
                submit_us=submitted,
                start_us=start,
                end_us=end,
                runtime_us=span(start, end),
                gpu_milli=gpus * 1000.0 if gpus else None,
                parents=[str(number - 1)] if number else [],
                status=status,
                line=line,
                left_out=NO_START if start is None and (end is not None or attempt.gpus) else None,
                changed=OTHER_GPUS if gpus > attempt.gpus and start is not None else None,
                gang_tasks=_gang_tasks(gpus),
            )
        )

    return rows


PHILLY: Final = (
    Format(
        "philly",
        "Philly job log",
        lambda head: head.start.startswith(b"[") and any('"jobid"' in line for line in head.lines),
        rows=_rows_log,
        columns=frozenset({"jobid", "submitted_time", "attempts"}),
        has_gangs=always,
        remarks=(
            "a job of n GPUs is n tasks that run only together, or with --gangs task one task",
            "an attempt of a job is a row that waits for the one before; attempts but the last have failed",
            "an entry is a job; of several with one id, the others have their number behind it",
            "times without a zone are Pacific time; of an hour that clocks show twice, the first that fits",
            "the file is one document: it is read whole",
        ),
    ),
    table_format(
        "philly-durations",
        "Philly durations",
        _row_durations,
        header=PHILLY_COLUMNS,
        has_gangs=always,
        remarks=(
            "a job of n GPUs is n tasks that run only together, or with --gangs task one task",
            "jobs have no id: they are numbered by line; the user is the virtual cluster",
            "rows are not sorted; times without a zone are Pacific time",
        ),
    ),
)
