"""Starts of jobs as a log states them, to hold a simulation of the same jobs against them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa

from volery.core.errors import InputError
from volery.core.model import NEVER
from volery.core.trace import Trace
from volery.workload.formats import format_of, read_source
from volery.workload.formats.source import Noticed
from volery.workload.omissions import Only
from volery.workload.replay import read_tasks

Names = tuple[str, ...]


def recorded_starts(
    source: str, columns: str | None, job_count: int | None, only: Only, resources: Names | None, *, has_gangs: bool
) -> Trace:
    """Read a log so that the deadline of each job is its recorded start.

    A start is that of the last task of its job, on the clock of the arrivals; NEVER: it is unknown.

    Args:
        source: trace file.
        columns, job_count, only, resources, has_gangs: as of `volery.workload.load_workload`, which gives the jobs in
            the same order.

    Raises:
        InputError: it is no file, or no job of it has a start.
    """
    path = Path(source)
    if not path.exists():
        raise InputError(source, "is synthetic work, which nobody has run; name the log of a cluster")
    form = format_of(path, columns=columns)

    # Rows are grouped, sorted and put on the clock of the trace; a column that goes with them needs no code of its own.
    def batches(file: Path, noticed: Noticed) -> Iterator[pa.RecordBatch]:
        for batch in read_source(file, form, noticed):
            place = batch.schema.get_field_index("deadline_us")
            yield batch.set_column(place, batch.schema.field(place), batch.column("start_us"))

    trace, _ = read_tasks(path, form._replace(batches=batches), job_count, only, resources, has_gangs=has_gangs)
    if not any(start_us != NEVER for start_us in trace.deadline_us):
        problem = f"states no starts of jobs ({form.title}); name a log that does, as output of sacct -P or SWF"
        raise InputError(source, problem)
    return trace
