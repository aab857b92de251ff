"""A long description is read, written and handed on in pieces, and is the same as a short one."""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import pytest

from volery.core.errors import InputError
from volery.live.jobs import JobDescription, TaskDescription, job_from_json, task_count
from volery.live.service import descriptions
from volery.live.service.descriptions import (
    HERE_BYTES_MAX,
    PIECE_TASKS,
    EncodedDescription,
    Intake,
    encoded_at_once,
    encoded_in_slices,
    in_pieces,
)
from volery.live.service.store import JobStore

LISTED = tuple([TaskDescription(stdin=f"r\u00e9seau {at}", count=1 + at % 3) for at in range(1_000)])
KINDS = {
    "all its keys": JobDescription(
        name="n", user="u", key="k", command=("cat",), env={"B": "2", "A": "1"}, tasks=LISTED
    ),
    "tasks alone": JobDescription(tasks=tuple([TaskDescription(command=f"echo {at}") for at in range(600)])),
    "calls": JobDescription(tasks=tuple([TaskDescription(call=bytes([at % 256]) * at) for at in range(1, 900)])),
    "equal tasks": JobDescription(command="x" * 1_000, tasks=5),
}


@pytest.fixture(params=KINDS)
def job(request: pytest.FixtureRequest) -> JobDescription:
    return KINDS[request.param]


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, job: JobDescription) -> JobStore:
    """A store to which a description of a kilobyte is a long one."""
    monkeypatch.setattr(descriptions, "LONG_BYTES", 500)
    store = JobStore(tmp_path / "jobs.sqlite")
    store.begin(durable=False)
    store.insert(3, 70, job, task_count(job), [], 0)
    store.commit()
    return store


def test_a_description_in_slices_is_the_same_bytes(job: JobDescription) -> None:
    assert asyncio.run(encoded_in_slices(job)) == encoded_at_once(job)


def test_a_long_description_is_read_back_whole_and_task_by_task(store: JobStore, job: JobDescription) -> None:
    assert asyncio.run(store.descriptions.whole(3)) == job
    assert asyncio.run(store.descriptions.whole(4)) is None
    places = [0, 1, 2, 3, 500, task_count(job) - 1] if isinstance(job.tasks, tuple) else [0, 4]
    for place in places * 2:
        part = asyncio.run(store.descriptions.part(3, place))
        assert part is not None
        assert part.first_task == 70
        if isinstance(job.tasks, int):
            assert (part.description, part.first) == (job, 0)
            continue
        (task,) = part.description.tasks if isinstance(part.description.tasks, tuple) else ()
        before = 0
        for listed in job.tasks:
            if before + listed.count > place:
                break
            before += listed.count
        assert (task, part.first) == (listed, before)
    store.close()


def test_a_long_description_of_which_no_job_comes_is_taken_out_again(store: JobStore, job: JobDescription) -> None:
    store.begin(durable=False)
    unused, used = EncodedDescription(b"{}", b"x" * 32), encoded_at_once(job)
    store.keep([unused, used])
    store.drop_unused([unused, used])
    store.commit()
    assert store._first_value("SELECT count(*) FROM descriptions") == 1
    assert asyncio.run(store.descriptions.whole(3)) == job
    store.close()


def test_a_long_description_is_not_decoded_for_the_sake_of_one_task(
    store: JobStore, job: JobDescription, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = descriptions._decode

    def noted(content: bytes) -> JobDescription:
        decoded.append(len(content))
        return decode(content)

    monkeypatch.setattr(descriptions, "_decode", noted)
    for place in (0, task_count(job) - 1):
        part = asyncio.run(store.descriptions.part(3, place))
        assert part is not None
        assert isinstance(part.description.tasks, int) or len(part.description.tasks) == 1
    assert isinstance(job.tasks, int) or max(decoded) < 200
    store.close()


def described(tasks: int) -> bytes:
    listed = [{"command": f"echo {index}"} for index in range(tasks)]
    return msgspec.json.encode({"name": "many", "user": "ada", "tasks": listed})


@pytest.mark.parametrize("tasks", [1, PIECE_TASKS, 3 * PIECE_TASKS + 1])
def test_a_job_is_the_same_after_its_way_in_pieces(tmp_path: Path, tasks: int) -> None:
    path = tmp_path / "body"
    path.write_bytes(described(tasks))
    packed = descriptions._read_job(str(path), "job")
    assert len(packed[1]) == -(-tasks // PIECE_TASKS)
    assert asyncio.run(descriptions._unpacked(packed)) == job_from_json(described(tasks), "job")


def test_equal_tasks_need_no_pieces(tmp_path: Path) -> None:
    path = tmp_path / "body"
    path.write_bytes(b'[{"command": "true", "tasks": 9}, {"command": "false"}]')
    first, second = descriptions._read_jobs(str(path), "jobs")
    assert first[1] == second[1] == []
    assert asyncio.run(descriptions._unpacked(first)).tasks == 9


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
