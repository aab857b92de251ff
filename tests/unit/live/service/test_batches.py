"""A batch gathers while another is written, a failed write fails alone, and ends wait for the disk."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.live.loopback import MACHINES

from volery.core.component import Component, Deployment
from volery.core.errors import InputError
from volery.core.model import Address, Message
from volery.live.config.constraints import Fleet
from volery.live.jobs import job_from_table
from volery.live.messages import ReportsStored, TaskReport, identity_of
from volery.live.service import batches
from volery.live.service.batches import Acknowledgements, BatchWriter, ClosedError, UnwrittenError
from volery.live.service.job_service import job_service
from volery.live.service.store import JobStore


def play(folder: Path, scenario: Callable[[BatchWriter, JobStore], Awaitable[None]]) -> list[int]:
    commits: list[int] = []

    async def run() -> None:
        store = JobStore(folder / "jobs.sqlite")
        writer = BatchWriter(store, lambda to, message: None, lambda: commits.append(1), 60.0)
        writer.open()
        try:
            await scenario(writer, store)
        finally:
            writer.refuse()
            await writer.close()

    asyncio.run(run())
    return commits


def test_writes_that_come_together_share_a_commit(tmp_path: Path) -> None:
    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        await asyncio.gather(*(writer.written(partial(store.drain, f"node/{at}", True)) for at in range(5)))
        assert store.drained() == {f"node/{at}" for at in range(5)}
        assert writer.commits == 1, "five writes"

    assert play(tmp_path, scenario) == [1, 1], "the last batch of a writer that closes is empty"


def test_a_write_that_raises_tells_its_own_caller_alone(tmp_path: Path) -> None:
    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        def wrong() -> None:
            raise InputError("job", "is wrong")

        found = await asyncio.gather(
            writer.written(wrong), writer.written(lambda: store.drain("node/1", True)), return_exceptions=True
        )
        assert isinstance(found[0], InputError)
        assert store.drained() == {"node/1"}

    play(tmp_path, scenario)


def test_a_full_disk_fails_the_writes_of_its_batch_and_the_next_ones_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "AGAIN_S", 0.01)
    refusals = [sqlite3.OperationalError("database or disk is full")]

    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        def drain() -> None:
            if refusals:
                raise refusals.pop()
            store.drain("node/1", True)

        with pytest.raises(UnwrittenError, match="cannot be written"):
            await writer.written(drain)
        await writer.written(drain)
        assert store.drained() == {"node/1"}

    play(tmp_path, scenario)


def test_a_closed_writer_takes_nothing(tmp_path: Path) -> None:
    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        writer.refuse()
        with pytest.raises(InputError, match="shutting down"):
            await writer.written(lambda: None)

    play(tmp_path, scenario)


@pytest.mark.parametrize(
    "error", [sqlite3.DatabaseError("is malformed"), OSError(28, "malformed"), KeyError("malformed")]
)
def test_a_store_that_is_damaged_takes_nothing_more_and_closes_without_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        loop, queued, made = asyncio.get_running_loop(), asyncio.Event(), list[str]()

        async def queue() -> None:
            queued.set()
            await writer.written(lambda: made.append("queued"))

        def damaged() -> None:
            asyncio.run_coroutine_threadsafe(queued.wait(), loop).result(10)
            raise error

        monkeypatch.setattr(store, "commit", damaged)
        first = loop.create_task(writer.written(lambda: made.append("first")))
        while not made:
            await asyncio.sleep(0)
        second = loop.create_task(queue())
        await asyncio.wait((first, second), timeout=10)
        for refused in (first.exception(), second.exception()):
            assert isinstance(refused, ClosedError)
            assert "malformed" in str(refused)
        writer.note(TaskReport(0, 0, 0, "node/0", "running", 5))
        with pytest.raises(InputError, match="has failed"):
            await writer.written(lambda: None)
        await asyncio.sleep(0.01)
        assert made == ["first"], "nothing more is tried"

    play(tmp_path, scenario)


AGENT = "agent/node"
LIMIT_S = 20


class Disk:
    """What the disk has for sure: files as they were when they had been brought there last."""

    def __init__(self, store: JobStore, folder: Path, image: Path) -> None:
        self._folder, self._image = folder, image
        sync, commit = store.sync, store.commit

        def synced() -> None:
            sync()
            self._copy()

        def committed() -> None:
            durable = store._durable
            commit()
            if durable:
                self._copy()

        store.sync, store.commit = synced, committed  # type: ignore[method-assign]  # looked on, not replaced

    def _copy(self) -> None:
        self._image.mkdir(exist_ok=True)
        for name in ("jobs.sqlite", "jobs.sqlite-wal"):
            shutil.copy(self._folder / name, self._image / name)


def reports_then_dies(folder: Path, image: Path) -> None:
    """A desk that hears of an end, and whose machine is gone at the very moment when it acknowledges it."""

    def send(_: Address, message: Message) -> None:
        if isinstance(message, ReportsStored):
            os.kill(os.getpid(), signal.SIGKILL)

    async def work() -> None:
        store = JobStore(folder / "jobs.sqlite")
        Disk(store, folder, image)
        service = job_service(
            store, Fleet(MACHINES, [1, 1]), Deployment({"gm/0": Component()}, {"node/0": 0}, lambda job: "gm/0"), send
        )
        await service.open()
        number = (await service.submit(job_from_table({"command": "true"}, "job"))).id
        first = store.first_task(number)
        assert first is not None
        job = identity_of(number, first)
        service.component.on_report(TaskReport(first, job, 0, "node/0", "running", 5), AGENT, 0)
        service.component.on_report(TaskReport(first, job, 0, "node/0", "finished", 7, exit_code=0), AGENT, 0)
        await asyncio.sleep(LIMIT_S)

    asyncio.run(work())


@pytest.mark.parametrize("lost", ["the process", "the machine's power"])
def test_an_end_that_was_acknowledged_is_there_after_a_crash_at_that_moment(tmp_path: Path, lost: str) -> None:
    folder, image = tmp_path / "federation", tmp_path / "disk"
    folder.mkdir()
    child = get_context("spawn").Process(target=reports_then_dies, args=(folder, image))
    child.start()
    child.join(10 * LIMIT_S)  # it ends by itself in `LIMIT_S` from its first line, before which it may have to wait
    assert child.exitcode == -signal.SIGKILL, "it never acknowledged the end"
    store = JobStore((folder if lost == "the process" else image) / "jobs.sqlite")
    (task,) = store.tasks(0, 0, 9)
    assert (task.state, task.exit_code) == ("finished", 0)
    assert store.ended_places(0) == {0}, "it would run again"
    store.close()


@pytest.mark.parametrize("refusal", [OSError("the disk is gone"), RuntimeError("a defect of ours")])
def test_a_disk_that_refuses_delays_the_acknowledgement_and_an_agent_is_told_once(refusal: Exception) -> None:
    told: list[tuple[dict[str, list[tuple[int, int]]], int | None]] = []
    refusals = [refusal, refusal]

    def sync() -> int:
        if refusals:
            raise refusals.pop()
        return 7

    async def scenario() -> None:
        ends = Acknowledgements(sync, lambda stored, revision: told.append((stored, revision)))
        ends.add(AGENT, (1, 0))
        ends.failed(ends.batch())
        ends.add(AGENT, (2, 0))
        ends.committed(ends.batch(), durable=False)
        assert not told
        async with asyncio.timeout(LIMIT_S):
            while not told:
                await asyncio.sleep(0.01)
        assert not refusals
        ends.add(AGENT, (3, 0))
        ends.committed(ends.batch(), durable=True)
        await ends.close()

    asyncio.run(scenario())
    assert told == [({AGENT: [(1, 0), (2, 0)]}, 7), ({AGENT: [(3, 0)]}, None)]


def test_nobody_waits_for_a_writer_that_has_failed_in_a_way_that_nobody_foresaw(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(writer: BatchWriter, store: JobStore) -> None:
        def wrong(*_: object) -> None:
            raise TypeError("a defect of ours")

        monkeypatch.setattr(store, "take_in", wrong)
        async with asyncio.timeout(30):
            with pytest.raises(ClosedError, match="has failed, and takes nothing more"):
                await writer.written(partial(store.drain, "node/1", True))
            with pytest.raises(InputError):
                await writer.written(partial(store.drain, "node/2", True))

    play(tmp_path, scenario)
    assert "a defect of ours" in caplog.text
