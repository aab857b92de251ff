"""Submissions on their way: in order, at once where there is little, never too much in one turn, and nobody waits."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

from volery.core.events import Event, MoreTasks, Submit
from volery.core.model import Message, Task
from volery.live.jobs import submission
from volery.live.service.throttle import TASKS_PER_TURN, WAITING_MAX, Outgoing, SubmitThrottle

LIMIT_S = 10


def job(number: int, task_count: int) -> Iterator[Message]:
    tasks = (Task(place, number) for place in range(task_count))
    return submission(number, tasks, task_count, "ada", TASKS_PER_TURN)


def numbers(messages: list[Message]) -> list[int]:
    return [
        one.job.id if isinstance(one, Submit) else one.job for one in messages if isinstance(one, Submit | MoreTasks)
    ]


class Turns:
    """Collects what is handed over, turn by turn."""

    def __init__(self) -> None:
        self.turns: list[list[Message]] = [[]]
        self.feed = SubmitThrottle(self._post)

    def _post(self, event: Event) -> None:
        assert isinstance(event, Outgoing)
        self.turns[-1] += event.messages

    @property
    def sent(self) -> list[Message]:
        return [message for turn in self.turns for message in turn]

    async def until(self, messages: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.sent) < messages:
                self.turns.append([])
                await asyncio.sleep(0)


def test_much_is_spread_over_turns_and_little_is_sent_at_once() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.submit(0, "gm/0", job(0, TASKS_PER_TURN // 4))
        assert numbers(it.sent) == [0]
        for number in range(1, 10):
            it.feed.submit(number, "gm/0", job(number, TASKS_PER_TURN // 4))
        it.feed.submit(10, "gm/0", job(10, 3 * TASKS_PER_TURN))
        await it.until(13)
        assert numbers(it.sent) == [*range(11), 10, 10]
        assert [one.first for one in it.sent if isinstance(one, MoreTasks)] == [TASKS_PER_TURN, 2 * TASKS_PER_TURN]
        assert max(len(turn) for turn in it.turns) == 4

    asyncio.run(scenario())


def test_a_small_job_is_sent_while_a_large_one_is_on_its_way() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.submit(0, "gm/0", job(0, 100 * TASKS_PER_TURN))
        it.feed.submit(1, "gm/0", job(1, 1))
        await it.until(4)
        assert 1 in numbers(it.sent)[:4]

    asyncio.run(scenario())


def test_nothing_more_is_sent_of_a_job_that_was_dropped() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.submit(0, "gm/0", job(0, 100 * TASKS_PER_TURN))
        await it.until(2)
        it.feed.drop(0)
        it.feed.submit(1, "gm/0", job(1, 3 * TASKS_PER_TURN))
        await it.until(5)
        assert numbers(it.sent) == [0, 0, 1, 1, 1]

    asyncio.run(scenario())


def test_whoever_submits_many_waits_for_room_and_not_for_a_large_job() -> None:
    async def scenario() -> None:
        it = Turns()
        it.feed.submit(0, "gm/0", job(0, 1000 * TASKS_PER_TURN))
        for number in range(1, 3 * WAITING_MAX):
            it.feed.submit(number, "gm/0", job(number, TASKS_PER_TURN))
        assert len(it.sent) == 1
        async with asyncio.timeout(LIMIT_S):
            await it.feed.room()
        assert len({*numbers(it.sent)}) > WAITING_MAX
        assert len(it.sent) < 10 * WAITING_MAX

    asyncio.run(scenario())


def test_whoever_waits_for_room_goes_on_when_all_that_waits_is_cancelled() -> None:
    async def scenario() -> None:
        it = Turns()
        for number in range(2 * WAITING_MAX):
            it.feed.submit(number, "gm/0", job(number, 2 * TASKS_PER_TURN))
        waiting = asyncio.ensure_future(it.feed.room())
        await asyncio.sleep(0)
        for number in range(2 * WAITING_MAX):
            it.feed.drop(number)
        async with asyncio.timeout(LIMIT_S):
            await waiting

    asyncio.run(scenario())
