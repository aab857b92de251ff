"""A submitter that restarts while a job is only partly sent: schedulers on other hosts take the rest, once."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest
from tests.live.federations import DESIGNS, LIMIT_S, Federation, plan

from volery.core.events import Submit
from volery.core.model import Address, Task, TaskId
from volery.live.config.constraints import Fleet
from volery.live.config.machine import Machine
from volery.live.jobs import job_from_table
from volery.live.node.executor import OnEnd
from volery.live.node.sleep import InstantExecutor
from volery.live.service import submissions
from volery.live.service.submissions import Submission

CHUNK = 10
TASKS = 3 * CHUNK + 4
RECEIVED = 2 * CHUNK
HYDRA = {"node_heartbeat_s": 0, "am_heartbeat_s": 0}
FLEET = Fleet([Machine("x86_64", "linux", "6.1", 4, 1024, {})], [1])


class Counting(InstantExecutor):
    """Counts the starts of each task."""

    def __init__(self) -> None:
        super().__init__()
        self.started: Counter[TaskId] = Counter()
        self.changed = asyncio.Event()

    def start(self, node: Address, task: Task, attempt: int, on_end: OnEnd, note: bytes = b"") -> None:
        self.started[task.id] += 1
        self.changed.set()
        super().start(node, task, attempt, on_end, note)

    async def until_started(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.started) < count:
                self.changed.clear()
                await self.changed.wait()


@pytest.mark.parametrize("name", [*DESIGNS, "omega", "sparrow", "hawk", "pipeline", "hydra", "central"])
def test_a_job_that_was_partly_sent_when_its_submitter_restarted_runs_each_task_once(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(submissions, "TASKS_PER_TURN", CHUNK)
    description = job_from_table({"command": "true", "tasks": TASKS}, "job")
    sent = Submission(0, 0, description, FLEET, TASKS)
    first, *further = sent.messages(0)
    assert isinstance(first, Submit)
    assert len(first.job.tasks) == CHUNK

    async def scenario() -> Counter[TaskId]:
        executor = Counting()
        async with Federation(plan(name, **(HYDRA if name == "hydra" else {})), executor, split=True) as federation:
            federation.post(0, first)
            federation.post(0, further[0])
            await executor.until_started(RECEIVED)
            ended = frozenset(place for place in executor.started if place % 3)
            again = sent._replace(tasks_left=TASKS - len(ended), ended=ended, is_repeated=True)
            for message in again.messages(0):
                federation.post(0, message)
            await federation.until_done(1)
        return executor.started

    assert asyncio.run(asyncio.wait_for(scenario(), 2 * LIMIT_S)) == Counter(range(TASKS))
