"""The tables of a results folder: their digests, columns of any table, jobs run by run, load, conflicts.

The digests of tables and pages are in the file `SHA256SUMS`. It is removed before one of the others is written, and
made again when all are there.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.errors import DamagedError, InputError
from volery.metrics import ConstraintLoad
from volery.metrics.arrays import Flags, Floats, Longs
from volery.report.schema import CONFLICTS, CONSTRAINT_LOAD, JOBS, SUMS

_LINE: Final = re.compile(r"([0-9a-f]{64})  ([^/\n]+)")
_FILES: Final = ("*.parquet", "*.html")


def file_digest(path: Path) -> str:
    """The SHA-256 of a file's bytes.

    Raises:
        OSError: the file cannot be read.
    """
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def remove_sums(folder: Path) -> None:
    """Remove the digests of a folder, a file of which is about to be written."""
    (folder / SUMS).unlink(missing_ok=True)


def sums_of(folder: Path) -> str:
    """The lines for all tables and pages of a folder, as the program sha256sum prints them."""
    paths = sorted(path for pattern in _FILES for path in folder.glob(pattern))
    return "".join(f"{file_digest(path)}  {path.name}\n" for path in paths)


def recorded_sums(folder: Path) -> dict[str, str]:
    """The digests in a folder's `SHA256SUMS`, by file name; empty where there is none.

    Raises:
        DamagedError: A line has no digest with the name of a file.
    """
    path = folder / SUMS

    try:
        lines = path.read_bytes().decode("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return {}

    sums = {}
    for number, line in enumerate(lines, 1):
        words = _LINE.fullmatch(line)
        if words is None:
            raise DamagedError(f"{path}:{number}", "is damaged: it is no digest with the name of a file")
        sums[words[2]] = words[1]
    return sums


def demand_digest(path: Path) -> None:
    """Refuse a table that has another digest than when it was written; one without a recorded digest is taken.

    Raises:
        DamagedError: it has, or `SHA256SUMS` is damaged.
        OSError: it cannot be read.
    """
    recorded = recorded_sums(path.parent).get(path.name)
    if recorded is None:
        return
    state = path.stat()
    if _digest_of_state(path, state.st_mtime_ns, state.st_size, state.st_ino) != recorded:
        raise DamagedError(str(path), f"is damaged: its digest is another than in {SUMS}")


@lru_cache(maxsize=64)
def _digest_of_state(path: Path, _mtime_ns: int, _size: int, _inode: int) -> str:
    return file_digest(path)


def damaged_files(folder: Path) -> Iterator[DamagedError]:
    """The files of a folder that are missing, cannot be read, or have another digest than in `SHA256SUMS`.

    Raises:
        DamagedError: that file itself is damaged.
    """
    for name, recorded in recorded_sums(folder).items():
        path = folder / name
        try:
            if file_digest(path) != recorded:
                yield DamagedError(str(path), f"is damaged: its digest is another than in {SUMS}")
        except FileNotFoundError:
            yield DamagedError(str(path), f"is missing, but {SUMS} names it")
        except OSError as error:
            yield DamagedError(str(path), f"cannot be read: {error.strerror}")


TYPES: Final[dict[str, Any]] = {
    "job": np.int64,
    "submit_s": np.float64,
    "tasks": np.int64,
    "jrt_s": np.float64,
    "delay_s": np.float64,
    "is_short": np.bool_,
}
"""Types of the columns of a run's jobs; a table of an old version may lack some."""
COUNTED: Final = "counted"
"""The column of jobs that were submitted within the measurement window; others are not measured."""
AGAIN: Final = "run the study again with the same output folder: finished runs are kept"


class RunJobs(msgspec.Struct, frozen=True, eq=False):
    """The jobs of one run; a delay of NaN stands for a job that was not measured.

    Args:
        submit_s: time of submission, seconds since the run began.
        jrt_s, delay_s: job response time and delay, seconds; a delay is negative on machines faster than the trace.
    """

    label: str
    seed: int
    job: Longs
    submit_s: Floats
    tasks: Longs
    jrt_s: Floats
    delay_s: Floats
    is_short: Flags

    def rows_of(self, jobs: str) -> Longs:
        """Places of the measured jobs of a class, "all", "short" or "long"."""
        measured = ~np.isnan(self.delay_s)
        if jobs != "all":
            measured &= self.is_short if jobs == "short" else ~self.is_short
        return np.flatnonzero(measured)


class Part(msgspec.Struct, frozen=True, eq=False):
    """Rows of one run that stand together in the file, as columns in the types of `RunJobs`."""

    label: str
    seed: int
    columns: dict[str, Any]


ReportProgress = Callable[[int, int], None]
"""A function that is called with the number of rows that have been read, and of all rows."""


def read_jobs(folder: Path, progress: ReportProgress | None = None) -> list[RunJobs]:
    """The jobs of every run of a results folder, in the order of the file.

    Raises:
        InputError: when the table is missing or damaged.
    """
    parts: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for part in each_part(folder, progress):
        parts.setdefault((part.label, part.seed), []).append(part.columns)
    return [
        RunJobs(*run, **{name: _joined([columns[name] for columns in columns_of_parts]) for name in TYPES})
        for run, columns_of_parts in parts.items()
    ]


def _joined(columns: Sequence[Any]) -> Any:
    return columns[0] if len(columns) == 1 else np.concatenate(columns)


def each_part(folder: Path, progress: ReportProgress | None = None) -> Iterator[Part]:
    """The rows of jobs.parquet, one group of them in memory after the other.

    Raises:
        InputError: when the table is missing or damaged.
    """
    from pyarrow import parquet

    path = folder / JOBS
    with readable(path), parquet.ParquetFile(path, read_dictionary=["label"]) as file:
        # Tables of earlier versions lack columns; `_typed` puts defaults in their place.
        present = file.schema_arrow.names
        _check(path, ("label", "seed", "delay_s", "is_short"), present)
        names = ["label", "seed", *(name for name in (*TYPES, COUNTED) if name in present)]

        rows = file.metadata.num_rows
        read = 0
        rows_of = dict[tuple[str, int], int]()
        for group in range(file.num_row_groups):
            table = file.read_row_group(group, columns=names)
            for run, columns, count in _by_run(table):
                first = rows_of.get(run, 0)
                yield Part(*run, _typed(columns, first, count))
                rows_of[run] = first + count
            read += table.num_rows
            if progress is not None:
                progress(read, rows)


@contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns errors of reading a table into those that name the file, and what to do about it.

    Raises:
        InputError: the table is missing or damaged.
    """
    import pyarrow as pa

    try:
        demand_digest(path)
        yield
    except DamagedError as error:
        raise DamagedError(error.place, f"{error.problem}; {AGAIN}") from None
    except FileNotFoundError:
        raise InputError(str(path), f"is missing; {AGAIN}") from None
    except (OSError, pa.ArrowException) as error:
        reason = str(error).partition("\n")[0]
        raise InputError(str(path), f"is damaged ({reason}); delete it, then {AGAIN}") from None


def _check(path: Path, names: Sequence[str], present: Sequence[str]) -> None:
    missing = [name for name in names if name not in present]
    if missing:
        raise InputError(str(path), f"has no column {missing[0]!r}; {AGAIN}")


def _by_run(table: Any) -> Iterator[tuple[tuple[str, int], dict[str, Any], int]]:
    """Stretches of rows of one run: label and seed, columns, and number of rows."""
    labels = table.unify_dictionaries().column("label").combine_chunks()
    names = labels.dictionary.to_pylist()
    number = labels.indices.to_numpy()
    seed = table.column("seed").to_numpy()
    columns = {name: table.column(name).to_numpy() for name in table.column_names if name not in ("label", "seed")}
    if not number.size:
        return

    # A row group may end one run and begin the next.
    edges = np.flatnonzero((np.diff(number) != 0) | (np.diff(seed) != 0)) + 1
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), number.size], strict=True):
        run_columns = {name: column[low:high] for name, column in columns.items()}
        yield (names[number[low]], int(seed[low])), run_columns, high - low


def _typed(columns: dict[str, Any], first: int, count: int) -> dict[str, Any]:
    """Columns in their types; what the table of an old version lacks is numbered from `first`, or unknown.

    Old versions have -1e-06 where nothing was measured; a job response time, unlike a delay, is never negative.
    """
    measured = columns.get("jrt_s", columns["delay_s"]) >= 0

    if COUNTED in columns:
        measured &= columns[COUNTED]
    columns = columns | {"delay_s": np.where(measured, columns["delay_s"], np.nan)}

    defaults = {"job": np.arange(first, first + count), "tasks": np.zeros(count)}
    return {
        name: np.asarray(columns[name] if name in columns else defaults.get(name, np.full(count, np.nan)), dtype=kind)
        for name, kind in TYPES.items()
    }


def under_label(runs: Iterable[RunJobs], label: str) -> list[RunJobs]:
    """The runs of one label, by seed."""
    return sorted((run for run in runs if run.label == label), key=lambda run: run.seed)


def columns_of(path: Path, names: tuple[str, ...], only: tuple[str, int] | None = None) -> dict[str, Any]:
    """Columns of a Parquet file: numpy arrays, of objects for text; of one run alone, by label and seed.

    Raises:
        InputError: when the file is missing, damaged, or has not all of these columns.
    """
    from pyarrow import parquet

    _check(path, names, names_of(path))

    with readable(path):
        matching = [("label", "==", only[0]), ("seed", "==", only[1])] if only is not None else None
        table = parquet.read_table(path, columns=list(names), filters=matching)
    return {name: table.column(name).to_numpy() for name in names}


def names_of(path: Path) -> list[str]:
    """The columns that a Parquet file has.

    Raises:
        InputError: when it is missing or damaged.
    """
    from pyarrow import parquet

    with readable(path):
        names: list[str] = parquet.read_schema(path).names
    return names


KINDS: Final = ("waiting", "collisions")
STATISTICS: Final = ("mean", "p50", "p95", "p99")


class LoadTable(msgspec.Struct, frozen=True):
    """Load per constraint of one workload on one cluster, averaged over what was drawn under each seed."""

    title: str
    loads: list[ConstraintLoad]


class ConflictTable(msgspec.Struct, frozen=True, eq=False):
    """Conflicts per second of one workload on one cluster, in the intervals of the seed that lasts longest.

    Args:
        title: name of workload and cluster, where a study has several.
        mean, largest: kind ("waiting" or "collisions") -> per interval; means over the seeds, the largest of any.
        over: kind -> mean, median, p95, p99 (means over the seeds) and maximum of all seconds.
    """

    title: str
    begin_s: Floats
    end_s: Floats
    mean: dict[str, Floats]
    largest: dict[str, Floats]
    over: dict[str, tuple[float, ...]]


def read_loads(folder: Path) -> list[LoadTable]:
    """Load per constraint, as far as the folder has it.

    Raises:
        InputError: when its table is damaged.
    """
    path = folder / CONSTRAINT_LOAD
    if not path.exists():
        return []
    columns = columns_of(path, ("constraint", "mean", "median", "p95", "p99", *_of_setting(path)))
    return [LoadTable(title, _mean_loads(columns, rows)) for title, rows in _settings(columns)]


def _mean_loads(columns: dict[str, Any], rows: Any) -> list[ConstraintLoad]:

    numbers = columns["constraint"][rows].astype(np.int64)
    statistics: dict[str, Floats] = {name: columns[name][rows] for name in ("mean", "median", "p95", "p99")}
    return [
        ConstraintLoad(int(c), *(float(values[numbers == c].mean()) for values in statistics.values()))
        for c in np.unique(numbers)
    ]


def read_conflicts(folder: Path) -> list[ConflictTable]:
    """Conflicts over time, as far as the folder has them.

    Raises:
        InputError: when their table is damaged.
    """
    path = folder / CONFLICTS
    if not path.exists():
        return []
    values = [
        name for kind in KINDS for name in (kind, f"{kind}_max", *(f"{kind}_{statistic}" for statistic in STATISTICS))
    ]
    columns = columns_of(path, ("seed", "begin_s", "end_s", *values, *_of_setting(path)))
    return [_conflict_table(title, columns, rows) for title, rows in _settings(columns)]


def _conflict_table(title: str, columns: dict[str, Any], rows: Any) -> ConflictTable:
    seeds = [rows & (columns["seed"] == seed) for seed in np.unique(columns["seed"][rows])]
    longest = max(seeds, key=lambda seed_rows: float(columns["end_s"][seed_rows].max()))
    begin, end = columns["begin_s"][longest], columns["end_s"][longest]
    places = [np.searchsorted(columns["begin_s"][seed_rows], begin, side="right") - 1 for seed_rows in seeds]

    def at(name: str) -> Any:
        """Per seed, what stands where each interval begins; nothing before its workload begins or after it ends."""
        rows_of_seeds = []
        for seed_rows, place in zip(seeds, places, strict=True):
            active = (place >= 0) & (begin < columns["end_s"][seed_rows].max())
            rows_of_seeds.append(np.where(active, columns[name][seed_rows][np.maximum(place, 0)], 0.0))
        return np.array(rows_of_seeds)

    def over(kind: str) -> tuple[float, ...]:
        means = (
            float(np.mean([columns[f"{kind}_{name}"][seed_rows][0] for seed_rows in seeds])) for name in STATISTICS
        )
        return *means, float(columns[f"{kind}_max"][rows].max())

    return ConflictTable(
        title,
        begin,
        end,
        {kind: at(kind).mean(axis=0) for kind in KINDS},
        {kind: at(f"{kind}_max").max(axis=0) for kind in KINDS},
        {kind: over(kind) for kind in KINDS},
    )


def _of_setting(path: Path) -> list[str]:
    return sorted({"trace", "workers", "load"} & set(names_of(path)))


def _settings(columns: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """Workload and cluster, with a mask of their rows."""
    rows = len(next(iter(columns.values())))
    titles = np.array(
        [
            " on ".join(
                ([str(columns["trace"][i])] if "trace" in columns else [])
                + ([f"{int(columns['workers'][i]):,} workers"] if "workers" in columns else [])
            )
            + (f" at load {columns['load'][i]:g}" if "load" in columns else "")
            for i in range(rows)
        ]
    )

    for title in dict.fromkeys(titles.tolist()):
        yield title, titles == title
