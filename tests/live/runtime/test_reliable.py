"""Components that bear faults run live as they are: the same frames, sessions and pairs of masters."""

from __future__ import annotations

import asyncio

import pytest
from tests.live.federations import DESIGNS, Federation

from volery.architectures import configure, lookup
from volery.core.model import Cluster
from volery.live.config.plan import FederationPlan
from volery.live.node.sleep import SleepExecutor


@pytest.mark.parametrize("split", [False, True], ids=["one host", "a host per role"])
@pytest.mark.parametrize("name", ["megha", "pigeon", "sparrow"])
def test_jobs_run_and_are_cancelled(name: str, split: bool) -> None:
    architecture = lookup(name)
    config = configure(architecture, {**DESIGNS.get(name, {}), "reliable": True})

    async def scenario() -> None:
        executor = SleepExecutor(lambda task: 3600_000_000 if task.job == 0 else 1_000)
        async with Federation(
            FederationPlan(architecture, config, Cluster.uniform(12), seed=7), executor, split
        ) as federation:
            federation.submit(5)
            for size in (1, 3, 0, 40):
                federation.submit(size)
            federation.cancel(0)
            await federation.until_done(5)
        assert sorted(answer.job for answer in federation.loader.done) == [0, 1, 2, 3, 4]

    asyncio.run(scenario())
