"""Shortages of a node: which errors show one, what starts leave to others, and how long a node pauses."""

from __future__ import annotations

import asyncio
import errno
import os
import resource
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from volery.live.node import shortage
from volery.live.node.shortage import ProcessRoom, StartPause, demand_disk, lack_of, obstacles, permit_descriptors


def failed(number: int) -> OSError:
    return OSError(number, os.strerror(number))


def test_errors_of_the_users_own_are_no_shortage() -> None:
    for number in (errno.ENOENT, errno.EACCES, errno.E2BIG, errno.ENOTDIR, errno.ENOEXEC, errno.ELOOP, errno.EIO):
        assert lack_of(failed(number)) == ""
    assert lack_of(ValueError("embedded null byte")) == ""
    assert lack_of(MemoryError()) == "memory"


def test_a_pause_doubles_until_something_starts_and_ends_when_something_ends() -> None:
    async def scenario() -> None:
        pause = StartPause(lambda: None)
        lengths = []

        def length() -> float:
            assert pause._timer is not None
            return round(pause._timer.when() - asyncio.get_running_loop().time(), 1)

        for _ in range(9):
            pause.begin("a", failed(errno.EMFILE))
            assert pause.paused
            lengths.append(length())
            pause.freed()
            assert not pause.paused
        assert lengths == [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0]
        pause.started("a")
        pause.begin("b", failed(errno.EMFILE))
        assert length() == 0.1
        pause.close()

    asyncio.run(scenario())


def test_a_shortage_is_over_when_nothing_waits_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "QUIET_S", 0.0)
    words: list[str] = []

    async def scenario() -> None:
        pause = StartPause(lambda: words.append(pause.words))
        for attempt in ("a", "b"):
            pause.begin(attempt, failed(errno.ENOSPC))
        pause.freed()
        pause.started("a")
        await asyncio.sleep(0.01)
        assert len(words) == 1, "b waits"
        pause.forget("b")
        await asyncio.sleep(0.01)
        assert words[1:] == [""]
        pause.close()

    asyncio.run(scenario())
    assert words[0].startswith("short of disk space (No space left on device); free space")


@pytest.mark.parametrize(
    ("most", "used", "running", "fits"),
    [
        (1000, 900, 0, True),
        (1000, 900, 10, True),
        (1000, 900, 37, False),  # each may start one more, and 64 are spared
        (40, 25, 5, True),  # a quarter of a small limit is spared
        (40, 26, 5, False),
        (40, 35, 0, True),  # nothing would end for its sake
        (40, 37, 0, False),
    ],
)
def test_starts_leave_processes_to_what_runs(
    monkeypatch: pytest.MonkeyPatch, most: int, used: int, running: int, *, fits: bool
) -> None:
    monkeypatch.setattr(shortage, "_process_limits", lambda _: iter([(most, used)]))
    room = ProcessRoom()
    if fits:
        room.demand(7, running)
    else:
        with pytest.raises(BlockingIOError, match=f"{used} of {most} processes and threads"):
            room.demand(7, running)


def test_starts_since_the_last_count_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "_process_limits", lambda _: iter([(100, 60)]))
    monkeypatch.setattr(shortage, "CROWDED_S", 1e9)
    room = ProcessRoom()
    for _ in range(15):  # 40 are free, 25 spared, and what runs may start one
        room.demand(7, running=1)
    with pytest.raises(BlockingIOError):
        room.demand(7, running=1)
    monkeypatch.setattr(shortage, "_process_limits", lambda _: iter([(100, 20)]))
    room.forget()
    room.demand(7, running=1)


def test_threads_of_a_user_are_counted() -> None:
    assert shortage._processes_of(os.geteuid()) >= len([*Path("/proc/self/task").iterdir()])
    assert shortage._processes_of(1 << 30) == 0


@pytest.mark.parametrize(
    ("blocks", "free", "files", "free_files", "fits"),
    [
        (1 << 20, 1 << 19, 1 << 20, 1 << 19, True),
        (1 << 20, 4095, 1 << 20, 1 << 19, False),
        (1 << 20, 1 << 19, 1 << 20, 255, False),
        (256, 64, 0, 0, True),  # of a small one a quarter; a file system without a number of files has no limit
        (256, 63, 0, 0, False),
    ],
)
def test_starts_leave_disk_to_what_runs(
    monkeypatch: pytest.MonkeyPatch, blocks: int, free: int, files: int, free_files: int, *, fits: bool
) -> None:
    there = SimpleNamespace(f_frsize=4096, f_blocks=blocks, f_bavail=free, f_files=files, f_favail=free_files)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    if fits:
        demand_disk(Path("/tasks"))
    else:
        with pytest.raises(OSError, match=r"No space left on device: '/tasks'"):
            demand_disk(Path("/tasks"))


@pytest.mark.parametrize(("unit", "size"), [(0, 4096), (0, 0)])
def test_a_file_system_without_a_unit_of_its_counts_keeps_no_task_away(
    monkeypatch: pytest.MonkeyPatch, unit: int, size: int
) -> None:
    there = SimpleNamespace(f_frsize=unit, f_bsize=size, f_blocks=1 << 20, f_bavail=1 << 19, f_files=0, f_favail=0)
    monkeypatch.setattr(os, "statvfs", lambda _: there)
    demand_disk(Path("/tasks"))
    assert not [words for words in obstacles(10, 0, Path("/tasks"), []) if words.startswith("/tasks")]
    there.f_bavail = 1000
    with pytest.raises(OSError, match="No space left"):
        demand_disk(Path("/tasks"))


@pytest.fixture
def open_files() -> Iterator[int]:
    """The soft limit, which is put back."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    yield hard
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_soft_limit_is_raised_as_far_as_slots_need(open_files: int) -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, open_files))
    permit_descriptors(8)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 256, "that is enough"
    permit_descriptors(300)
    assert resource.getrlimit(resource.RLIMIT_NOFILE)[0] == 428


def test_limits_are_compared_with_slots(open_files: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shortage, "_process_limits", lambda _: iter([(1000, 336)]))
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, open_files))
    assert not [*obstacles(100, 0, tmp_path, [7])]
    files, processes, memory = obstacles(256, 1 << 40, tmp_path, [7])
    assert files.startswith("its limit of 256 open files is enough for about 128 of 256 slots; raise")
    assert "uid 7 may have 1000 processes here, and 336 are used, which leaves about 200 of 256 slots" in processes
    assert memory.startswith("its nodes offer 1,099,511,627,776 MB of memory, and it may have ")

    full = SimpleNamespace(f_frsize=4096, f_blocks=9999, f_bavail=256, f_files=999, f_favail=300)
    monkeypatch.setattr(os, "statvfs", lambda _: full)
    space, names = obstacles(100, 0, tmp_path, [])
    assert space == f"{tmp_path} has room for 1 MB, which is little for 100 slots; {shortage._REMEDIES['disk space']}"
    assert "room for 300 files" in names
