"""Formats of public archives: SWF, GWF, and the Workflow Trace Archive (WTA).

SWF, the Standard Workload Format (Feitelson's Parallel Workloads Archive, version 2.2), has 18 fields; -1 is unknown. A
job is a row that asks for all its processors, which its tasks, one for each, share: they run only together. Memory is
per processor in the file, in kilobytes; per job here.

GWF, as the reference architecture's traces have it, has seven fields: WorkflowID, JobID, SubmitTime, RunTime, NProcs,
ReqNProcs, Dependencies (blank-separated); times in seconds (Versluis et al., SC 2018). What the file calls a workflow
is a job here, and what it calls a job is a task.

WTA's tasks are in parquet (schema 1.0): one file, or a folder of parts; times in milliseconds, -1 is unknown. Columns
differ in type from trace to trace; they are cast. The archive's ids are numbers that name a task in its workflow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.core.model import SECOND
from volery.workload.files import numbered_lines
from volery.workload.formats.source import (
    AMOUNT_END,
    UNKNOWN_STATUS,
    Format,
    Head,
    Noticed,
    always,
    amount,
    is_number,
    known,
    microseconds,
    parquet_parts,
    place,
    real,
    table_rows,
)
from volery.workload.table import BATCH_ROWS, SCHEMA, TaskRow

SWF_FIELDS: Final = 18
SWF_STATUS: Final = {"0": "failed", "1": "finished", "2": "running", "3": "finished", "4": "failed", "5": "killed"}
SWF_SLACK: Final = 4
"""Fields too many or too few, or no numbers, with which a row still looks like one."""
SWF_SIZE: Final = re.compile(r";\s*(MaxProcs|MaxNodes)\s*:\s*(\d{1,9})\b")
SWF_PARTS: Final = ("2", "3", "4")
"""Statuses of rows that repeat a part of a job that was checkpointed, which may have a row of its own."""
UNLIKE_PARTS: Final = "a checkpointed job of which a part has other processors or no runtime; the first's count"


def fits_swf(head: Head) -> bool:
    """Comments begin with `;`; rows have 18 numbers."""
    rows = [line.split() for line in head.lines if not line.startswith(";")]
    return (
        bool(head.lines)
        and all(len(row) == SWF_FIELDS and all(map(is_number, row)) for row in rows)
        and (bool(rows) or all(line.startswith(";") for line in head.lines))
    )


def like_swf(line: str) -> bool:
    """A comment, or a row of about as many fields of which most are numbers."""
    words = line.split()
    is_row = abs(len(words) - SWF_FIELDS) <= SWF_SLACK and sum(map(is_number, words)) >= SWF_FIELDS - SWF_SLACK
    return line.startswith(";") or is_row


def _number(text: str) -> float | None:
    """A field of a row; None where it is unknown: -1, or not-a-number, which other programs write."""
    if text == "-1":
        return None
    value = real(text)
    return None if value == -1 or value != value else value


def _positive(text: str) -> float | None:
    value = _number(text)
    if value is None:
        return None
    if not abs(value) < AMOUNT_END:
        raise ValueError(f"{text!r} is no amount")
    return value if value > 0 else None


def _whole(text: str) -> str | None:
    """A number that stands for something, as text without a fraction; None where it is unknown."""
    if text.isdigit() or not is_number(text):
        return text
    value = _number(text)
    return None if value is None else str(int(value)) if value == value // 1 else text


def _time(text: str) -> int | None:
    """A time; other negative values than -1 are wrong and left to the doctor."""
    value = _number(text)
    return None if value is None else microseconds(value)


def read_swf(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The jobs of a file, plain or gzip-compressed.

    A part of a checkpointed job repeats what the job's own row states, and is passed over. The parts of a job that has
    no such row are read as the row that the format prescribes for them.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    alone: dict[int | None, list[TaskRow]] | None = None
    for row, is_part in _swf_rows(path, noticed):
        if not is_part or row.job is None:  # a part of an unknown job repeats no row
            yield row
            continue
        if alone is None:  # few files have parts, so only these are read twice
            alone = _parts_alone(path, noticed)
        if row.line in alone:
            yield _whole_of(alone[row.line])


def _swf_rows(path: Path, noticed: Noticed) -> Iterator[tuple[TaskRow, bool]]:
    """The rows of a file, and of each whether it is a part of a job."""
    for number, line in numbered_lines(path):
        words = line.decode("utf-8", "replace").split()
        if not words or words[0].startswith(";"):
            continue

        with place(path, number, "SWF"):
            if len(words) != SWF_FIELDS:
                raise ValueError(_wrong_width(words))
            status = _whole(words[10])
            row = _swf_row(words, number, SWF_STATUS.get(status or ""))

        if row.status is None and status is not None:
            noticed[UNKNOWN_STATUS] += 1

        yield row, status in SWF_PARTS


def _wrong_width(words: list[str]) -> str:
    if words[0].startswith("#"):
        return "a comment that begins with '#' where one begins with ';'"
    beyond = f", and field {SWF_FIELDS + 1} is {words[SWF_FIELDS]!r}" if len(words) > SWF_FIELDS else ""
    return f"{len(words)} fields where there are {SWF_FIELDS}{beyond}"


def _parts_alone(path: Path, noticed: Noticed) -> dict[int | None, list[TaskRow]]:
    """The parts of each job that has no row of its own, by the line of its first part.

    Only the first part of a job has a submission; one with another submission is of another job of that number.
    """
    parts: dict[str | None, list[list[TaskRow]]] = {}
    jobs_with_rows: set[str | None] = set()

    for row, is_part in _swf_rows(path, Noticed()):
        if row.job is None:
            continue

        if not is_part:
            jobs_with_rows.add(row.job)
            continue

        jobs = parts.setdefault(row.job, [])
        if jobs and row.submit_us in (None, jobs[-1][0].submit_us):
            jobs[-1].append(row)
        else:
            jobs.append([row])

    parts_alone = [rows for job, jobs in parts.items() if job not in jobs_with_rows for rows in jobs]
    repeats = sum(len(rows) for job, jobs in parts.items() if job in jobs_with_rows for rows in jobs)
    noticed["rows of a part of a checkpointed job, passed over"] += repeats
    noticed["jobs of which only parts have rows"] += len(parts_alone)

    return {rows[0].line: rows for rows in parts_alone}


def _whole_of(parts: list[TaskRow]) -> TaskRow:
    """The row of a job that was checkpointed: its runtime is the sum of its parts, without the time between them."""
    last = parts[-1]
    runtimes = [row.runtime_us for row in parts if row.runtime_us is not None]
    runtime_us = sum(runtimes) if runtimes else None
    is_alike = len(runtimes) == len(parts) and len({row.cpu_milli for row in parts}) == 1
    changed = None if is_alike else UNLIKE_PARTS
    return msgspec.structs.replace(
        parts[0], end_us=last.end_us, runtime_us=runtime_us, status=last.status, changed=changed
    )


def _swf_row(words: list[str], number: int, status: str | None) -> TaskRow:
    submit, wait, runtime = (_time(word) for word in words[1:4])
    # a job that was cancelled while it waited has neither; its wait is the time until then

    has_not_run = runtime is None and _positive(words[4]) is None
    start = None if submit is None or wait is None or has_not_run else submit + wait

    procs = _positive(words[7]) or _positive(words[4])
    # only what was requested: field 7 is what the job was measured to use
    memory_kb = _positive(words[9])
    estimate = _positive(words[8])
    limit = _number(words[8])
    preceding = _positive(words[16])

    return TaskRow(
        job=_whole(words[0]),
        task="0",
        user=_whole(words[11]),
        submit_us=submit,
        start_us=start,
        end_us=None if start is None or runtime is None else start + runtime,
        runtime_us=runtime,
        estimate_us=None if estimate is None else round(estimate * SECOND),
        cpu_milli=None if procs is None else procs * 1000,
        memory_mb=None if memory_kb is None or procs is None else memory_kb * procs / 1024,
        parents=None if preceding is None else [f"job {preceding:g}"],
        status=status,
        line=number,
        limit_us=None if limit is None else round(limit * SECOND),
        gang_tasks=int(procs) if procs is not None and procs > 1 and procs == procs // 1 else None,
    )


def _swf_processors(head: Head) -> int | None:
    """`MaxProcs` of the comments, or where it is not stated `MaxNodes`, which it equals by default."""
    stated = {size_line[1]: int(size_line[2]) for line in head.lines if (size_line := SWF_SIZE.match(line))}
    return stated.get("MaxProcs") or stated.get("MaxNodes") or None


SWF: Final = Format(
    "swf",
    "SWF",
    fits_swf,
    rows=read_swf,
    like=like_swf,
    processors=_swf_processors,
    has_gangs=always,
    remarks=(
        "-1 is unknown; a job of n processors is n tasks that run only together, or with --gangs task one task",
        "processors are the requested ones, or else the allocated ones; memory that was used is no request",
        "a preceding job (field 17) is a job of its own here, and is not waited for",
        "the requested time (field 9) is the estimate of a job and its limit, which a run enforces on request",
    ),
)


GWF_COLUMNS: Final = frozenset({"WorkflowID", "JobID", "SubmitTime", "RunTime", "NProcs", "ReqNProcs", "Dependencies"})


def _processors(text: str) -> float | None:
    """None where it is not above 0: unknown."""
    return None if real(text) <= 0 else amount(text)


def read_gwf(path: Path, noticed: Noticed) -> Iterator[TaskRow]:
    """The tasks of a file, plain or gzip-compressed.

    Raises:
        InputError: a row is wrong; the message names the line.
    """
    without_parents = 0
    for number, row in table_rows(path, sorted(GWF_COLUMNS), header=GWF_COLUMNS):
        with place(path, number, "GWF"):
            processors = _processors(row["ReqNProcs"]) or _processors(row["NProcs"])
            parents = row["Dependencies"].split()
            without_parents += not parents

            submit = _time(row["SubmitTime"])
            row_made = TaskRow(
                job=f"task {row['JobID']}" if row["WorkflowID"] == "-1" else known(row["WorkflowID"]),
                task=known(row["JobID"]),
                submit_us=submit,
                runtime_us=_time(row["RunTime"]),
                cpu_milli=None if processors is None else processors * 1000,
                parents=[parent for parent in parents if parent != "-1"],
                line=number,
                task_submit_us=submit,
            )

        yield row_made
    noticed["tasks without parents"] += without_parents


GWF: Final = Format(
    "gwf",
    "GWF",
    lambda head: head.names() >= GWF_COLUMNS,
    rows=read_gwf,
    columns=GWF_COLUMNS,
    remarks=("times are whole seconds; a WorkflowID is a job here and a JobID a task, which is one where it has none",),
)


WTA_COLUMNS: Final = frozenset({"id", "workflow_id", "ts_submit", "runtime", "parents"})
MILLISECOND: Final = 1000
"""Microseconds in one."""
WTA_PROCESSORS: Final = ("core", "cpu", "thread", "cores", "cpus", "threads")
OTHER_RESOURCE: Final = "a request of a resource that is no processor, which is not read"


def read_wta(path: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
    """The tasks of a file or folder, a part at a time.

    Raises:
        InputError: a part cannot be read, or a column holds what it must not.
    """
    unstated = _waits_of_children_alone(path)
    noticed["waits that only children of the parents state"] += sum(map(len, unstated.values()))

    row = 0
    for part, batch in _wta_parts(path):
        with _wta_place(part, row):
            part_rows = _wta_batch(batch, row, noticed)

        yield _with_waits(part_rows, unstated) if unstated else part_rows
        row += batch.num_rows


def _wta_parts(path: Path, columns: list[str] | None = None) -> Iterator[tuple[Path, pa.RecordBatch]]:
    """The rows of all parts, and the part of each batch."""
    row = 0
    for part in parquet_parts(path):
        with _wta_place(part, row), pq.ParquetFile(part) as file:
            for batch in file.iter_batches(BATCH_ROWS, columns=columns):
                yield part, batch
                row += batch.num_rows


@contextmanager
def _wta_place(part: Path, row: int) -> Iterator[None]:
    """Name the part and the row of what is wrong.

    Raises:
        InputError: instead of an error of the columns.
    """
    try:
        yield
    except (OSError, pa.ArrowException, KeyError) as error:
        problem = (str(error).splitlines() or [""])[0]
        raise InputError(f"{part}:{row + 1}", f"is no part of a WTA trace: {problem}; fetch it again") from None


def _waits_of_children_alone(path: Path) -> dict[tuple[str, str], list[str]]:
    """Workflow and task -> tasks that it waits for only by their `children`; empty where `parents` states as many.

    The graph is held in memory only where the two columns differ in the number of waits.
    """
    # The metadata of the parts tell the number of waits without reading the columns.
    names = ["parents", "children"]
    stated = dict.fromkeys(names, 0)

    for part in parquet_parts(path):
        with _wta_place(part, 0):
            metadata = pq.read_metadata(part)
        for name in names:
            stated[name] += _values_in(metadata, name)
    if stated["children"] <= stated["parents"]:
        return {}

    by_parents: set[tuple[str, str, str]] = set()
    by_children: dict[tuple[str, str, str], None] = {}

    for part, batch in _wta_parts(path, ["workflow_id", "id", *names]):
        with _wta_place(part, 0):
            columns = [pc.cast(batch.column(name), pa.string()).to_pylist() for name in ("workflow_id", "id")]
            columns += [_ids(batch.column(name)).to_pylist() for name in names]
        for workflow, task, parents, children in zip(*columns, strict=True):
            by_parents.update((workflow, task, parent) for parent in parents or ())
            by_children.update(dict.fromkeys((workflow, child, task) for child in children or ()))

    unstated: dict[tuple[str, str], list[str]] = {}
    for workflow, child, task in by_children:
        if (workflow, child, task) not in by_parents:
            unstated.setdefault((workflow, child), []).append(task)
    return unstated


def _values_in(metadata: Any, name: str) -> int:
    """The number of values in the lists of a column, at most: a part without statistics counts empty lists, too."""
    values = 0
    groups = (metadata.row_group(number) for number in range(metadata.num_row_groups))

    for chunk in (group.column(number) for group in groups for number in range(group.num_columns)):
        if chunk.path_in_schema.split(".")[0] == name:
            statistics = chunk.statistics
            values += chunk.num_values - (
                statistics.null_count if statistics is not None and statistics.has_null_count else 0
            )
    return values


def _with_waits(batch: pa.RecordBatch, waits: dict[tuple[str, str], list[str]]) -> pa.RecordBatch:
    """The rows of a batch with further tasks that they wait for."""
    names = zip(batch.column("job").to_pylist(), batch.column("task").to_pylist(), strict=True)
    stated = zip(names, batch.column("parents").to_pylist(), strict=True)
    parents = [[*(above or ()), *waits.get(name, ())] for name, above in stated]
    place = SCHEMA.get_field_index("parents")
    return batch.set_column(place, SCHEMA.field(place), pa.array(parents, SCHEMA.field(place).type))


def _ids(column: Any) -> Any:
    """Lists of ids as text; columns of reals are cast, too."""
    return pc.cast(pc.cast(column, pa.list_(pa.int64())), pa.list_(pa.string()))


def _wta_batch(batch: pa.RecordBatch, row: int, noticed: Noticed) -> pa.RecordBatch:
    rows = batch.num_rows
    columns: dict[str, Any] = {}

    def column(name: str, kind: Any) -> Any:
        if name not in batch.schema.names:
            return pa.nulls(rows, kind)
        values = pc.cast(batch.column(name), kind)
        return pc.if_else(pc.equal(values, pa.scalar(-1, kind)), pa.scalar(None, kind), values)

    def scaled(name: str) -> Any:
        return pc.multiply_checked(column(name, pa.int64()), MILLISECOND)

    columns["job"] = pc.cast(batch.column("workflow_id"), pa.string())
    columns["task"] = pc.cast(batch.column("id"), pa.string())
    columns["user"] = pc.cast(column("user_id", pa.int64()), pa.string())
    columns["submit_us"] = scaled("ts_submit")
    columns["task_submit_us"] = columns["submit_us"]
    columns["runtime_us"] = scaled("runtime")
    columns["start_us"] = pc.add(columns["submit_us"], scaled("wait_time"))
    columns["end_us"] = pc.add(columns["start_us"], columns["runtime_us"])

    requested = column("resource_amount_requested", pa.float64())
    cores = _wta_cores(batch, requested, noticed)
    columns["cpu_milli"] = pc.multiply(cores, 1000.0)
    is_other = pc.and_(pc.is_valid(requested), pc.is_null(cores))
    columns["changed"] = pc.if_else(is_other, OTHER_RESOURCE, pa.scalar(None, pa.string()))

    columns["parents"] = _ids(batch.column("parents"))
    columns["instances"] = pa.array([1] * rows, pa.int64())
    columns["line"] = pa.array(range(row + 1, row + rows + 1), pa.int64())

    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA
    )


def _wta_cores(batch: pa.RecordBatch, requested: Any, noticed: Noticed) -> Any:
    """Requested amounts of processors; None where the resource is another."""
    if "resource_type" not in batch.schema.names:
        return requested

    kinds = pc.utf8_lower(pc.cast(batch.column("resource_type"), pa.string()))
    processors = pc.fill_null(pc.is_in(kinds, value_set=pa.array(WTA_PROCESSORS)), False)

    if other_rows := batch.num_rows - (pc.sum(processors).as_py() or 0):
        noticed["rows whose resource is no processor; its amount is not read"] += other_rows

    return pc.if_else(processors, requested, pa.scalar(None, pa.float64()))


WTA: Final = Format(
    "wta",
    "WTA",
    lambda head: head.columns >= WTA_COLUMNS,
    batches=read_wta,
    columns=WTA_COLUMNS,
    remarks=(
        "-1 is unknown; times are milliseconds; submissions may all be 0, and arrivals must then be added",
        "memory, disk, network, energy and the parameters of tasks are not read",
    ),
)
