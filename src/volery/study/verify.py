"""Verification of a results folder: every run is run again, every file is made again, and every number compared."""

from __future__ import annotations

import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any, Final

import msgspec
import numpy as np

from volery.core.errors import InputError
from volery.integrity import unsealed
from volery.report.schema import MANIFEST, REPORT, RUNS, STAGE_TIMES, FinishedRun, StoredRun
from volery.study.lab import study_end
from volery.study.pagetext import PageText
from volery.study.plan import PlannedRun, content_digest, outline, study_digest
from volery.study.pool import check_places, each_outcome
from volery.study.results import ResultsFolder, StudyManifest, damage
from volery.study.runs import RunOutcome
from volery.study.spec import RunSpec, find_baseline, is_file, is_synthetic
from volery.study.watcher import Watcher
from volery.study.writer import ResultsWriter, new_manifest

NOT_COMPARED: Final = (STAGE_TIMES, MANIFEST)
"""Times that `--profile stages` has measured; the manifest is compared apart."""


class RunCheck(msgspec.Struct, frozen=True):
    """One run, then and now.

    Args:
        recorded: digest in the manifest.
        found: digest of the run of today.
        same_input: true where the trace has the recorded digest.
    """

    label: str
    seed: int
    recorded: str
    found: str
    same_input: bool

    @property
    def agrees(self) -> bool:
        """True if the digests are equal."""
        return self.recorded == self.found


class Verification(msgspec.Struct, frozen=True):
    """All runs and files of a folder, and whether the code is the one that made them.

    Args:
        same_code: true where the sources that results depend on have the digest of the manifest.
        differences: the first number or line that differs in each file: `FILE: PLACE is OLD, and comes out as NEW`.
            Empty where a digest differs, because every file differs then.
    """

    same_code: bool
    planned: int
    runs: tuple[RunCheck, ...]
    differences: tuple[str, ...] = ()

    @property
    def agrees(self) -> bool:
        """True if every digest and every number agrees."""
        return not self.differences and all(run.agrees for run in self.runs)


def verify(
    folder: Path,
    *,
    traces: Sequence[Path] = (),
    processes: int = 1,
    dask: str | None = None,
    watcher: Watcher | None = None,
) -> Verification:
    """Run every finished run of a folder again, derive every file anew, and compare all numbers.

    Processor times and memory are measured, and so not compared with those of the new runs; they must agree between the
    files of the folder. Pictures in report.html are not compared. Until the comparison ends, the new folder takes as
    much room in TMPDIR as the recorded one takes.

    Args:
        traces: files, or folders that hold them, of inputs that have moved; each is recognised by its digest.
        processes, dask, watcher: see `volery.study.run_study`.

    Raises:
        InputError: when the folder holds no results, holds none that are finished, or an input is gone; when its
            manifest compares with an architecture that its study does not have.
    """
    check_places(processes, dask)
    manifest = ResultsFolder(folder).manifest()
    find_baseline(manifest.config, manifest.config.baseline, f"{folder}: manifest.config.baseline")

    if not manifest.runs:
        raise InputError(str(folder), "no run of this study has finished; there is nothing to verify")

    recorded = {(run.label, run.seed): run for run in manifest.runs}
    moved = _moved(manifest, traces)
    planned = _planned(folder, manifest, recorded, moved)

    with tempfile.TemporaryDirectory() as place:
        rerun = _Rerun(folder, Path(place), manifest, planned)
        unique = {run.key: run for run in planned}.values()

        with closing(each_outcome(list(unique), processes, watcher, dask)) as outcomes:
            for run, outcome in outcomes:
                rerun.add(run, outcome)

        runs = tuple(
            rerun.verified(run, recorded[run.spec.label, run.spec.seed])
            for run in sorted(planned, key=lambda run: list(recorded).index((run.spec.label, run.spec.seed)))
        )

        same_code = manifest.code_sha256 == study_digest(manifest.config)
        agree = all(run.agrees for run in runs)
        differences = tuple(rerun.differences(moved, Same({new: old for old, new in moved.items()}))) if agree else ()
        return Verification(same_code, manifest.planned, runs, differences)


def _planned(
    folder: Path, manifest: StudyManifest, recorded: dict[tuple[str, int], FinishedRun], moved: dict[str, str]
) -> list[PlannedRun]:
    """The finished runs, under the keys of the manifest, with inputs where they lie now.

    Raises:
        InputError: the manifest lists a run that its study does not have.
    """
    planned = {(run.spec.label, run.spec.seed): run for run in outline(manifest.config)}

    strange = next((run for run in recorded if run not in planned), None)
    if strange is not None:
        raise InputError(
            str(folder), f"its manifest lists {strange[0]!r} with seed {strange[1]}, which is no part of its study"
        )

    recorded_runs = [(run, recorded[name]) for name, run in planned.items() if name in recorded]
    return [msgspec.structs.replace(run, key=line.key, spec=_relocated(run.spec, moved)) for run, line in recorded_runs]


def _relocated(spec: RunSpec, moved: dict[str, str]) -> RunSpec:
    values = {name: getattr(spec, name) for name in spec.__struct_fields__}
    return msgspec.structs.replace(
        spec, **{name: moved[value] for name, value in values.items() if is_file(name, value) and value in moved}
    )


def _moved(manifest: StudyManifest, places: Sequence[Path]) -> dict[str, str]:
    """Recorded names of inputs that lie elsewhere now, and where.

    A file is recognised by its digest; for a folder of an earlier version, which has none, a single file stands for the
    study's only trace, and its rows are compared.

    Raises:
        InputError: a place is not there, or an input is found at none of them.
    """
    files = {path.absolute(): _digest(path) for place in places for path in _files(place)}
    names = [str(value) for axis, values in manifest.config.axes.items() for value in values if is_file(axis, value)]

    moved = {}
    for name in dict.fromkeys(names):
        digest = manifest.inputs.get(name)
        if is_synthetic(name) and not Path(name).exists():
            continue

        if files:
            same_files = (path for path, file_digest in files.items() if digest is not None and file_digest == digest)
            guess = next(iter(files)) if digest is None and len(files) == 1 and len(names) == 1 else None
            place = next(same_files, guess)
            if place is not None:
                moved[name] = str(place)
                continue

        if not Path(name).exists():
            raise InputError(
                name,
                "the input is not there"
                + (
                    ", and none of the files given with --trace has its digest"
                    if files
                    else "; give the file, or a folder that holds it, with --trace"
                ),
            )

    used = set(moved.values())
    useless = next((path for path in places if path.is_file() and str(path.absolute()) not in used), None)
    if useless is not None:
        raise InputError("--trace", f"{str(useless)!r} has the digest of no input of this study; leave it out")

    return moved


def _digest(path: Path) -> str | None:
    """SHA-256 of a file's bytes; None where the file cannot be read."""
    try:
        return content_digest(str(path))
    except InputError:
        return None


def _files(place: Path) -> list[Path]:
    if place.is_dir():
        return sorted(path for path in place.rglob("*") if path.is_file())
    if not place.exists():
        raise InputError("--trace", f"{str(place)!r} is not there")
    return [place]


class _Rerun:
    """The folder as today's runs make it, beside the recorded one."""

    def __init__(self, folder: Path, place: Path, manifest: StudyManifest, planned: Sequence[PlannedRun]) -> None:
        self._recorded_folder = folder
        self._new_folder = ResultsFolder(place)
        (place / RUNS).mkdir()
        with suppress(FileNotFoundError):
            (place / STAGE_TIMES).write_bytes((folder / STAGE_TIMES).read_bytes())
        self._manifest = manifest
        self._planned = planned
        self._new_runs: dict[str, StoredRun] = {}

    def add(self, run: PlannedRun, outcome: RunOutcome) -> None:
        """Keep a run, with the processor times, the memory and the name of the file that were recorded."""
        stored = ResultsFolder(self._recorded_folder).summarised(run.key)
        if stored is not None:
            outcome.summary = _as_measured(outcome.summary, stored.summary)
            outcome.trace = _as_measured(outcome.trace, stored.trace)
            if not is_synthetic(run.spec.trace):  # the name of a file is no number: the file may have another today
                outcome.summary = msgspec.structs.replace(outcome.summary, trace=stored.summary.trace)
                outcome.trace = msgspec.structs.replace(outcome.trace, name=stored.trace.name)
        self._new_runs[run.key] = self._new_folder.write_run(run.key, outcome)

    def verified(self, run: PlannedRun, line: FinishedRun) -> RunCheck:
        """The digests of a run, then and now."""
        outcome = self._new_runs[run.key]
        same_input = outcome.trace.sha256 == line.trace_sha256
        return RunCheck(line.label, line.seed, line.digest, outcome.summary.digest, same_input)

    def differences(self, moved: dict[str, str], is_same: Same) -> Iterator[str]:
        """The first difference of every file; all runs have their recorded digests."""
        old = self._manifest
        planned = len(outline(self._manifest.config))
        kept_fields = ("volery_version", "code_sha256", "python", "numpy", "created", "command")

        fresh = msgspec.structs.replace(
            new_manifest(old.config, planned, old.command),
            inputs={name: content_digest(moved.get(name, name)) for name in old.inputs},
            **{name: getattr(old, name) for name in kept_fields},
        )

        writer = ResultsWriter(fresh, self._planned, self._new_folder, self._new_runs)
        if old.stopping and old.config.auto:
            writer.manifest = msgspec.structs.replace(fresh, stopping=study_end(writer, old.stopping.baseline))

        writer.write_tables()
        if len(old.runs) == planned and (old.stopping or not old.config.auto):
            writer.complete()
        elif (self._recorded_folder / REPORT).exists():
            writer.write_report()

        pairs = ((path, _tree(path / MANIFEST)) for path in (self._recorded_folder, self._new_folder.path))
        (_, recorded_tree), (_, new_tree) = pairs
        yield from _first(MANIFEST, of_trees(recorded_tree, new_tree, is_same))
        yield from self._files(is_same)

    def _files(self, is_same: Same) -> Iterator[str]:
        names = sorted(
            str(path.relative_to(self._new_folder.path)) for path in self._new_folder.path.rglob("*") if path.is_file()
        )
        label = {run.key: f" ({run.spec.label}, seed {run.spec.seed})" for run in self._planned}
        for name in names:
            path = self._recorded_folder / name
            kind = Path(name).suffix
            if name in NOT_COMPARED or kind not in COMPARED:
                continue

            if not path.exists():
                if kind not in (".load", ".conflicts"):  # kept to save time; their numbers stand in tables
                    yield f"{name} is missing"
                continue

            differences = COMPARED[kind](path, self._new_folder.path / name, is_same)
            yield from _first(name + label.get(path.stem, ""), _damaged(differences))

        for path in sorted(self._recorded_folder.glob("*.parquet")):
            if path.name not in names:
                yield f"{path.name} does not come out"


def _first(name: str, differences: Iterator[str]) -> Iterator[str]:
    """The first difference of a file, with how many more there are."""
    found_differences = list(differences)
    if found_differences:
        yield f"{name}: {found_differences[0]}" + (
            f" (and {len(found_differences) - 1} more)" if found_differences[1:] else ""
        )


def _damaged(differences: Iterator[str]) -> Iterator[str]:
    """The differences, or that the recorded file cannot be read."""
    import pyarrow as pa

    try:
        yield from differences
    except (*damage(), msgspec.DecodeError, pa.ArrowException) as e:
        yield f"is damaged ({str(e).partition(chr(10))[0]})"


def _tree(path: Path) -> Any:
    """The manifest without what reading the trace took."""
    return without_measured(_content(path))


def _as_measured(recomputed: Any, recorded: Any) -> Any:
    """The new value with the processor times and the memory of the record."""
    names = MEASURED.intersection(recomputed.__struct_fields__)
    return msgspec.structs.replace(recomputed, **{name: getattr(recorded, name) for name in names})


RELATIVE: Final = 1e-9
"""Numbers that differ by less are equal: libraries may add up in another order on another machine."""
MEASURED: Final = frozenset({"wall_s", "cpu_s", "tasks_per_cpu_s", "peak_rss_mb", "compute_s", "read_s"})
"""Fields that every run measures anew: processor time and memory."""
_MISSING: Final = object()
_ROWS: Final = 1 << 16


class Same(msgspec.Struct, frozen=True):
    """The comparison of a recorded value that is no container with the one found now: whole numbers are exact.

    Args:
        renamed: names found now -> names recorded, of inputs that lie elsewhere now.
    """

    renamed: Mapping[str, str] = {}

    def restored(self, text: str) -> str:
        """A text found now, with the recorded names."""
        for new_name, recorded_name in self.renamed.items():
            text = text.replace(new_name, recorded_name)
        return text

    def __call__(self, recorded: Any, recomputed: Any) -> bool:
        """True if the two are equal."""
        if isinstance(recorded, bool) or isinstance(recomputed, bool):
            return recorded is recomputed
        if isinstance(recorded, float) and isinstance(recomputed, int | float):
            return math.isclose(recorded, recomputed, rel_tol=RELATIVE) or (
                math.isnan(recorded) and math.isnan(recomputed)
            )
        return bool(recorded == recomputed or (isinstance(recomputed, str) and recorded == self.restored(recomputed)))


def of_trees(recorded: Any, recomputed: Any, is_same: Same, place: str = "") -> Iterator[str]:
    """Differences between two JSON documents, with their places: `runs[2].delay_s.p50 is 0.5, and comes out as 0.6`."""
    if isinstance(recorded, dict) and isinstance(recomputed, dict):
        for key in dict.fromkeys((*recomputed, *recorded)):
            inner = f"{place}.{key}" if place else str(key)
            yield from of_trees(recorded.get(key, _MISSING), recomputed.get(key, _MISSING), is_same, inner)
    elif isinstance(recorded, list) and isinstance(recomputed, list):
        for at, (old, new) in enumerate(zip_longest(recorded, recomputed, fillvalue=_MISSING)):
            yield from of_trees(old, new, is_same, f"{place}[{at}]")
    elif recorded is _MISSING:
        yield f"{place} is missing"
    elif recomputed is _MISSING:
        yield f"{place} does not come out"
    elif not is_same(recorded, recomputed):
        yield f"{place} is {_short(recorded)}, and comes out as {_short(recomputed)}"


def without_measured(tree: Any) -> Any:
    """A JSON document without the fields that every run measures anew."""
    if isinstance(tree, dict):
        return {key: without_measured(value) for key, value in tree.items() if key not in MEASURED}
    return [without_measured(value) for value in tree] if isinstance(tree, list) else tree


def of_columns(
    recorded: Mapping[str, Any], recomputed: Mapping[str, Any], is_same: Same, first_row: int = 0
) -> Iterator[str]:
    """Differences between two sets of numpy columns, one per column; a masked value is a null."""
    for name in dict.fromkeys((*recomputed, *recorded)):
        if name not in recorded or name not in recomputed:
            yield f"column {name} {'is missing' if name not in recorded else 'does not come out'}"
            continue

        old = recorded[name]
        new = recomputed[name]
        if old.shape != new.shape:
            yield f"column {name} has {len(old)} rows, and comes out with {len(new)}"
        elif old.dtype.kind in "iufb" and new.dtype.kind in "iufb":
            exact = "f" not in (old.dtype.kind, new.dtype.kind)

            values, new_values = np.ma.getdata(old), np.ma.getdata(new)
            equal = (
                values == new_values
                if exact
                else np.isclose(values, new_values, rtol=RELATIVE, atol=0.0, equal_nan=True)
            )
            differs = np.flatnonzero(~equal | (np.ma.getmaskarray(old) != np.ma.getmaskarray(new)))

            if differs.size:
                at = int(differs[0])
                yield f"{name}[{first_row + at}] is {_cell(old[at])}, and comes out as {_cell(new[at])}"
        else:
            pairs = enumerate(zip(old.tolist(), new.tolist(), strict=True))
            first_difference = next((row for row in pairs if not is_same(*row[1])), None)
            if first_difference is not None:
                at, (value, new_value) = first_difference
                yield f"{name}[{first_row + at}] is {_short(value)}, and comes out as {_short(new_value)}"


def of_json(recorded: Path, recomputed: Path, is_same: Same) -> Iterator[str]:
    """Differences between two JSON files.

    Raises:
        ValueError: the recorded one is damaged.
    """
    yield from of_trees(_content(recorded), _content(recomputed), is_same)


def _content(path: Path) -> Any:
    """A JSON file without digests of bytes: another library may write the same numbers in other bytes.

    Raises:
        ValueError: it is damaged.
    """
    content = msgspec.json.decode(unsealed(path.read_bytes(), path))
    if isinstance(content, dict):
        content.pop("columns_sha256", None)
    is_load = path.suffix == ".load" and isinstance(content, dict)  # those of an earlier version are lists
    return content.get("rows") if is_load else content


def of_archives(recorded: Path, recomputed: Path, is_same: Same) -> Iterator[str]:
    """Differences between the columns of two .npz files.

    Raises:
        Exception: one of `volery.study.results.damage`: the recorded one is damaged.
    """
    with np.load(recorded, allow_pickle=False) as old, np.load(recomputed, allow_pickle=False) as new:
        yield from of_columns(dict(old), dict(new), is_same)


def of_tables(recorded: Path, recomputed: Path, is_same: Same) -> Iterator[str]:
    """Differences between two Parquet files, read in pieces.

    Raises:
        pyarrow.ArrowException, OSError: the recorded one is damaged.
    """
    from pyarrow import parquet

    with parquet.ParquetFile(recorded) as old, parquet.ParquetFile(recomputed) as new:
        if old.metadata.num_rows != new.metadata.num_rows:
            yield f"has {old.metadata.num_rows} rows, and comes out with {new.metadata.num_rows}"
            return

        names = old.schema_arrow.names
        if len(set(names)) < len(names):
            yield f"has a column twice: {', '.join(names)}"
            return

        first = 0
        for pair in zip(*(file.iter_batches(_ROWS) for file in (old, new)), strict=True):
            old_columns, new_columns = map(_columns, pair)
            yield from of_columns(old_columns, new_columns, is_same, first)
            first += pair[0].num_rows


def _columns(batch: Any) -> dict[str, Any]:
    """A piece of a table as numpy columns; nulls of numbers are masked, since NaN is another value."""
    columns = {}
    for name in batch.schema.names:
        column = batch.column(name)
        values = column.to_numpy(zero_copy_only=False)
        if column.null_count and values.dtype.kind in "iufb":
            values = np.ma.masked_array(values, column.is_null().to_numpy(zero_copy_only=False))
        columns[name] = values
    return columns


def of_pages(recorded: Path, recomputed: Path, is_same: Same) -> Iterator[str]:
    """Differences between the words, and the content of the scripts, of two HTML pages; pictures are left out."""
    old, new = (PageText.of(path) for path in (recorded, recomputed))
    words = is_same.restored(" ".join(new.words)).split(" ")

    first_difference = next((pair for pair in zip_longest(old.words, words, fillvalue="") if not is_same(*pair)), None)
    if first_difference is not None:
        yield f"{_short(first_difference[0])} stands where {_short(first_difference[1])} comes out"

    for text, new_text in zip_longest(old.content, new.content, fillvalue="null"):
        yield from of_trees(msgspec.json.decode(text), msgspec.json.decode(new_text), is_same, "content")


COMPARED: Final[dict[str, Callable[[Path, Path, Same], Iterator[str]]]] = {
    ".json": of_json,
    ".npz": of_archives,
    ".parquet": of_tables,
    ".html": of_pages,
    ".load": of_json,
    ".conflicts": of_json,
}
"""Comparisons of files, by the ending of their name."""


def _cell(value: Any) -> str:
    """A number of a table, or that there is none."""
    return "null" if value is np.ma.masked else str(value)


def _short(value: Any) -> str:
    text = "null" if value is None else repr(value)
    return text if len(text) <= 80 else f"{text[:77]}..."
