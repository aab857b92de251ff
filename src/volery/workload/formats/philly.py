"""Philly, Microsoft's GPU clusters of 2017: the log of jobs (JSON), and the table of durations made of it.

Times are local, `2017-10-09 07:01:55`; they are taken as if they were UTC. A job's attempts follow one another; its
runtime is from the first start to the last end.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.formats.source import Format, Noticed, amount, known, microseconds, place, span, table_rows
from volery.workload.table import TaskRow

TABLE: Final = frozenset({"timestamp", "duration", "num_gpus", "gpu_time", "cluster"})
STATUS: Final = {"Pass": "finished", "Killed": "killed", "Failed": "failed"}


def _time(text: str | None) -> int | None:
    if not text or text == "None":
        return None
    bare = text.removesuffix(" PST").removesuffix(" PDT")
    return round(datetime.fromisoformat(bare).replace(tzinfo=UTC).timestamp()) * SECOND


def _rows_table(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    for number, row in table_rows(path, (), header=TABLE):
        with place(path, number, "Philly durations"):
            gpus = amount(row["num_gpus"], 1000)
            made = TaskRow(
                job=str(number),
                task="0",
                user=known(row["cluster"]),
                submit_us=_time(row["timestamp"]),
                runtime_us=microseconds(row["duration"]) if row["duration"] else None,
                gpu_milli=gpus,
                line=number,
            )
        noticed["jobs that ask for no GPU"] += gpus == 0
        yield made


class LoggedMachine(msgspec.Struct):
    """A machine of an attempt, with its GPUs."""

    gpus: list[str] = []


class LoggedAttempt(msgspec.Struct):
    """An attempt of a job."""

    start_time: str | None = None
    end_time: str | None = None
    detail: list[LoggedMachine] = []


class LoggedJob(msgspec.Struct):
    """An entry of the log."""

    jobid: str
    submitted_time: str | None = None
    status: str | None = None
    user: str | None = None
    attempts: list[LoggedAttempt] = []


def _rows_log(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    text = b"\n".join(line.rstrip(b"\n") for _, line in numbered_lines(path))
    try:
        jobs = msgspec.json.decode(text, type=list[LoggedJob])
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"is no log of Philly's jobs: {error}; fetch it again") from None
    for number, job in enumerate(jobs, 1):
        with place(path, number, "Philly job log"):
            starts = [at for one in job.attempts if (at := _time(one.start_time)) is not None]
            start = min(starts, default=None)
            end = _time(job.attempts[-1].end_time) if job.attempts else None
            gpus = max((sum(len(where.gpus) for where in one.detail) for one in job.attempts), default=0)
            made = TaskRow(
                job=job.jobid or None, task="0", user=job.user, submit_us=_time(job.submitted_time), start_us=start,
                end_us=end, runtime_us=span(start, end), gpu_milli=gpus * 1000.0 if gpus else None,
                status=STATUS.get(job.status or ""), line=number,
            )  # fmt: skip
        noticed["jobs of several attempts"] += len(job.attempts) > 1
        noticed["jobs that never started"] += start is None
        yield made


PHILLY: Final = (
    Format(
        "philly", "Philly job log",
        lambda head: head.start.startswith(b"[") and any('"jobid"' in line for line in head.lines), rows=_rows_log,
        remarks=(
            "times are local and taken as UTC; the runtime spans all attempts",
            "the file is one document: it is read whole",
        ),
    ),
    Format(
        "philly-durations", "Philly durations", lambda head: head.names() >= TABLE, rows=_rows_table,
        remarks=("jobs have no id: they are numbered by line; the user is the virtual cluster", "rows are not sorted"),
    ),
)  # fmt: skip
