"""`volery check` names each damaged file of a folder, and ends with status 1 for it."""

from __future__ import annotations

import json
import os
import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.comparison import compare
from tests.unit.live.runtime.test_recordfile import written
from tests.unit.live.service.test_soundness import lived_in
from typer.testing import CliRunner

from volery.cli.main import app
from volery.core.errors import DamagedError, InputError
from volery.core.events import Reassignment
from volery.live.jobs import JobDescription
from volery.live.node.descendants import ProcessLedger
from volery.live.runtime.incarnations import persist_incarnation
from volery.live.runtime.snapshots import write_snapshot
from volery.live.service import checks
from volery.live.service.authentication import TokenFile
from volery.live.service.checks import check_state
from volery.live.service.forecaster import ForecastLedger
from volery.live.service.marks import MarkKeeper
from volery.live.service.soundness import LogSoundness
from volery.live.service.store import JobStore


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A state folder with a file of each kind."""
    folder = tmp_path_factory.mktemp("made") / "fed"
    folder.mkdir()
    lived_in(folder).close()
    persist_incarnation(folder, "all", 1)
    written(folder / "journal/all-1.journal")
    with (folder / "journal/all-1.000001.snapshot").open("wb") as file:
        write_snapshot(file, {}, {})
    ledger = ProcessLedger(folder / "agents/all")
    ledger.add(1)
    ledger.close()
    TokenFile(folder).add("ada", "user")
    return folder


@pytest.fixture
def folder(made: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(made, tmp_path / "fed"))


def checked(folder: Path, status: int) -> dict[str, list[str]]:
    """The damages of each file."""
    result = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert result.exit_code == status, result.output
    return {str(Path(file["path"]).relative_to(folder)): file["damages"] for file in json.loads(result.stdout)}


KINDS = [
    "jobs.sqlite",
    "tokens.json",
    "archive/jobs-000001.parquet",
    "lives/all",
    "agents/all/processes",
    "journal/all-1.000001.snapshot",
    "journal/all-1.journal",
]


def test_a_folder_in_which_nothing_is_damaged_has_status_0(folder: Path) -> None:
    ForecastLedger(folder / "forecasts.sqlite", folder / "jobs.sqlite").close()
    with marked(folder):
        pass
    before = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = checked(folder, 0)
    assert set(KINDS) <= found.keys()
    assert not any(found.values())
    after = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert after == before, "nothing is written"
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert f"Damaged files: 0 of {len(found)}; files with a note: 0." in result.output


@pytest.mark.parametrize("name", KINDS)
def test_each_damaged_file_is_named_and_all_others_are_checked(folder: Path, name: str) -> None:
    path = folder / name
    content = bytearray(path.read_bytes())
    place = content.rindex(b"ada") if name in ("jobs.sqlite", "tokens.json") else len(content) // 2
    content[place] ^= 1
    path.write_bytes(content)
    found = checked(folder, 1)
    assert [file for file, damages in found.items() if damages] == [name]
    result = CliRunner().invoke(app, ["check", str(folder)])
    assert result.exit_code == 1
    assert re.search(rf"{re.escape(str(path))}: .*damaged", result.output)


@pytest.mark.parametrize("name", ["jobs.sqlite", "journal/all-1.journal", "lives/all"])
@pytest.mark.parametrize("content", [b"", b"\0" * 4096, b"something else\n" * 300], ids=["empty", "zeros", "text"])
def test_a_file_that_became_something_else_is_no_traceback(folder: Path, name: str, content: bytes) -> None:
    (folder / name).write_bytes(content)
    result = CliRunner().invoke(app, ["check", str(folder), "--json"])
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    files = {str(Path(file["path"]).relative_to(folder)): file for file in json.loads(result.stdout)}
    assert files[name]["damages"] or files[name]["note"]


def test_a_start_during_a_check_is_not_refused_and_its_log_is_no_damage(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stores: list[JobStore] = []

    def started(path: Path) -> LogSoundness:
        stores.append(JobStore(path))
        raise DamagedError(str(path), "is damaged at byte 32: it is written just now")

    monkeypatch.setattr(checks, "log_soundness", started)
    (store, *_) = check_state(folder)
    assert (store.damages, store.note.partition(" with ")[0]) == ((), "a federation is at work")
    stores[0].close()


def test_a_journal_that_its_host_deletes_meanwhile_is_no_damage(folder: Path) -> None:
    later = folder / "journal/all-2.journal"
    shutil.copy(folder / "journal/all-1.journal", later)
    paths = []
    for file in check_state(folder):
        paths.append(file.path)
        assert not file.damages
        if file.path == str(folder / "journal/all-1.journal"):
            later.unlink()
    assert str(later) not in paths


@contextmanager
def marked(folder: Path) -> Iterator[JobStore]:
    """The store of a folder, whose mark is kept at the end."""
    store = JobStore(folder / "jobs.sqlite")
    yield store
    MarkKeeper(folder / "jobs.sqlite", store.mark, lambda _: None).note(store.revision)
    store.close()


@pytest.mark.parametrize("order", ["a job", "a weight", "a move"])
def test_a_store_that_is_older_than_its_mark_is_a_damage(folder: Path, order: str) -> None:
    shutil.copy(folder / "jobs.sqlite", folder / "old.sqlite")
    with marked(folder) as store:
        store.begin(durable=False)
        match order:
            case "a job":
                store.insert(8, 99, JobDescription(command="true"), 1, [], 5)
            case "a weight":
                store.shares.reweigh("bob", 2, 1, "root", 8)
            case _:
                store.assigned.add(Reassignment(2, "gm/0", "gm/1"), [], "", 8)
        store.commit()
    (folder / "old.sqlite").replace(folder / "jobs.sqlite")
    (damage,) = checked(folder, 1)["jobs.mark"]
    assert "jobs.sqlite: is older than it was: it has 8 jobs" in damage


def test_a_missing_store_whose_mark_is_left_is_a_damage(folder: Path) -> None:
    with marked(folder):
        pass
    assert checked(folder, 0)["jobs.mark"] == []
    (folder / "jobs.sqlite").unlink()
    assert checked(folder, 1)["jobs.mark"] == ["names 8 jobs, but jobs.sqlite is missing beside it"]
    for name in ("lives", "journal", "agents"):
        shutil.rmtree(folder / name)
    assert "jobs.mark" in checked(folder, 1)


def test_a_backup_in_a_folder_that_nobody_may_write_to_is_checked(folder: Path) -> None:
    backup = Path(tempfile.mkdtemp())
    shutil.copy(folder / "jobs.sqlite", backup)
    is_root = os.geteuid() == 0
    try:
        backup.chmod(0o555)
        (backup / "jobs.sqlite").chmod(0o444)
        if is_root:
            os.seteuid(65534)
        (file,) = check_state(backup)
    finally:
        if is_root:
            os.seteuid(0)
        backup.chmod(0o700)
        shutil.rmtree(backup)
    assert (file.damages, file.note) == ((), "")


@pytest.mark.parametrize("name", ["SHA256SUMS", "jobs.parquet", "runs", "flows.json"])
def test_a_file_of_results_that_cannot_be_read_is_named_and_all_others_are_checked(tmp_path: Path, name: str) -> None:
    compare("pigeon", trace="syn:4x2", workers=10, folder=tmp_path / "o")
    path = next((tmp_path / "o/runs").glob("*.npz")) if name == "runs" else tmp_path / "o" / name
    path.unlink()
    path.mkdir()
    found = checked(tmp_path / "o", 1)
    (damage,) = (damage for damages in found.values() for damage in damages)
    assert "cannot be read" in damage or name == "runs"
    assert len(found) > 4


def test_a_results_folder_is_checked_and_its_damage_named(tmp_path: Path) -> None:
    compare("pigeon", trace="syn:4x2", workers=10, folder=tmp_path / "o")
    assert not any(checked(tmp_path / "o", 0).values())
    (path,) = (tmp_path / "o/runs").glob("*.npz")
    path.write_bytes(path.read_bytes()[:-1])
    assert [name for name, damages in checked(tmp_path / "o", 1).items() if damages] == [f"runs/{path.name}"]


@pytest.mark.parametrize("content", ["", "lines"])
def test_a_table_that_the_digests_do_not_name_is_a_damage(tmp_path: Path, content: str) -> None:
    compare("pigeon", trace="syn:4x2", workers=10, folder=tmp_path / "o")
    sums = tmp_path / "o/SHA256SUMS"
    lines = [line for line in sums.read_text().splitlines(keepends=True) if "jobs.parquet" not in line]
    sums.write_text("".join(lines) if content else "")
    damages = checked(tmp_path / "o", 1)["SHA256SUMS"]
    assert "does not name jobs.parquet, which lies beside it" in damages
    assert len(damages) == 1 or not content


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    for place in (tmp_path, tmp_path / "nothing"):
        result = CliRunner().invoke(app, ["check", str(place)])
        assert isinstance(result.exception, InputError)
        assert "state folder" in str(result.exception)
