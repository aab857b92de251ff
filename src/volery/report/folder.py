"""Reads a results folder as far as a report needs it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np

from volery.core.errors import DamagedError, InputError
from volery.integrity import unsealed
from volery.metrics import RunSummary
from volery.metrics.arrays import Floats
from volery.report.parquet import (
    AGAIN,
    ConflictTable,
    LoadTable,
    RunJobs,
    columns_of,
    names_of,
    read_conflicts,
    read_jobs,
    read_loads,
    readable,
    under_label,
)
from volery.report.plots import SeedCurves, Series
from volery.report.schema import (
    CONFLICTS,
    CONSTRAINT_LOAD,
    FLOWS,
    HEAT,
    JOBS,
    MANIFEST,
    STAGE_TIMES,
    SUMMARY,
    TASK_RUNS,
    UTILISATION,
    Flows,
    LabelledFlow,
    ResultsManifest,
    StageProfile,
    StageTimes,
    StudySummary,
)

WAITING, REFUSED = "waiting_tasks", "refused_tasks"
TIMELINE_COLUMNS = {
    TASK_RUNS: ("task", "job", "machine", "lane", "lanes", "start_us", "finish_us", "attempt", "killed", "share"),
    HEAT: ("machine", "machines", "begin_us", "end_us", "percent"),
}

Kind = TypeVar("Kind")
ShownManifest = ResultsManifest[dict[str, Any]]


class KeptTimeline(msgspec.Struct, frozen=True):
    """A run whose timeline a results folder has; `read_timeline` reads it.

    Args:
        is_small: true where the timeline has a row per task run, else it is a heat map.
    """

    label: str
    seed: int
    machines: int
    is_small: bool


class Timeline(msgspec.Struct, frozen=True, eq=False):
    """The task runs of one run by machine and time (`volery.metrics.timeline`).

    Args:
        machines, is_small: see `KeptTimeline`; the columns are those of task runs, or those of a heat map.
        submit_s: per job.
        curve: times (seconds) and utilisation.
    """

    label: str
    seed: int
    machines: int
    is_small: bool
    columns: dict[str, Any]
    submit_s: Floats
    curve: tuple[Floats, Floats]

    def span_us(self) -> tuple[int, int]:
        """The span from the first job or task to the end of the last task, us."""
        begin, end = ("start_us", "finish_us") if self.is_small else ("begin_us", "end_us")
        first = int(self.columns[begin].min())
        if self.is_small and self.submit_s.size:
            first = min(first, int(self.submit_s.min() * 1e6))
        return first, int(self.columns[end].max())


class StoredResults(msgspec.Struct, frozen=True):
    """A results folder in memory.

    Args:
        curves: label -> utilisation over time per seed.
        waiting: label -> tasks that wait over time per seed; NaN where a run has not kept it.
        refused: label -> placements that were refused per second, per seed; NaN where a run reports none.
        loads: per constraint, before any scheduler has a say.
        conflicts: conflicts over time, before any scheduler has a say.
        timelines: timelines that runs have kept, in the order of the summary; runs of an earlier version have none.
        profiles: time per stage, where it was measured.
        flows: messages between roles, in folders of finished studies.
    """

    path: Path
    manifest: ShownManifest
    summary: StudySummary
    curves: dict[str, SeedCurves]
    loads: list[LoadTable]
    timelines: list[KeptTimeline] = []
    profiles: list[StageProfile] = []
    flows: list[LabelledFlow] = []
    jobs: list[RunJobs] = []
    waiting: dict[str, SeedCurves] = {}
    refused: dict[str, SeedCurves] = {}
    conflicts: list[ConflictTable] = []

    def delays_s(self, label: str, jobs: str) -> Series:
        """The delays of a class of jobs ("all", "short", "long") per seed, without seeds that measured none."""
        per_seed = (run.delay_s[run.rows_of(jobs)] for run in under_label(self.jobs, label))
        return Series(label, tuple(sample for sample in per_seed if sample.size))


def read_results(folder: Path, jobs: list[RunJobs] | None = None) -> StoredResults:
    """Read a results folder.

    Args:
        jobs: jobs of every run, where they have been read.

    Raises:
        InputError: naming the file that is missing or damaged, and what to do about it.
    """
    manifest = _manifest(folder)
    summary = _json(folder / SUMMARY, StudySummary)

    if not summary.runs:
        raise InputError(str(folder / SUMMARY), f"holds no finished run; {AGAIN}")

    timelines = _timelines(folder, summary.runs)
    profiles = _profiles(folder, manifest)
    flows = _json(folder / FLOWS, Flows).flows if (folder / FLOWS).exists() else []
    jobs, loads = read_jobs(folder) if jobs is None else jobs, read_loads(folder)
    curves, waiting, refused = _curves(folder)

    return StoredResults(
        folder,
        manifest,
        summary,
        curves,
        loads,
        timelines,
        profiles,
        flows,
        jobs,
        waiting,
        refused,
        read_conflicts(folder),
    )


def tables(folder: Path) -> list[Path]:
    """The files that a study writes when it ends or is stopped, whether or not they are there.

    The manifest is none of them: while a study runs, it changes with every run that finishes.
    """
    names = (SUMMARY, JOBS, UTILISATION, CONSTRAINT_LOAD, CONFLICTS, STAGE_TIMES, FLOWS, *TIMELINE_COLUMNS)
    return [folder / name for name in names]


def glance(folder: Path) -> None:
    """Look whether a folder can be read, without its rows.

    Raises:
        InputError: naming the file that is missing or damaged, and what to do about it.
    """
    manifest = _manifest(folder)
    for name in (SUMMARY, JOBS, UTILISATION):
        if manifest.planned and not (folder / name).exists():
            raise InputError(str(folder / name), f"is missing: {_unfinished(manifest)}")
    _json(folder / SUMMARY, StudySummary)
    for path in tables(folder):
        if path.suffix == ".parquet" and path.exists():
            names_of(path)


def _manifest(folder: Path) -> ShownManifest:
    if not folder.is_dir():
        raise InputError(str(folder), "is no folder; give the output folder of `volery compare` or `volery run`")
    if not (folder / MANIFEST).exists():
        raise InputError(
            str(folder), f"is not a results folder: it has no {MANIFEST}; give that of `volery compare` or `volery run`"
        )
    return _json(folder / MANIFEST, ShownManifest)


def _unfinished(manifest: ShownManifest) -> str:
    """Why tables are missing, and what helps."""
    finished_runs = len(manifest.runs)
    if not finished_runs:
        return "no run of the study has finished yet; wait for it, or go on with it by its command"
    return (
        f"{finished_runs} of {manifest.planned} runs are finished. Wait for the study, or go on with it by its "
        "command; volery report DIR puts together what is finished"
    )


def _json(path: Path, kind: type[Kind]) -> Kind:
    try:
        return msgspec.json.decode(unsealed(path.read_bytes(), path), type=kind)
    except FileNotFoundError:
        raise InputError(str(path), f"is missing, so this is no complete results folder; {AGAIN}") from None
    except OSError as error:
        raise InputError(str(path), f"cannot be read ({error.strerror}); mend its permissions") from None
    except DamagedError as error:
        raise DamagedError(str(path), f"{error.problem}; {AGAIN}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is damaged or of another version of volery ({error}); {AGAIN}") from None


def _by_label_and_seed(columns: dict[str, Any]) -> dict[str, list[Any]]:
    """Label -> its rows per seed, labels in order of first appearance."""
    labels, seeds = columns["label"], columns["seed"]
    names = list(dict.fromkeys(labels.tolist()))
    number = {name: place for place, name in enumerate(names)}
    of = np.fromiter((number[label] for label in labels), dtype=np.int64, count=labels.size)

    order = np.lexsort((seeds, of))  # stable: rows of a run stay in their order
    edges = np.flatnonzero((np.diff(of[order]) != 0) | (np.diff(seeds[order]) != 0)) + 1
    rows_of: dict[str, list[Any]] = {name: [] for name in names}
    for rows in np.split(order, edges) if order.size else ():
        rows_of[names[of[rows[0]]]].append(rows)
    return rows_of


def _curves(folder: Path) -> tuple[dict[str, SeedCurves], dict[str, SeedCurves], dict[str, SeedCurves]]:
    """Utilisation, and tasks that wait and refused placements per second where the table has them."""
    names = ("label", "seed", "time_s", "utilisation")
    optional_names = [name for name in (WAITING, REFUSED) if name in names_of(folder / UTILISATION)]
    columns = columns_of(folder / UTILISATION, (*names, *optional_names))

    rows = _by_label_and_seed(columns)
    times = columns["time_s"].astype(np.float64)

    def of(name: str) -> dict[str, SeedCurves]:
        if name not in columns:
            return {}
        values = columns[name].astype(np.float64)
        return {
            label: SeedCurves(label, tuple(times[mask] for mask in masks), tuple(values[mask] for mask in masks))
            for label, masks in rows.items()
        }

    refused = {
        label: SeedCurves(label, refused_tasks.times_s, _per_second(refused_tasks))
        for label, refused_tasks in of(REFUSED).items()
    }
    return of("utilisation"), of(WAITING), refused


def _per_second(counts: SeedCurves) -> tuple[Floats, ...]:
    """Counts in intervals of equal length as rates; of a single interval its length is not known."""
    steps = (float(times[1] - times[0]) if times.size > 1 else 1.0 for times in counts.times_s)
    return tuple(values / step for values, step in zip(counts.values, steps, strict=True))


def _profiles(folder: Path, manifest: ShownManifest) -> list[StageProfile]:
    """The profiles of the manifest's runs: others were measured before the study or the code changed."""
    if not (folder / STAGE_TIMES).exists():
        return []
    run_keys = {line.key for line in manifest.runs}
    return [profile for profile in _json(folder / STAGE_TIMES, StageTimes).profiles if profile.key in run_keys]


def _timelines(folder: Path, runs: Sequence[RunSummary]) -> list[KeptTimeline]:
    from pyarrow import parquet

    is_small_run: dict[tuple[str, int], bool] = {}
    for name in TIMELINE_COLUMNS:
        path = folder / name
        if path.exists():
            with readable(path):
                rows = parquet.read_table(path, columns=["label", "seed"], read_dictionary=["label"])
            of = rows.unify_dictionaries().group_by(["label", "seed"]).aggregate([])
            is_small_run |= {(named_run["label"], named_run["seed"]): name == TASK_RUNS for named_run in of.to_pylist()}

    sizes = ((run, is_small_run.get((run.label, run.seed))) for run in runs)
    return [KeptTimeline(run.label, run.seed, run.workers, small) for run, small in sizes if small is not None]


def read_timeline(folder: Path, kept_timeline: KeptTimeline) -> Timeline:
    """The timeline of one of the runs for which a results folder has one.

    Raises:
        InputError: when a file of the folder is missing or damaged.
    """
    only, name = (kept_timeline.label, kept_timeline.seed), TASK_RUNS if kept_timeline.is_small else HEAT
    curve = columns_of(folder / UTILISATION, ("time_s", "utilisation"), only)
    return Timeline(
        *only,
        kept_timeline.machines,
        kept_timeline.is_small,
        columns_of(folder / name, TIMELINE_COLUMNS[name], only),
        columns_of(folder / JOBS, ("submit_s",), only)["submit_s"],
        (curve["time_s"], curve["utilisation"]),
    )
