"""A store of another version is refused, and one that cannot be prepared is left as it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.service import schema
from volery.live.service.checks import check_state
from volery.live.service.schema import VERSION
from volery.live.service.store import JobStore


@pytest.mark.parametrize("version", [VERSION - 1, VERSION + 1])
def test_a_store_of_another_format_is_refused_and_left_as_it_was(tmp_path: Path, version: int) -> None:
    path = tmp_path / "jobs.sqlite"
    JobStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        sql.execute(f"PRAGMA user_version = {version}")
        sql.create_function("row_checksum", -1, lambda *row: 0)
        sql.execute("DROP TABLE formats")
    content = path.read_bytes()
    with pytest.raises(InputError, match=f"format {version}") as refused:
        JobStore(path)
    is_earlier = version < VERSION
    assert ("an earlier version" in str(refused.value)) == is_earlier
    assert ("let its jobs end under that version" in str(refused.value)) == is_earlier
    assert ("damaged" in str(refused.value)) != is_earlier, "a format of today or later has a table that is missing"
    assert path.read_bytes() == content


def test_a_store_of_an_earlier_format_is_no_damage(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    JobStore(path).close()
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        sql.execute("PRAGMA user_version = 1")
        sql.create_function("row_checksum", -1, lambda *row: 0)
        sql.execute("DROP TABLE formats")
    (file,) = [file for file in check_state(tmp_path) if file.path == str(path)]
    assert (file.damages, "earlier version (format 1)" in file.note) == ((), True)


@pytest.mark.parametrize("is_new", [True, False])
def test_a_store_that_a_full_disk_keeps_from_being_prepared_opens_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_new: bool
) -> None:
    path = tmp_path / "jobs.sqlite"
    if not is_new:
        JobStore(path).close()

    def full(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(schema, "schema_checksum", full)
        with pytest.raises(InputError, match="disk is full"):
            JobStore(path)
    JobStore(path).close()
