"""The same components that the lab measures run live, on one host and on several."""

from __future__ import annotations

import asyncio

import pytest
from tests.live.federations import DESIGNS, Federation, plan

from volery.live.node.sleep import SleepExecutor


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
@pytest.mark.parametrize("name", DESIGNS)
def test_jobs_run_to_the_end(name: str, split: bool) -> None:
    async def scenario() -> None:
        async with Federation(plan(name), split=split) as federation:
            for size in (1, 3, 0, 40, 7):
                federation.submit(size)
            await federation.until_done(5)
        assert sorted(answer.job for answer in federation.loader.done) == [0, 1, 2, 3, 4]
        assert sorted(federation.loader.accepted) == [0, 1, 2, 3, 4]

    asyncio.run(scenario())


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
@pytest.mark.parametrize("name", DESIGNS)
def test_a_cancelled_job_ends_although_its_tasks_would_sleep_for_ever(name: str, split: bool) -> None:
    async def scenario() -> None:
        executor = SleepExecutor(lambda task: 3600_000_000 if task.job == 0 else 0)
        async with Federation(plan(name), executor, split) as federation:
            federation.submit(30)
            federation.submit(5)
            federation.cancel(0)
            await federation.until_done(2)

    asyncio.run(scenario())


def test_what_arrives_before_the_start_waits_for_it() -> None:
    async def scenario() -> None:
        federation = Federation(plan("megha"))
        await federation.entry.open()
        job = federation.submit(3)
        await asyncio.sleep(0)
        assert not federation.loader.accepted, "no component takes a turn before the start"
        federation.entry.start()
        await federation.until_done(1)
        assert federation.loader.accepted == [job]
        await federation.entry.close()

    asyncio.run(scenario())
