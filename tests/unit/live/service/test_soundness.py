"""A damaged store of jobs is told with its place, or nothing that a person can see has changed."""

from __future__ import annotations

import asyncio
import re
import shutil
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from tests.flips import PLACES, flips
from tests.unit.live.service.test_archive import filled, mover
from tests.unit.live.service.test_store import Committing

from volery.core.assignment import Owner
from volery.core.errors import DamagedError, InputError
from volery.core.events import JobDone, Preemption, Reassignment, ShareChange
from volery.core.forecast import MomentQuantiles, Quantiles
from volery.live.clock import unix_now_us
from volery.live.jobs import JobDescription
from volery.live.messages import PreemptionReport, TaskReport
from volery.live.service.archive import archived, paths_of, write_files
from volery.live.service.checks import check_state
from volery.live.service.checksums import CHECKED, FORECASTS, add_triggers
from volery.live.service.forecaster import Forecaster, ForecastLedger
from volery.live.service.rows import JobOrder, JobQuery
from volery.live.service.soundness import log_soundness, store_damage
from volery.live.service.store import JobStore
from volery.live.status import ActualMoments, JobStatus

JOBS = 8


def lived_in(folder: Path) -> Committing:
    """A store with rows in every table."""
    store = filled(folder, JOBS, stdin="some input\n" * 40)
    asyncio.run(mover(store, folder, 2, days=1).pass_once())
    store.begin(durable=False)
    store.drain("node/4", True)
    store.drain("node/5", True)
    store.shares.reweigh("ada", 3, 1, "root", 7)
    fact = Preemption(8, 16, 0, 22, "share", ShareChange("ada", 1, 2, 3), ShareChange("bob", 4, 5, 6))
    store.shares.note(PreemptionReport("lm/0", 9, fact))
    store.assigned.add(Reassignment(1, "gm/0", "gm/1"), [JOBS - 1], "gm/0 was lost", 8)
    store.assigned.note([5], Owner("gm/1", 1), "by hand")
    store.commit()
    report = TaskReport(3 * (JOBS - 1) + 2, JOBS - 1, 0, "node/1", "finished", 9, result=b"pickled" * 300)
    store.take_in([report], 9)
    return store


def seen(store: JobStore) -> list[Any]:
    """All that a person can see of a store."""
    jobs = store.jobs(JobQuery(), 99)
    found: list[Any] = [jobs, store.drained(), store.next_numbers(), store.loads(), sorted(store.open_ids())]
    for job in jobs:
        found += [store.tasks(job.id, 0, 99), store.first_task(job.id), store.begun(job.id)]
        found += [asyncio.run(store.descriptions.whole(job.id))]
        found += [store.result(job.id, place) for place in range(job.tasks)]
    found += [store.shares.weights(), store.shares.changes(None, 9), store.shares.preemptions(None, None, None, 9)]
    found += [store.assigned.moves(), store.assigned.owners(), [store.retired.of(number) for number in range(JOBS)]]
    found += [store.retired.last_file(), store.changes(0, 999)]
    if said := re.search(r"the row of table [^\"']* is damaged", repr(found)):
        raise sqlite3.DatabaseError(said[0])
    return found


@contextmanager
def opened(path: Path) -> Iterator[JobStore]:
    store = JobStore(path)
    try:
        yield store
    finally:
        store.close()


def told(path: Path) -> list[str]:
    try:
        return list(store_damage(path))
    except InputError as error:
        return [str(error)]


def read_again(path: Path) -> tuple[list[Any] | None, str]:
    """All that a person can see of a store, or why nothing can be seen."""
    try:
        with opened(path) as store:
            return seen(store), ""
    except (InputError, sqlite3.DatabaseError) as error:
        return None, str(error)


@pytest.mark.parametrize("places", PLACES)
def test_a_flipped_bit_in_the_store_is_told_or_changes_nothing_that_a_person_sees(tmp_path: Path, places: int) -> None:
    path = tmp_path / "jobs.sqlite"
    lived_in(tmp_path).close()
    copy = tmp_path / "copy" / "jobs.sqlite"
    copy.parent.mkdir()
    assert not told(path)
    with opened(path) as store:
        expected = seen(store)

    damaged = 0
    for flip in flips(path, places):
        damages = told(path)
        damaged += bool(damages)
        shutil.copy(path, copy)
        found, problem = read_again(copy)
        assert damages or not problem, f"{flip}: the check finds nothing, but the store says {problem}"
        assert problem or found == expected, f"{flip}: the store returns what it never held, and the check {damages}"
        assert "another version" not in f"{problem} {damages}", flip
        for left in copy.parent.iterdir():
            left.unlink()
    assert damaged > places / 30, "the other places hold nothing"


@pytest.mark.parametrize("places", PLACES)
def test_a_flipped_bit_in_the_log_of_the_store_loses_no_change_without_a_word(tmp_path: Path, places: int) -> None:
    store = lived_in(tmp_path)
    expected = seen(store)
    copy = tmp_path / "copy" / "jobs.sqlite"
    copy.parent.mkdir()
    path, log = copy, copy.with_name("jobs.sqlite-wal")
    shutil.copy(tmp_path / "jobs.sqlite", path)
    shutil.copy(tmp_path / "jobs.sqlite-wal", log)
    store.close()
    whole, frames = path.read_bytes(), log_soundness(path).frames
    assert frames > 100
    last_change = log.stat().st_size - 24 - 4096

    for flip in flips(log, places):
        content = log.read_bytes()
        found, problem = read_again(path)
        assert not problem or "at byte" in problem, flip
        if not problem and found != expected:  # it is told, and only the last change is gone
            path.write_bytes(whole)
            log.write_bytes(content)
            assert log_soundness(path).torn_at == last_change, flip
        path.write_bytes(whole)
        for name in ("jobs.sqlite-wal", "jobs.sqlite-shm"):
            path.with_name(name).unlink(missing_ok=True)


def test_a_log_that_is_damaged_within_says_how_to_go_on_without_what_follows(tmp_path: Path) -> None:
    store = lived_in(tmp_path)
    copy = tmp_path / "copy" / "jobs.sqlite"
    copy.parent.mkdir()
    log = copy.with_name("jobs.sqlite-wal")
    for path in (copy, log):
        shutil.copy(tmp_path / path.name, path)
    store.close()
    content = bytearray(log.read_bytes())
    content[32 + 100 * (24 + 4096) + 500] ^= 1
    log.write_bytes(content)
    with pytest.raises(InputError, match=r"later changes follow, and `truncate -s ([0-9]+)` gives them up") as refused:
        JobStore(copy)
    subprocess.run(["truncate", *str(refused.value).split("truncate ")[1].split("`")[0].split(), log], check=True)
    with opened(copy) as again:
        assert 0 < len(again.jobs(JobQuery(), 99)) < JOBS


def test_every_row_of_every_table_has_its_checksum(tmp_path: Path) -> None:
    store = lived_in(tmp_path)
    tables = {
        name
        for (name,) in store._sql.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")
        if not name.startswith("sqlite_")
    }
    assert tables == CHECKED.keys()
    for table, columns in CHECKED.items():
        assert store._first_value(f"SELECT count(*) FROM {table}") > 0, table
        assert store._first_value(f"SELECT count(*) FROM {table} WHERE checksum IS NULL") == 0, table
        present = [row[1] for row in store._sql.execute(f"PRAGMA table_info({table})")]
        left_out = {"content"} if table == "descriptions" else set()  # it has a digest of its own
        assert set(present) - {"checksum"} - left_out == set(columns), table
    store.close()
    assert told(tmp_path / "jobs.sqlite") == []


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE jobs SET finished = 3 WHERE id = 5",
        "UPDATE tasks SET state = 'killed' WHERE job = 7 AND place = 2",
        "UPDATE usages SET cpu_us = 8 WHERE job = 5",
        "UPDATE descriptions SET content = x'7b7d'",
        "DELETE FROM formats",
        "UPDATE reweighs SET weight = 4",
        "UPDATE jobs SET checksum = NULL WHERE id = 7",
        "UPDATE archived SET user = 'bob' WHERE job = 0",
        "UPDATE assignments SET note = ''",
    ],
)
def test_a_row_that_another_program_has_changed_is_told_with_its_table_and_key(tmp_path: Path, change: str) -> None:
    lived_in(tmp_path).close()
    path = tmp_path / "jobs.sqlite"
    with sqlite3.connect(path) as sql:
        assert sql.execute(change).rowcount > 0
    sql.close()
    (damage, *_) = told(path)
    assert change.split()[1 if change.startswith("UPDATE") else 2] in damage
    (file,) = (file for file in check_state(tmp_path) if file.path == str(path))
    assert damage in file.damages


def test_a_change_of_a_damaged_row_does_not_hide_the_damage(tmp_path: Path) -> None:
    store = lived_in(tmp_path)
    store.close()
    with sqlite3.connect(tmp_path / "jobs.sqlite") as sql:
        sql.execute("UPDATE jobs SET name = 'another' WHERE id = 5")
        sql.execute("UPDATE tasks SET reason = 'another' WHERE job = 5 AND place = 2")
    sql.close()
    again = JobStore(tmp_path / "jobs.sqlite")
    again.begin(durable=False)
    with pytest.raises(sqlite3.DatabaseError, match="the row of table jobs with id 5 is damaged"):
        again.job(5)
    with pytest.raises(sqlite3.DatabaseError, match="the row of table tasks with job 5 and place 2 is damaged"):
        again.result(5, 2)
    again._sql.execute("UPDATE tasks SET state = 'unknown' WHERE job = 5 AND place = 2")
    again._sql.execute("UPDATE jobs SET key = 'k' WHERE id = 5")
    again.commit()
    again.close()
    assert [damage.partition(" is ")[0] for damage in told(tmp_path / "jobs.sqlite")] == [
        "the row of table jobs with id 5",
        "the row of table tasks with job 5 and place 2",
    ]


def rewritten(folder: Path, *changes: str) -> JobStore:
    """A store in which another program has changed rows."""
    lived_in(folder).close()
    with closing(sqlite3.connect(folder / "jobs.sqlite", isolation_level=None)) as sql:
        for change in changes:
            assert sql.execute(change).rowcount == 1
    return JobStore(folder / "jobs.sqlite")


def test_a_damaged_row_of_a_job_is_named_in_each_list_and_hides_no_other(tmp_path: Path) -> None:
    store = rewritten(tmp_path, "UPDATE jobs SET tasks = 1 WHERE id = 5")
    newest = list(range(JOBS - 1, 0, -1))
    by_name = JobOrder("tasks", falling=False)
    listed = store.jobs(JobQuery(), 99), asyncio.run(store.search(JobQuery(), 99))
    for jobs in (*listed, asyncio.run(store.search(JobQuery(user="ada"), 99, by_name))):
        assert sorted((job.id for job in jobs), reverse=True) == newest
        (damaged,) = (job for job in jobs if job.state == "damaged")
        assert (damaged.id, damaged.reason, damaged.tasks) == (5, "the row of table jobs with id 5 is damaged", 0)
    store.close()


def test_a_damaged_row_of_a_task_or_its_usage_is_named_in_lists_and_hides_no_other(tmp_path: Path) -> None:
    wrong = "UPDATE tasks SET state = 'failed' WHERE job = 4 AND place = 1"
    store = rewritten(tmp_path, wrong, "UPDATE usages SET attempt = 3 WHERE job = 6 AND place = 1")
    tasks = store.tasks(4, 0, 9)
    assert [task.state for task in tasks] == ["finished", "unknown", "failed"]
    assert tasks[1].reason == "the row of table tasks with job 4 and place 1 is damaged"
    tasks = store.tasks(6, 0, 9)
    assert [task.state for task in tasks] == ["finished", "finished", "failed"]
    assert tasks[1].usage is not None
    assert tasks[1].usage.held == "the row of table usages with job 6 and place 1 is damaged"
    store.close()


@pytest.mark.parametrize("revision", [0, 1 << 60], ids=["earlier", "later"])
def test_who_follows_changes_past_a_damaged_row_comes_to_their_end_and_misses_none(
    tmp_path: Path, revision: int
) -> None:
    lived_in(tmp_path).close()
    with opened(tmp_path / "jobs.sqlite") as store:
        expected = {
            (one.id, -1) if isinstance(one, JobStatus) else (one.job, one.index) for one in store.changes(0, 999)
        }
        end = store.revision
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)) as sql:
        sql.execute("UPDATE jobs SET checksum = 1 WHERE id = 3")
        sql.execute(f"UPDATE tasks SET revision = {revision} WHERE job = 4 AND place = 1")

    with opened(tmp_path / "jobs.sqlite") as store:
        after, found = 0, set()
        while changes := store.changes(after, 2, end):
            assert after < changes[-1].revision <= end
            after = changes[-1].revision
            found |= {(one.id, -1) if isinstance(one, JobStatus) else (one.job, one.index) for one in changes}
    assert expected - found <= {(4, 1)}


@pytest.mark.parametrize(
    "change", ["moves SET heir = 'gm/2'", "drained SET checksum = 1 WHERE node = 'node/4'", "used SET job = 3"]
)
def test_a_damaged_row_that_all_jobs_depend_on_is_no_ground_for_a_start(tmp_path: Path, change: str) -> None:
    with pytest.raises(InputError, match=rf"row of table {change.split()[0]} .* is damaged; `volery check` lists"):
        rewritten(tmp_path, f"UPDATE {change}")
    with pytest.raises(InputError, match=r"is damaged"):
        JobStore(tmp_path / "jobs.sqlite")  # and the lock is released


OPEN_JOB = JOBS - 1


@pytest.mark.parametrize(
    "change",
    [
        f"first_task = 9 WHERE id = {OPEN_JOB}",
        f"user = 'eve' WHERE id = {OPEN_JOB}",
        f"name = CAST(x'ff41' AS TEXT) WHERE id = {OPEN_JOB}",
        f"revision = 'x' WHERE id = {OPEN_JOB}",
        f"tasks = 1.5, running = 'many' WHERE id = {OPEN_JOB}",
        f"user = CAST(x'c3' AS TEXT) WHERE id = {OPEN_JOB}",
    ],
)
@pytest.mark.parametrize("when", ["before a start", "under way"])
def test_an_open_job_whose_row_is_damaged_is_listed_as_damaged_and_all_others_go_on(
    tmp_path: Path, change: str, when: str, caplog: pytest.LogCaptureFixture
) -> None:
    lived = lived_in(tmp_path)
    lived.insert(JOBS, 3 * JOBS, JobDescription(command="true", user="ada"), 1, [], 5)
    lived.close()
    path = tmp_path / "jobs.sqlite"
    if when == "under way":
        store = JobStore(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        assert sql.execute(f"UPDATE jobs SET {change}").rowcount == 1
    if when == "before a start":
        store = JobStore(path)
    seen_before = store.revision

    store.begin(durable=False)
    for job, first in ((OPEN_JOB, 3 * OPEN_JOB), (JOBS, 3 * JOBS)):
        store.take_in([TaskReport(first, job, 0, "node/1", "running", 9)], 9)
    store.commit()
    assert f"the row of table jobs with id {OPEN_JOB} is damaged" in caplog.text
    assert [(job.id, job.state) for job in store.jobs(JobQuery(), 2)] == [(JOBS, "running"), (OPEN_JOB, "damaged")]
    assert list(store.open_ids()) == [JOBS]
    assert store.loads() == [("ada", 0, 1, 0, 1)]
    told_since = [change.id for change in store.changes(seen_before, 9) if isinstance(change, JobStatus)]
    assert told_since == ([OPEN_JOB] if when == "under way" else []) + [JOBS]
    store.close()
    with opened(path) as again:
        assert again.jobs(JobQuery(), 2)[1].state == "damaged"
    assert f"the row of table jobs with id {OPEN_JOB} is damaged" in told(path)


@pytest.mark.parametrize("change", ["state = 'finished'", "attempt = 'x'", "node = CAST(x'c3' AS TEXT)"])
def test_a_damaged_row_of_a_task_that_is_reported_fails_its_job_alone(tmp_path: Path, change: str) -> None:
    store = lived_in(tmp_path)
    store.insert(JOBS, 3 * JOBS, JobDescription(command="true", user="ada"), 1, [], 5)
    task = 3 * OPEN_JOB + 2
    with closing(sqlite3.connect(tmp_path / "jobs.sqlite", isolation_level=None)) as sql:
        where = f"WHERE job = {OPEN_JOB} AND place = 2"
        sql.execute(f"UPDATE tasks SET {change}, started_us = 3, result = '' {where}")
    reports = [TaskReport(task, OPEN_JOB, 1, "node/1", "running", 9), TaskReport(3 * JOBS, JOBS, 0, "n", "finished", 9)]
    store.take_in([*reports, JobDone(OPEN_JOB), JobDone(JOBS)], 9)
    whole, damaged = store.jobs(JobQuery(), 2)
    place = f"the row of table tasks with job {OPEN_JOB} and place 2 is damaged"
    assert (whole.state, damaged.state, damaged.reason) == ("done", "failed", place)
    assert store.take_given_up() == {OPEN_JOB: damaged.user}
    assert place in told(tmp_path / "jobs.sqlite"), "no report hides it"
    store.close()


@pytest.mark.parametrize(
    "change",
    [
        "preemptions SET user = 'eve'",
        "preemptions SET reason = CAST(x'ff' AS TEXT)",
        "reweighs SET name = 'eve'",
        "reweighs SET weight = 9",
        "archived SET file = 99 WHERE job = 0",
        "usages SET held = 'x' WHERE job = 5 AND place = 1",
    ],
)
def test_a_damaged_row_of_a_history_is_named_and_the_federation_starts(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    lived_in(tmp_path).close()
    path = tmp_path / "jobs.sqlite"
    with opened(path) as store:
        number, last = store.shares.weights()[0], store.retired.last_file()
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        assert sql.execute(f"UPDATE {change}").rowcount == 1
    table = change.split()[0]
    with opened(path) as store:
        assert store.shares.weights() == (number, {} if table == "reweighs" else {"ada": 3})
        assert store.retired.last_file() <= last, "the next file is no other than the one after the last"
        with pytest.raises(sqlite3.DatabaseError, match=rf"the row of table {table} with .* is damaged"):
            seen(store)
    assert f"row of table {table}" in "\n".join(told(path))
    assert table == "usages" or f"row of table {table}" in caplog.text


def test_an_index_that_does_not_fit_its_rows_is_made_again_by_a_start(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lived_in(tmp_path).close()
    path = tmp_path / "jobs.sqlite"
    with opened(path) as store:
        expected = seen(store)
    content = path.read_bytes()
    with closing(sqlite3.connect(path)) as sql:
        (page,) = sql.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'preemptions_of_user'").fetchone()
        (page_bytes,) = sql.execute("PRAGMA page_size").fetchone()
    at = content.index(b"ada", (page - 1) * page_bytes, page * page_bytes)
    path.write_bytes(content[:at] + b"eve" + content[at + 3 :])
    assert "missing from index preemptions_of_user" in "\n".join(told(path))
    with opened(path) as store:
        assert seen(store) == expected
    assert told(path) == []
    assert "indices are made again" in caplog.text


def test_a_damaged_row_does_not_move_to_the_archive(tmp_path: Path) -> None:
    store = lived_in(tmp_path)
    store._sql.execute("UPDATE jobs SET checksum = 1 WHERE id = 2")
    with pytest.raises(sqlite3.DatabaseError, match="the row of table jobs with id 2 is damaged"):
        write_files(tmp_path / "jobs.sqlite", tmp_path / "archive", 2, [2])
    assert not paths_of(tmp_path / "archive", 2)[0].exists()


def test_a_damaged_row_keeps_no_other_job_from_the_archive(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = lived_in(tmp_path)
    store._sql.execute("UPDATE jobs SET checksum = 1 WHERE id = 2")
    store._sql.execute("UPDATE tasks SET checksum = 1 WHERE job = 4 AND place = 1")
    moving = mover(store, tmp_path, 99, days=1)
    assert [asyncio.run(moving.pass_once()) for _ in range(2)] == [4, 0]
    assert [job.id for job in store.jobs(JobQuery(), 99)] == [7, 4, 2]
    assert [job.id for job, _ in archived(tmp_path / "archive", [])][1:] == [1, 3, 5, 6]
    for damage in ("table jobs with id 2", "table tasks with job 4 and place 1"):
        assert f"the row of {damage} is damaged; `volery check` lists it" in caplog.text


def test_a_forecast_that_was_damaged_is_in_no_record(tmp_path: Path) -> None:
    lived_in(tmp_path).close()
    path, job = tmp_path / "forecasts.sqlite", JobDescription(command="echo 5", user="ada")
    moments = MomentQuantiles(*[Quantiles(1, 2, 3)] * len(MomentQuantiles.__struct_fields__))
    came = msgspec.json.encode(ActualMoments(1, 2, 3, 4))
    book = ForecastLedger(path, tmp_path / "jobs.sqlite")
    book.keep(unix_now_us(), 99, job, moments)
    book.close()
    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        add_triggers(sql, (FORECASTS,))
        sql.execute("UPDATE forecasts SET job = 5, delay_us = 1, came = ?", (came,))
    book = ForecastLedger(path, tmp_path / "jobs.sqlite")
    assert [outcome.job for outcome in book.record("ada").last] == [5]
    book.close()
    assert {file.path: file.damages for file in check_state(tmp_path)}[str(path)] == ()

    with closing(sqlite3.connect(path, isolation_level=None)) as sql:
        sql.execute("UPDATE forecasts SET delay_us = 2")
    book = ForecastLedger(path, tmp_path / "jobs.sqlite")
    book.keep(unix_now_us(), 99, job, moments)
    record = book.record("ada")
    assert (record.open, record.damaged, record.last) == (1, 1, ())
    book.close()
    federation: Any = SimpleNamespace(folder=tmp_path, plan=None, fleet=None)
    foreteller = Forecaster(federation, {})
    assert len(asyncio.run(foreteller.meters())) == 3, "all metrics go on"
    foreteller.close()
    (damage,) = {file.path: file.damages for file in check_state(tmp_path)}[str(path)]
    assert damage == "the row of table forecasts with id 1 is damaged"


@pytest.mark.parametrize("places", PLACES)
@pytest.mark.parametrize("name", ["jobs-000001.parquet", "tasks-000001.parquet", "000001.sha256"])
def test_a_flipped_bit_in_an_archive_is_told(tmp_path: Path, name: str, places: int) -> None:
    asyncio.run(mover(filled(tmp_path, 4), tmp_path, 99, days=1).pass_once())
    folder = tmp_path / "archive"
    assert len(list(archived(folder, []))) == 3
    for flip in flips(folder / name, places):
        damages = list[InputError]()
        assert list(archived(folder, damages)) == [], flip
        assert [type(damage) for damage in damages] == [DamagedError], flip


def test_an_archive_of_which_the_pass_was_interrupted_is_read_and_said_to_have_no_digest(tmp_path: Path) -> None:
    asyncio.run(mover(filled(tmp_path, 4), tmp_path, 99, days=1).pass_once())
    (tmp_path / "archive/000001.sha256").unlink()
    assert len(list(archived(tmp_path / "archive", []))) == 3
    notes = {Path(file.path).name: file.note for file in check_state(tmp_path)}
    assert notes["jobs-000001.parquet"] == "has no digest: its pass has not ended"
