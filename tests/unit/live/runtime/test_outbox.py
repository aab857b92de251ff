"""What leaves a host: one frame per host and turn; what nobody waits for rides along, and the order of a link holds."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

import pytest

from volery.core.events import JobAccepted, JobDone
from volery.core.model import COALESCE_US, SECOND, Message
from volery.live.runtime.outbox import Outbox
from volery.live.transport.codec import Parcel


class Frames(list[tuple[str, list[Message]]]):
    """What was sent."""

    def send(self, host: str, parcels: list[Parcel]) -> None:
        self.append((host, [message for _, _, message in parcels]))


def play(scenario: Callable[[Outbox, Frames], None], then_s: float = 0.0) -> Frames:
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

    assert play(scenario) == [("a", [JobAccepted(1), JobDone(1), JobAccepted(3)])]


def test_without_company_they_leave_after_a_while_in_one_frame() -> None:
    def scenario(outbox: Outbox, frames: Frames) -> None:
        for job in range(3):
            put(outbox, "a", JobAccepted(job))
            outbox.release(frames.send)
        assert not frames

    assert play(scenario, 2 * COALESCE_US / SECOND) == [("a", [JobAccepted(0), JobAccepted(1), JobAccepted(2)])]


def test_an_end_that_is_reported_between_two_turns_is_not_lost_when_patience_ends() -> None:
    """Lost, its task ran for ever in every view, and its job never ended."""

    def scenario(outbox: Outbox, frames: Frames) -> None:
        put(outbox, "a", JobAccepted(1))
        outbox.release(frames.send)
        put(outbox, "b", JobDone(2))  # its turn comes after patience has ended
        outbox.release_all(frames.send)
        assert frames == [("a", [JobAccepted(1)])]
        outbox.release(frames.send)

    assert play(scenario) == [("a", [JobAccepted(1)]), ("b", [JobDone(2)])]


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

    assert play(scenario, 2 * COALESCE_US / SECOND) == ([] if drop else [("a", [JobAccepted(1)])])


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

    frames = play(scenario, 2 * COALESCE_US / SECOND)
    for host, messages in said.items():
        assert [message for to, listed in frames if to == host for message in listed] == messages
