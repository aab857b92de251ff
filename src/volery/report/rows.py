"""The rows of jobs.parquet as columns per run, without a copy where the rows of a run stand together."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.metrics.columns import Flags, Floats, Longs

JOBS: Final = "jobs.parquet"
COLUMNS: Final = ("job", "submit_s", "tasks", "jrt_s", "delay_s", "is_short")
AGAIN: Final = "run the study again with the same output folder: finished runs are kept"


class RunJobs(msgspec.Struct, frozen=True, eq=False):
    """The jobs of one run; a negative delay (or NaN) stands for a job that was not measured.

    Args:
        label, seed: of the run.
        job: numbers.
        submit_s: when each was submitted, seconds since the run began.
        tasks: how many tasks each has.
        jrt_s, delay_s: job response time and delay, seconds.
        is_short: whether it counts as short.
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
        measured = self.delay_s >= 0
        if jobs != "all":
            measured &= self.is_short if jobs == "short" else ~self.is_short
        return np.flatnonzero(measured)


def read_jobs(folder: Path) -> list[RunJobs]:
    """The jobs of every run of a results folder, in the order of the file.

    Raises:
        InputError: when the table is missing or damaged.
    """
    import pyarrow as pa
    from pyarrow import parquet

    path = folder / JOBS
    try:
        with parquet.ParquetFile(path) as file:
            present = file.schema_arrow.names
        missing = [name for name in ("label", "seed", "delay_s", "is_short") if name not in present]
        if missing:
            raise InputError(str(path), f"has no column {missing[0]!r}; {AGAIN}")
        names = ["label", "seed", *(name for name in COLUMNS if name in present)]
        table = parquet.read_table(path, columns=names, read_dictionary=["label"])
    except FileNotFoundError:
        raise InputError(str(path), f"is missing; {AGAIN}") from None
    except (OSError, pa.ArrowException) as error:
        raise damaged(path, error) from None
    return list(_by_run(table))


def damaged(path: Path, error: Exception) -> InputError:
    """What is told of a table that cannot be read."""
    reason = str(error).partition("\n")[0]
    return InputError(str(path), f"is damaged ({reason}); delete it, then {AGAIN}")


def _by_run(table: Any) -> Iterator[RunJobs]:
    labels = table.unify_dictionaries().column("label").combine_chunks()
    names = labels.dictionary.to_pylist()
    number, seed = labels.indices.to_numpy(), table.column("seed").to_numpy()
    columns = {name: table.column(name).to_numpy() for name in table.column_names if name not in ("label", "seed")}
    if not number.size:
        return
    edges = np.flatnonzero((np.diff(number) != 0) | (np.diff(seed) != 0)) + 1
    stretches: dict[tuple[int, int], list[slice]] = {}
    for low, high in zip([0, *edges.tolist()], [*edges.tolist(), number.size], strict=True):
        stretches.setdefault((int(number[low]), int(seed[low])), []).append(slice(low, high))
    for (of, under), slices in stretches.items():
        yield _run_jobs(names[of], under, {name: _joined(column, slices) for name, column in columns.items()})


def _joined(column: Any, slices: Sequence[slice]) -> Any:
    return column[slices[0]] if len(slices) == 1 else np.concatenate([column[one] for one in slices])


def _run_jobs(label: str, seed: int, found: dict[str, Any]) -> RunJobs:
    """A run's columns in their types; what the table of an old version lacks is numbered or unknown."""
    count = len(found["delay_s"])
    unknown = np.full(count, np.nan)
    return RunJobs(
        label,
        seed,
        np.asarray(found.get("job", np.arange(count)), dtype=np.int64),
        np.asarray(found.get("submit_s", unknown), dtype=np.float64),
        np.asarray(found.get("tasks", np.zeros(count)), dtype=np.int64),
        np.asarray(found.get("jrt_s", unknown), dtype=np.float64),
        np.asarray(found["delay_s"], dtype=np.float64),
        np.asarray(found["is_short"], dtype=np.bool_),
    )


def under_label(runs: Iterable[RunJobs], label: str) -> list[RunJobs]:
    """The runs of one label, by seed."""
    return sorted((run for run in runs if run.label == label), key=lambda run: run.seed)
