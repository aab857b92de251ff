"""Traces and clusters of the lab as objects: read and checked once, shown, and handed to `compare` and `simulate`."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, Unpack

import numpy as np
import pyarrow as pa
from rich.console import RenderableType

from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND
from volery.lab.errors import CALLS, arguments_named, check_files, check_known, check_type, plain
from volery.lab.owntable import is_arrow, table_file
from volery.lab.shown import Shown, facts
from volery.look.text import duration
from volery.metrics.arrays import tasks_per_job, view
from volery.report.notes import omission_warnings
from volery.setting import DECLARED, SettingOptions
from volery.study import RunSpec, compare_spec
from volery.study.plan import outline
from volery.study.runner import absolute
from volery.study.runs import Inputs, read_inputs

OF_RUNS: Final = {"load_by", "requests", "resources", "blocks", "history", "slot_request", "outages"}
"""Fields of workloads and clusters that need both of them, or the design."""
TRACE_FIELDS: Final = {name for name, field in DECLARED.items() if field["group"] == "Workload"} - OF_RUNS
CLUSTER_FIELDS: Final = {name for name, field in DECLARED.items() if field["group"] == "Cluster"} - OF_RUNS | {
    "slots",
    "constraints",
}
SMALLEST_TRACE: Final = "syn:1x1"


class TraceSource(Shown):
    """A trace that was read; see `volery.trace`.

    Attributes:
        setting: fields of a run that this object stands for, among them `trace`: the file or the spec.
        digest: SHA-256 over all columns of the trace.
    """

    def __init__(self, setting: Mapping[str, Any], inputs: Inputs) -> None:
        self.setting = dict(setting)
        self._trace, self._facts = inputs.trace, inputs.facts
        self.digest = inputs.facts.sha256

    @property
    def jobs(self) -> pa.Table:
        """An Arrow table of the jobs: submission, tasks, their longest and their whole duration, in seconds."""
        trace = self._trace
        first, durations_us = view(trace.first), view(trace.duration_us)
        columns: dict[str, Any] = {
            "job": np.arange(trace.job_count),
            "submit_s": view(trace.arrival_us) / SECOND,
            "tasks": tasks_per_job(trace),
            "longest_s": np.maximum.reduceat(durations_us, first[:-1]) / SECOND,
            "work_s": np.add.reduceat(durations_us, first[:-1]) / SECOND,
            "estimate_s": view(trace.estimate_us) / SECOND,
        }
        if trace.user:
            columns["user"] = list(trace.user)
        if trace.priority:
            columns["priority"] = view(trace.priority)
        if trace.deadline_us:
            deadlines_us = view(trace.deadline_us)
            columns["deadline_s"] = pa.array(deadlines_us / SECOND, mask=deadlines_us == NEVER)
        return pa.table(columns)

    @property
    def tasks(self) -> pa.Table:
        """An Arrow table of the tasks: job, duration in seconds, and the amounts that they ask for."""
        trace = self._trace
        columns: dict[str, Any] = {
            "task": np.arange(trace.task_count),
            "job": np.repeat(np.arange(trace.job_count), tasks_per_job(trace)),
            "duration_s": view(trace.duration_us) / SECOND,
        }
        if trace.request:
            amounts = np.array(trace.requests, np.int64)[view(trace.request)]
            columns |= {name: amounts[:, number] for number, name in enumerate(trace.resources)}
        return pa.table(columns)

    def _rendered(self, width: int) -> RenderableType:  # noqa: ARG002 - names and values take little room
        trace = self._trace
        span_us = trace.arrival_us[-1] - trace.arrival_us[0] if trace.job_count else 0
        rows: dict[str, object] = {
            "trace": trace.name,
            "jobs": f"{trace.job_count:,}",
            "tasks": f"{trace.task_count:,}",
            "submissions": duration(span_us / SECOND),
            "work": duration(sum(trace.duration_us) / SECOND),
            "digest": self.digest[:16],
        }
        sentences = omission_warnings(self._facts.left_out) if self._facts.left_out is not None else []
        return facts(rows | {"" if number else "omitted": text for number, text in enumerate(sentences)})

    def __repr__(self) -> str:
        return f"<volery trace {self._trace.name}: {self._trace.job_count} jobs, {self._trace.task_count} tasks>"


class ClusterSource(Shown):
    """Machines that were read or made; see `volery.cluster`.

    Attributes:
        setting: fields of a run that this object stands for, among them `workers`.
    """

    def __init__(self, setting: Mapping[str, Any], inputs: Inputs) -> None:
        self.setting = dict(setting)
        self._cluster = inputs.cluster

    @property
    def machines(self) -> pa.Table:
        """An Arrow table of the machines: slots, constraint bits, rack, speed, and what each offers, where given."""
        cluster = self._cluster
        columns: dict[str, Any] = {"machine": np.arange(len(cluster.slots)), "slots": list(cluster.slots)}
        if any(cluster.constraints):
            columns["constraints"] = list(cluster.constraints)
        if cluster.racks:
            columns["rack"] = list(cluster.racks)
        if cluster.speeds:
            columns["speed"] = list(cluster.speeds)
        for number, name in enumerate(cluster.resources):
            columns[name] = [offered[number] for offered in cluster.capacities]
        return pa.table(columns)

    def _rendered(self, width: int) -> RenderableType:  # noqa: ARG002 - names and values take little room
        cluster = self._cluster
        rows = {"cluster": cluster.name, "machines": f"{len(cluster.slots):,}"}
        if cluster.resources:
            offers = zip(*cluster.capacities, strict=True)
            rows |= {name: f"{sum(units):,}" for name, units in zip(cluster.resources, offers, strict=True)}
        else:
            rows["slots"] = f"{cluster.slot_count:,}"
        return facts(rows | ({"racks": str(max(cluster.racks) + 1)} if cluster.racks else {}))

    def __repr__(self) -> str:
        return f"<volery cluster {self._cluster.name}: {len(self._cluster.slots)} machines>"


def trace(
    source: object, *, seed: int = 0, into: str | Path | None = None, **reading: Unpack[SettingOptions]
) -> TraceSource:
    """Read a trace, or make synthetic work.

    Args:
        source: file of any known format; synthetic work as "syn:250x300"; or a table in memory, which any object with
            `__arrow_c_stream__` is (pandas, polars, pyarrow, DuckDB), with the columns of the trace table. Times may
            have names that end in _s, seconds, in place of _us.
        seed: seed of synthetic work; a comparison draws it anew for each of its seeds.
        into: file, a trace table in Parquet, to which a table in memory is written for commands and study files;
            without it the table lasts as long as the program.
        reading: fields of a run that say how the trace is read: jobs, only, durations, arrivals, estimates, users.

    Raises:
        InputError: the file, the spec, the table or another argument is wrong.
    """
    seed = check_type("seed", seed, int, "a whole number")
    values = _known(reading, TRACE_FIELDS, "a trace")
    if not is_arrow(source):
        check_type("source", source, (str, Path), "a file, a spec or a table")
        if into is not None:
            raise InputError("into", "belongs to a table in memory, and source is a file or a spec; leave it out")
        check_files({"trace": source}, trace="source")
        with arguments_named({"source": source}):
            return _trace_of({"trace": absolute(str(source))} | values, seed)

    check_type("into", into, (str, Path, type(None)), "the name of a file")
    with arguments_named({"into": into}):
        file = str(table_file(source, None if into is None else Path(into).absolute()))
    try:
        with arguments_named(values):
            return _trace_of({"trace": file} | values, seed)
    except InputError as error:
        row = error.place.removeprefix(f"{file}:")
        place = "source" + (f", row {int(row) - 1}" if row.isdigit() else "")
        raise InputError(place if error.place.startswith(file) else error.place, error.problem) from None


def _trace_of(setting: dict[str, Any], seed: int) -> TraceSource:
    return TraceSource(setting, _inputs(setting | {"workers": 1}, seed))


def cluster(workers: int, *, seed: int = 0, **machines: Unpack[SettingOptions]) -> ClusterSource:
    """Describe the machines of a cluster.

    Args:
        workers: number of machines.
        seed: seed of drawn machine constraints; a comparison draws them anew for each of its seeds, unless `population`
            is given.
        machines: fields of a run that describe machines: slots, capacity, machines, racks, constraints, population,
            reference_mhz, variability. Amounts of a file of machines count where the trace asks for them.

    Raises:
        InputError: an argument is wrong.
    """
    seed = check_type("seed", seed, int, "a whole number")
    setting = {"workers": plain(workers)} | _known(machines, CLUSTER_FIELDS, "a cluster")
    with arguments_named(setting):
        return ClusterSource(setting, _inputs(setting | {"trace": SMALLEST_TRACE}, seed))


def _known(fields: Mapping[str, Any], known_fields: set[str], thing: str) -> dict[str, Any]:
    """The fields that are given, once each is one of the thing.

    Raises:
        InputError: naming the first that is not.
    """
    for name in fields:
        if name in SettingOptions.__annotations__ and name not in known_fields:
            raise InputError(name, f"belongs to the run, not to {thing}; give it to compare or simulate")
    check_known(fields, known_fields)
    check_files(fields)
    return {name: plain(value) for name, value in fields.items() if value is not None}


def _inputs(setting: Mapping[str, Any], seed: int) -> Inputs:
    """Trace and machines of a setting.

    Raises:
        InputError: a field is wrong.
    """
    (run,) = outline(compare_spec(("oracle",), setting, [seed]))
    spec: RunSpec = run.spec
    with CALLS:
        return read_inputs(spec)
