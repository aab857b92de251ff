"""Journals are kept within bounds: full files are followed by others, each of which replays from its snapshot."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import pickle
import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from tests.live.federations import LIMIT_S, Federation, plan

from volery.architectures import REGISTRY, lookup
from volery.core.component import Component
from volery.core.errors import DamagedError, InputError
from volery.live.config.limits import JournalSize
from volery.live.runtime import snapshots
from volery.live.runtime.journal import journal_order, snapshot_path
from volery.live.runtime.journal_trace import read_period
from volery.live.runtime.replay import chains, journals, replay, replay_all
from volery.live.runtime.snapshots import first_difference, read_snapshot, snapshot_apart, write_snapshot
from volery.playback.traced_runs import trace_journals

SMALL = JournalSize(segment_mb=20, keep_mb=1_000_000)


@pytest.fixture(autouse=True)
def kilobytes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sizes in the tests are kilobytes."""
    monkeypatch.setattr(snapshots, "MB", 1_000)


def lived(
    folder: Path,
    name: str,
    jobs: int = 60,
    split: bool = False,
    size: JournalSize = SMALL,
    until: Callable[[], bool] = lambda: True,
    reliable: bool = False,
) -> None:
    """Some jobs, and more of them until something holds."""

    async def play() -> None:
        design = plan(name, reliable=True) if reliable else plan(name)
        async with Federation(design, split=split, journal=folder, size=size) as it, asyncio.timeout(LIMIT_S):
            done = 0
            while done < jobs or not until():
                it.submit(5 + done % 7, payload=b"input " * 20)
                done += 1
                await it.until_done(done)

    asyncio.run(play())


@pytest.mark.parametrize(
    ("name", "split", "reliable"),
    [
        ("megha", False, False),
        ("megha", True, False),
        ("megha-2021", False, False),
        ("pigeon", True, False),
        ("oracle", False, False),
        ("jockey", False, False),
        ("tetrisched", False, False),
        ("megha", True, True),
        ("pigeon", True, True),
    ],
)
def test_each_file_of_a_rotated_journal_replays_from_its_snapshot(
    name: str, split: bool, reliable: bool, tmp_path: Path
) -> None:
    """And what each leads to is the snapshot with which the next one begins."""
    lived(tmp_path, name, until=lambda: len(list(tmp_path.glob("*.snapshot"))) >= 2, split=split, reliable=reliable)
    results = list(replay_all(journals(tmp_path), lookup))
    assert [result.difference for result in results] == [None] * len(results)
    assert max(result.segment for result in results) >= 1
    assert len(results) == len(list(tmp_path.glob("*.journal")))
    for path in journals(tmp_path):
        if snapshot_path(path).exists() or not journal_order(path)[2]:
            assert replay(path, lookup).difference is None
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_old_files_go_once_their_successor_is_on_the_disk_and_the_rest_replays(tmp_path: Path) -> None:
    size = JournalSize(segment_mb=20, keep_mb=300)

    def cut() -> bool:
        """The first file is gone, and the newest holds some jobs whole."""
        newest = max(tmp_path.glob("*.journal"), key=journal_order)
        return not (tmp_path / "all-1.journal").exists() and newest.stat().st_size > 10_000

    lived(tmp_path, "megha", until=cut, size=size)
    results = list(replay_all(journals(tmp_path), lookup))
    assert results[0].segment > 0
    assert all(result.difference is None for result in results)
    kept = sum(path.stat().st_size for path in tmp_path.iterdir())
    assert kept < 300_000 + 200_000, "what is kept, one file, and one snapshot"
    period = read_period(journals(tmp_path), "period", lookup)
    assert period.cut == ("all",)
    assert period.trace.task_count > 0
    traced = trace_journals(list(journals(tmp_path)))
    assert "the first files of all are no longer kept" in traced.source.subtitle
    assert traced.log.jobs


def test_files_of_earlier_lives_count_too(tmp_path: Path) -> None:
    folder = tmp_path
    (folder / "all-1.journal").write_bytes(bytes(200_000))
    (folder / "all-1.000001.journal").write_bytes(bytes(200_000))
    (folder / "all-1.000001.snapshot").write_bytes(bytes(200_000))
    (folder / "all-2.000007.snapshot").write_bytes(b"left by a crash")
    (folder / "all-2.journal").write_bytes(bytes(100_000))
    (folder / "all-b-1.journal").write_bytes(bytes(900_000))
    snapshots.prune(folder, "all", 550_000, folder / "all-2.journal")
    assert not (folder / "all-1.journal").exists()
    assert (folder / "all-1.000001.journal").exists()
    snapshots.prune(folder, "all", 1, folder / "all-2.journal")
    assert sorted(path.name for path in folder.iterdir()) == ["all-2.journal", "all-b-1.journal"]


def test_a_file_that_continues_without_a_snapshot_keeps_the_one_before_it(tmp_path: Path) -> None:
    for name in ("all-1.journal", "all-1.000001.journal", "all-1.000002.journal"):
        (tmp_path / name).write_bytes(bytes(100_000))
    snapshots.prune(tmp_path, "all", 1, tmp_path / "all-1.000002.journal")
    assert len(list(tmp_path.iterdir())) == 3


def test_a_snapshot_that_failed_once_does_not_keep_files_for_ever(tmp_path: Path) -> None:
    names = [f"all-1{at}.journal" for at in ("", ".000001", ".000002", ".000003")]
    for name in (*names, "all-1.000001.snapshot", "all-1.000003.snapshot", "all-2.000001.journal", "all-2.journal"):
        (tmp_path / name).write_bytes(bytes(100_000))
    (tmp_path / "all-1.000002.new").write_bytes(b"left by a process that was killed")
    snapshots.prune(tmp_path, "all", 450_000, tmp_path / "all-2.000001.journal")
    kept = ["all-1.000003.journal", "all-1.000003.snapshot", "all-2.000001.journal", "all-2.journal"]
    assert sorted(path.name for path in tmp_path.iterdir()) == kept
    snapshots.prune(tmp_path, "all", 1, tmp_path / "all-2.000001.journal")
    assert sorted(path.name for path in tmp_path.iterdir()) == kept[2:]


class Slow:
    """Pickled only once a pipe has been opened for writing elsewhere."""

    def __init__(self, gate: Path) -> None:
        self.gate = gate

    def __reduce__(self) -> tuple[Any, ...]:
        self.gate.read_bytes()
        return Slow, (self.gate,)


def test_a_process_that_writes_a_snapshot_holds_nothing_of_its_host(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host that is killed meanwhile can be started again at once: its lock and its port are free."""
    gate, full, path = tmp_path / "gate", tmp_path / "x.journal", tmp_path / "x.000001.snapshot"
    os.mkfifo(gate)
    full.touch()
    lock, again = (os.open(tmp_path / "lock", os.O_CREAT | os.O_RDWR) for _ in range(2))
    fcntl.flock(lock, fcntl.LOCK_EX)
    child = snapshot_apart(path, full, {"gm/0": Slow(gate)}, {})  # type: ignore[dict-item] # that is the point
    with gate.open("wb"):  # it reads, so it has given up the rest
        os.close(lock)
        fcntl.flock(again, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.close(again)
    assert os.waitpid(child, 0)[1] == 0
    assert path.exists()
    monkeypatch.setattr(snapshots, "LIMIT_S", 0.01)
    child = snapshot_apart(path, full, {"gm/0": Slow(gate)}, {})  # type: ignore[dict-item] # that is the point
    assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGALRM, "one that hangs is ended"


def test_a_snapshot_that_is_not_what_came_before_it_is_found(tmp_path: Path) -> None:
    lived(tmp_path, "megha", until=lambda: (tmp_path / "all-1.000002.snapshot").exists())
    first, second = (tmp_path / f"all-1.00000{at}.snapshot" for at in (1, 2))
    first.write_bytes(second.read_bytes())
    results = list(replay_all(journals(tmp_path), lookup))
    assert results[0].difference is None
    assert results[1].difference is not None
    assert "its snapshot differs, at " in results[1].difference.problem


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 4
    path.write_bytes(content)


@pytest.mark.parametrize("how", ["a journal", "a snapshot", "a torn file that is continued", "a file without snapshot"])
def test_a_damaged_file_of_a_rotated_journal_is_told_and_the_others_are_proved(tmp_path: Path, how: str) -> None:
    lived(tmp_path, "megha", until=lambda: (tmp_path / "all-1.000002.snapshot").exists())
    first, second, third, *_ = paths = list(journals(tmp_path))
    if how == "a journal":
        flip(first)
    elif how == "a snapshot":
        flip(snapshot_path(second))
    elif how == "a torn file that is continued":
        os.truncate(first, first.stat().st_size - 5)
    else:
        flip(first)
        snapshot_path(second).unlink()
    results = list(replay_all(paths, lookup))
    assert [result.path for result in results] == [str(path) for path in paths]
    damaged = [Path(result.path) for result in results if result.damage]
    assert damaged == ([first, second] if how == "a file without snapshot" else [second if "snap" in how else first])
    assert all(result.is_proved for result in results[2:])
    assert all(result.events > 0 for result in results[2:-1]), "the last file may just have been begun"
    expected = {
        "a journal": "is damaged in the record at byte ",
        "a snapshot": f"{snapshot_path(second)}: is damaged in the ",
        "a torn file that is continued": f"ends within a record, although {second.name} continues it",
        "a file without snapshot": "continues a file that is not proved, and has no snapshot",
    }
    assert expected[how] in results[paths.index(damaged[-1])].damage
    with nullcontext() if how == "a snapshot" else pytest.raises(DamagedError):
        read_period(paths, "lived", lookup)
    assert third.exists()


def test_a_journal_without_its_beginning_and_without_a_snapshot_is_refused(tmp_path: Path) -> None:
    lived(tmp_path, "megha", until=lambda: (tmp_path / "all-1.000001.snapshot").exists())
    (tmp_path / "all-1.journal").unlink()
    (tmp_path / "all-1.000001.snapshot").unlink()
    second = tmp_path / "all-1.000001.journal"
    with pytest.raises(InputError, match=r"continues an earlier file; give that one, too, or its snapshot"):
        list(replay_all([second], lookup))
    with pytest.raises(InputError, match=r"continues an earlier file; give that one, too, or its snapshot"):
        chains(journals(tmp_path))


def test_a_design_of_which_no_snapshot_can_be_made_says_so_and_keeps_one_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "obstacle", lambda _: "cannot pickle a lambda")
    with caplog.at_level(logging.WARNING):
        lived(tmp_path, "megha", jobs=200)
    assert "the journal of host all grows without end, no snapshot can be made: cannot pickle a lambda" in caplog.text
    assert [path.name for path in journals(tmp_path)] == ["all-1.journal"]
    assert (tmp_path / "all-1.journal").stat().st_size > 40_000


def test_a_snapshot_that_fails_later_keeps_what_came_before_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: Any) -> None:
        raise RuntimeError("it cannot be pickled")

    monkeypatch.setattr("volery.live.runtime.snapshots.write_snapshot", failing)
    monkeypatch.setattr(snapshots, "obstacle", lambda _: "")
    lived(
        tmp_path,
        "megha",
        until=lambda: len(list(tmp_path.glob("*.journal"))) > 2,
        size=JournalSize(segment_mb=20, keep_mb=1),
    )
    assert "no snapshot of host all could be written, earlier files are kept: RuntimeError" in caplog.text
    results = list(replay_all(journals(tmp_path), lookup))
    assert (results[0].segment, results[-1].segment > 1) == (0, True)
    assert all(result.difference is None for result in results), "they replay as one"
    assert not list(tmp_path.glob("*.new"))


class Evil:
    def __reduce__(self) -> tuple[Any, ...]:
        return os.system, ("true",)


def test_a_snapshot_names_nothing_but_components_and_their_parts(tmp_path: Path) -> None:
    path = tmp_path / "x.snapshot"
    with path.open("wb") as file:
        write_snapshot(file, {"gm/0": Evil()}, {})  # type: ignore[dict-item] # that is the point
    with pytest.raises(InputError, match=r"system has no place in a snapshot"):
        read_snapshot(path, lookup("megha"), [])
    path.write_bytes(b"nothing of ours")
    with pytest.raises(InputError, match="is no volery snapshot"):
        read_snapshot(path, lookup("megha"), [])


def components() -> dict[str, Component]:
    megha = plan("megha")
    deployment = megha.build()
    return megha.components(deployment, deployment.components, 1)


@pytest.mark.parametrize(
    "parameters",
    [{"shares": "a:1+b:1", "turns": "round-robin"}, {"shares": "a:1+b:1"}, {"order": "priority"}, {"near": True}],
    ids=str,
)
def test_a_snapshot_can_be_made_of_each_queue_of_a_global_master(parameters: dict[str, Any]) -> None:
    design = plan("megha", **parameters)
    deployment = design.build()
    assert snapshots.obstacle(design.components(deployment, deployment.components, 1)) == ""


@pytest.mark.parametrize("name", sorted(REGISTRY))
def test_a_snapshot_can_be_made_of_each_design(name: str, tmp_path: Path) -> None:
    """Links of reliable designs hold decoders, which pickle does not take by itself."""
    fields = lookup(name).defaults.__struct_fields__
    given = {"reliable": True} if "reliable" in fields else {}
    unrecovered: dict[str, Any] = {"T11": "none"} if "T11" in fields else {}

    def state() -> dict[str, Component]:
        design = plan(name, **given, **unrecovered)
        deployment = design.build()
        return design.components(deployment, deployment.components, 1)

    assert snapshots.obstacle(state()) == ""
    path = tmp_path / "x.snapshot"
    with path.open("wb") as file:
        write_snapshot(file, state(), {})
    assert first_difference((state(), {}), read_snapshot(path, lookup(name), [])) == ""


def test_equal_states_are_equal_and_unequal_ones_are_told_by_the_field(tmp_path: Path) -> None:
    path = tmp_path / "x.snapshot"
    with path.open("wb") as file:
        write_snapshot(file, components(), {})
    restored, problems = read_snapshot(path, lookup("megha"), [])
    assert first_difference((components(), {}), (restored, problems)) == ""
    assert first_difference({"a": [1, {2: "x"}]}, {"a": [1, {2: "y"}]}) == "['a'][1][2]"
    assert first_difference({1: 0, 2: 0}, {2: 0, 1: 0}) == ".keys()", "the order of a dictionary can reach an effect"
    assert first_difference([1], [1, 2]) == "."
    assert first_difference([True], [1]) == "[0]"
    loop: list[Any] = [1]
    loop.append(loop)
    assert first_difference(loop, pickle.loads(pickle.dumps(loop))) == ""
