"""Frames on a link that loses: handed over once and in order while both ends run, never between incarnations."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from random import Random

import msgspec
import pytest

from volery.architectures import registry
from volery.core.events import JobDone, Submit
from volery.core.model import Job, Message, Task
from volery.live.runtime.host import Host
from volery.live.runtime.mailboxes import Inbox
from volery.live.transport.delivery import (
    ACKNOWLEDGE_S,
    RETRY_S,
    VERSION,
    Codec,
    CodecError,
    Delivery,
    HostFrame,
    LaterIncarnation,
    Parcel,
)
from volery.live.transport.transport import Memory

LIMIT_S = 20


class Link:
    """Carries frames between hosts, unless it loses them."""

    def __init__(self, loss: float = 0.0) -> None:
        self.loss = loss
        self.delay_s = 0.0
        self.carried = 0
        self._random = Random(7)
        self.ends: dict[str, End] = {}

    def carry(self, sender: str, to: str, encoded: bytes) -> None:
        if self._random.random() >= self.loss and to in self.ends:
            self.carried += 1
            arrived = self.ends[to].delivery.arrived
            asyncio.get_running_loop().call_later(self.delay_s, arrived, sender, encoded)


class End:
    """A host at the end of the link."""

    def __init__(self, link: Link, name: str, incarnation: int = 1) -> None:
        self.taken: list[int] = []
        self.met: list[tuple[str, bool]] = []
        self._name = name
        self.changed = asyncio.Event()
        self.delivery = Delivery(
            incarnation,
            Codec(()),
            lambda to, encoded: link.carry(name, to, encoded),
            self._take,
            lambda *_: None,
            lambda peer, known: self.met.append((peer, known)),
        )
        link.ends[name] = self

    def _take(self, sender: str, parcels: Iterable[Parcel]) -> None:
        for _, _, message in parcels:
            assert isinstance(message, JobDone)
            self.taken.append(message.job)
        self.changed.set()

    def send(self, to: str, number: int) -> None:
        self.delivery.send(to, [("gm/0", "submitter", JobDone(number))])

    async def until(self, count: int) -> None:
        async with asyncio.timeout(LIMIT_S):
            while len(self.taken) < count:
                self.changed.clear()
                await self.changed.wait()


def test_everything_arrives_once_and_in_order_over_a_link_that_loses_a_third() -> None:
    async def scenario() -> None:
        link = Link(0.33)
        left, right = End(link, "left"), End(link, "right")
        for number in range(60):
            left.send("right", number)
            right.send("left", -number)
            if number % 20 == 0:
                await asyncio.sleep(0.01)
        await asyncio.gather(left.until(60), right.until(60))
        link.loss = 0.0
        await asyncio.sleep(0.5)
        assert right.taken == list(range(60))
        assert left.taken == [-number for number in range(60)]
        left.delivery.close()
        right.delivery.close()

    asyncio.run(scenario())


def test_what_was_meant_for_an_earlier_life_is_void_and_the_new_one_is_met() -> None:
    async def scenario() -> None:
        link = Link()
        left, right = End(link, "left"), End(link, "right")
        left.send("right", 1)
        await right.until(1)
        await asyncio.sleep(0.05)  # acknowledged: its incarnation is known now
        del link.ends["right"]
        right.delivery.close()
        left.send("right", 2)
        await asyncio.sleep(0)
        again = End(link, "right", incarnation=2)
        again.send("left", 7)
        await left.until(1)
        left.send("right", 3)
        await again.until(1)
        await asyncio.sleep(0.5)
        assert again.taken == [3]
        assert left.met == [("right", False), ("right", True)]
        stale = End(link, "right", incarnation=1)
        with pytest.raises(LaterIncarnation):
            stale.delivery.arrived("left", _frame_for(2))
        for end in (left, again, stale):
            end.delivery.close()

    asyncio.run(scenario())


def test_a_host_that_begins_anew_says_so_without_being_asked() -> None:
    async def scenario() -> None:
        medium, codec, begun = Memory(), Codec(()), asyncio.Event()
        where = {"gm/0": "gm", "node/0": "node"}

        def host(name: str, incarnation: int) -> Host:
            return Host(name, {}, Inbox(where), codec=codec, transport=medium.transport(), incarnation=incarnation)

        gm, node = host("gm", 1), host("node", 1)
        async with asyncio.timeout(LIMIT_S):
            heard = gm.open(lambda peer, known: begun.set() if peer == "node" and known else None)
            await asyncio.gather(heard, node.open())
            gm.start()
            node.start()
            await asyncio.sleep(0.1)
            await node.close()
            assert not begun.is_set()
            node = host("node", 2)
            await node.open()
            node.start()
            await begun.wait()
        await node.close()
        await gm.close()

    asyncio.run(scenario())


def _frame_for(incarnation: int) -> bytes:
    return Codec(()).encode(HostFrame(1, 9, [], to=incarnation))


def test_a_long_loss_is_made_up_for_as_fast_as_it_is_acknowledged_and_nothing_is_sent_twice_without_need() -> None:
    async def scenario() -> None:
        link = Link()
        left, right = End(link, "left"), End(link, "right")
        left.send("right", -1)
        await right.until(1)
        link.loss = 1.0
        for number in range(3_000):
            left.send("right", number)
        link.loss = 0.0
        began = asyncio.get_running_loop().time()
        await right.until(3_001)
        took_s = asyncio.get_running_loop().time() - began
        assert right.taken == list(range(-1, 3_000))
        assert took_s < 3_000 / 64 * RETRY_S, f"{took_s} s: as long as with 64 in each time of retransmission"
        await asyncio.sleep(2 * ACKNOWLEDGE_S)
        assert link.carried <= 3_100
        left.delivery.close()
        right.delivery.close()

    asyncio.run(scenario())


def test_a_host_that_is_slow_to_acknowledge_is_given_more_time() -> None:
    async def scenario() -> None:
        link = Link()
        left, right = End(link, "left"), End(link, "right")
        left.send("right", 0)
        await right.until(1)
        await asyncio.sleep(2 * ACKNOWLEDGE_S)
        link.delay_s = 0.75 * RETRY_S
        for number in range(1, 5):
            before = link.carried
            left.send("right", number)
            await right.until(number + 1)
            await asyncio.sleep(2 * RETRY_S)
        assert link.carried - before == 2, "it was sent again while it was on its way"
        left.delivery.close()
        right.delivery.close()

    asyncio.run(scenario())


class Old(Message, frozen=True, tag="Hop"):
    number: int


class New(Message, frozen=True, tag="Hop"):
    number: int
    reason: str = "none"


@pytest.mark.parametrize("name", registry())
def test_every_architecture_has_a_codec(name: str) -> None:
    codec = Codec(registry()[name].messages)
    frame = HostFrame(2, 7, [("gm/0", "submitter", Submit(Job(1, 1, (Task(5, 1, 3, 10, b"what"),), 10, "ann")))])
    assert codec.decode(codec.encode(frame)) == frame


def test_a_newer_message_is_read_by_an_older_host_and_an_older_one_by_a_newer() -> None:
    new, old = Codec({New}), Codec({Old})
    assert old.decode(new.encode(HostFrame(1, 1, [("a", "b", New(4, "because"))]))).parcels == [("a", "b", Old(4))]
    assert new.decode(old.encode(HostFrame(1, 1, [("a", "b", Old(4))]))).parcels == [("a", "b", New(4))]


def test_an_unknown_message_is_refused_by_name() -> None:
    class Stranger(Message, frozen=True):
        number: int

    encoded = Codec({Stranger}).encode(HostFrame(1, 1, [("a", "b", Stranger(4))]))
    with pytest.raises(CodecError, match="'Stranger'"):
        Codec(()).decode(encoded)


@pytest.mark.parametrize("encoded", [b"", b"\x09abc", bytes([VERSION]), bytes([VERSION]) + b"\xc1"])
def test_other_bytes_are_refused(encoded: bytes) -> None:
    with pytest.raises(CodecError, match="frame"):
        Codec(()).decode(encoded)


def test_two_messages_of_one_name_are_no_codec() -> None:
    with pytest.raises(TypeError, match="Double"):
        Codec({type("Double", (Old,), {}, tag="Double"), type("Double", (Old,), {}, tag="Other")})


def test_what_a_frame_holds_is_what_was_sent() -> None:
    codec = Codec(())
    encoded = codec.encode(HostFrame(1, 3, [("submitter", "gm/0", JobDone(1))]))
    assert encoded[0] == VERSION
    assert msgspec.msgpack.decode(encoded[1:]) == [1, 3, [["submitter", "gm/0", ["JobDone", 1, 0]]], 0, 0, 0]
