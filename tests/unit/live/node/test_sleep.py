"""Executors of load tests number attempts for people as those of processes do."""

from __future__ import annotations

import asyncio

import pytest

from volery.core.model import Task
from volery.live.command import Command, encode_payload
from volery.live.messages import TaskReport
from volery.live.node.sleep import InstantExecutor, SleepExecutor

NINTH_INCARNATION = 144


@pytest.mark.parametrize("kind", [InstantExecutor, SleepExecutor])
def test_the_second_attempt_of_a_task_is_shown_as_attempt_1_after_the_federation_began_anew(
    kind: type[InstantExecutor] | type[SleepExecutor],
) -> None:
    told: list[TaskReport] = []
    task = Task(0, 0, payload=encode_payload(Command(("true",), attempts=1, launched=128)))

    async def scenario() -> None:
        ended = asyncio.Event()
        kind(report=told.append, by_incarnation=True).start("node/0", task, NINTH_INCARNATION, lambda *_: ended.set())
        await asyncio.wait_for(ended.wait(), 30)

    asyncio.run(scenario())
    assert [(report.state, report.attempt, report.number) for report in told] == [
        ("running", NINTH_INCARNATION, 1),
        ("finished", NINTH_INCARNATION, 1),
    ]
