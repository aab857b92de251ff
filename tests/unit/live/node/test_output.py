"""What tasks leave behind is bounded: the newest output stays, what was dropped is said, old folders go."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from volery.live.config.limits import OutputLimits
from volery.live.node.output import (
    DAY_S,
    HOLE_BYTES,
    blocks,
    bound,
    clean,
    extent,
    kept_from,
    open_output,
    piece_from,
    piece_in,
)

KEEP = 1 << 20
LINE = 10


@pytest.fixture
def output(tmp_path: Path) -> Path:
    """Five megabytes of numbered lines."""
    path = tmp_path / "stdout"
    path.write_bytes(b"".join(b"%09d\n" % number for number in range(5 * KEEP // LINE)))
    return path


def served(path: Path, offset: int = 0) -> bytes:
    """What the API would serve from an offset on."""

    async def read() -> bytes:
        file = os.open(path, os.O_RDONLY)
        piece = piece_from(extent(file), offset)
        return b"".join([block async for block in blocks(file, piece.start, piece.end)])

    return asyncio.run(read())


def cut(path: Path, keep: int = KEEP) -> int:
    """Bound an output; the offset from which it is kept."""
    if not bound(str(path), os.geteuid(), keep):
        return 0
    with path.open("rb") as file:
        if not (start := kept_from(file.fileno())):
            pytest.skip("the file system of the tests cannot give back a part of a file")
        return start


def test_the_newest_output_stays_and_what_was_dropped_is_said_where_the_rest_begins(output: Path) -> None:
    whole, size = output.read_bytes(), output.stat().st_size
    start = cut(output)
    assert KEEP <= size - start <= KEEP + HOLE_BYTES
    assert output.stat().st_size == size
    assert output.stat().st_blocks * 512 <= KEEP + 2 * HOLE_BYTES
    kept = served(output)
    said, _, rest = kept.partition(b"\n")
    assert (
        said.rstrip() == b"[volery: the first %s bytes were dropped; the newest 1 MB are kept]" % f"{start:,}".encode()
    )
    assert rest == whole[-len(rest) :]
    assert rest.index(b"\n") == LINE - 1, "the line that was cut is gone with what was dropped"
    assert len(kept) == size - start


def test_who_follows_an_output_that_is_cut_and_goes_on_misses_nothing_new(output: Path) -> None:
    seen = output.stat().st_size
    cut(output)
    with output.open("ab") as file:
        file.write(b"new\n")
    assert served(output, seen) == b"new\n"
    assert served(output, seen + 4) == b""


def test_an_output_is_cut_again_only_when_it_has_grown_by_a_part_of_its_bound(output: Path) -> None:
    assert cut(output)
    assert not bound(str(output), os.geteuid(), KEEP)
    with output.open("ab") as file:
        file.write(b"x" * (KEEP // 4))
    assert bound(str(output), os.geteuid(), KEEP)
    assert served(output).endswith(b"x" * (KEEP // 4))


@pytest.mark.parametrize(
    "spoil",
    [
        lambda path: os.link(path, path.with_name("other")),
        lambda path: (path.rename(path.with_name("other")), path.symlink_to("other")),
        lambda path: (path.unlink(), path.mkdir()),
    ],
)
def test_what_a_task_has_put_in_place_of_its_output_is_left_alone(
    output: Path, spoil: Callable[[Path], object]
) -> None:
    spoil(output)
    try:
        assert not bound(str(output), os.geteuid(), KEEP)
    except OSError:
        assert output.is_symlink() or output.is_dir()
    other = output.with_name("other")
    assert not other.exists() or other.stat().st_blocks * 512 >= 5 * KEEP


def test_the_output_of_another_user_is_left_alone(output: Path) -> None:
    assert not bound(str(output), os.geteuid() + 1, KEEP)


@pytest.mark.parametrize(
    ("wanted", "piece"),
    [
        ("bytes=0-9", (0, 10)),
        ("bytes=95-", (95, 100)),
        ("bytes=-5", (95, 100)),
        ("bytes=90-500", (90, 100)),
        ("bytes=-500", (0, 100)),
        ("bytes=100-", None),
        ("bytes=9-3", None),
    ],
)
def test_ranges_are_those_of_the_header(tmp_path: Path, wanted: str, piece: tuple[int, int] | None) -> None:
    (tmp_path / "stdout").write_bytes(bytes(range(100)))
    with (tmp_path / "stdout").open("rb") as file:
        found = piece_in(extent(file.fileno()), wanted)
        assert found == (None if piece is None else (*piece, 100))
        for wrong in ("bytes=-", "lines=1-2", "bytes=1-2,5-6", "bytes=a-b"):
            with pytest.raises(ValueError, match=wrong):
                piece_in(extent(file.fileno()), wrong)


def attempt(root: Path, job: int, task: int, age_days: float, size: int = 0) -> Path:
    folder = root / str(job) / f"{task}.0"
    folder.mkdir(parents=True)
    for name in ("stdout", "stderr"):
        (folder / name).write_bytes(b"x" * size)
    for path in (*folder.iterdir(), folder):
        at = path.stat().st_mtime - age_days * DAY_S
        os.utime(path, (at, at))
    return folder


def left(root: Path) -> set[str]:
    return {str(path.relative_to(root)) for path in root.glob("*/*")}


def test_folders_go_when_they_are_old_and_their_jobs_with_the_last(tmp_path: Path) -> None:
    attempt(tmp_path, 0, 0, age_days=9)
    attempt(tmp_path, 1, 1, age_days=9)
    attempt(tmp_path, 1, 2, age_days=2)
    busy = attempt(tmp_path, 2, 3, age_days=9)
    (tmp_path / "mine" / "0.0").mkdir(parents=True)
    assert clean(tmp_path, OutputLimits(keep_days=7), frozenset({str(busy)})) == 2
    assert left(tmp_path) == {"1/2.0", "2/3.0", "mine/0.0"}
    assert not (tmp_path / "0").exists()
    assert clean(tmp_path, OutputLimits(keep_days=7)) == 0, "another agent sees that it is in use"


def test_the_oldest_folders_go_when_all_are_too_large_and_none_that_is_fresh(tmp_path: Path) -> None:
    for task in range(4):
        attempt(tmp_path, 0, task, age_days=4 - task, size=KEEP // 2)
    attempt(tmp_path, 1, 4, age_days=0, size=2 * KEEP)
    assert clean(tmp_path, OutputLimits(keep_mb=6)) == 2
    assert left(tmp_path) == {"0/2.0", "0/3.0", "1/4.0"}
    assert clean(tmp_path, OutputLimits(keep_mb=1)) == 2
    assert left(tmp_path) == {"1/4.0"}
    assert clean(tmp_path, OutputLimits()) == 0
    shutil.rmtree(tmp_path / "1")
    assert clean(tmp_path / "none", OutputLimits(keep_days=1)) == 0


def test_the_output_of_a_call_that_has_just_begun_is_empty_and_of_none_there_is_none(tmp_path: Path) -> None:
    (tmp_path / "3" / "0.0").mkdir(parents=True)
    begun = open_output(tmp_path, f"{tmp_path}/3/0.0", "stdout")
    assert begun is not None
    assert os.read(begun, 1) == b""
    os.close(begun)
    assert open_output(tmp_path, f"{tmp_path}/3/0.1", "stdout") is None
