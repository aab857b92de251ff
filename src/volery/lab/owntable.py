"""A table in memory as a trace: its columns are those of the trace table, and a file of that format holds it."""

from __future__ import annotations

import atexit
import hashlib
import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

import volery
from volery.core.errors import InputError, suggestion
from volery.core.model import SECOND
from volery.study.results import replacing
from volery.workload.table import SCHEMA, VERSION, TableManifest, is_table, table_output

STREAM: Final = "__arrow_c_stream__"
OF_READERS: Final = frozenset({"line", "left_out", "changed"})
"""Columns that a reader of a format writes."""
IN_SECONDS: Final = {field.name.removesuffix("us") + "s": field.name for field in SCHEMA if field.name.endswith("_us")}
KNOWN: Final = [*(field.name for field in SCHEMA if field.name not in OF_READERS), *IN_SECONDS]
RUNTIMES: Final = frozenset({"runtime_us", "end_us"})
SOURCE: Final = "a table in memory"
INPUTS: Final = "inputs"
"""Folder of such tables in a folder of results."""


def is_arrow(source: object) -> bool:
    """True for an object with an Arrow stream."""
    return hasattr(source, STREAM)


def table_file(source: Any, into: Path | None) -> Path:
    """A trace table with the rows of a table in memory.

    Args:
        source: object with an Arrow stream.
        into: file to write; an earlier trace table of that name is replaced. None: a file that is removed when the
            program ends.

    Raises:
        InputError: a column is unknown, missing or of a wrong type, or the file cannot be written.
    """
    rows = _in_schema(_arrow(source))
    path = into if into is not None else _folder() / f"table-{_digest(rows)[:12]}.parquet"
    if into is None and path.exists():
        return path
    if path.exists() and not is_table(path):
        raise InputError("into", f"{path} exists, and is no trace table; give another name")

    batches = rows.combine_chunks().to_batches()
    with table_output(path, force=True) as output:
        for batch in batches:
            output.add(batch)
        output.finish(TableManifest(VERSION, SOURCE, "", "table", f"volery {volery.__version__}", rows=rows.num_rows))
    return path


@cache
def _folder() -> Path:
    """The folder of tables that last as long as the program."""
    folder = tempfile.mkdtemp(prefix="volery-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return Path(folder)


@contextmanager
def kept_tables(folder: Path | None, *fields: dict[str, Any]) -> Iterator[None]:
    """Keep tables in memory beside the results that they lead to, under names that the same tables always have.

    Args:
        folder: folder of results; None: the tables stay where they are.
        fields: values by field, or lists of them; a trace among them becomes that of the folder.

    Raises:
        InputError: a table cannot be written. After any error of the study, tables that are new vanish again.
    """
    new_files: list[Path] = []

    def kept(trace: Any) -> Any:
        file = Path(str(trace))
        if folder is None or file.parent != _folder():
            return trace
        kept_file = folder / INPUTS / file.name
        if not kept_file.exists():
            with replacing(kept_file) as unfinished:
                kept_file.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, unfinished)
            new_files.append(kept_file)
        return str(kept_file)

    try:
        for values in fields:
            for name in {"trace", "axes.trace"} & values.keys():
                trace = values[name]
                values[name] = [kept(part) for part in trace] if isinstance(trace, list) else kept(trace)
        yield
    except InputError:
        for file in new_files:
            file.unlink(missing_ok=True)
            with suppress(OSError):
                file.parent.rmdir()
        raise


def _digest(rows: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as stream:
        stream.write_table(rows.combine_chunks())
    return hashlib.sha256(sink.getvalue()).hexdigest()


def _arrow(source: Any) -> pa.Table:
    try:
        table = source if isinstance(source, pa.Table) else pa.table(source)
    except (pa.ArrowException, TypeError, ValueError) as error:
        raise InputError("source", f"is no table that Arrow can read: {error}") from None
    if not table.num_rows:
        raise InputError("source", "has no row; give a row per task, or per group of equal tasks")
    return table


def _in_schema(table: pa.Table) -> pa.Table:
    """The columns of a table as those of the trace table, in its units.

    Raises:
        InputError: naming the column, and the first row where one value is wrong.
    """
    columns_given: dict[str, Any] = {}
    for name in table.column_names:
        if name not in KNOWN or table.column_names.count(name) > 1:
            hint = "stands there twice" if name in KNOWN else f"is none of a trace table{suggestion(name, KNOWN)}"
            raise InputError("source", f"column {name!r} {hint}; rename or drop it")
        target = IN_SECONDS.get(name, name)
        if target in columns_given:
            raise InputError("source", f"{target!r} is given in seconds, too; drop column {name!r}")
        columns_given[target] = _cast(table.column(name), name, SCHEMA.field(target).type)

    if "submit_us" not in columns_given and "task_submit_us" not in columns_given:
        raise InputError("source", "has no column 'submit_s' (or submit_us): the time of submission")
    if not RUNTIMES & columns_given.keys():
        raise InputError("source", "has no column 'runtime_s' (or runtime_us; or start_s and end_s)")

    _check_submissions(columns_given)
    count = table.num_rows
    numbers = pa.array([str(number) for number in range(count)], pa.string())
    defaults = {"job": numbers, "task": numbers, "instances": pa.repeat(pa.scalar(1, pa.int64()), count)}
    defaults |= {"line": pa.array(range(1, count + 1), pa.int64())}
    columns = [
        columns_given[field.name]
        if field.name in columns_given
        else defaults.get(field.name, pa.nulls(count, field.type))
        for field in SCHEMA
    ]
    return pa.Table.from_arrays(columns, schema=SCHEMA)


def _check_submissions(columns: Mapping[str, Any]) -> None:
    """Refuse a submission before the time 0, and two of one job.

    Raises:
        InputError: naming the first row.
    """
    for target in {"submit_us", "task_submit_us"} & columns.keys():
        if (row := pc.index(pc.less(columns[target], 0), True).as_py()) >= 0:
            place, seconds = f"source, row {row}", columns[target][row].as_py() / SECOND
            raise InputError(
                place,
                f"{target.removesuffix('us')}s is {seconds:g}; subtract the earliest time from all",
            )

    if not {"job", "submit_us"} <= columns.keys():
        return
    first: dict[Any, int] = {}
    for row, job_and_time in enumerate(zip(*(columns[name].to_pylist() for name in ("job", "submit_us")), strict=True)):
        job, submit_us = job_and_time
        if submit_us is not None and first.setdefault(job, submit_us) != submit_us:
            problem = f"job {job!r} has another submit_s than in its rows before; give its tasks' own as task_submit_s"
            raise InputError(f"source, row {row}", problem)


def _cast(column: Any, name: str, kind: pa.DataType) -> Any:
    """The column in the type of the trace table; seconds become microseconds.

    Raises:
        InputError: naming column and row.
    """
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    if pa.types.is_floating(column.type):
        is_wrong = pc.invert(pc.is_finite(column))
        row = pc.index(is_wrong, True).as_py()
        if row >= 0:
            raise InputError(f"source, row {row}", f"{name} is {column[row].as_py()}; give a finite number, or null")
    try:
        if name in IN_SECONDS:
            column = pc.round(pc.multiply(column.cast(pa.float64()), float(SECOND)))
        return column.cast(kind)
    except (pa.ArrowException, NotImplementedError) as error:
        problem = f"column {name!r} is {column.type}, and not all of it fits {kind}: {str(error).splitlines()[0]}"
        raise InputError("source", f"{problem}; give numbers or texts of that kind") from None
