"""SWF, the Standard Workload Format (Feitelson's Parallel Workloads Archive, version 2.2): 18 fields, -1 is unknown.

A job is one task here that asks for its processors. Memory is per processor in the file, in kilobytes; per job here.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Final

from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.formats.source import AMOUNT_END, Format, Head, Noticed, microseconds, place
from volery.workload.table import TaskRow

FIELDS: Final = 18
STATUS: Final = {"0": "failed", "1": "finished", "5": "killed"}
PARTS: Final = ("2", "3", "4")
"""Statuses of rows that repeat a part of a job that was checkpointed; the job has a row of its own."""


def fits(head: Head) -> bool:
    """Comments begin with `;`; rows have 18 numbers."""
    rows = [line.split() for line in head.lines if not line.startswith(";")]
    return (
        bool(head.lines)
        and all(len(row) == FIELDS and _numbers(row) for row in rows)
        and (bool(rows) or all(line.startswith(";") for line in head.lines))
    )


def _numbers(words: list[str]) -> bool:
    return all(word.lstrip("-+").replace(".", "", 1).isdigit() for word in words)


def _positive(text: str) -> float | None:
    value = float(text)
    if not abs(value) < AMOUNT_END:
        raise ValueError(f"{text!r} is no amount")
    return value if value > 0 else None


def read(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The jobs of a file, plain or gzip-compressed.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    for number, line in numbered_lines(path):
        words = line.decode("utf-8", "replace").split()
        if not words or words[0].startswith(";"):
            continue
        with place(path, number, "SWF"):
            if len(words) != FIELDS:
                raise ValueError(f"{len(words)} fields where there are {FIELDS}")
            row = _row(words, number)
        if words[10] in PARTS:
            noticed["rows of a part of a checkpointed job, passed over"] += 1
            continue
        yield row


def _row(words: list[str], number: int) -> TaskRow:
    submit = microseconds(words[1])
    # -1 stands for unknown throughout; other negative values are wrong and left to the doctor
    wait = None if float(words[2]) == -1 else microseconds(words[2])
    runtime = None if float(words[3]) == -1 else microseconds(words[3])
    # a job that was cancelled while it waited has neither; its wait is the time until then
    never = runtime is None and _positive(words[4]) is None
    start = None if wait is None or never else submit + wait
    procs = _positive(words[7]) or _positive(words[4])
    memory_kb = _positive(words[9]) or _positive(words[6])
    estimate = _positive(words[8])
    return TaskRow(
        job=None if words[0] == "-1" else words[0],
        task="0",
        user=None if words[11] == "-1" else words[11],
        submit_us=submit,
        start_us=start,
        end_us=None if start is None or runtime is None else start + runtime,
        runtime_us=runtime,
        estimate_us=None if estimate is None else round(estimate * SECOND),
        cpu_milli=None if procs is None else procs * 1000,
        memory_mb=None if memory_kb is None or procs is None else memory_kb * procs / 1024,
        status=STATUS.get(words[10]),
        line=number,
    )


SWF: Final = Format(
    "swf", "SWF", fits, rows=read,
    remarks=(
        "-1 is unknown; a job of n processors is one task that asks for n cores",
        "a preceding job (field 17) is a job of its own here and is not read",
    ),
)  # fmt: skip
