"""The canonical trace table: one row per task, or per group of equal tasks, in a parquet file of a documented schema.

A value that a source does not have is null, never 0. The file is written and read in row groups, so that memory does
not grow with its length. The manifest, in the file's key-value metadata, states its source and the changes
(docs/reference/trace-table.md).
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from volery.core.errors import InputError
from volery.core.limits import Limits
from volery.core.model import PREFERS_RACK, REQUIRES_RACK
from volery.workload.files import atomic_output

VERSION: Final = 6
"""The version of the schema; tables of earlier ones, which have fewer columns, are read, too."""
BATCH_ROWS: Final = 1 << 16
MANIFEST_KEY: Final = b"volery.manifest"
VERSION_KEY: Final = b"volery.trace_table"

SCHEMA: Final = pa.schema(
    [
        pa.field("job", pa.string()),
        pa.field("task", pa.string()),
        pa.field("user", pa.string()),
        pa.field("submit_us", pa.int64()),
        pa.field("start_us", pa.int64()),
        pa.field("end_us", pa.int64()),
        pa.field("runtime_us", pa.int64()),
        pa.field("estimate_us", pa.int64()),
        pa.field("instances", pa.int64()),
        pa.field("cpu_milli", pa.float64()),
        pa.field("cpu_share", pa.float64()),
        pa.field("memory_mb", pa.float64()),
        pa.field("memory_share", pa.float64()),
        pa.field("disk_mb", pa.float64()),
        pa.field("disk_share", pa.float64()),
        pa.field("gpu_milli", pa.float64()),
        pa.field("parents", pa.list_(pa.string())),
        pa.field("constraints", pa.list_(pa.string())),
        pa.field("status", pa.string()),
        pa.field("line", pa.int64()),
        pa.field("replicas", pa.list_(pa.int32())),
        pa.field("priority", pa.int64()),
        pa.field("deadline_us", pa.int64()),
        pa.field("task_submit_us", pa.int64()),
        pa.field("left_out", pa.string()),
        pa.field("changed", pa.string()),
        pa.field("limit_us", pa.int64()),
        pa.field("gang_tasks", pa.int64()),
        pa.field("gang_nodes", pa.int64()),
        pa.field("group", pa.string()),
        pa.field("partition", pa.string()),
        pa.field("gang_rack", pa.string()),
    ],
    metadata={VERSION_KEY: str(VERSION).encode()},
)
OMISSIONS: Final = ("left_out", "changed")
"""Columns of what a reader omits; null is no lack of the source."""
GANG_COLUMNS: Final = ("gang_tasks", "gang_nodes")
"""Columns of jobs whose tasks run only together."""
RIGID_JOBS: Final = ("limit_us", *GANG_COLUMNS, "group", "partition")
"""Columns of what jobs of clusters with gangs state."""
SINCE: Final = (
    {"replicas": 2, "priority": 3, "deadline_us": 3, "task_submit_us": 3}
    | dict.fromkeys(OMISSIONS, 4)
    | dict.fromkeys(RIGID_JOBS, 5)
    | {"gang_rack": 6}
)
"""Columns that came after version 1, and with which."""
AS_NEAR: Final = (1000, 1000)
RACK_WISHES: Final = {"prefer": PREFERS_RACK, "require": REQUIRES_RACK}
"""Words of `gang_rack` -> `volery.core.model.Gang.rack`."""
STATUSES: Final = ("finished", "failed", "killed", "evicted", "lost", "running", "waiting")


class TaskRow(msgspec.Struct, gc=False):
    """A row of the table; None is a value that the source does not have.

    Args:
        job, task: ids as the source has them; a source of one task per job gives the task `0`.
        user: name of the user who submitted the job.
        submit_us, start_us, end_us: microseconds on the source's clock.
        runtime_us: time for which one instance ran, microseconds.
        estimate_us: estimate of the runtime that the scheduler had, microseconds.
        instances: equal tasks that the row stands for.
        cpu_milli, memory_mb, disk_mb, gpu_milli: what one instance asks for: thousandths of a core or GPU, 2**20 bytes.
        cpu_share, memory_share, disk_share: the same where the source gives shares of its largest machine.
        parents: tasks of the same job that must finish before; empty: none.
        constraints: conditions on the machine, as the source writes them; empty: none.
        status: one of `STATUSES`.
        line: number of the row's line in the source, from 1.
        replicas: numbers of the machines that hold the input; empty: it has none.
        priority: priority of its job, larger is more urgent.
        deadline_us: time by which its job should be done, microseconds on the source's clock.
        task_submit_us: time of submission of the task itself, where the source has one per task.
        left_out: the reason of the reader for a row that must not be replayed; the row is counted.
        changed: the difference from the source, of a row that is replayed otherwise than the source states.
        limit_us: wall-clock limit of its job, microseconds; a limit of 0 or less is a defect.
        gang_tasks: count of equal tasks that share what one instance asks for, and run only together.
        gang_nodes: count of machines over which the job's tasks are spread, which run only together; 0: any
            machines; null with no count of tasks: each task runs for itself.
        group, partition: group of the user, and part of the machines that the job was submitted to.
        gang_rack: one of `RACK_WISHES`, where tasks that run only together are to lie in one rack.
    """

    job: str | None = None
    task: str | None = None
    user: str | None = None
    submit_us: int | None = None
    start_us: int | None = None
    end_us: int | None = None
    runtime_us: int | None = None
    estimate_us: int | None = None
    instances: int | None = 1
    cpu_milli: float | None = None
    cpu_share: float | None = None
    memory_mb: float | None = None
    memory_share: float | None = None
    disk_mb: float | None = None
    disk_share: float | None = None
    gpu_milli: float | None = None
    parents: list[str] | None = None
    constraints: list[str] | None = None
    status: str | None = None
    line: int | None = None
    replicas: list[int] | None = None
    priority: int | None = None
    deadline_us: int | None = None
    task_submit_us: int | None = None
    left_out: str | None = None
    changed: str | None = None
    limit_us: int | None = None
    gang_tasks: int | None = None
    gang_nodes: int | None = None
    group: str | None = None
    partition: str | None = None
    gang_rack: str | None = None


class Repair(msgspec.Struct, frozen=True):
    """A repair: the rule of the defect, the action, and the number of rows."""

    rule: str
    action: str
    rows: int


class TableManifest(msgspec.Struct, frozen=True):
    """The origin of a table, and the repairs that were made.

    Args:
        version: version of the schema.
        source: name of the file or folder that was read.
        sha256: digest of its bytes; of a folder, those of its parts one after another.
        format: name of the reader.
        made_by: program and version.
        remarks: known oddities of the format.
        noticed: oddities that the reader passed over or could not decide, with counts.
        rows_read: rows that the reader gave.
        rows: rows of this table.
        found: rule of the doctor -> rows of the source that break it.
        repairs: repairs in the order of the rules.
        left: rule -> rows of this table that break it.
        far_permille: duration of tasks in a rack that holds their input, and elsewhere: thousandths of their runtime.
        limits: use of the limits by a run that is not told otherwise; a log of work that ran says `ignore`.
    """

    version: int
    source: str
    sha256: str
    format: str
    made_by: str
    remarks: tuple[str, ...] = ()
    noticed: dict[str, int] = {}
    rows_read: int = 0
    rows: int = 0
    found: dict[str, int] = {}
    repairs: tuple[Repair, ...] = ()
    left: dict[str, int] = {}
    far_permille: tuple[int, int] = AS_NEAR
    limits: Limits = "enforce"


def columns_of(version: int) -> pa.Schema:
    """The columns of a version of the table, without metadata."""
    return pa.schema([field for field in SCHEMA if SINCE.get(field.name, 1) <= version])


def batches(rows: Iterable[TaskRow]) -> Iterator[pa.RecordBatch]:
    """The rows as columns, 65,536 at a time."""
    iterator = iter(rows)
    while part := list(itertools.islice(iterator, BATCH_ROWS)):
        columns = [pa.array([getattr(row, field.name) for row in part], type=field.type) for field in SCHEMA]
        yield pa.RecordBatch.from_arrays(columns, schema=SCHEMA)


def rows_of(batch: pa.RecordBatch) -> Iterator[TaskRow]:
    """The rows of a batch again."""
    for values in zip(*(batch.column(name).to_pylist() for name in SCHEMA.names), strict=True):
        yield TaskRow(*values)


class TableWriter:
    """A table being written: rows first, the manifest last."""

    def __init__(self, writer: Any) -> None:
        self._writer = writer
        self.rows = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Append rows, as a row group of their own."""
        self._writer.write_batch(batch)
        self.rows += batch.num_rows

    def finish(self, manifest: TableManifest) -> None:
        """Write the manifest; no rows may follow."""
        self._writer.add_key_value_metadata({MANIFEST_KEY: msgspec.json.encode(manifest)})


@contextmanager
def table_output(path: Path, *, force: bool = False) -> Iterator[TableWriter]:
    """A table that appears under its name only when it is whole.

    Raises:
        InputError: the file exists and `force` is off, or it cannot be written.
    """
    with (
        atomic_output(path, force=force) as raw,
        pq.ParquetWriter(raw, SCHEMA, compression="zstd", write_page_checksum=True) as writer,
    ):
        yield TableWriter(writer)


def is_table(path: Path) -> bool:
    """True for a canonical table, by its content."""
    try:
        return VERSION_KEY in (pq.read_schema(path).metadata or {})
    except (OSError, pa.ArrowInvalid):
        return False


def read_table(path: Path) -> Iterator[pa.RecordBatch]:
    """The rows of a canonical table, a part at a time.

    Raises:
        InputError: the file is no canonical table, one of another version, or damaged.
    """
    with _opened(path) as file:
        try:
            present = set(file.schema_arrow.names)
            for batch in file.iter_batches(BATCH_ROWS, columns=[name for name in SCHEMA.names if name in present]):
                # Tables of earlier versions lack columns: nothing is known in them.
                missing = [pa.nulls(batch.num_rows, field.type) for field in SCHEMA if field.name not in present]
                yield pa.RecordBatch.from_arrays([*batch.columns, *missing], schema=SCHEMA)
        except (OSError, pa.ArrowInvalid) as error:
            raise InputError(str(path), f"is damaged ({_first_line(error)}); convert the source again") from None


def states_gangs(path: Path) -> bool:
    """True if some row of a table states a gang.

    Raises:
        InputError: the file is no table.
    """
    with _opened(path) as file:
        names = [name for name in GANG_COLUMNS if name in file.schema_arrow.names]
        parts = file.iter_batches(columns=names) if names else ()
        return any(part.column(name).null_count < part.num_rows for part in parts for name in names)


def manifest_of(path: Path) -> TableManifest:
    """The manifest of a canonical table; of one that was written without, an empty manifest of version 0.

    Raises:
        InputError: the file is no table, or has a manifest that cannot be read.
    """
    with _opened(path) as file:
        raw = (file.metadata.metadata or {}).get(MANIFEST_KEY)
    if raw is None:
        return TableManifest(0, path.name, "", "table", "")
    try:
        return msgspec.json.decode(raw, type=TableManifest)
    except (msgspec.ValidationError, msgspec.DecodeError) as error:
        raise InputError(str(path), f"has a manifest that cannot be read ({error}); convert the source again") from None


@contextmanager
def _opened(path: Path) -> Iterator[Any]:
    try:
        file = pq.ParquetFile(path, page_checksum_verification=True)
    except FileNotFoundError:
        raise InputError(str(path), "no such file; check the path") from None
    except (OSError, pa.ArrowInvalid) as error:
        problem = f"is no parquet file that can be read ({_first_line(error)}); check that it was copied whole"
        raise InputError(str(path), problem) from None

    with file:
        schema = file.schema_arrow
        version = (schema.metadata or {}).get(VERSION_KEY)
        number = int(version) if version is not None and version.isdigit() else 0

        if not 1 <= number <= VERSION:
            problem_found = f"is a trace table of version {version.decode()}" if version else "is no trace table"
            lacks = "" if version else f": its metadata have no {VERSION_KEY.decode()}{_differences(schema, VERSION)}"
            raise InputError(
                str(path), f"{problem_found}{lacks}; make one of version {VERSION} with `volery trace convert`"
            )

        # Metadata differ from writer to writer; the columns alone count.
        if not schema.remove_metadata().equals(columns_of(number)):
            problem = f"has other columns than its version {number}{_differences(schema, number)}"
            raise InputError(str(path), f"{problem}; convert the source again")

        yield file


def _differences(schema: pa.Schema, version: int) -> str:
    """The columns that a file lacks, has beside those of a version, or has in another type; empty: their order."""
    version_columns = columns_of(version)

    parts = {
        "it lacks {}": [name for name in version_columns.names if name not in schema.names],
        "{} are of another version": [name for name in schema.names if name not in version_columns.names],
        "{} have another type": [
            f"{field.name} ({schema.field(field.name).type}, not {field.type})"
            for field in version_columns
            if field.name in schema.names and schema.field(field.name).type != field.type
        ],
    }
    return "".join(f", {text.format(', '.join(names))}" for text, names in parts.items() if names)


def _first_line(error: Exception) -> str:
    return (str(error).splitlines() or [""])[0]
