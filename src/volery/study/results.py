"""The results folder: what a study leaves, written run by run so that a stop loses nothing that was finished.

Its Parquet tables are put together from the finished runs. Files, their types, and columns: `volery.report.schema`.
`check_results` compares every file with its digest, and runs nothing again.
"""

from __future__ import annotations

import contextlib
import errno
import itertools
import os
import shutil
import tempfile
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np
from filelock import FileLock, Timeout

from volery.core.errors import DamagedError, InputError
from volery.integrity import (
    SUMS,
    CheckedFile,
    checked,
    damaged_files,
    file_digest,
    has_seal,
    recorded_sums,
    sealed,
    sums_of,
    unsealed,
)
from volery.metrics import conflicts_per_second, constraint_load, distribution, over_intervals, timeline
from volery.report.schema import (
    CONFLICTS,
    CONSTRAINT_LOAD,
    FLOWS,
    HEAT,
    JOBS,
    LOCK,
    MANIFEST,
    RUNS,
    STAGE_TIMES,
    SUMMARY,
    TASK_RUNS,
    UTILISATION,
    Flows,
    ResultsManifest,
    StageTimes,
    StoredRun,
    StudySummary,
)
from volery.study.plan import PlannedRun, inputs_key
from volery.study.runs import Inputs, RunOutcome, read_inputs
from volery.study.spec import StudySpec

StudyManifest = ResultsManifest[StudySpec]


@contextlib.contextmanager
def sole_writer(folder: Path | None) -> Iterator[None]:
    """Keep every other study out of a results folder while this one writes there.

    Raises:
        InputError: another process writes there, or the folder cannot be made.
    """
    if folder is None or folder.is_file():  # what is wrong with a file is said where the folder is opened
        yield
        return

    try:
        folder.mkdir(parents=True, exist_ok=True)
        lock = FileLock(folder / LOCK)
        lock.acquire(blocking=False)
    except Timeout:
        raise InputError(
            str(folder), "another study is being written there; wait until it ends, or give another folder"
        ) from None
    except OSError as error:
        raise InputError(str(folder), f"cannot be written: {error.strerror}") from None

    try:
        yield
    finally:
        lock.release()


class ResultsFolder:
    """A folder of results on disk."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def open(self, study: StudySpec, force: bool) -> StudyManifest | None:
        """Make the folder ready for a study and return the manifest of an earlier, equal one that can be continued.

        Raises:
            InputError: when it cannot be written, or holds another study and `force` is false.
        """
        place = str(self.path)
        if self.path.exists() and not self.path.is_dir():
            raise InputError(place, "is a file; give a folder for the results")

        earlier = None

        if (self.path / MANIFEST).exists():
            try:
                earlier = self.manifest()
            except InputError:
                if not force:
                    raise
            if earlier is not None and not earlier.config.same_runs(study):
                if earlier.runs and not force:
                    raise InputError(
                        place,
                        f"holds the results of another study ({earlier.config.name!r}); give another folder, or "
                        "--force to replace them (finished runs that both studies share are kept)",
                    )
                earlier = None

        try:
            # Writing is tried before the first run: a study of hours is not to fail at its end.
            (self.path / RUNS).mkdir(parents=True, exist_ok=True)
            with tempfile.TemporaryFile(dir=self.path), tempfile.TemporaryFile(dir=self.path / RUNS):
                pass
        except OSError as error:
            raise InputError(place, f"cannot be written: {error.strerror}") from None

        return earlier

    def manifest(self) -> StudyManifest:
        """Read the manifest.

        Raises:
            InputError: when the folder holds none, or one of another version.
        """
        manifest: StudyManifest = self._read(self.path / MANIFEST, StudyManifest)
        short = manifest.config.in_label  # an earlier version wrote labels with whole paths
        runs = tuple(msgspec.structs.replace(line, label=short(line.label)) for line in manifest.runs)
        return msgspec.structs.replace(manifest, runs=runs)

    def summary(self) -> bytes:
        """The text of summary.json.

        Raises:
            InputError: when the folder holds none.
        """
        self.manifest()
        path = self.path / SUMMARY
        try:
            return unsealed(path.read_bytes(), path)
        except OSError as error:
            raise InputError(str(self.path / SUMMARY), f"cannot be read: {error.strerror}") from None

    def _read(self, path: Path, kind: type[Any]) -> Any:
        try:
            return msgspec.json.decode(unsealed(path.read_bytes(), path), type=kind)
        except FileNotFoundError:
            raise InputError(str(path.parent), f"is not a results folder: it has no {path.name}") from None
        except OSError as error:
            raise InputError(str(path), f"cannot be read: {error.strerror}") from None
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise InputError(str(path), f"is damaged or of another version of volery: {error}") from None

    def finished(self, key: str) -> StoredRun | None:
        """The run of this key, if it is here whole."""
        stored = self.summarised(key)
        return stored if stored is not None and self.has_columns(stored) else None

    def has_columns(self, stored: StoredRun) -> bool:
        """True if the columns of a run are here, with the digest that they had when they were written."""
        path = self._run_path(stored.key).with_suffix(".npz")
        if not stored.columns_sha256:
            return _is_whole(path)
        try:
            return file_digest(path) == stored.columns_sha256
        except OSError:
            return False

    def summarised(self, key: str) -> StoredRun | None:
        """The JSON part of the run of this key, if it is here and can be read."""
        try:
            run: StoredRun = self._read(self._run_path(key), StoredRun)
        except InputError:
            return None
        return run if run.key == key else None

    def write_run(self, key: str, outcome: RunOutcome) -> StoredRun:
        """Store a finished run; its JSON comes last, so that a run that has one is whole."""
        columns = {f"jobs_{name}": column for name, column in outcome.jobs.items()}
        columns |= {f"curve_{name}": column for name, column in outcome.curve.items()}
        for part, part_columns in (outcome.explained | outcome.timeline).items():
            columns |= {f"{part}_{name}": column for name, column in part_columns.items()}
        with replacing(self._run_path(key).with_suffix(".npz")) as unfinished, unfinished.open("wb") as stream:
            np.savez_compressed(stream, **columns)

        digest = file_digest(self._run_path(key).with_suffix(".npz"))
        stored = StoredRun(key, outcome.summary, outcome.trace, digest)
        write_json(self._run_path(key), stored)
        return stored

    def columns(self, key: str, part: str) -> dict[str, Any]:
        """The columns "jobs", "curve", or a part of `metrics.explanations` or `metrics.timeline`, of a finished run.

        Raises:
            InputError: when they are missing or damaged.
        """
        path = self._run_path(key).with_suffix(".npz")
        prefix = f"{part}_"
        with _undamaged(path), path.open("rb") as stream, np.load(stream, allow_pickle=False) as archive:
            return {name.removeprefix(prefix): archive[name] for name in archive.files if name.startswith(prefix)}

    def mapped(self, key: str, part: str) -> dict[str, Any]:
        """The result of `columns` on disk, in files without a name that end with the arrays: little is held in memory.

        Raises:
            InputError: when they are missing or damaged, or there is no room for them.
        """
        path = self._run_path(key).with_suffix(".npz")
        arrays = dict[str, Any]()
        with _undamaged(path), zipfile.ZipFile(path) as archive, tempfile.TemporaryDirectory() as place:
            for name in archive.namelist():
                if name.startswith(f"{part}_"):
                    at = Path(place) / name
                    with archive.open(name) as packed, at.open("wb") as stream:
                        shutil.copyfileobj(packed, stream, 1 << 20)
                    arrays[name.removeprefix(f"{part}_").removesuffix(".npy")] = np.load(at, mmap_mode="r")

        return arrays

    def has(self, key: str, part: str) -> bool:
        """True if a finished run has a part; its columns are not read.

        Raises:
            InputError: when they are missing or damaged.
        """
        path = self._run_path(key).with_suffix(".npz")
        with _undamaged(path), zipfile.ZipFile(path) as archive:
            return any(name.startswith(f"{part}_") for name in archive.namelist())

    def forget_others(self, keys: set[str]) -> None:
        """Remove what was stored for runs that are no part of the finished study, and what a kill left half written."""
        for path in (self.path / RUNS).iterdir():
            if path.is_file() and path.stem not in keys:
                path.unlink(missing_ok=True)

    def _run_path(self, key: str) -> Path:
        return self.path / RUNS / f"{key}.json"


def damage() -> tuple[type[Exception], ...]:
    """Errors that reading a damaged archive raises; a flag that nobody set, for example of encryption: RuntimeError."""
    return OSError, ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error


@contextlib.contextmanager
def _undamaged(path: Path) -> Iterator[None]:
    """Refuse a run's archive that turns out to be damaged, or for which there is no room."""
    try:
        yield
    except damage() as error:
        full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        fix = "make room on the disk" if full else "run the study again with this folder"
        raise InputError(str(path), f"cannot be read: {error}; {fix}") from None


def _is_whole(path: Path) -> bool:
    """True if an archive is there and every part of it has its checksum."""
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.testzip() is None
    except damage():
        return False


@contextlib.contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """A file to be written beside `path`; it takes its place when all went well, and vanishes otherwise.

    Raises:
        InputError: when it cannot be written, for example because the disk is full.
    """
    unfinished = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        yield unfinished
        unfinished.replace(path)
    except OSError as error:
        raise InputError(str(path), f"cannot be written: {error.strerror or error}") from error
    finally:
        with contextlib.suppress(OSError):  # a file system that became read-only refuses this, too
            unfinished.unlink(missing_ok=True)


def write_json(path: Path, content: Any) -> None:
    """Write an object as indented JSON with its digest, atomically."""
    with replacing(path) as unfinished:
        unfinished.write_bytes(sealed(msgspec.json.format(msgspec.json.encode(content), indent=2) + b"\n"))


def write_sums(folder: Path) -> None:
    """Write the digests of all tables and pages of a folder."""
    with replacing(folder / SUMS) as unfinished:
        unfinished.write_text(sums_of(folder), encoding="utf-8")


Block = tuple[dict[str, Any], dict[str, Any]]
"""Rows of one run or input: what is the same in all of them, and columns."""
TIMELINES = {timeline.TASK_RUNS: TASK_RUNS, timeline.HEAT: HEAT}


def write_tables(folder: ResultsFolder, runs: Sequence[PlannedRun], study: StudySpec) -> None:
    """Write jobs.parquet and utilisation.parquet of finished runs of a study, and the table of what ran where and when.

    Runs that an earlier version has kept have no part of the last; a table without rows is not written.

    Raises:
        InputError: when the columns of a run are missing or damaged.
    """
    labels = labels_of(study)
    _write(folder, JOBS, ((labels(run), with_nulls(folder.columns(run.key, "jobs"))) for run in runs))
    _write(folder, UTILISATION, ((labels(run), _curve(folder, run)) for run in runs))
    for part, name in TIMELINES.items():
        kept_columns = ((run, folder.columns(run.key, part)) for run in runs)
        _write(folder, name, ((labels(run), columns) for run, columns in kept_columns if columns))


def labels_of(study: StudySpec) -> Callable[[PlannedRun], dict[str, Any]]:
    """The columns that are the same in all rows of a run of a study: its key, names, seed and axes."""
    import pyarrow as pa

    types = {name: pa.array(values).type for name, values in study.axis_columns().items()}

    def labels(run: PlannedRun) -> dict[str, Any]:
        spec = run.spec
        named = {"run": run.key, "architecture": spec.architecture, "label": spec.label, "seed": spec.seed}
        return named | {name: pa.scalar(value, types[name]) for name, value in study.axis_values(spec).items()}

    return labels


def table_of(labels: dict[str, Any], columns: dict[str, Any]) -> Any:
    """An Arrow table of the columns of one run or input, with what is the same in all rows."""
    import pyarrow as pa

    length = len(next(iter(columns.values())))
    return pa.table({name: pa.repeat(value, length) for name, value in labels.items()} | columns)


def write_constraint_load(folder: ResultsFolder, runs: Sequence[PlannedRun]) -> None:
    """Write constraint_load.parquet: load per constraint, one block for each distinct input of the runs.

    Tasks are taken to run when they arrive, so that the table says what is asked of the machines, not what a scheduler
    made of it. Nothing is written where no run has constraints.

    Raises:
        InputError: when an input cannot be read.
    """
    blocks = []
    for key, run in _with_constraints(runs).items():
        rows = _kept(folder.path / RUNS / f"{key}.load", run, _loads, _KeptLoads).rows
        if rows:
            blocks.append((_setting(run), {name: [row[name] for row in rows] for name in rows[0]}))
    _write(folder, CONSTRAINT_LOAD, blocks)


def write_conflicts(folder: ResultsFolder, runs: Sequence[PlannedRun]) -> None:
    """Write conflicts.parquet: scheduling conflicts over time, one block for each distinct input of the runs.

    Its last columns are the same in all rows of a block: of all seconds, not of intervals. Nothing is written where no
    run has constraints, nor of machines that offer amounts, where no slot tells whether two tasks are in conflict.

    Raises:
        InputError: when an input cannot be read.
    """
    blocks = []
    for key, run in _with_constraints(runs).items():
        kept_conflicts = _kept(folder.path / RUNS / f"{key}.conflicts", run, _conflicts, _KeptConflicts)
        if kept_conflicts.columns.get("begin_s"):
            count = len(kept_conflicts.columns["begin_s"])
            constant = {name: [value] * count for name, value in kept_conflicts.statistics.items()}
            blocks.append((_setting(run), kept_conflicts.columns | constant))

    _write(folder, CONFLICTS, blocks)


def _kept(path: Path, run: PlannedRun, make: Callable[[Inputs], Any], kind: Any) -> Any:
    """Measures of the input of a run; they are made once, and kept as JSON; damaged ones are made again."""
    try:
        return msgspec.json.decode(unsealed(path.read_bytes(), path), type=kind)
    except (OSError, ValueError):  # also those of an earlier version
        measures = make(read_inputs(run.spec))
        write_json(path, measures)
        return measures


class _KeptLoads(msgspec.Struct):
    """The loads of one input, a row per constraint."""

    rows: list[dict[str, float]] = []


class _KeptConflicts(msgspec.Struct):
    """The conflicts of one input; empty where its machines have no slots."""

    columns: dict[str, list[float]] = {}
    statistics: dict[str, float] = {}


def _loads(inputs: Inputs) -> _KeptLoads:
    return _KeptLoads([msgspec.structs.asdict(load) for load in constraint_load(inputs.trace, inputs.cluster)])


def _conflicts(inputs: Inputs) -> _KeptConflicts:
    if inputs.cluster.resources:
        return _KeptConflicts()

    conflicts = conflicts_per_second(inputs.trace, inputs.cluster)
    over = {"waiting": distribution(conflicts.waiting), "collisions": distribution(conflicts.collisions)}

    return _KeptConflicts(
        {name: column.tolist() for name, column in over_intervals(conflicts).items()},
        {
            f"{name}_{p}": float(getattr(values, p))
            for name, values in over.items()
            for p in ("mean", "p50", "p95", "p99")
        },
    )


def _with_constraints(runs: Sequence[PlannedRun]) -> dict[str, PlannedRun]:
    """A run of each distinct input that has constraints, by the input's key."""
    return {inputs_key(run.spec): run for run in runs if run.spec.constraints != "none"}


def _setting(run: PlannedRun) -> dict[str, Any]:
    load = {} if run.spec.load is None else {"load": run.spec.load}
    return {"trace": run.spec.trace, "workers": run.spec.workers, **load, "seed": run.spec.seed}


def with_nulls(columns: dict[str, Any]) -> dict[str, Any]:
    """The columns of a run's jobs with nulls for what did not happen: runs keep -1 us there."""
    import pyarrow as pa

    missing: dict[str, Any] = {name: columns[name] < 0 for name in ("ideal_s", "jrt_s", "wait_s") if name in columns}
    missing["delay_s"] = missing["jrt_s"]  # a delay itself may be negative, on machines that are faster than the trace
    return columns | {name: pa.array(columns[name], mask=is_missing) for name, is_missing in missing.items()}


def _curve(folder: ResultsFolder, run: PlannedRun) -> dict[str, Any]:
    """Utilisation, queue and refusals over time, with nulls for what the run does not report."""
    import pyarrow as pa

    columns = folder.columns(run.key, "curve")
    nothing_known = columns["time_s"] * float("nan")
    optional_columns = {name: columns.get(name, nothing_known) for name in ("waiting_tasks", "refused_tasks")}
    return columns | {name: pa.array(values, from_pandas=True) for name, values in optional_columns.items()}


def _write(folder: ResultsFolder, name: str, blocks: Iterable[Block]) -> None:
    """One row group per block; what is constant in a block costs next to nothing. Without blocks there is no table."""
    from pyarrow import parquet

    blocks = iter(blocks)
    first = next(blocks, None)
    if first is None:
        (folder.path / name).unlink(missing_ok=True)
        return

    with replacing(folder.path / name) as unfinished:
        writer, path = None, unfinished.absolute()  # a relative a:1/jobs.parquet would be taken for a URI
        try:
            for constants, columns in itertools.chain([first], blocks):
                table = table_of(constants, columns)
                writer = writer or parquet.ParquetWriter(path, table.schema, compression="zstd")
                writer.write_table(table)
        finally:
            if writer is not None:
                writer.close()


WITHOUT: Final = "has no digest: an earlier version wrote it"
_KINDS: Final[dict[str, Any]] = {MANIFEST: StudyManifest, SUMMARY: StudySummary, FLOWS: Flows, STAGE_TIMES: StageTimes}


def check_results(folder: Path) -> Iterator[CheckedFile]:
    """All files of a results folder that have digests, and what is missing."""
    for name, kind in _KINDS.items():
        if (folder / name).exists():
            yield checked(folder / name, partial(_check_json, kind))
    yield from _check_runs(folder)
    for path in sorted((folder / RUNS).glob("*.load")) + sorted((folder / RUNS).glob("*.conflicts")):
        yield checked(path, partial(_check_json, dict))
    yield checked(folder / SUMS, _check_sums)


def _check_json(kind: Any, path: Path) -> str:
    try:
        text = path.read_bytes()
        msgspec.json.decode(unsealed(text, path), type=kind)
    except OSError as error:
        raise InputError(str(path), f"cannot be read: {error.strerror}") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(str(path), f"is damaged or of another version of volery: {error}") from None
    return "" if has_seal(text) else WITHOUT


def _check_runs(folder: Path) -> Iterator[CheckedFile]:
    """The finished runs: those that the manifest lists, and others that the folder keeps."""
    results = ResultsFolder(folder)
    try:
        listed = {line.key: f"{line.label}, seed {line.seed}" for line in results.manifest().runs}
    except InputError:  # listed as damaged
        listed = {}

    for key in sorted(listed.keys() | {path.stem for path in (folder / RUNS).glob("*.json")}):
        path = folder / RUNS / f"{key}.json"
        if not path.exists():
            yield CheckedFile(str(path), (f"is missing, but {MANIFEST} lists it ({listed[key]})",))
            continue
        file = checked(path, partial(_check_json, StoredRun))
        yield file

        # The columns can be checked only against the digest in a sound JSON file.
        stored = results.summarised(key) if not file.damages else None
        if stored is not None:
            yield checked(path.with_suffix(".npz"), partial(_check_columns, results, stored))


def _check_columns(results: ResultsFolder, stored: StoredRun, path: Path) -> str:
    if not path.exists():
        raise DamagedError(str(path), f"is missing, but {stored.key[:8]}.json names it")
    if not results.has_columns(stored):
        raise DamagedError(str(path), "is damaged: its digest is another than in the JSON file beside it")
    return "" if stored.columns_sha256 else WITHOUT


def _check_sums(path: Path) -> str | tuple[str, ...]:
    folder = path.parent
    damages = tuple(str(error) for error in damaged_files(folder))
    recorded = recorded_sums(folder)
    tables = sorted(table.name for table in folder.glob("*.parquet"))
    if path.exists():
        return *damages, *(f"does not name {table}, which lies beside it" for table in tables if table not in recorded)
    return "has no digests: an earlier version wrote the tables, or a study has not ended" if tables else ""
