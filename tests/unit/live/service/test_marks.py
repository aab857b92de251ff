"""A store of jobs that was restored, emptied or replaced: noticed by its marks, and never taken for the one before."""

from __future__ import annotations

import shutil
import sqlite3
from pathlib import Path

import msgspec
import pytest

from volery.core.errors import InputError
from volery.core.events import JobDone, Reassignment
from volery.live.frontend import opened_store
from volery.live.jobs import JobDescription
from volery.live.messages import NUMBER_BITS, TaskReport, identity_of, number_of
from volery.live.service.ledgers import ArchivedKey
from volery.live.service.marks import (
    ORIGIN_STEP,
    MarkKeeper,
    StoreMark,
    decode_marks,
    demand_newest,
    first_of_start,
    read_mark,
)
from volery.live.service.store import JobStore

STORE, MARK = "jobs.sqlite", "jobs.mark"


class Api:
    """The store in a folder, with its marks beside it and at a host, as the API's process keeps them."""

    def __init__(self, folder: Path, gives_up_jobs: bool = False, kept: bytes = b"") -> None:
        self.path, self.kept = folder / STORE, kept
        beside = read_mark(folder / MARK)
        marks = {MARK: beside} if beside is not None else {}
        self.store = opened_store(self.path, marks | decode_marks({"gm-0": kept} if kept else {}), gives_up_jobs)
        self.keeper = MarkKeeper(self.path, self.store.mark, self._announce)
        self.numbers = self.store.first_numbers()
        self.keeper.note(self.store.revision)

    def _announce(self, mark: bytes) -> None:
        self.kept = mark

    def submit(self) -> tuple[int, int]:
        """Number and first task of a job of one task, which is promised when this returns."""
        number, first = self.numbers
        self.numbers = number + 1, first + 1
        self.store.begin(durable=True)
        self.store.insert(number, first, JobDescription(command="true"), 1, [], 1)
        self.store.commit()
        self.keeper.note(self.store.revision)
        return number, first

    def take_in(self, *news: JobDone | TaskReport) -> None:
        self.store.begin(durable=False)
        self.store.take_in(news, 5)
        self.store.commit()

    def state(self, number: int) -> str:
        found = self.store.job(number)
        assert found is not None
        return found.state

    def end(self) -> None:
        self.store.close()


def copied(folder: Path, to: Path) -> Path:
    shutil.copytree(folder, to)
    return to


def restored(copy: Path, folder: Path) -> None:
    shutil.rmtree(folder)
    shutil.copytree(copy, folder)


def test_an_older_copy_is_refused_and_with_the_flag_gives_no_number_again(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    api = Api(folder)
    api.submit()
    copy = copied(folder, tmp_path / "copy")
    lost = [api.submit() for _ in range(3)]
    api.end()
    restored(copy, folder)
    with pytest.raises(InputError, match="it has 1 jobs, up to change 1, but host gm-0 knows 4 jobs, up to change 4"):
        Api(folder, kept=api.kept)
    again = Api(folder, gives_up_jobs=True, kept=api.kept)
    assert again.submit()[0] == 4
    assert again.store.job(1) is None
    again.end()
    third = Api(folder, kept=again.kept)
    assert third.submit()[0] == 5, "the flag is given once"
    assert {identity_of(*job) for job in lost}.isdisjoint(
        {identity_of(number, third.numbers[1]) for number in range(9)}
    )
    third.end()


def test_a_copy_of_the_store_alone_is_refused_by_the_mark_beside_it(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.submit()
    api.store.checkpoint(empties_file=True)
    shutil.copy(tmp_path / STORE, tmp_path / "copy")
    api.submit()
    api.end()
    shutil.copy(tmp_path / "copy", tmp_path / STORE)
    with pytest.raises(InputError, match=r"but jobs\.mark knows 2 jobs"):
        Api(tmp_path)


def test_a_store_whose_log_was_removed_is_refused_since_it_lacks_what_was_promised(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    api = Api(folder)
    api.submit()
    copy = copied(folder, tmp_path / "killed")
    api.end()
    for name in ("jobs.sqlite-wal", "jobs.sqlite-shm"):
        (copy / name).unlink()
    before = (copy / STORE).read_bytes()
    with pytest.raises(InputError, match="is missing, but"):
        Api(copy)
    assert (copy / STORE).read_bytes() == before, "the log still fits when it is found"


def test_a_mark_names_nothing_of_a_batch_that_may_never_be_written(tmp_path: Path) -> None:
    store = JobStore(tmp_path / "jobs.sqlite")
    before = store.mark(store.revision)
    store.begin(durable=True)  # and meanwhile a sync of earlier changes has come to its end
    store.insert(0, 0, JobDescription(command="true"), 1, [], 0)
    store.shares.reweigh("ada", 3, 1, "root", 7)
    assert store.mark(store.revision) == before
    store.commit()
    after = store.mark(store.revision)
    assert (after.first.job, after.reweighs, after.is_ahead_of(before)) == (1, 1, True)
    store.close()


def test_a_store_that_is_gone_is_not_replaced_by_an_empty_one(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.submit()
    api.end()
    (tmp_path / STORE).unlink()
    with pytest.raises(InputError, match=r"is missing, but jobs\.mark knows 1 jobs"):
        Api(tmp_path)
    (tmp_path / MARK).unlink()
    with pytest.raises(InputError, match="is missing, but host gm-0 knows 1 jobs"):
        Api(tmp_path, kept=api.kept)
    assert not (tmp_path / STORE).exists()
    again = Api(tmp_path, gives_up_jobs=True, kept=api.kept)
    assert again.submit()[0] == 1
    again.end()


def test_the_store_of_another_federation_is_refused_however_much_it_has(tmp_path: Path) -> None:
    folders = [tmp_path / "ours", tmp_path / "theirs"]
    for folder, count in zip(folders, (1, 5), strict=True):
        folder.mkdir()
        api = Api(folder)
        for _ in range(count):
            api.submit()
        api.end()
    shutil.copy(folders[1] / STORE, folders[0] / STORE)
    with pytest.raises(InputError, match=r"is another store than the one of which jobs\.mark knows 1 jobs"):
        Api(folders[0])


def test_a_folder_that_was_moved_or_lacks_its_mark_opens(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    api = Api(folder)
    api.submit()
    api.end()
    moved = Api(copied(folder, tmp_path / "moved"), kept=api.kept)
    assert moved.submit()[0] == 1
    moved.end()
    (tmp_path / "moved" / MARK).unlink()
    Api(tmp_path / "moved", kept=moved.kept).end()


@pytest.mark.parametrize("content", [b"", b"\0" * 90, b"zz {}\n", b"00000000 {}\n", b"d"])
def test_a_damaged_mark_is_named_with_what_to_do(tmp_path: Path, content: bytes) -> None:
    (tmp_path / MARK).write_bytes(content)
    with pytest.raises(InputError, match=r"jobs\.mark: is damaged.*remove jobs\.mark"):
        read_mark(tmp_path / MARK)


def test_every_flipped_bit_of_a_mark_is_noticed(tmp_path: Path) -> None:
    api = Api(tmp_path)
    api.submit()
    api.end()
    content = (tmp_path / MARK).read_bytes()
    whole = read_mark(tmp_path / MARK)
    for place in range(8 * len(content)):
        damaged = bytearray(content)
        damaged[place // 8] ^= 1 << place % 8
        (tmp_path / MARK).write_bytes(damaged)
        try:
            found = read_mark(tmp_path / MARK)
        except InputError:
            continue
        assert found == whole, f"bit {place}"


@pytest.mark.parametrize("name", [STORE, "jobs.sqlite-wal", "jobs.sqlite-shm", "jobs.lock"])
@pytest.mark.parametrize("harm", ["removed", "replaced"])
def test_a_file_that_is_gone_under_way_stops_writes_until_it_is_back(tmp_path: Path, name: str, harm: str) -> None:
    api = Api(tmp_path)
    api.submit()
    (tmp_path / name).rename(tmp_path / "away")
    if harm == "replaced":
        shutil.copy(tmp_path / "away", tmp_path / name)
    with pytest.raises(sqlite3.OperationalError, match=f"{name} was removed or replaced"):
        api.submit()
    api.store.roll_back()
    (tmp_path / "away").replace(tmp_path / name)
    assert api.submit()[0] == 2, "a number that was not given is left out"
    api.end()


def test_orders_that_schedulers_follow_outlive_the_store(tmp_path: Path) -> None:
    folder = tmp_path / "f"
    folder.mkdir()
    api = Api(folder)
    move = Reassignment(1, "gm/0", "gm/1")
    api.store.begin(durable=True)
    api.store.drain("node/3", True)
    api.store.assigned.add(move, (), "", 5)
    for weight in (2, 3):
        api.store.shares.reweigh("ann", weight, 1, "root", 5)
    api.store.commit()
    api.keeper.note(api.store.revision)
    api.end()
    shutil.rmtree(folder)
    folder.mkdir()
    again = Api(folder, gives_up_jobs=True, kept=api.kept).store
    assert again.drained() == {"node/3"}
    assert again.assigned.moves() == [move]
    number, weights = again.shares.weights()
    assert (number > 2, weights) == (True, {"ann": 3}), "schedulers know number 2, and take no smaller one"
    again.close()


def test_what_a_host_keeps_that_is_no_mark_is_not_taken(caplog: pytest.LogCaptureFixture) -> None:
    encode = msgspec.json.encode
    marks = {
        "a": b"no mark",
        "b": encode(StoreMark("s", ArchivedKey(1 << 31, 0, 0))),
        "c": encode(StoreMark("s", ArchivedKey(1, 1 << 63, 0))),
        "d": encode(StoreMark("s", ArchivedKey(1, 2, 3))),
    }
    assert list(decode_marks(marks)) == ["host d"]
    assert [record.args[0] for record in caplog.records if isinstance(record.args, tuple)] == ["a", "b", "c"]


def test_starts_from_one_copy_give_identities_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    starts = {first_of_start(7) for _ in range(ORIGIN_STEP)}
    assert len({start >> NUMBER_BITS for start in starts}) > ORIGIN_STEP // 2
    assert {number_of(start) for start in starts} == {7}, "people see small numbers"
    assert max(starts) < 1 << 63
    monkeypatch.setattr("volery.live.service.marks.unix_now_us", lambda: 0)  # a clock that nobody has set
    task = 7
    for _ in range(100):
        assert first_of_start(task) > task, "numbers of tasks grow"
        task = first_of_start(task)


def test_news_of_a_job_of_another_store_change_nothing(tmp_path: Path) -> None:
    api = Api(tmp_path)
    number, first = api.submit()
    other = first + (1 << NUMBER_BITS)
    revision = api.store.revision
    finished = TaskReport(other, identity_of(number, other), 0, "node/0", "finished", 5, exit_code=0)
    api.take_in(finished, JobDone(identity_of(number, other)), JobDone(number))
    assert (api.state(number), api.store.revision) == ("pending", revision)
    api.take_in(JobDone(identity_of(number, first)))
    api.store.begin(durable=False)
    api.store.give_up_waiting(number, 9)
    api.store.commit()
    assert api.state(number) == "failed", "nothing that did not finish is done"
    api.end()


def test_a_mark_names_what_a_store_lacks() -> None:
    own = StoreMark("s", ArchivedKey(2, 9, 7), (Reassignment(1, "gm/0", "gm/1"),), 1)
    demand_newest(Path(STORE), own, {"x": own, "y": StoreMark("s", ArchivedKey(1, 5, 6))})
    for ahead in (
        msgspec.structs.replace(own, first=ArchivedKey(3, 9, 7)),
        msgspec.structs.replace(own, first=ArchivedKey(2, 9, 8)),
        msgspec.structs.replace(own, moves=(*own.moves, Reassignment(2, "gm/1", "gm/0"))),
        msgspec.structs.replace(own, reweighs=2),
    ):
        with pytest.raises(InputError, match="is older"):
            demand_newest(Path(STORE), own, {"x": ahead})
