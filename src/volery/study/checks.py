"""Check of a results folder: every file that a study has written, against its digest. Nothing is run again."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec

from volery.core.errors import DamagedError, InputError
from volery.integrity import CheckedFile, checked, has_seal, unsealed
from volery.report.schema import (
    FLOWS,
    MANIFEST,
    RUNS,
    STAGE_TIMES,
    SUMMARY,
    SUMS,
    Flows,
    StageTimes,
    StoredRun,
    StudySummary,
)
from volery.report.sums import damaged_files, recorded_sums
from volery.study.results import ResultsFolder, StudyManifest

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
