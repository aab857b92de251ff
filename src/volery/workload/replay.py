"""Tasks of any format as a workload to run: rows of one job that are submitted together become one job.

A row stands for `instances` equal tasks. Where memory or processors are given as shares of the largest machine, that is
taken to be a node of 64 cores and 16 GB (Thiyyakat et al., arXiv 2103.08413, section V-B). What cannot be run is passed
over and counted: rows that do not say when they are submitted or how long they run, that did not end well, that begin
before the trace does, or that do not ask for what the others ask for. Workflows are not run yet.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import pyarrow as pa
import pyarrow.compute as pc

from volery.core.errors import InputError
from volery.core.model import AMOUNT_MAX, Amounts
from volery.core.trace import Trace, longs
from volery.workload.formats import read_source
from volery.workload.formats.source import Format, Noticed
from volery.workload.quirks import in_order
from volery.workload.requests import with_requests
from volery.workload.tr import trace_name

NODE_CPU_MILLI: Final = 64_000
NODE_MEMORY_MB: Final = 16_384
"""The largest machine, of which shares are shares."""
REQUESTS_MAX: Final = 1 << 20
RESOURCES: Final = ("cpu_milli", "memory_mb", "gpu_milli")
TABLES_OF_REQUESTS: Final = frozenset({
    "alibaba-2017", "alibaba-2017-means", "alibaba-2018", "google-2011-reduced", "google-2019-usage"
})  # fmt: skip
"""Read for what independent tasks ask for, without users and parents: runs on them keep their digests."""
SUFFIXES: Final = (".csv", ".parquet", ".swf", ".gwf", ".json")


class Passed(msgspec.Struct):
    """What reading left out.

    Args:
        rows: that cannot be run.
        unsorted_rows: that arrive before the row above them.
        dependent_rows: that wait for others, which nothing here heeds.
    """

    rows: int = 0
    unsorted_rows: int = 0
    dependent_rows: int = 0


class _Row(NamedTuple):
    """A row that can be run; the request holds each of the resources."""

    duration_us: int
    estimate_us: int
    instances: int
    request: Amounts
    user: str | None


def read_tasks(
    path: Path, form: Format, job_count: int | None = None, *, workflows: bool = False
) -> tuple[Trace, Passed]:
    """Read the tasks of a file: all of them, or those of the first jobs to begin in it.

    Args:
        path: the file, or folder of parts.
        form: its format.
        job_count: how many jobs.
        workflows: take tasks that wait for others as if they did not, rather than refuse them.

    Raises:
        InputError: the file cannot be read, a row is wrong (the message names the line), or it holds workflows.
    """
    passed, jobs = Passed(), dict[tuple[str, int], list[_Row]]()
    resources: tuple[str, ...] | None = RESOURCES[:2] if form.name in TABLES_OF_REQUESTS else None
    last_us = 0
    for batch in read_source(path, form, Noticed()):
        if form.name not in TABLES_OF_REQUESTS:
            _refuse_workflows(batch, path, passed, workflows)
        if resources is None:
            resources = _resources(batch)
        for job, arrival_us, row in _rows(batch, resources, passed):
            if (job, arrival_us) not in jobs and len(jobs) == job_count:
                break
            jobs.setdefault((job, arrival_us), []).append(row)
            passed.unsorted_rows += arrival_us < last_us
            last_us = arrival_us
        else:
            continue
        break
    if not jobs:
        raise InputError(str(path), f"holds no task that ends well and can be run; {passed.rows} rows were passed over")
    return _trace(path, form, jobs, resources or ()), passed


def _refuse_workflows(batch: pa.RecordBatch, path: Path, passed: Passed, workflows: bool) -> None:
    waits = pc.fill_null(pc.greater(pc.list_value_length(batch.column("parents")), 0), False)
    passed.dependent_rows += pc.sum(waits).as_py() or 0
    if passed.dependent_rows and not workflows:
        at = batch.column("line")[pc.index(waits, True).as_py()].as_py()
        problem = (
            "the task waits for others, and workflows are not run yet; to run its tasks as independent ones, make a"
            " table of it with `volery trace convert --without-parents`"
        )
        raise InputError(f"{path}:{at}", problem)


def _amounts(batch: pa.RecordBatch) -> dict[str, Any]:
    """What is asked for, in our units; shares are taken of the largest machine."""
    return {
        "cpu_milli": pc.coalesce(batch.column("cpu_milli"), pc.multiply(batch.column("cpu_share"), NODE_CPU_MILLI)),
        "memory_mb": pc.coalesce(batch.column("memory_mb"), pc.multiply(batch.column("memory_share"), NODE_MEMORY_MB)),
        "gpu_milli": batch.column("gpu_milli"),
    }


def _resources(batch: pa.RecordBatch) -> tuple[str, ...]:
    """What at least half of the first rows ask for; the others are passed over then."""
    amounts = _amounts(batch)
    return tuple(name for name in RESOURCES if 2 * amounts[name].null_count <= batch.num_rows)


def _rows(batch: pa.RecordBatch, resources: tuple[str, ...], passed: Passed) -> Iterator[tuple[str, int, _Row]]:
    amounts = _amounts(batch)
    asked = zip(*(amounts[name].to_pylist() for name in resources), strict=True) if resources else [()] * batch.num_rows
    names = ("job", "submit_us", "runtime_us", "estimate_us", "instances", "status", "user")
    columns = zip(asked, *(batch.column(name).to_pylist() for name in names), strict=True)
    for request, job, submit_us, runtime_us, estimate_us, instances, status, user in columns:
        unknown = job is None or submit_us is None or runtime_us is None or instances is None or None in request
        if unknown or submit_us < 0 or runtime_us < 0 or status not in (None, "finished"):
            passed.rows += 1
            continue
        estimate = runtime_us if estimate_us is None else estimate_us
        units = tuple(
            max(0 if name == "gpu_milli" else 1, round(value)) for name, value in zip(resources, request, strict=True)
        )  # nothing that runs takes no processor and no memory
        yield job, submit_us, _Row(runtime_us, estimate, instances, units, user)


def _trace(path: Path, form: Format, jobs: dict[tuple[str, int], list[_Row]], resources: tuple[str, ...]) -> Trace:
    first, duration_us, places, estimate_us = longs(1), longs(), longs(), longs()
    number: dict[Amounts, int] = {}
    for rows in jobs.values():
        for row in rows:
            duration_us.extend(longs(row.instances, row.duration_us))
            places.extend(longs(row.instances, number.setdefault(row.request, len(number))))
        first.append(len(duration_us))
        estimate_us.append(round(sum(row.estimate_us * row.instances for row in rows) / (first[-1] - first[-2])))
    if len(number) > REQUESTS_MAX:
        raise InputError(str(path), f"has more than {REQUESTS_MAX} distinct requests; read fewer jobs")
    largest = max((max(request, default=0) for request in number), default=0)
    if largest > AMOUNT_MAX:
        raise InputError(str(path), f"has a request of {largest} units; at most {AMOUNT_MAX} can be counted")
    begin = min(arrival_us for _, arrival_us in jobs)
    name = trace_name(path)
    for suffix in SUFFIXES:
        name = name.removesuffix(suffix)
    users = [rows[0].user for rows in jobs.values()]
    known = form.name not in TABLES_OF_REQUESTS and all(users)
    trace = Trace(
        name, array("q", [arrival_us - begin for _, arrival_us in jobs]), first, duration_us, estimate_us,
        user=tuple(user or "" for user in users) if known else (),
    )  # fmt: skip
    return in_order(with_requests(trace, resources, tuple(number), places) if resources else trace)
