"""A large job that another process has read is the same job, in pieces of bounded size."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from volery.core.errors import InputError
from volery.live.jobs import JobDescription, job_from_json
from volery.live.service import descriptions, intake
from volery.live.service.descriptions import PIECE_TASKS, in_pieces
from volery.live.service.intake import HERE_BYTES_MAX, Intake


def described(tasks: int) -> bytes:
    listed = [{"command": f"echo {index}"} for index in range(tasks)]
    return msgspec.json.encode({"name": "many", "user": "ada", "tasks": listed})


@pytest.mark.parametrize("tasks", [1, PIECE_TASKS, 3 * PIECE_TASKS + 1])
def test_a_job_is_the_same_after_its_way_in_pieces(tmp_path: Path, tasks: int) -> None:
    path = tmp_path / "body"
    path.write_bytes(described(tasks))
    packed = intake._read_job(str(path), "job")
    assert len(packed[1]) == -(-tasks // PIECE_TASKS)
    assert asyncio.run(intake._unpacked(packed)) == job_from_json(described(tasks), "job")


def test_equal_tasks_need_no_pieces(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b'[{"command": "true", "tasks": 9}, {"command": "false"}]')
    first, second = intake._read_jobs(str(path), "jobs")
    assert first[1] == second[1] == []
    assert asyncio.run(intake._unpacked(first)).tasks == 9


def test_pieces_are_bounded_in_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(descriptions, "PIECE_BYTES", 1_000)
    job = job_from_json(described(50), "job")
    assert isinstance(job.tasks, tuple)
    pieces = list(in_pieces(job.tasks))
    assert all(len(piece) < 12 for piece in pieces)
    assert len(pieces) > 3
    assert [task for piece in pieces for task in piece] == list(job.tasks)


def test_small_bodies_are_read_at_once_and_a_wrong_one_names_its_key() -> None:
    reader = Intake()

    async def scenario() -> JobDescription:
        with pytest.raises(InputError, match="tasks"):
            await reader.job(bytearray(b'{"command": "true", "tasks": 0}'), "job")
        assert len(await reader.jobs(bytearray(b'[{"command": "true"}]'), "jobs")) == 1
        return await reader.job(bytearray(described(3)), "job")

    assert len(described(3)) < HERE_BYTES_MAX
    job = asyncio.run(scenario())
    assert isinstance(job.tasks, tuple)
    assert reader._pool is None, "no process was needed"
