"""Public cluster traces that say what tasks ask for: the columns that scheduling needs, of Alibaba's and Google's.

Which format a file is in is told by its header, or where it has none by its fields:

- Alibaba v2017 `batch_task`, and the table of mean instance durations made of it; v2018 `batch_task`;
- Google 2019: a slice of instance usage with `resource_request`; Google 2011: task rows with begin and end, with `;`.

A row stands for `instances` equal tasks. Rows of one job that are submitted together are one job here; what a job's
tasks depend on is not read. Where memory or processors are given as shares of the largest machine, that is taken to be
a node of 64 cores and 16 GB (Thiyyakat et al., arXiv 2103.08413, section V-B). Rows without a request or an end are
passed over and counted.
"""

from __future__ import annotations

import csv
import re
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from volery.core.errors import InputError
from volery.core.model import SECOND, Amounts
from volery.core.trace import Trace, longs
from volery.workload.files import numbered_lines
from volery.workload.quirks import in_order
from volery.workload.requests import with_requests
from volery.workload.tr import SECONDS_MAX, trace_name

RESOURCES: Final = ("cpu_milli", "memory_mb")
NODE_CPU_MILLI: Final = 64_000
NODE_MEMORY_MB: Final = 16_384
"""The largest machine, of which shares are shares."""
INSTANCES_MAX: Final = 10_000_000
REQUESTS_MAX: Final = 1 << 20
_CPUS, _MEMORY = re.compile(r"'cpus': ([0-9.e+-]+)"), re.compile(r"'memory': ([0-9.e+-]+)")


class Row(NamedTuple):
    """What a row says, in our units."""

    job: str
    arrival_us: int
    duration_us: int
    instances: int
    request: Amounts


class Dialect(NamedTuple):
    """A format.

    Args:
        name: what errors call it.
        header: column names by which it is known; empty: there is no header.
        separator: between fields.
        read: a row from its fields by name (by number where there is no header); None: it says too little.
    """

    name: str
    header: frozenset[str]
    separator: str
    read: Callable[[dict[str, str]], Row | None]


class Passed(msgspec.Struct):
    """What reading left out.

    Args:
        rows: without a request, a begin or an end, or whose task did not end well.
        unsorted_rows: that arrive before the row above them.
    """

    rows: int = 0
    unsorted_rows: int = 0


def _seconds(text: str) -> int:
    value = float(text)
    if not 0 <= value <= SECONDS_MAX:
        raise ValueError(f"{text!r} is no time from 0 to {SECONDS_MAX} s")
    return round(value * SECOND)


def _request(cpu_milli: float, memory_share: float) -> Amounts:
    """Whole units, at least one of each: nothing that runs takes nothing."""
    if not (0 <= cpu_milli < 1e9 and 0 <= memory_share < 1e6):
        raise ValueError(f"{cpu_milli:g} thousandths of a core and {memory_share:g} of a machine's memory")
    return max(1, round(cpu_milli)), max(1, round(memory_share * NODE_MEMORY_MB))


def _count(text: str) -> int:
    value = float(text)
    if not 1 <= value <= INSTANCES_MAX or value != int(value):
        raise ValueError(f"{text!r} is no number of instances from 1 to {INSTANCES_MAX}")
    return int(value)


def _alibaba_2017(row: dict[str, str]) -> Row | None:
    cpu = row["number_of_cpus_requested_per_instance_in_the_task"]
    memory = row["normalized_memory_requested_per_instance_in_the_task"]
    if row["status"] != "Terminated" or not (cpu and memory):
        return None
    begin_s, end_s = float(row["task_create_time"]), float(row["task_end_time"])
    if not 0 <= begin_s <= end_s:  # some rows begin before the trace does
        return None
    request = _request(float(cpu) * 10, float(memory))  # 100 is a core
    begin, end = _seconds(row["task_create_time"]), _seconds(row["task_end_time"])
    return Row(row["job_id"], begin, end - begin, _count(row["number_of_instances"]), request)


def _alibaba_2017_durations(row: dict[str, str]) -> Row | None:
    request = _request(float(row["cpu"]) * 1000, float(row["memory"]))
    instances = _count(row["instances_num"])
    return Row(row["job_id"], _seconds(row["submit_time"]), _seconds(row["duration"]), instances, request)


def _alibaba_2018(row: dict[str, str]) -> Row | None:
    if row["status"] != "Terminated" or not (row["plan_cpu"] and row["plan_mem"]):
        return None
    begin, end = _seconds(row["start_time"]), _seconds(row["end_time"])
    if end < begin:
        return None
    request = _request(float(row["plan_cpu"]) * 10, float(row["plan_mem"]) / 100)  # 100 is a core; all memory is 100
    return Row(row["job_name"], begin, end - begin, _count(row["instance_num"]), request)


def _google_2019(row: dict[str, str]) -> Row | None:
    cpus, memory = _CPUS.search(row["resource_request"]), _MEMORY.search(row["resource_request"])
    if cpus is None or memory is None or not (row["start_time"] and row["end_time"]):
        return None
    begin, end = int(row["start_time"]), int(row["end_time"])
    if end < begin:
        return None
    request = _request(float(cpus[1]) * NODE_CPU_MILLI, float(memory[1]))
    return Row(row["collection_id"], begin, end - begin, 1, request)


def _google_2011(row: dict[str, str]) -> Row | None:
    begin, end = _seconds(row["0"]), _seconds(str(float(row["6"]) / SECOND))
    if end < begin:
        return None
    return Row(row["1"], begin, end - begin, 1, _request(float(row["8"]) * NODE_CPU_MILLI, float(row["9"])))


DIALECTS: Final = (
    Dialect("Alibaba v2017 batch_task", frozenset({
        "task_create_time", "task_end_time", "job_id", "number_of_instances", "status",
        "number_of_cpus_requested_per_instance_in_the_task", "normalized_memory_requested_per_instance_in_the_task",
    }), ",", _alibaba_2017),
    Dialect("Alibaba v2017 mean durations", frozenset({
        "submit_time", "duration", "cpu", "memory", "job_id", "instances_num",
    }), ",", _alibaba_2017_durations),
    Dialect("Alibaba v2018 batch_task", frozenset({
        "instance_num", "job_name", "status", "start_time", "end_time", "plan_cpu", "plan_mem",
    }), ",", _alibaba_2018),
    Dialect("Google 2019 instances", frozenset({
        "collection_id", "resource_request", "start_time", "end_time",
    }), ",", _google_2019),
    Dialect("Google 2011 tasks", frozenset(), ";", _google_2011),
)  # fmt: skip
GOOGLE_2011_FIELDS: Final = 10


def is_published(path: Path) -> bool:
    """Whether the name is that of a table rather than of a `.tr` file."""
    return path.name.removesuffix(".gz").endswith(".csv")


def read_published(path: Path, job_count: int | None = None) -> tuple[Trace, Passed]:
    """Read a table, plain or gzip-compressed: all of it, or the first jobs to begin in the file.

    Raises:
        InputError: the file cannot be read, is in no known format, or a row is wrong; the message names the line.
    """
    passed, jobs = Passed(), dict[tuple[str, int], list[Row]]()
    last_us = 0
    for number, dialect, fields in _rows(path):
        try:
            row = dialect.read(fields)
        except (ValueError, OverflowError) as error:
            raise InputError(f"{path}:{number}", f"is no row of {dialect.name}: {error}") from None
        if row is None:
            passed.rows += 1
            continue
        key = (row.job, row.arrival_us)
        if key not in jobs and len(jobs) == job_count:
            break
        jobs.setdefault(key, []).append(row)
        passed.unsorted_rows += row.arrival_us < last_us
        last_us = row.arrival_us
    if not jobs:
        raise InputError(
            str(path), f"holds no task that asks for anything and ends; {passed.rows} rows were passed over"
        )
    return _trace(trace_name(path).removesuffix(".csv"), list(jobs.values()), str(path)), passed


def _rows(path: Path) -> Iterator[tuple[int, Dialect, dict[str, str]]]:
    """Line, format and fields of each row; a quoted field may go on over several lines."""
    dialect: Dialect | None = None
    names: Sequence[str] = ()
    text, began, number = "", 0, 0
    for number, line in numbered_lines(path):
        text, began = text + line.decode("utf-8", "replace").rstrip("\r\n"), began or number
        if text.count('"') % 2:
            text += " "
            continue
        whole, first, text, began = text, began, "", 0
        if not whole.strip():
            continue
        if dialect is None:
            dialect, names = _dialect(whole, f"{path}:{first}")
            if dialect.header:
                continue
        words = [word.strip() for word in next(csv.reader([whole], delimiter=dialect.separator))]
        if len(words) != len(names):
            raise InputError(
                f"{path}:{first}", f"has {len(words)} fields where {len(names)} are expected; mend the row"
            )
        yield first, dialect, dict(zip(names, words, strict=True))
    if text:
        raise InputError(f"{path}:{number}", "a quoted field that begins here has no end; mend the row")


def _dialect(line: str, place: str) -> tuple[Dialect, Sequence[str]]:
    names = [word.strip() for word in next(csv.reader([line]))]
    for dialect in DIALECTS:
        if dialect.header and dialect.header <= set(names):
            return dialect, names
    if line.count(";") == GOOGLE_2011_FIELDS - 1:
        return DIALECTS[-1], [str(k) for k in range(GOOGLE_2011_FIELDS)]
    known = ", ".join(dialect.name for dialect in DIALECTS)
    raise InputError(place, f"is not the first line of a known table ({known}); keep the header as it was published")


def _trace(name: str, jobs: list[list[Row]], place: str) -> Trace:
    first, duration_us, places, estimate_us = longs(1), longs(), longs(), longs()
    number: dict[Amounts, int] = {}
    for rows in jobs:
        for row in rows:
            duration_us.extend(longs(row.instances, row.duration_us))
            places.extend(longs(row.instances, number.setdefault(row.request, len(number))))
        first.append(len(duration_us))
        estimate_us.append(round(sum(row.duration_us * row.instances for row in rows) / (first[-1] - first[-2])))
    if len(number) > REQUESTS_MAX:
        raise InputError(place, f"has more than {REQUESTS_MAX} distinct requests; read fewer jobs")
    begin = min(rows[0].arrival_us for rows in jobs)
    arrival_us = array("q", [rows[0].arrival_us - begin for rows in jobs])
    trace = Trace(name, arrival_us, first, duration_us, estimate_us)
    return in_order(with_requests(trace, RESOURCES, tuple(number), places))
