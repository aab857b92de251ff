"""A store that the version before wrote: brought to this one whole, or left as it was."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from tests.unit.live.service.test_soundness import lived_in, seen
from tests.unit.live.service.test_store import FIRST, Committing, job, report

from volery.core.errors import InputError
from volery.core.events import JobDone
from volery.live.jobs import JobDescription, TaskDescription
from volery.live.service import schema as migrating
from volery.live.service.checksums import CHECKED
from volery.live.service.descriptions import encoded_at_once
from volery.live.service.rows import JobQuery
from volery.live.service.soundness import store_damage
from volery.live.service.store import JobStore

FORMAT_1 = """
CREATE TABLE jobs (
  id INTEGER PRIMARY KEY, key TEXT UNIQUE, description BLOB NOT NULL, first_task INTEGER NOT NULL,
  answered INTEGER NOT NULL DEFAULT 0, cancelling INTEGER NOT NULL DEFAULT 0,
  name TEXT NOT NULL, user TEXT NOT NULL, state TEXT NOT NULL DEFAULT 'pending', reason TEXT NOT NULL DEFAULT '',
  tasks INTEGER NOT NULL, running INTEGER NOT NULL DEFAULT 0, finished INTEGER NOT NULL DEFAULT 0,
  failed INTEGER NOT NULL DEFAULT 0, killed INTEGER NOT NULL DEFAULT 0, unsatisfiable INTEGER NOT NULL DEFAULT 0,
  submitted_us INTEGER NOT NULL, started_us INTEGER, ended_us INTEGER, revision INTEGER NOT NULL);
CREATE INDEX jobs_by_revision ON jobs (revision);
CREATE TABLE tasks (
  job INTEGER NOT NULL, place INTEGER NOT NULL, state TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
  attempt INTEGER NOT NULL DEFAULT 0, node TEXT NOT NULL DEFAULT '', exit_code INTEGER,
  started_us INTEGER, ended_us INTEGER, folder TEXT NOT NULL DEFAULT '', revision INTEGER NOT NULL,
  result BLOB NOT NULL DEFAULT x'', PRIMARY KEY (job, place)) WITHOUT ROWID;
CREATE INDEX tasks_by_revision ON tasks (revision);
CREATE TABLE drained (node TEXT PRIMARY KEY) WITHOUT ROWID;
CREATE INDEX jobs_by_user ON jobs (user, id);
CREATE INDEX jobs_open ON jobs (user) WHERE ended_us IS NULL;
PRAGMA user_version = 1;
"""


def in_format_1(path: Path, descriptions: list[bytes]) -> None:
    """A store as the version before wrote it, of jobs that have one task each, which runs."""
    sql = sqlite3.connect(path)
    sql.execute("PRAGMA journal_mode = WAL")
    sql.executescript(FORMAT_1)
    for number, description in enumerate(descriptions):
        sql.execute(
            "INSERT INTO jobs VALUES (?, ?, ?, ?, 0, 0, 'n', 'ada', 'running', '', 1, 1, 0, 0, 0, 0, 7, 8, NULL, ?)",
            (number, f"ada\nkey{number}", description, FIRST + number, 2 * number + 2),
        )
        sql.execute(
            "INSERT INTO tasks VALUES (?, 0, 'running', '', 0, 'node/1', NULL, 8, NULL, '/f', ?, x'')",
            (number, 2 * number + 1),
        )
    sql.execute("INSERT INTO drained VALUES ('node/4')")
    sql.commit()
    sql.close()


OLD = b'{"command":"true","call":"","env":{},"cwd":"","stdin":"","timeout_s":null,"name":"n","user":"ada","tasks":['


def test_a_store_of_the_version_before_is_brought_to_this_one_and_loses_nothing(tmp_path: Path) -> None:
    path = tmp_path / "jobs.sqlite"
    in_format_1(
        path,
        [OLD + b'{"count":1}],"key":"key0"}', b"not to be read any more", OLD + b'{"cwd":""},' * 100_000 + b"{}]}"],
    )
    before = path.stat().st_size
    store = Committing(path)
    store.checkpoint(empties_file=True)
    assert path.stat().st_size < before / 2
    kept = JobDescription(command="true", name="n", user="ada", key="key0", tasks=(TaskDescription(),))
    assert store.describes(0, encoded_at_once(kept).digest)
    assert [store.first_task(number) for number in range(3)] == [FIRST, FIRST + 1, FIRST + 2]
    assert [found.state for found in store.jobs(JobQuery(), 9)] == ["running"] * 3
    assert (store.revision, store.next_numbers(), store.drained()) == (6, (3, FIRST + 3), {"node/4"})
    assert store.job_with_key("ada", "key1") == (1, 1)
    store.take_in([report(0, "finished", 9), JobDone(0)], 10)
    assert (job(store).state, job(store).revision) == ("done", 8)
    store.close()
    assert Committing(path).open_ids()[0] == 1, "it is opened again as it is"


def test_a_store_that_cannot_be_brought_to_this_version_is_left_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "jobs.sqlite"
    in_format_1(path, [OLD + b"{}]}"])

    def full(*_: object) -> int:
        raise sqlite3.OperationalError("database or disk is full")

    monkeypatch.setattr(migrating, "stored_description", full)
    with pytest.raises(InputError, match="disk is full"):
        JobStore(path)
    monkeypatch.undo()
    assert len(Committing(path).jobs(JobQuery(), 9)) == 1


def test_the_rows_of_a_store_of_format_2_get_checksums_once(tmp_path: Path) -> None:
    store = lived_in(tmp_path)
    expected = seen(store)
    store.close()
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as sql:
        for table in CHECKED:
            sql.execute(f"ALTER TABLE {table} DROP COLUMN checksum")
        sql.execute("DROP TABLE formats")
        sql.execute("PRAGMA user_version = 2")
    sql.close()
    with pytest.raises(InputError, match="start the federation once"):
        list(store_damage(path))
    for _ in range(2):
        again = JobStore(path)
        assert seen(again) == expected
        again.close()
        assert list(store_damage(path)) == []
