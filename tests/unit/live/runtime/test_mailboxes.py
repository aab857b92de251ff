"""Foreign messages are admitted or rejected, a timer fires once, and messages leave in one frame per host and turn."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from random import Random

import pytest

from volery.core.component import Component
from volery.core.events import JobAccepted, JobDone, TaskFinished
from volery.core.model import COALESCE_US, SECOND, Address, Message, Task, Time
from volery.live.messages import TaskReport
from volery.live.runtime.mailboxes import Inbox, IngressFilter, LiveTimer, Mailbox, Outbox
from volery.live.transport.delivery import Parcel


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
    ingress = IngressFilter("gm", inbox.mailboxes, inbox.host_of)
    sound: tuple[Address, Address, Message] = ("gm/0", "lm/0", JobDone(1))
    wrong: list[tuple[Address, Address, Message]] = [
        ("gm/0", "lm/1", JobDone(2)),
        ("gm/1", "lm/0", JobDone(3)),
        ("gm/0", "lm/0", JobAccepted(4)),
    ]
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


class Frames(list[tuple[str, list[Message]]]):
    """What was sent."""

    def send(self, host: str, parcels: list[Parcel]) -> None:
        self.append((host, [message for _, _, message in parcels]))


def play_outbox(scenario: Callable[[Outbox, Frames], None], then_s: float = 0.0) -> Frames:
    frames = Frames()

    async def run() -> None:
        outbox = Outbox()
        scenario(outbox, frames)
        await asyncio.sleep(then_s)

    asyncio.run(run())
    return frames


def put(outbox: Outbox, host: str, *messages: Message) -> None:
    for message in messages:
        outbox.put(host, "x/0", "y/0", message)


def test_patient_messages_ride_with_the_next_frame_for_their_host() -> None:
    def scenario(outbox: Outbox, frames: Frames) -> None:
        put(outbox, "a", JobAccepted(1))
        put(outbox, "b", JobAccepted(2))
        outbox.release(frames.send)
        assert not frames
        put(outbox, "a", JobDone(1), JobAccepted(3))
        outbox.release(frames.send)

    assert play_outbox(scenario) == [("a", [JobAccepted(1), JobDone(1), JobAccepted(3)])]


def test_without_company_they_leave_after_a_while_in_one_frame() -> None:
    def scenario(outbox: Outbox, frames: Frames) -> None:
        for job in range(3):
            put(outbox, "a", JobAccepted(job))
            outbox.release(frames.send)
        assert not frames

    assert play_outbox(scenario, 2 * COALESCE_US / SECOND) == [("a", [JobAccepted(0), JobAccepted(1), JobAccepted(2)])]


def test_an_end_that_is_reported_between_two_turns_is_not_lost_when_patience_ends() -> None:
    """Lost, its task ran for ever in every view, and its job never ended."""

    def scenario(outbox: Outbox, frames: Frames) -> None:
        put(outbox, "a", JobAccepted(1))
        outbox.release(frames.send)
        put(outbox, "b", JobDone(2))  # its turn comes after patience has ended
        outbox.release_all(frames.send)
        assert frames == [("a", [JobAccepted(1)])]
        outbox.release(frames.send)

    assert play_outbox(scenario) == [("a", [JobAccepted(1)]), ("b", [JobDone(2)])]


@pytest.mark.parametrize("drop", [False, True], ids=["closed", "failed"])
def test_what_waits_leaves_when_a_host_closes_and_never_when_it_has_failed(drop: bool) -> None:
    def scenario(outbox: Outbox, frames: Frames) -> None:
        put(outbox, "a", JobAccepted(1))
        if drop:
            outbox.drop()
        outbox.release_all(frames.send)
        put(outbox, "a", JobAccepted(2))
        outbox.release(frames.send)
        outbox.drop()

    assert play_outbox(scenario, 2 * COALESCE_US / SECOND) == ([] if drop else [("a", [JobAccepted(1)])])


@pytest.mark.parametrize("seed", range(20))
def test_the_order_of_every_link_holds(seed: int) -> None:
    stream, said = Random(seed), dict[str, list[Message]](a=[], b=[])

    def scenario(outbox: Outbox, frames: Frames) -> None:
        for number in range(200):
            host, kind = stream.choice("ab"), stream.choice((JobAccepted, JobDone))
            said[host].append(kind(number))
            put(outbox, host, said[host][-1])
            if stream.random() < 0.3:
                outbox.release(frames.send)
        outbox.release(frames.send)

    frames = play_outbox(scenario, 2 * COALESCE_US / SECOND)
    for host, messages in said.items():
        assert [message for to, listed in frames if to == host for message in listed] == messages
