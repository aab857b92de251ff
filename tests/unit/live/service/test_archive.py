"""Retention: old jobs leave the database for files, nothing is lost on the way, and the database shrinks."""

from __future__ import annotations

import asyncio
import json
import shutil
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as parquet
import pytest
from tests.unit.live.service.test_store import Committing
from typer.testing import CliRunner

from volery.cli.main import app
from volery.core.errors import InputError
from volery.core.events import JobDone
from volery.live.config.limits import Retention
from volery.live.jobs import JobDescription
from volery.live.messages import AttemptUsage, TaskReport
from volery.live.service import archive as archiving
from volery.live.service.archive import Archive, archived, paths_of
from volery.live.service.authentication import Principal
from volery.live.service.ledgers import ArchivedJob, ArchivedKey
from volery.live.service.requests import NotThereError, seen_job
from volery.live.service.store import JobStore
from volery.live.status import JobStatus

DAY_US = 86_400_000_000
TASKS = 3


def filled(folder: Path, jobs: int, stdin: str = "") -> Committing:
    """A store in which job n has ended on day n, but for the last one, which runs."""
    store = Committing(folder / "jobs.sqlite")
    for number in range(jobs):
        first = number * TASKS
        description = JobDescription(command=f"echo {number}", tasks=TASKS, user="ada", stdin=stdin)
        store.insert(number, first, description, TASKS, [], number * DAY_US)
        usage = AttemptUsage(7, 8, False, "cpu")
        news: list[Any] = [
            TaskReport(first + place, number, 0, "node/1", state, number * DAY_US, usage=usage if place else None)
            for place in range(TASKS - 1)
            for state in ("running", "finished")
        ]
        if number < jobs - 1:
            news += [
                TaskReport(first + TASKS - 1, number, 0, "node/1", "failed", number * DAY_US, reason="exit code 3")
            ]
            news += [JobDone(number)]
        store.take_in(news, number * DAY_US)
    return store


def mover(store: JobStore, folder: Path, today: int, **rules: float) -> Archive:
    async def written(write: Callable[[], Any]) -> Any:
        store.begin(durable=True)
        given = write()
        store.commit()
        return given

    policy = Retention(**rules)  # type: ignore[arg-type] # numbers, some of them whole
    return Archive(store, written, folder / "jobs.sqlite", folder / "archive", policy, lambda: today * DAY_US)


def ids(store: JobStore) -> list[int]:
    return sorted(number for (number,) in store._sql.execute("SELECT id FROM jobs"))


def test_old_jobs_leave_for_files_that_have_all_of_them_and_the_store_answers_that_they_are_archived(
    tmp_path: Path,
) -> None:
    store = filled(tmp_path, 10)
    before = [(store.job(number), store.tasks(number, 0, 9)) for number in range(5)]
    numbers, revision = store.next_numbers(), store.revision
    assert asyncio.run(mover(store, tmp_path, 12, days=7.5).pass_once()) == 5
    assert ids(store) == [5, 6, 7, 8, 9]
    assert store._first_value("SELECT count(*) FROM tasks WHERE job < 5") == 0
    assert store._first_value("SELECT count(*) FROM usages WHERE job < 5") == 0
    assert store._first_value("SELECT count(*) FROM descriptions") == 5
    for (job, tasks), (job_read, tasks_read) in zip(before, archived(tmp_path / "archive", []), strict=True):
        assert job is not None
        assert [getattr(job_read, name) for name in job.__struct_fields__ if name != "revision"] == [
            getattr(job, name) for name in job.__struct_fields__ if name != "revision"
        ]
        assert [(one.state, one.reason, one.usage, one.ended_us) for one in tasks_read] == [
            (one.state, one.reason, one.usage, one.ended_us) for one in tasks
        ]
    assert store.retired.of(3) == ArchivedJob("ada", 1)
    assert (store.next_numbers(), store.revision > revision) == (numbers, True)
    store.close()
    again = JobStore(tmp_path / "jobs.sqlite")
    assert again.next_numbers() == numbers
    assert again.revision > revision


def test_numbers_are_not_used_again_when_all_jobs_have_left(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    store.take_in([TaskReport(8, 2, 0, "node/1", "finished", 5), JobDone(2)], 2 * DAY_US)
    assert asyncio.run(mover(store, tmp_path, 99, days=1).pass_once()) == 3
    store.close()
    again = JobStore(tmp_path / "jobs.sqlite")
    assert (ids(again), again.next_numbers()) == ([], (3, 9))


def test_of_more_jobs_than_are_kept_the_oldest_leave_and_none_that_has_just_ended(tmp_path: Path) -> None:
    store = filled(tmp_path, 10)
    assert asyncio.run(mover(store, tmp_path, 8, jobs=4).pass_once()) == 5
    assert ids(store) == [5, 6, 7, 8, 9]
    assert asyncio.run(mover(store, tmp_path, 6, jobs=1).pass_once()) == 1, "the others have not been read yet"


def test_by_default_everything_is_kept(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    assert asyncio.run(mover(store, tmp_path, 10_000).pass_once()) == 0
    assert not (tmp_path / "archive").exists()


def test_the_file_of_the_database_shrinks(tmp_path: Path) -> None:
    store = filled(tmp_path, 60, stdin="x" * 100_000)
    store.checkpoint(empties_file=True)
    before = (tmp_path / "jobs.sqlite").stat().st_size
    assert asyncio.run(mover(store, tmp_path, 99, days=1).pass_once()) == 59
    store.checkpoint(empties_file=True)
    assert (tmp_path / "jobs.sqlite").stat().st_size < before / 10


def test_long_descriptions_are_written_a_few_at_a_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = filled(tmp_path, 21, stdin="x" * 10_000)
    monkeypatch.setattr(archiving, "PIECE_BYTES", 50_000)
    assert asyncio.run(mover(store, tmp_path, 99, days=1).pass_once()) == 20
    assert parquet.ParquetFile(paths_of(tmp_path / "archive", 1)[0]).num_row_groups == 4
    assert [job.id for job, _ in archived(tmp_path / "archive", [])] == list(range(20))


def test_a_pass_that_was_interrupted_loses_nothing_and_writes_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = filled(tmp_path, 6)
    full = OSError(28, "No space left on device")

    def fail(*_: object) -> None:
        raise full

    monkeypatch.setattr(archiving, "sync_folder", fail)
    with pytest.raises(OSError, match="No space"):
        asyncio.run(mover(store, tmp_path, 99, days=1).pass_once())
    assert len(ids(store)) == 6
    monkeypatch.undo()
    monkeypatch.setattr(Archive, "_clear", lambda *_: asyncio.sleep(0))  # and ends before the rows of tasks leave
    assert asyncio.run(mover(store, tmp_path, 99, days=1).pass_once()) == 5
    monkeypatch.undo()
    assert store._first_value("SELECT count(*) FROM tasks WHERE job < 5") > 0
    assert asyncio.run(mover(store, tmp_path, 99, days=1).pass_once()) == 0
    assert store._first_value("SELECT count(*) FROM tasks WHERE job < 5") == 0
    assert [job.id for job, _ in archived(tmp_path / "archive", [])] == [0, 1, 2, 3, 4]
    files = ["000001.sha256", *(path.name for path in paths_of(tmp_path / "archive", 1))]
    assert sorted(path.name for path in (tmp_path / "archive").iterdir()) == files


def test_files_of_a_store_that_is_lost_are_not_written_over(tmp_path: Path) -> None:
    store = filled(tmp_path, 6)
    shutil.copy(store_file := tmp_path / "jobs.sqlite", tmp_path / "copy")
    shutil.copy(f"{store_file}-wal", tmp_path / "copy-wal")
    for today in (2, 4):
        asyncio.run(mover(store, tmp_path, today, days=1).pass_once())
    store.close()
    before = {path.name: path.read_bytes() for path in (tmp_path / "archive").glob("*.parquet")}
    assert len(before) == 4
    for suffix in ("", "-wal"):
        shutil.copy(tmp_path / f"copy{suffix}", f"{store_file}{suffix}")
    restored = Committing(store_file)
    restored.fail(5, "its last job has ended as well", 5 * DAY_US)
    restored.begin(durable=True)
    restored.retired.forbid(ArchivedKey(9, 9 * TASKS, 999))
    restored._sql.execute("DELETE FROM jobs WHERE id < 3")  # as of a copy that never had them
    restored.commit()
    asyncio.run(mover(restored, tmp_path, 9, days=1).pass_once())
    after = {path.name: path.read_bytes() for path in (tmp_path / "archive").glob("*.parquet")}
    assert {name: after[name] for name in before} == before
    assert restored.retired.last_file() == 3
    restored.close()


def test_files_of_the_archive_are_for_the_owner_alone(tmp_path: Path) -> None:
    store = filled(tmp_path, 3)
    asyncio.run(mover(store, tmp_path, 99, days=1).pass_once())
    modes = [path.stat().st_mode & 0o777 for path in (tmp_path / "archive", *paths_of(tmp_path / "archive", 1))]
    assert modes == [0o700, 0o600, 0o600]


class Jobs:
    """One archived job."""

    def job(self, number: int) -> JobStatus | None:
        return None

    def archived(self, number: int) -> ArchivedJob | None:
        return ArchivedJob("ada", 4) if number == 7 else None


@pytest.mark.parametrize(
    ("number", "user", "problem"),
    [
        (7, "ada", "this job is archived, in file 4"),
        (7, "bob", "there is no such job"),
        (8, "ada", "there is no such job"),
    ],
)
def test_whoever_asks_for_an_archived_job_is_told_so_and_nobody_else(number: int, user: str, problem: str) -> None:
    with pytest.raises(NotThereError, match=problem):
        seen_job(Jobs(), number, Principal(user, "user"))


def test_the_record_of_archived_jobs_is_exported_as_that_of_others(tmp_path: Path) -> None:
    store = filled(tmp_path, 4)
    asyncio.run(mover(store, tmp_path, 99, days=1).pass_once())
    words = ["record", "export", "--archive", str(tmp_path / "archive"), "-o", str(tmp_path / "out.jsonl"), "--json"]
    told = CliRunner().invoke(app, [*words, "--since", "0"])
    assert told.exit_code == 0
    assert json.loads(told.stdout)["jobs"] == 0
    told = CliRunner().invoke(app, [*words, "--force", "--user", "ada"])
    assert json.loads(told.stdout) == {"file": str(tmp_path / "out.jsonl"), "jobs": 3, "tasks": 9}
    lines = [json.loads(line) for line in (tmp_path / "out.jsonl").read_text().splitlines()]
    assert [(line["record"], line.get("id"), line.get("index")) for line in lines[:4]] == [
        ("job", 0, None),
        ("task", None, 0),
        ("task", None, 1),
        ("task", None, 2),
    ]


def test_an_export_of_an_archive_names_the_damaged_file_and_has_all_others(tmp_path: Path) -> None:
    store = filled(tmp_path, 9)
    for jobs in ([1, 2], [3, 4], [5, 6]):
        store.begin(durable=False)
        file = store.retired.last_file() + 1
        archiving.write_files(tmp_path / "jobs.sqlite", tmp_path / "archive", file, jobs)
        store.retire(jobs, file)
        store.commit()
    paths_of(tmp_path / "archive", 2)[0].write_bytes(b"PAR1")
    archiving.digests_path(paths_of(tmp_path / "archive", 3)[0]).unlink()
    paths_of(tmp_path / "archive", 3)[1].write_bytes(b"PAR1")
    output = tmp_path / "out.jsonl"
    told = CliRunner().invoke(app, ["record", "export", "--archive", str(tmp_path / "archive"), "-o", str(output)])
    assert told.exit_code == 1
    first, second, last = told.stdout.splitlines()
    assert ("jobs-000002.parquet: is damaged" in first, "jobs-000003.parquet: cannot be read" in second) == (True, True)
    assert last == f"{output}: 2 jobs, 6 tasks"
    lines = [json.loads(line) for line in output.read_text().splitlines()]
    assert [line["id"] for line in lines if line["record"] == "job"] == [1, 2]


def test_a_folder_without_an_archive_and_a_damaged_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no archived jobs"):
        list(archived(tmp_path, []))
    store = filled(tmp_path, 4)
    asyncio.run(mover(store, tmp_path, 99, days=1).pass_once())
    paths_of(tmp_path / "archive", 1)[1].write_bytes(b"PAR1")
    damages = list[InputError]()
    assert list(archived(tmp_path / "archive", damages)) == []
    assert "is damaged: its digest is another" in str(*damages)
    with pytest.raises(sqlite3.Error):
        archiving.write_files(tmp_path / "none.sqlite", tmp_path / "archive", 2, [1])
