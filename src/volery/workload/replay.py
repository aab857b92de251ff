"""Tasks of any format as a workload to run: rows of one job that are submitted together become one job.

Where some row waits for others, or has a submission of its own, all rows of a job become one job, perhaps a workflow.
The job is submitted with its first row; other rows are submitted at their own times, never before those that they wait
for. A row stands for `instances` equal tasks. Where memory or processors are given as shares of the
largest machine, that is taken to be a node of 64 cores and 16 GB (Thiyyakat et al., arXiv 2103.08413, section V-B).
A row that held a machine is replayed for the time that it held it, with any status; other rows are counted by reason
(`volery.workload.omissions`). A task asks for the resources that count: those that a run names, or those that at least
half of the first rows ask for. What a row does not state it does not ask for.

A job has the highest priority, the latest deadline and the longest limit of its rows; the defaults are priority 0, no
deadline and no limit. A job that was due before its submission is due at once.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from itertools import repeat
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from volery.core.errors import InputError
from volery.core.limits import Limits
from volery.core.locality import with_replicas
from volery.core.model import NEVER, SECOND, Amounts
from volery.core.omissions import Omissions
from volery.core.trace import NO_GANG, Trace, longs
from volery.workload.formats import read_source
from volery.workload.formats.own import TABLE, far_of
from volery.workload.formats.source import Format, Noticed
from volery.workload.graph import Arranged, CycleError, Edges, Submissions
from volery.workload.models import RESOURCES, with_requests
from volery.workload.omissions import ATTEMPTS, ONE_BY_ONE, Judged, OmissionTally, Only, judge
from volery.workload.quirks import in_order
from volery.workload.table import RACK_WISHES
from volery.workload.tr import trace_name

NODE_CPU_MILLI: Final = 64_000
NODE_MEMORY_MB: Final = 16_384
"""The largest machine, of which shares are shares."""
COUNTED: Final = RESOURCES[:3]
"""Resources that count where a run names none."""
REQUESTS_MAX: Final = 1 << 20
TABLES_OF_REQUESTS: Final = frozenset(
    {"alibaba-2017", "alibaba-2017-means", "alibaba-2018", "google-2011-reduced", "google-2019-usage"}
)
"""Read for what tasks ask for, without users: runs on them keep their digests."""
SUFFIXES: Final = (".csv", ".parquet", ".swf", ".gwf", ".json")


class Passed(msgspec.Struct):
    """Rows that reading left out or changed.

    Args:
        rows: number of rows that are not replayed.
        unsorted_rows: number of rows that arrive before the row above them.
        left_out: omissions by effect and reason; None before the last row was read.
        unheeded: resources that rows ask for, and that do not count.
        has_estimates: true where some row states an estimate of its runtime.
    """

    rows: int = 0
    unsorted_rows: int = 0
    left_out: Omissions | None = None
    unheeded: tuple[str, ...] = ()
    has_estimates: bool = False


class _Row(NamedTuple):
    """A row that can be run; the request holds each of the resources, and `number` is its place among all rows."""

    duration_us: int
    estimate_us: int
    instances: int
    request: Amounts
    user: str | None
    task: str | None
    parents: Sequence[str]
    number: int
    replicas: Sequence[int]
    priority: int | None
    deadline_us: int | None
    came_us: int | None
    limit_us: int | None
    gang_tasks: int
    gang_nodes: int
    gang_rack: int
    end_us: int | None
    partition: str | None


class _Links:
    """Dependencies of a source's rows, and the rule by which rows make one job.

    Args:
        has_gangs: false where jobs that are gangs are read as the tasks that their rows are.

    Attributes:
        jobs: ids of the jobs of which some row waits.
        gone: job -> rows that were passed over, with what they wait for.
        has_limits: true where some row states a limit.
    """

    def __init__(self, *, has_gangs: bool) -> None:
        self.has_gangs = has_gangs
        self.jobs: set[str] = set()
        self.gone: dict[str, dict[str, Sequence[str]]] = {}
        self.apart = False
        self.has_limits = False
        self.rows = 0

    @property
    def whole(self) -> bool:
        """True where all rows of a job are one job, whenever they were submitted."""
        return self.apart or bool(self.jobs)


class _Job(NamedTuple):
    """A job, or a workflow."""

    name: str
    arrival_us: int
    rows: list[_Row]


def read_tasks(
    path: Path,
    form: Format,
    job_count: int | None = None,
    only: Only = "ran",
    resources: tuple[str, ...] | None = None,
    limits: Limits = "ignore",
    *,
    has_gangs: bool = True,
) -> tuple[Trace, Passed]:
    """Read the tasks of a file: all of them, or those of the first jobs to begin in it.

    Args:
        only: "ran" replays all that held machines, "finished" those that finished alone.
        resources: names from `RESOURCES` that count; None: those that at least half of the first rows ask for.
        limits: "enforce" refuses limits of 0 or less; "ignore" takes them for none.
        has_gangs: false where a job whose tasks run only together is read as the tasks that its rows are, each for
            itself: of an SWF log as one task that asks for all its processors.

    Raises:
        InputError: the file cannot be read, a row is wrong (the message names the line), or tasks wait in a circle.
    """
    source = _Source(form, job_count, only, resources, has_gangs=has_gangs)
    lines_without_limit: dict[int, int] = {}
    for batch in read_source(path, form, Noticed()):
        if limits == "enforce":
            lines_without_limit |= _lines_without_limit(form, batch, source.links.rows)
        if not source.take(batch):
            break
    if lines_without_limit:
        _refuse_no_limit(path, source, lines_without_limit)

    passed = source.passed
    if not source.jobs:
        reasons = (
            "; ".join(f"{omission.tasks:,} tasks: {omission.reason}" for omission in source.tally.omissions().reasons)
            or "it has no rows"
        )
        raise InputError(str(path), f"holds no task that can be replayed: {reasons}")

    jobs = _whole(source.jobs, source.links)
    source.jobs = {}  # its keys are a fifth of the memory
    trace = _trace(path, form, jobs, source)
    passed.left_out = source.tally.omissions({job.name for job in jobs})
    return trace, passed


def _lines_without_limit(form: Format, batch: pa.RecordBatch, rows_before: int) -> dict[int, int]:
    """The lines of rows whose limit is 0 or less, by the number of the row."""
    lines = {}
    for place in pc.indices_nonzero(pc.less_equal(batch.column("limit_us"), 0)).to_pylist():
        number = rows_before + place + 1
        # The lines that a canonical table names are of the file from which it was made.
        lines[number] = (None if form is TABLE else batch.column("line")[place].as_py()) or number
    return lines


def _refuse_no_limit(path: Path, source: _Source, lines: dict[int, int]) -> None:
    """Refuse a row of a wanted job that could never run within its limit.

    Raises:
        InputError: with the line in the source, or the row of a canonical table.
    """
    wanted_rows = [row for rows in source.jobs.values() for row in rows if row.number in lines]
    row = min(wanted_rows, key=lambda row: row.number, default=None)
    if row is None:
        return
    problem = (
        f"the limit is {(row.limit_us or 0) / SECOND:g} s, in which no job can run; state one above 0, or none, make "
        "it none with `volery trace convert --repair zero-limit=null`, or run with --limits ignore"
    )
    raise InputError(f"{path}:{lines[row.number]}", problem)


class _Source:
    """The rows of a file, gathered by job.

    Attributes:
        jobs: id and submission -> rows of a job that are replayed.
        resources: resources that the trace asks for; None before the first rows.
    """

    def __init__(
        self,
        form: Format,
        job_count: int | None,
        only: Only,
        resources: tuple[str, ...] | None = None,
        *,
        has_gangs: bool = True,
    ) -> None:
        self._form, self._job_count, self._only = form, job_count, only
        self.resources = resources
        self._weighed_resource = ""
        self._job_ids: set[str] = set()
        self._last_us = 0
        self._tally: OmissionTally | None = None
        self._passed = Passed()
        self._unheeded: set[str] = set()
        self.jobs: dict[tuple[str, int], list[_Row]] = {}
        self.links = _Links(has_gangs=has_gangs)

    def take(self, batch: pa.RecordBatch) -> bool:
        """Take in the next rows; False where no further row can belong to the jobs that are wanted."""
        if self.resources is None:
            self.resources = resources_of(self._form, batch)

        if self._tally is None:
            self._weighed_resource = weighed_of(batch, self.resources)
            has_users = self._form.name not in TABLES_OF_REQUESTS
            self._tally = OmissionTally(self.resources, weighed=self._weighed_resource, has_users=has_users)

        other_amounts = {
            name: amounts_of_other
            for name, amounts_of_other in amounts_of(batch, RESOURCES).items()
            if name not in self.resources
        }
        self._unheeded |= {
            name for name, amounts_of_other in other_amounts.items() if amounts_of_other.null_count < batch.num_rows
        }
        self._passed.has_estimates |= batch.column("estimate_us").null_count < batch.num_rows
        amounts = amounts_of(batch, self.resources)
        judged = judge(batch, amounts, self._only, self._weighed_resource)

        rows_before = self.links.rows
        is_open = True
        full_at = 0 if self._full else None

        for job, arrival_us, row in _rows(batch, judged, amounts, self.links):
            if self._full and (job, arrival_us) not in self.jobs:
                if not self.links.whole:
                    is_open = False
                    break
                if job not in self._job_ids:  # more rows of a job that was begun may follow
                    continue
            if (rows := self.jobs.setdefault((job, arrival_us), [row]))[-1] is not row:
                rows.append(row)
            if self._job_count is not None:
                self._job_ids.add(job)
            self._passed.unsorted_rows += arrival_us < self._last_us
            self._last_us = arrival_us
            if full_at is None and self._full:
                full_at = self.links.rows - rows_before

        rows_read = batch.slice(0, self.links.rows - rows_before)
        is_counted = None
        if full_at is not None:  # what follows belongs to other jobs, which nobody asked for
            is_of_job = pc.is_in(rows_read.column("job"), value_set=pa.array(self._job_ids)).to_numpy(
                zero_copy_only=False
            )
            is_counted = is_of_job | (np.arange(rows_read.num_rows) < full_at)
        self._tally.add(rows_read, judged, amounts, is_counted)
        return is_open

    @property
    def _full(self) -> bool:
        """True once all wanted jobs have begun."""
        return self._job_count is not None and len(self._job_ids if self.links.whole else self.jobs) >= self._job_count

    @property
    def tally(self) -> OmissionTally:
        """Counts of what is omitted."""
        return self._tally or OmissionTally(())

    @property
    def passed(self) -> Passed:
        """Rows left out or changed so far; without the omissions."""
        if self._tally is not None:
            self._passed.rows = self._tally.rows
        self._passed.unheeded = tuple([name for name in RESOURCES if name in self._unheeded])
        return self._passed


def _whole(jobs: dict[tuple[str, int], list[_Row]], links: _Links) -> list[_Job]:
    """Jobs with their rows."""
    if not links.whole:
        return [_Job(job, arrival_us, rows) for (job, arrival_us), rows in jobs.items()]

    jobs_by_id: dict[str, _Job] = {}
    for (job, arrival_us), rows in jobs.items():
        earlier_part = jobs_by_id.setdefault(job, _Job(job, arrival_us, []))
        jobs_by_id[job] = _Job(job, min(earlier_part.arrival_us, arrival_us), earlier_part.rows + rows)
    return list(jobs_by_id.values())


def amounts_of(batch: pa.RecordBatch, resources: Sequence[str]) -> dict[str, Any]:
    """Resource -> requested amounts, in our units; shares are taken of the largest machine."""
    amounts = {
        "cpu_milli": pc.coalesce(batch.column("cpu_milli"), pc.multiply(batch.column("cpu_share"), NODE_CPU_MILLI)),
        "memory_mb": pc.coalesce(batch.column("memory_mb"), pc.multiply(batch.column("memory_share"), NODE_MEMORY_MB)),
        "gpu_milli": batch.column("gpu_milli"),
        "disk_mb": batch.column("disk_mb"),
    }

    return {name: amounts[name] for name in resources}


def weighed_of(batch: pa.RecordBatch, resources: tuple[str, ...]) -> str:
    """The resource that machine time is of: the one that most of the first rows state, the first of several."""
    amounts = amounts_of(batch, resources)
    return min(resources, key=lambda name: amounts[name].null_count, default="")


def resources_of(form: Format, batch: pa.RecordBatch) -> tuple[str, ...]:
    """The resources that a trace asks for: those that at least half of its first rows ask for."""
    if form.name in TABLES_OF_REQUESTS:
        return RESOURCES[:2]
    amounts = amounts_of(batch, COUNTED)
    return tuple(name for name in COUNTED if 2 * amounts[name].null_count <= batch.num_rows)


def _rows(
    batch: pa.RecordBatch, judged: Judged, amounts: dict[str, Any], links: _Links
) -> Iterator[tuple[str, int, _Row]]:
    """The rows that are replayed, each with its job and its submission."""
    graph = batch.column("parents")
    parents: Iterable[Sequence[str] | None] = repeat(())
    has_graph = graph.null_count < batch.num_rows
    if has_graph:
        waits = pc.fill_null(pc.greater(pc.list_value_length(graph), 0), False)
        links.jobs.update(set(batch.column("job").filter(waits).to_pylist()) - {None})
        parents = graph.to_pylist()

    requests = (
        zip(*(amount_column.to_pylist() for amount_column in amounts.values()), strict=True)
        if amounts
        else [()] * batch.num_rows
    )
    names = ("job", "task", "estimate_us", "instances", "user")
    replicas = _values_of(batch, "replicas", ())
    urgent, due = _values_of(batch, "priority", None), _values_of(batch, "deadline_us", None)
    limits_us, partitions = _values_of(batch, "limit_us", None), _values_of(batch, "partition", None)
    links.has_limits |= batch.column("limit_us").null_count < batch.num_rows
    gang_tasks: Iterable[int | None] = repeat(None)
    gang_nodes: Iterable[int | None] = repeat(None)
    gang_rack: Iterable[str | None] = repeat(None)
    ends_us: Iterable[int | None] = repeat(None)
    if links.has_gangs:
        gang_tasks, gang_nodes = _values_of(batch, "gang_tasks", None), _values_of(batch, "gang_nodes", None)
        gang_rack = _values_of(batch, "gang_rack", None)
        if has_graph:
            ends_us = _values_of(batch, "end_us", None)
    came = _values_of(batch, "task_submit_us", None)
    links.apart |= batch.column("task_submit_us").null_count < batch.num_rows
    if links.apart and (unsubmitted := batch.column("submit_us").is_null()).true_count:
        came = pc.if_else(unsubmitted, pa.array(judged.submit_us), batch.column("task_submit_us")).to_pylist()
    times = zip(judged.codes.tolist(), judged.submit_us.tolist(), judged.runtime_us.tolist(), strict=True)

    kinds: dict[Amounts, Amounts] = {}
    values = zip(*(_shared_values(batch.column(name)) for name in names), strict=True)
    wishes_of_rows = zip(
        replicas, urgent, due, came, limits_us, ends_us, gang_tasks, gang_nodes, gang_rack, partitions, strict=False
    )
    columns = zip(requests, parents, wishes_of_rows, times, values, strict=False)
    for request, parent_ids, further_values, (code, submit_us, runtime_us), (
        job,
        task,
        estimate_us,
        instances,
        user,
    ) in columns:
        links.rows += 1
        if code:
            if has_graph and job is not None and task is not None:
                links.gone.setdefault(job, {})[task] = parent_ids or ()
            continue

        estimate = runtime_us if estimate_us is None else estimate_us
        near, *wishes, end_us, sharing_tasks, nodes, rack, partition = further_values
        wishes += sharing_tasks or 1, NO_GANG if nodes is None and sharing_tasks is None else nodes or 0
        wishes += RACK_WISHES.get(rack, 0), end_us, partition
        # 0 stays 0, and nothing else becomes 0; what is not known is none
        units = tuple([max(round(value), int(value > 0)) if value else 0 for value in request])
        units = kinds.setdefault(units, units)

        around = parent_ids or (), links.rows, near or ()
        yield job, submit_us, _Row(runtime_us, estimate, instances, units, user, task, *around, *wishes)


def _values_of(batch: pa.RecordBatch, name: str, otherwise: Any) -> Iterable[Any]:
    """The values of a column; the same for all rows where none has one."""
    column = batch.column(name)
    return _shared_values(column) if column.null_count < batch.num_rows else repeat(otherwise)


def _shared_values(column: Any) -> list[Any]:
    """The values of a column, equal ones as one object: else a million rows hold a million names of some users."""
    if pa.types.is_nested(column.type):
        return list(column.to_pylist())
    encoded = column.dictionary_encode()
    words = [*encoded.dictionary.to_pylist(), None]
    return list(map(words.__getitem__, pc.fill_null(encoded.indices, len(words) - 1).to_pylist()))


def _in_order(path: Path, job: _Job, source: _Source) -> tuple[list[_Row], list[list[int]]]:
    """A job's rows, parents first, and per row the places of its parents."""
    links = source.links
    if job.name not in links.jobs:
        source.tally.add_twins(job.name, _twins(job.rows))
        return job.rows, [[]] * len(job.rows)

    rows = sorted(job.rows, key=lambda row: row.number)
    try:
        arranged = Arranged([row.task for row in rows], [row.parents for row in rows], links.gone.get(job.name, {}))
    except CycleError as error:
        problem = f"job {job.name!r}: {error}; cut them with `volery trace convert --repair cycle=cut`"
        raise InputError(str(path), problem) from None

    tasks = sum(row.instances for row, waiting in zip(rows, arranged.waiting, strict=True) if waiting)
    source.tally.add_waits(job.name, arranged.stated, arranged.unknown, tasks)
    twins = sum(row.instances for row, alike in zip(rows, arranged.alike, strict=True) if alike)
    source.tally.add_twins(job.name, twins)

    return [rows[place] for place in arranged.order], arranged.parents


def _twins(rows: list[_Row]) -> int:
    """Tasks of a job without waits whose id another task of it has that came with it; later ones are other attempts."""
    if len(rows) == 1:
        return 0
    counts: Counter[tuple[str | None, int | None]] = Counter(
        (row.task, row.came_us) for row in rows if row.task is not None
    )
    if len(counts) == len(rows):
        return 0
    return sum(row.instances for row in rows if counts[row.task, row.came_us] > 1)


def _trace(path: Path, form: Format, jobs: list[_Job], source: _Source) -> Trace:
    links, stated = source.links, source.tally.stated
    resources = tuple([name for name in source.resources or () if stated[name]])
    places_of = [k for k, name in enumerate(source.resources or ()) if stated[name]]
    has_unstated = len(resources) < len(source.resources or ())
    first = longs(1)
    duration_us = longs()
    places = longs()
    estimate_us = longs()
    edges = Edges()

    number: dict[Amounts, int] = {}
    replicas: list[Sequence[int]] = []
    submissions = Submissions(apart=links.apart)
    gang_nodes, gang_racks = array("i"), array("b")

    parts: list[_Job] = []
    for job, rows, parents in _parts(path, jobs, source):
        parts.append(job)
        gang_nodes.append(_gang_of(path, job, rows, parents, source))
        gang_racks.append(max([row.gang_rack for row in rows]) if gang_nodes[-1] != NO_GANG else 0)
        submissions.add(job.arrival_us, [row.came_us for row in rows], [row.instances for row in rows], parents)

        if links.jobs:
            edges.add(first[-1], [row.instances for row in rows], parents)
        for row in rows:
            duration_us.extend(longs(row.instances, row.duration_us))
            request = tuple([row.request[k] for k in places_of]) if has_unstated else row.request
            places.extend(longs(row.instances, number.setdefault(request, len(number))))
            if row.replicas:
                replicas += [()] * (len(duration_us) - row.instances - len(replicas)) + [row.replicas] * row.instances
        first.append(len(duration_us))
        estimate_us.append(round(sum(row.estimate_us * row.instances for row in rows) / (first[-1] - first[-2])))

    if len(number) > REQUESTS_MAX:
        raise InputError(str(path), f"has more than {REQUESTS_MAX} distinct requests; read fewer jobs")

    name = reduce(str.removesuffix, SUFFIXES, trace_name(path))

    users = [job.rows[0].user for job in parts]
    partitions = [next((row.partition for row in job.rows if row.partition), "") for job in parts]
    has_users = form.name not in TABLES_OF_REQUESTS and any(users)
    parent_first, flat = edges.columns()
    priority, deadline_us, limit_us = (
        (longs(), longs(), longs()) if form.name in TABLES_OF_REQUESTS else _wishes(parts, submissions.begin_us, links)
    )

    arrival_us, submit_us = submissions.columns()

    trace = Trace(
        name,
        arrival_us,
        first,
        duration_us,
        estimate_us,
        user=tuple(user or "" for user in users) if has_users else (),
        parent_first=parent_first,
        parents=flat,
        priority=priority,
        deadline_us=deadline_us,
        submit_us=submit_us,
        limit_us=limit_us,
        gang_nodes=gang_nodes if any(nodes != NO_GANG for nodes in gang_nodes) else array("i"),
        gang_racks=gang_racks if any(gang_racks) else array("b"),
        partition=tuple(partitions) if any(partitions) else (),
    )

    if replicas:
        replicas += [()] * (trace.task_count - len(replicas))
        trace = with_replicas(trace, replicas, far_of(path, form))
    return in_order(with_requests(trace, resources, tuple(number), places) if resources else trace)


def _parts(path: Path, jobs: list[_Job], source: _Source) -> Iterator[tuple[_Job, list[_Row], list[list[int]]]]:
    """The jobs with their rows and the parents of these: attempts that are gangs are a job each."""
    for job in jobs:
        rows, parents = _in_order(path, job, source)
        is_chain = len(rows) > 1 and parents == [[place - 1] if place else [] for place in range(len(rows))]
        is_ganged = is_chain and any(row.gang_nodes != NO_GANG for row in rows)
        if not is_ganged or any(row.end_us is None for row in rows[:-1]):
            yield job, rows, parents
            continue

        source.tally.add_changed(ATTEMPTS, job.name, len(rows) - 1)
        arrival_us = job.arrival_us
        for row in rows:
            yield _Job(job.name, arrival_us, [row]), [row], [[]]
            arrival_us = max(arrival_us, row.end_us or 0)


def _gang_of(path: Path, job: _Job, rows: list[_Row], parents: list[list[int]], source: _Source) -> int:
    """The machines of a job whose tasks run only together, or NO_GANG; its rows become those of its tasks.

    Rows that wait for each other cannot run together: each is a task, which is counted.

    Raises:
        InputError: a gang has more machines than tasks, or a negative number of them.
    """
    nodes = max([row.gang_nodes for row in rows])
    if nodes == NO_GANG:
        return NO_GANG
    if any(parents) or len({row.came_us for row in rows}) > 1:
        source.tally.add_changed(ONE_BY_ONE, job.name, sum(row.gang_tasks > 1 for row in rows))
        return NO_GANG

    rows[:] = [_shared(row) for row in rows]
    tasks = sum(row.instances for row in rows)
    if nodes > tasks or nodes < 0:
        problem = f"job {job.name!r} is a gang of {tasks} tasks on {nodes} machines; give from 0 to {tasks}"
        raise InputError(str(path), problem)
    return nodes


def _shared(row: _Row) -> _Row:
    """The row of equal tasks that share what it asks for."""
    tasks = row.gang_tasks
    if tasks <= 1:
        return row
    # 0 stays 0, and nothing else becomes 0
    request = tuple([max(round(amount / tasks), int(amount > 0)) for amount in row.request])
    return row._replace(instances=row.instances * tasks, request=request)


def _wishes(jobs: list[_Job], begin_us: int, links: _Links) -> tuple[array[int], array[int], array[int]]:
    """The columns of priorities, deadlines and limits.

    Priorities are empty unless jobs differ in them, the others unless some job has one.
    """
    urgent = array("q", [max([row.priority or 0 for row in job.rows]) for job in jobs])

    due = longs()
    for job in jobs:
        deadlines_us = [row.deadline_us for row in job.rows if row.deadline_us is not None]
        due.append(max(*deadlines_us, job.arrival_us) - begin_us if deadlines_us else NEVER)

    limits_us = array("q", [_limit_us(job) for job in jobs] if links.has_limits else [])
    wishes = [column if any(value != NEVER for value in column) else longs() for column in (due, limits_us)]
    return urgent if len(set(urgent)) > 1 else longs(), wishes[0], wishes[1]


def _limit_us(job: _Job) -> int:
    limits_us = [row.limit_us for row in job.rows if row.limit_us is not None and row.limit_us > 0]
    return max(limits_us, default=NEVER)
