"""A batch gathers what is written while another is under way; a write that fails fails alone, the others are kept."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from functools import partial
from pathlib import Path

import pytest

from volery.core.errors import InputError
from volery.live.service import batches
from volery.live.service.batches import BatchWriter, UnwrittenError
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
            writer.closed = True
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
        writer.closed = True
        with pytest.raises(InputError, match="shutting down"):
            await writer.written(lambda: None)

    play(tmp_path, scenario)
