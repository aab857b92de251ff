"""The Workflow Trace Archive's tasks in parquet (schema 1.0): one file, or a folder of parts; times in milliseconds.

-1 is unknown. Columns differ in type from trace to trace; they are cast. The archive's ids are numbers that name a task
in its workflow.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.workload.formats.source import Format, Head, Noticed, parquet_parts
from volery.workload.table import BATCH_ROWS, SCHEMA

NEEDED: Final = frozenset({"id", "workflow_id", "ts_submit", "runtime", "parents"})
MILLISECOND: Final = 1000
"""Microseconds in one."""
CORES: Final = ("core", "cpu", "thread", "cores", "cpus", "threads")


def fits(head: Head) -> bool:
    """By the names of its columns."""
    return head.columns >= NEEDED


def read(path: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
    """The tasks of a file or folder, a part at a time.

    Raises:
        InputError: a part cannot be read, or a column holds what it must not.
    """
    row = 0
    for part in parquet_parts(path):
        try:
            with pq.ParquetFile(part) as file:
                for batch in file.iter_batches(BATCH_ROWS):
                    yield _canonical(batch, row, noticed)
                    row += batch.num_rows
        except (OSError, pa.ArrowInvalid, KeyError) as error:
            problem = (str(error).splitlines() or [""])[0]
            raise InputError(f"{part}:{row + 1}", f"is no part of a WTA trace: {problem}; fetch it again") from None


def _canonical(batch: pa.RecordBatch, row: int, noticed: Noticed) -> pa.RecordBatch:
    rows = batch.num_rows
    columns: dict[str, Any] = {}

    def known(name: str, kind: Any) -> Any:
        if name not in batch.schema.names:
            return pa.nulls(rows, kind)
        values = pc.cast(batch.column(name), kind)
        return pc.if_else(pc.equal(values, pa.scalar(-1, kind)), pa.scalar(None, kind), values)

    def scaled(name: str) -> Any:
        return pc.multiply_checked(known(name, pa.int64()), MILLISECOND)

    columns["job"] = pc.cast(batch.column("workflow_id"), pa.string())
    columns["task"] = pc.cast(batch.column("id"), pa.string())
    columns["user"] = pc.cast(known("user_id", pa.int64()), pa.string())
    columns["submit_us"] = pc.multiply_checked(pc.cast(batch.column("ts_submit"), pa.int64()), MILLISECOND)
    columns["task_submit_us"] = columns["submit_us"]
    columns["runtime_us"] = scaled("runtime")
    columns["start_us"] = pc.add(columns["submit_us"], scaled("wait_time"))
    columns["end_us"] = pc.add(columns["start_us"], columns["runtime_us"])
    columns["cpu_milli"] = pc.multiply(_cores(batch, known("resource_amount_requested", pa.float64()), noticed), 1000.0)
    columns["parents"] = pc.cast(pc.cast(batch.column("parents"), pa.list_(pa.int64())), pa.list_(pa.string()))
    columns["instances"] = pa.array([1] * rows, pa.int64())
    columns["line"] = pa.array(range(row + 1, row + rows + 1), pa.int64())
    return pa.RecordBatch.from_arrays(
        [columns.get(field.name, pa.nulls(rows, field.type)) for field in SCHEMA], schema=SCHEMA
    )


def _cores(batch: pa.RecordBatch, amount: Any, noticed: Noticed) -> Any:
    """Requested amounts of processors; None where the resource is another."""
    if "resource_type" not in batch.schema.names:
        return amount
    kinds = pc.utf8_lower(pc.cast(batch.column("resource_type"), pa.string()))
    processors = pc.fill_null(pc.is_in(kinds, value_set=pa.array(CORES)), False)
    if others := batch.num_rows - (pc.sum(processors).as_py() or 0):
        noticed["rows whose resource is no processor; its amount is not read"] += others
    return pc.if_else(processors, amount, pa.scalar(None, pa.float64()))


WTA: Final = Format(
    "wta", "WTA", fits, batches=read,
    remarks=(
        "-1 is unknown; times are milliseconds; submissions may all be 0, and arrivals must then be added",
        "memory, disk, network, energy and the parameters of tasks are not read",
    ),
)  # fmt: skip
