"""Messages of other hosts are admitted or rejected; a timer fires once, and only while it is the one of its key."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable

import pytest

from volery.core.component import Component
from volery.core.events import JobAccepted, JobDone, TaskFinished
from volery.core.model import SECOND, Address, Message, Task, Time
from volery.live.messages import TaskReport
from volery.live.runtime.mailboxes import Inbox, IngressFilter, LiveTimer, Mailbox


class Taker(Component):
    """Takes one kind of message."""

    def on_done(self, message: JobDone, source: Address, now: Time) -> None: ...

    receives = {JobDone: on_done}  # noqa: RUF012 - the base class replaces it


def mailbox(inbox: Inbox, address: Address = "gm/0") -> Mailbox:
    inbox.mailboxes[address] = Mailbox(inbox, address, Taker(), journalled=True)
    return inbox.mailboxes[address]


def play(scenario: Callable[[], None], then_s: float = 0.0) -> None:
    async def run() -> None:
        scenario()
        await asyncio.sleep(then_s)

    asyncio.run(run())


def test_a_host_sends_for_its_own_components_and_to_those_that_take_it(caplog: pytest.LogCaptureFixture) -> None:
    inbox = Inbox({"lm/0": "lm", "lm/1": "other"})
    box = mailbox(inbox)
    ingress = IngressFilter("gm", inbox.mailboxes, inbox.where)
    sound: tuple[Address, Address, Message] = ("gm/0", "lm/0", JobDone(1))
    wrong: list[tuple[Address, Address, Message]] = [
        ("gm/0", "lm/1", JobDone(2)), ("gm/1", "lm/0", JobDone(3)), ("gm/0", "lm/0", JobAccepted(4)),
    ]  # fmt: skip
    with caplog.at_level(logging.ERROR):
        assert ingress.admitted("lm", [wrong[0], sound, *wrong[1:]]) == [(box, JobDone(1), "lm/0")]
    assert ingress.refused == 3
    assert [record.getMessage() for record in caplog.records] == [
        "host gm rejected a message from host lm (further rejections are not logged): lm/1 is not on that host"
    ]


def test_events_that_come_before_the_start_wait_for_it() -> None:
    turns: list[int] = []

    def scenario() -> None:
        inbox = Inbox()
        box = mailbox(inbox)
        inbox.post("gm/0", JobDone(1), "lm/0")
        box.ended(Task(5, 1, 0, 0), 0, "finished")
        assert not turns
        inbox.start(lambda: turns.append(len(inbox.events)))
        inbox.wake()
        inbox.wake()
        assert [event for _, event, _ in inbox.events] == [JobDone(1), TaskFinished(Task(5, 1, 0, 0), 0, "finished")]

    play(scenario, 0.01)
    assert turns == [2]


def test_a_message_to_another_host_goes_to_the_outbox_and_a_report_to_nobody_nowhere() -> None:
    sent: list[tuple[str, int]] = []

    def scenario() -> None:
        inbox = Inbox({"lm/0": "lm"})
        inbox.post("lm/0", JobDone(1), "gm/0")
        inbox.report(TaskReport(0, 0, 0, "node/0", "running", 1))
        inbox.outbox.release(lambda host, parcels: sent.append((host, len(parcels))))
        with pytest.raises(KeyError):
            inbox.post("lm/9", JobDone(1), "gm/0")

    play(scenario)
    assert sent == [("lm", 1)]


def test_a_timer_replaces_that_of_its_key_and_a_dropped_one_does_not_fire() -> None:
    inbox = Inbox()
    box = mailbox(inbox)

    def scenario() -> None:
        now = inbox.now()
        for key in ("once", "once", "dropped"):
            box.set_timer(key, now + SECOND // 100, now)
        box.drop_timer("dropped")
        box.set_timer("due", now, now)
        assert [event.key for _, event, _ in inbox.events] == ["due"]

    play(scenario, 0.1)
    fired = [event for _, event, _ in inbox.events if isinstance(event, LiveTimer)]
    assert [event.key for event in fired if box.timers.get(event.key) is event] == ["due", "once"]
