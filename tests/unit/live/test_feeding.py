"""What is sent to schedulers: in order, at once where there is little, and never too much in one turn."""

from __future__ import annotations

import asyncio

from volery.core.events import Cancel, Event, MoreTasks, Submit
from volery.core.model import Job, Message, Task
from volery.live.service.feeding import TASKS_PER_TURN, Feed, Outgoing


def job(number: int, task_count: int) -> Submit:
    return Submit(Job(number, task_count, tuple([Task(place, number) for place in range(task_count)])))


def test_much_is_spread_over_turns_in_order_and_little_is_sent_at_once() -> None:
    async def scenario() -> None:
        turns: list[list[Message]] = [[]]

        def post(event: Event) -> None:
            assert isinstance(event, Outgoing)
            turns[-1] += event.messages

        feed = Feed(post)
        sent: list[Message] = [job(number, TASKS_PER_TURN // 4) for number in range(10)]
        sent += [job(10, TASKS_PER_TURN), MoreTasks(10, TASKS_PER_TURN, job(10, TASKS_PER_TURN).job.tasks), Cancel(10)]
        feed.send("gm/0", sent[:1])
        assert turns == [sent[:1]]
        for message in sent[1:]:
            feed.send("gm/0", [message])
        while sum(map(len, turns)) < len(sent):
            turns.append([])
            await asyncio.sleep(0)
        assert [message for turn in turns for message in turn] == sent
        assert max(sum(isinstance(one, Submit) for one in turn) for turn in turns) == 4
        assert max(sum(isinstance(one, MoreTasks) for one in turn) for turn in turns) == 1
        await feed.empty()

    asyncio.run(scenario())


def test_whoever_waits_for_room_gets_it_when_all_is_sent() -> None:
    async def scenario() -> None:
        posted: list[Event] = []
        feed = Feed(posted.append)
        await feed.empty()
        feed.send("gm/0", [job(number, TASKS_PER_TURN) for number in range(3)])
        await feed.empty()
        assert len(posted) == 3

    asyncio.run(scenario())
