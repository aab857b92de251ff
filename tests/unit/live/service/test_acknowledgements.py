"""Ends of tasks are acknowledged when the disk of the API's machine has them, and not before."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from multiprocessing import get_context
from pathlib import Path

import pytest
from tests.live.loopback import MACHINES

from volery.core.events import Event
from volery.live.config.constraints import Fleet
from volery.live.jobs import job_from_table
from volery.live.messages import ReportsStored, TaskReport
from volery.live.service.acknowledgements import Acknowledgements
from volery.live.service.job_service import job_service
from volery.live.service.store import JobStore
from volery.live.service.throttle import Outgoing

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

    def post(event: Event) -> None:
        if isinstance(event, Outgoing) and isinstance(event.messages[0], ReportsStored):
            os.kill(os.getpid(), signal.SIGKILL)

    async def work() -> None:
        store = JobStore(folder / "jobs.sqlite")
        Disk(store, folder, image)
        service = job_service(store, Fleet(MACHINES, [1, 1]), lambda number, user: "gm/0", {"node/0": 0}, post)
        await service.open()
        number = (await service.submit(job_from_table({"command": "true"}, "job"))).id
        service.on_report(TaskReport(0, number, 0, "node/0", "running", 5), AGENT, 0)
        service.on_report(TaskReport(0, number, 0, "node/0", "finished", 7, exit_code=0), AGENT, 0)
        await asyncio.sleep(LIMIT_S)

    asyncio.run(work())


@pytest.mark.parametrize("lost", ["the process", "the machine's power"])
def test_an_end_that_was_acknowledged_is_there_after_a_crash_at_that_moment(tmp_path: Path, lost: str) -> None:
    folder, image = tmp_path / "federation", tmp_path / "disk"
    folder.mkdir()
    child = get_context("spawn").Process(target=reports_then_dies, args=(folder, image))
    child.start()
    child.join(LIMIT_S)
    assert child.exitcode == -signal.SIGKILL, "it never acknowledged the end"
    store = JobStore((folder if lost == "the process" else image) / "jobs.sqlite")
    (task,) = store.tasks(0, 0, 9)
    assert (task.state, task.exit_code) == ("finished", 0)
    assert store.ended_places(0) == {0}, "it would run again"
    store.close()


def test_a_disk_that_refuses_delays_the_acknowledgement_and_an_agent_is_told_once() -> None:
    told: list[dict[str, list[tuple[int, int]]]] = []
    refusals = [OSError("the disk is gone"), OSError("the disk is gone")]

    def sync() -> None:
        if refusals:
            raise refusals.pop()

    async def scenario() -> None:
        ends = Acknowledgements(sync, told.append)
        ends.heard(AGENT, (1, 0))
        ends.failed(ends.batch())
        ends.heard(AGENT, (2, 0))
        ends.committed(ends.batch(), durable=False)
        assert not told
        async with asyncio.timeout(LIMIT_S):
            while not told:
                await asyncio.sleep(0.01)
        assert not refusals
        ends.heard(AGENT, (3, 0))
        ends.committed(ends.batch(), durable=True)
        await ends.close()

    asyncio.run(scenario())
    assert told == [{AGENT: [(1, 0), (2, 0)]}, {AGENT: [(3, 0)]}]
