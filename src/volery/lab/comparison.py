"""Results of the lab as Arrow tables, pictures, LaTeX and HTML: those of a study, and those of one run in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, TypeVar

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet
from rich.console import Group, RenderableType
from rich.text import Text

from volery.core.errors import InputError, suggestion
from volery.core.model import NEVER, SECOND, Cluster
from volery.core.records import Records
from volery.core.trace import Trace
from volery.lab.design import Definitions
from volery.lab.errors import CALLS
from volery.lab.pictures import Picture
from volery.lab.progress import LiveProgress
from volery.lab.shown import Shown
from volery.metrics import RunSummary
from volery.metrics.arrays import ready_us, tasks_per_job, view
from volery.report.export import WIDTHS, difference_rows, figures, latex_tables
from volery.report.groups import JobClass
from volery.report.plots import Series
from volery.report.schema import JOBS
from volery.report.tables import comparison as comparison_tables
from volery.study import PlannedRun, Results
from volery.study.plan import in_table_order, outline, recorded_parameters
from volery.study.results import labels_of, table_of, with_nulls
from volery.study.runner import again

Choice = TypeVar("Choice")
Columns = Mapping[str, Mapping[str, Any]]
"""Columns of jobs of a run by its key."""
CHANCES: Final = {"seeds": "differences", "jobs": "on_days_like_this"}
"""Chance of a comparison -> the list of the results that has it."""
DIFFERENCE_TEXTS: Final = frozenset({"chance", "a", "b", "jobs", "quantity", "unit", "method", "verdict"})
"""Columns of comparisons that hold texts."""


class Comparison(Shown):
    """The results of `compare`, or of a folder that `load` has read.

    Attributes:
        folder: folder of the results; None where they are in memory alone.
        digests: (label, seed) of each finished run -> SHA-256 of what happened to its tasks.
    """

    def __init__(
        self, results: Results, columns: Columns, definitions: Definitions, *, is_silent: bool = False
    ) -> None:
        self._results = results
        self._columns = columns
        self._definitions = definitions
        self._is_silent = is_silent
        self._tables: dict[str, pa.Table] = {}
        self.folder = results.folder
        self.digests = {(run.label, run.seed): run.digest for run in results.runs}

    @property
    def jobs(self) -> pa.Table:
        """An Arrow table with a row per job and run: the columns of jobs.parquet."""
        return self._kept("jobs", self._read_jobs)

    @property
    def tasks(self) -> pa.Table:
        """An Arrow table with a row per task and run: ready, start, finish (seconds), machine, attempt.

        Results do not keep tasks: each run is simulated again when this is first read, and its digest is compared.

        Raises:
            InputError: an input or a design is not as it was.
        """
        return self._kept("tasks", lambda: self._concatenated(self._run_tasks()))

    @property
    def summary(self) -> pa.Table:
        """An Arrow table with a row per run: axes, digest, and every measure that a run has, as `delay_s.p50`.

        `offered_load` is the load as it was measured; a column `load` is the axis of that name.
        """
        return self._kept("summary", lambda: summary_table(self._results.runs))

    @property
    def differences(self) -> pa.Table:
        """An Arrow table with a row per comparison: a, b, axes, quantity, means, interval, verdict.

        The column `chance` distinguishes comparisons over seeds from those of single runs, job by job.
        """
        return self._kept("differences", self._read_differences)

    def plot(self, name: str = "", width: Literal["single", "double"] = "double") -> Picture:
        """Draw one of the figures that `volery export` writes.

        Args:
            name: name of a figure, as "delay-all" or "mean-delay-all-over-load"; empty: the first, which is over an
                axis of numbers where the study has one. An error lists them.
            width: width of a column, or of a page, of papers.

        Raises:
            InputError: there is no such figure.
        """
        size = _one_of(WIDTHS, width, "width")
        return Picture(_one_of(figures(self._results.runs, _DelaySamples(self.jobs), size), name, "name"), size)

    def to_latex(self, name: str = "delay") -> str:
        """One of the tables that `volery export` writes, with booktabs.

        Args:
            name: name of a table, as "delay", "differences" or "mean-delay-all-over-load"; an error lists them.

        Raises:
            InputError: there is no such table.
        """
        return _one_of(latex_tables(self._results.runs, self._results), name, "name")()

    def _kept(self, name: str, make: Callable[[], pa.Table]) -> pa.Table:
        if name not in self._tables:
            self._tables[name] = make()
        return self._tables[name]

    def _read_jobs(self) -> pa.Table:
        if self.folder is not None:
            try:
                return parquet.read_table(self.folder / JOBS)
            except (OSError, pa.ArrowInvalid) as error:
                problem = f"cannot be read: {error}; run the study again with this folder"
                raise InputError(str(self.folder / JOBS), problem) from None
        labels = labels_of(self._results.study)
        return self._concatenated(
            table_of(labels(run), with_nulls(dict(self._columns[run.key]))) for run in self._finished_runs()
        )

    def _finished_runs(self) -> list[PlannedRun]:
        """The finished runs in the order of tables, with the keys that they had."""
        study, keys = self._results.study, self._results.keys
        with self._definitions.handed_over():
            runs = in_table_order(outline(study, recorded_parameters), study)
        # Whether gangs were read as tasks depends on all designs, and this session may not know some of them.
        readings = {(run.label, run.seed): {"are_gangs_tasks": run.are_gangs_tasks} for run in self._results.runs}
        return [
            msgspec.structs.replace(run, key=keys[place], spec=msgspec.structs.replace(run.spec, **readings[place]))
            for run in runs
            if (place := (run.spec.label, run.spec.seed)) in keys
        ]

    def _run_tasks(self) -> Iterator[pa.Table]:
        labels = labels_of(self._results.study)
        with CALLS, self._definitions.handed_over(), LiveProgress(self._is_silent) as watcher:
            for run in self._finished_runs():
                execution = again(run, watcher)
                if execution.outcome.summary.digest != self.digests[run.spec.label, run.spec.seed]:
                    problem = "gives another digest now: its input or its code has changed; run the study again"
                    raise InputError(f"{run.spec.label}, seed {run.spec.seed}", problem)
                yield table_of(labels(run), task_columns(execution.records))

    @staticmethod
    def _concatenated(tables: Iterable[pa.Table]) -> pa.Table:
        parts = list(tables)
        return pa.concat_tables(parts) if parts else pa.table({})

    def _read_differences(self) -> pa.Table:
        heads: list[str] = []
        rows: list[list[Any]] = []
        for chance, name in CHANCES.items():
            heads, *compared_rows = difference_rows(getattr(self._results, name), self._results.runs)
            rows += [[chance, *row] for row in compared_rows]
        columns = {head: [row[number] for row in rows] for number, head in enumerate(["chance", *heads])}
        # A column without any value has a type all the same: programs that read it have no column of nothing.
        kinds = {head: pa.string() if head in DIFFERENCE_TEXTS else pa.float64() for head in columns}
        return pa.table(
            {
                head: pa.array(values, kinds[head] if all(value is None for value in values) else None)
                for head, values in columns.items()
            }
        )

    def _rendered(self, width: int) -> RenderableType:
        results = self._results
        if not results.runs:
            return Text("No run has finished.")
        compared = results.differences, results.on_days_like_this
        tables = comparison_tables(results.runs, *compared, width=width, baseline=results.study.baseline)
        if len(results.runs) == results.planned:
            return tables
        return Group(tables, Text(f"{len(results.runs)} of {results.planned} runs are finished."))

    def __repr__(self) -> str:
        study = self._results.study
        labels = ", ".join(choice.label for choice in study.choices())
        return f"<volery comparison of {labels}: {len(self._results.runs)} runs, {len(study.seeds)} seeds>"


class _DelaySamples:
    """The delays in a table of jobs, as figures take them."""

    def __init__(self, jobs: pa.Table) -> None:
        self._jobs = jobs.select(["label", "seed", "counted", "is_short", "delay_s"])

    def delays_s(self, label: str, jobs: JobClass) -> Series:
        """The delays of a class of jobs of one label per seed, in seconds."""
        rows = self._jobs.filter(pc.field("label") == label).to_pydict()
        seeds, delays_s = np.array(rows["seed"]), np.array(rows["delay_s"], np.float64)

        is_measured = np.array(rows["counted"], np.bool_) & ~np.isnan(delays_s)
        if jobs != "all":
            is_measured &= np.array(rows["is_short"], np.bool_) == (jobs == "short")
        samples = (delays_s[is_measured & (seeds == seed)] for seed in dict.fromkeys(rows["seed"]))
        return Series(label, tuple(sample for sample in samples if sample.size))


class Simulation(Comparison):
    """One run with its records in memory; see `volery.simulate`.

    Attributes:
        digest: SHA-256 of what happened to every task.
        records: records of the driver: times, machine and attempt of each task, and the facts of components.
        trace, cluster: input of the run.
    """

    def __init__(
        self,
        results: Results,
        columns: Columns,
        definitions: Definitions,
        records: Records,
        cluster: Cluster,
    ) -> None:
        super().__init__(results, columns, definitions)
        self.digest = results.runs[0].digest
        self.records = records
        self.trace: Trace = records.trace
        self.cluster = cluster

    def _run_tasks(self) -> Iterator[pa.Table]:
        """The tasks of the records: nothing is simulated again."""
        (run,) = self._finished_runs()
        yield table_of(labels_of(self._results.study)(run), task_columns(self.records))

    def __repr__(self) -> str:
        run = self._results.runs[0]
        return f"<volery run of {run.label}, seed {run.seed}: {run.jobs} jobs, digest {self.digest[:16]}>"


def task_columns(records: Records) -> dict[str, Any]:
    """The columns of a run's tasks; null for what did not happen, times in seconds since the run began."""
    trace = records.trace
    tasks_of_jobs = tasks_per_job(trace)
    submit_us = view(trace.submit_us) if trace.submit_us else np.repeat(view(trace.arrival_us), tasks_of_jobs)
    times = {"ready_s": ready_us(records), "start_s": view(records.start_us), "finish_s": view(records.finish_us)}
    machine = np.asarray(records.worker)

    return {
        "job": np.repeat(np.arange(trace.job_count), tasks_of_jobs),
        "task": np.arange(trace.task_count),
        "submit_s": submit_us / SECOND,
        **{name: pa.array(column / SECOND, mask=column == NEVER) for name, column in times.items()},
        "machine": pa.array(machine, mask=machine < 0),
        "attempt": np.asarray(records.attempt).astype(np.int64),
    }


def summary_table(runs: Sequence[RunSummary]) -> pa.Table:
    """The measures of runs, a row each; a measure that no run has is no column."""
    rows = [_flat(run) for run in runs]
    names = dict.fromkeys(name for row in rows for name in row)
    columns = {name: [row.get(name) for row in rows] for name in names}
    return pa.table({name: values for name, values in columns.items() if any(value is not None for value in values)})


def _flat(run: RunSummary) -> dict[str, Any]:
    measures: dict[str, Any] = msgspec.to_builtins(run)
    axes: dict[str, Any] = measures.pop("axes")
    measures["offered_load"] = measures.pop("load")
    parameters = measures.pop("parameters")
    first: dict[str, Any] = {name: measures.pop(name) for name in ("architecture", "label", "seed", "digest")}
    given = {f"parameters.{name}": str(value) for name, value in parameters.items()}
    return first | axes | given | {name: value for name, value in _leaves(measures) if name not in axes}


def _leaves(measures: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """The values in nested tables by their names, joined by dots; lists stay whole."""
    for name, value in measures.items():
        if isinstance(value, dict):
            yield from _leaves(value, f"{prefix}{name}.")
        elif value != []:
            yield prefix + name, value


def _one_of(choices: Mapping[str, Choice], name: str, place: str) -> Choice:
    """The choice of a name; of an empty name the first.

    Raises:
        InputError: at the place, with the names that there are.
    """
    if name in choices:
        return choices[name]
    if name or not choices:
        listed = f"{suggestion(str(name), choices)}" if choices else "; no run has measured a job"
        raise InputError(place, f"there is no {name!r}{listed}")
    return next(iter(choices.values()))
