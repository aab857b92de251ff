"""The Parquet tables of a results folder, put together from its finished runs."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from volery.metrics import conflicts_per_second, constraint_load, distribution, over_intervals, timeline
from volery.report.schema import CONFLICTS, CONSTRAINT_LOAD, HEAT, JOBS, RUNS, TASK_RUNS, UTILISATION
from volery.study.plan import PlannedRun, inputs_key
from volery.study.results import ResultsFolder, replacing, write_json
from volery.study.runs import read_inputs
from volery.study.spec import StudySpec

Block = tuple[dict[str, Any], dict[str, Any]]
"""Rows of one run or input: what is the same in all of them, and columns."""
TIMELINES = {timeline.TASK_RUNS: TASK_RUNS, timeline.HEAT: HEAT}


def write_tables(folder: ResultsFolder, runs: Sequence[PlannedRun], study: StudySpec) -> None:
    """Write jobs.parquet and utilisation.parquet of finished runs of a study, and the table of what ran where and when.

    Runs that an earlier version has kept have no part of the last; a table without rows is not written.

    Raises:
        InputError: when the columns of a run are missing or damaged.
    """
    import pyarrow as pa

    types = {name: pa.array(values).type for name, values in study.axis_columns().items()}

    def labelled(run: PlannedRun, columns: dict[str, Any]) -> Block:
        spec = run.spec
        named = {"run": run.key, "architecture": spec.architecture, "label": spec.label, "seed": spec.seed}
        axes = {name: pa.scalar(value, types[name]) for name, value in study.axis_values(spec).items()}
        return named | axes, columns

    _write(folder, JOBS, (labelled(run, _jobs(folder, run)) for run in runs))
    _write(folder, UTILISATION, (labelled(run, _curve(folder, run)) for run in runs))
    for part, name in TIMELINES.items():
        blocks = (labelled(run, columns) for run in runs if (columns := folder.columns(run.key, part)))
        first = next(blocks, None)
        if first is not None:
            _write(folder, name, itertools.chain([first], blocks))
        else:
            (folder.path / name).unlink(missing_ok=True)


def write_constraint_load(folder: ResultsFolder, runs: Sequence[PlannedRun]) -> None:
    """Write constraint_load.parquet: load per constraint, one block for each distinct input of the runs.

    Tasks are taken to run when they arrive, so that the table says what is asked of the machines, not what a scheduler
    made of it. Nothing is written where no run has constraints.

    Raises:
        InputError: when an input cannot be read.
    """
    blocks = []
    for key, run in _with_constraints(runs).items():
        kept = folder.path / RUNS / f"{key}.load"
        if not kept.exists():
            inputs = read_inputs(run.spec)
            write_json(kept, [msgspec.structs.asdict(load) for load in constraint_load(inputs.trace, inputs.cluster)])
        rows = msgspec.json.decode(kept.read_bytes(), type=list[dict[str, float]])
        if rows:
            columns = {name: [row[name] for row in rows] for name in rows[0]}
            blocks.append((_setting(run), columns))
    if blocks:
        _write(folder, CONSTRAINT_LOAD, iter(blocks))


def write_conflicts(folder: ResultsFolder, runs: Sequence[PlannedRun]) -> None:
    """Write conflicts.parquet: scheduling conflicts over time, one block for each distinct input of the runs.

    Its last columns are the same in all rows of a block: of all seconds, not of intervals. Nothing is written where no
    run has constraints, nor of machines that offer amounts, where no slot tells whether two tasks are in conflict.

    Raises:
        InputError: when an input cannot be read.
    """
    blocks = []
    for key, run in _with_constraints(runs).items():
        kept = folder.path / RUNS / f"{key}.conflicts"
        if not kept.exists():
            write_json(kept, _conflicts(run))
        found = msgspec.json.decode(kept.read_bytes(), type=_KeptConflicts)
        if found.columns.get("begin_s"):
            count = len(found.columns["begin_s"])
            constant = {name: [value] * count for name, value in found.statistics.items()}
            blocks.append((_setting(run), found.columns | constant))
    if blocks:
        _write(folder, CONFLICTS, iter(blocks))
    else:
        (folder.path / CONFLICTS).unlink(missing_ok=True)


class _KeptConflicts(msgspec.Struct):
    """Of one input; empty where its machines have no slots."""

    columns: dict[str, list[float]] = {}
    statistics: dict[str, float] = {}


def _conflicts(run: PlannedRun) -> _KeptConflicts:
    inputs = read_inputs(run.spec)
    if inputs.cluster.resources:
        return _KeptConflicts()
    found = conflicts_per_second(inputs.trace, inputs.cluster)
    over = {"waiting": distribution(found.waiting), "collisions": distribution(found.collisions)}
    return _KeptConflicts(
        {name: column.tolist() for name, column in over_intervals(found).items()},
        {f"{name}_{p}": float(getattr(one, p)) for name, one in over.items() for p in ("mean", "p50", "p95", "p99")},
    )


def _with_constraints(runs: Sequence[PlannedRun]) -> dict[str, PlannedRun]:
    """A run of each distinct input that has constraints, by the input's key."""
    return {inputs_key(run.spec): run for run in runs if run.spec.constraints != "none"}


def _setting(run: PlannedRun) -> dict[str, Any]:
    load = {} if run.spec.load is None else {"load": run.spec.load}
    return {"trace": run.spec.trace, "workers": run.spec.workers, **load, "seed": run.spec.seed}


def _jobs(folder: ResultsFolder, run: PlannedRun) -> dict[str, Any]:
    """The columns per job, with nulls for what did not happen: runs keep -1 us there."""
    import pyarrow as pa

    columns = folder.columns(run.key, "jobs")
    missing: dict[str, Any] = {name: columns[name] < 0 for name in ("ideal_s", "jrt_s", "wait_s") if name in columns}
    missing["delay_s"] = missing["jrt_s"]  # a delay itself may be negative, on machines that are faster than the trace
    return columns | {name: pa.array(columns[name], mask=where) for name, where in missing.items()}


def _curve(folder: ResultsFolder, run: PlannedRun) -> dict[str, Any]:
    """Utilisation, queue and refusals over time, with nulls for what the run does not report."""
    import pyarrow as pa

    columns = folder.columns(run.key, "curve")
    unknown = columns["time_s"] * float("nan")
    kept = {name: columns.get(name, unknown) for name in ("waiting_tasks", "refused_tasks")}
    return columns | {name: pa.array(values, from_pandas=True) for name, values in kept.items()}


def _write(folder: ResultsFolder, name: str, blocks: Iterator[Block]) -> None:
    """One row group per block; what is constant in a block costs next to nothing."""
    import pyarrow as pa
    from pyarrow import parquet

    with replacing(folder.path / name) as unfinished:
        writer, path = None, unfinished.absolute()  # a relative a:1/jobs.parquet would be taken for a URI
        try:
            for constants, columns in blocks:
                length = len(next(iter(columns.values())))
                arrays = {key: pa.repeat(value, length) for key, value in constants.items()}
                table = pa.table(arrays | columns)
                writer = writer or parquet.ParquetWriter(path, table.schema, compression="zstd")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()
