"""A damaged results folder is told file by file, or nothing that its tables show has changed."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.comparison import compare
from tests.flips import flips

from volery.core.errors import DamagedError, InputError
from volery.integrity import sealed, unsealed
from volery.report.folder import read_results
from volery.study import load_results
from volery.study.results import check_results


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results") / "o"
    compare("sparrow", "pigeon", trace="syn:6x3", workers=20, seeds=2, folder=folder)
    return folder


@pytest.fixture
def folder(results: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(results, tmp_path / "o"))


def damaged(folder: Path) -> list[str]:
    return [damage for file in check_results(folder) for damage in file.damages]


def shown(folder: Path) -> Any:
    """All that `volery show --json` prints."""
    found = load_results(folder)
    return msgspec.to_builtins((found.runs, found.differences, found.on_days_like_this, found.traces))


def first(pattern: str) -> Callable[[Path], Path]:
    return lambda folder: sorted(folder.glob(pattern))[0]


RUNS = ("runs/*.json", "runs/*.npz")
FILES = (*RUNS, "manifest.json", "summary.json", "flows.json", "jobs.parquet", "SHA256SUMS")
PLACES = [(pattern, 8) for pattern in FILES] + [
    pytest.param(pattern, 1_000 if pattern in RUNS else 200, marks=pytest.mark.slow) for pattern in FILES
]


@pytest.mark.parametrize(("pattern", "places"), PLACES)
def test_a_flipped_bit_in_a_results_folder_is_told_or_changes_no_table(folder: Path, pattern: str, places: int) -> None:
    assert damaged(folder) == []
    expected = shown(folder)
    told = 0
    for flip in flips(first(pattern)(folder), places):
        damages = damaged(folder)
        told += bool(damages)
        try:
            found = shown(folder)
        except InputError as error:
            assert damages, f"{flip}: the check finds nothing, but {error}"  # noqa: PT017 - or the same tables
        else:
            assert found == expected, f"{flip}: {damages}"
    assert told >= places // 2


def test_a_number_that_a_person_has_changed_in_a_run_is_in_no_table(folder: Path) -> None:
    path = first("runs/*.json")(folder)
    path.write_text(re.sub('"seed": [01]', '"seed": 7', path.read_text(), count=1))
    assert damaged(folder) == ["is damaged: it no longer has the digest that its last line names"]
    with pytest.raises(InputError, match="is missing or damaged; run the study again"):
        load_results(folder)


def test_a_changed_table_is_in_no_report(folder: Path) -> None:
    path = folder / "jobs.parquet"
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    with pytest.raises(DamagedError, match="its digest is another than in SHA256SUMS"):
        read_results(folder)
    assert len(damaged(folder)) == 1


def test_a_run_that_is_missing_is_told(folder: Path) -> None:
    first("runs/*.json")(folder).unlink()
    (folder / "jobs.parquet").unlink()
    assert sorted(damage.partition(",")[0].split("/")[-1] for damage in damaged(folder)) == [
        "is missing",
        "jobs.parquet: is missing",
    ]


def test_a_damaged_run_is_run_again_with_its_study(folder: Path) -> None:
    expected = shown(folder)
    path = first("runs/*.json")(folder)
    path.write_bytes(path.read_bytes().replace(b"1", b"2", 1))
    again = compare("sparrow", "pigeon", trace="syn:6x3", workers=20, seeds=2, folder=folder)
    assert again.reused == 3
    assert damaged(folder) == []
    digests = [run["digest"] for run in shown(folder)[0]]
    assert digests == [run["digest"] for run in expected[0]]


def test_a_folder_of_an_earlier_version_is_read_and_said_to_have_no_digests(folder: Path) -> None:
    expected = shown(folder)
    for path in (*folder.glob("*.json"), *folder.glob("runs/*.json")):
        content = unsealed(path.read_bytes(), path)
        path.write_bytes(b"\n".join(line for line in content.split(b"\n") if b"columns_sha256" not in line))
    for path in folder.glob("runs/*.json"):
        path.write_bytes(path.read_bytes().replace(b"  },\n}", b"  }\n}"))
    (folder / "SHA256SUMS").unlink()
    assert shown(folder) == expected
    files = list(check_results(folder))
    assert not any(file.damages for file in files)
    assert all(file.note.startswith("has no digest") for file in files), files


def test_the_digests_of_the_tables_are_those_of_sha256sum(folder: Path) -> None:
    told = subprocess.run(["sha256sum", "--check", "SHA256SUMS"], cwd=folder, capture_output=True, text=True)
    assert told.returncode == 0
    assert "jobs.parquet: OK" in told.stdout


def test_a_seal_leaves_a_document_as_it_was() -> None:
    text = b'{\n  "a": [\n    1\n  ]\n}\n'
    assert unsealed(sealed(text), Path("a.json")) == text
    assert sealed(b"[]\n") == b"[]\n"
    assert sealed(b"{}\n") == b"{}\n"
    with pytest.raises(DamagedError):
        unsealed(sealed(text).replace(b"1", b"2", 1), Path("a.json"))
