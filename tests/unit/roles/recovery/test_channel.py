"""Links: what is sent arrives once and in order while both ends live, and never in another session."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.effects import RecordingPort, Sent, TimerSet

from volery.core.component import Component, UnknownMessageError
from volery.core.events import TimerFired
from volery.core.model import SUBMITTER, Address, Message, Time
from volery.roles.recovery.channel import (
    RETRY_US,
    WINDOW,
    Acknowledgement,
    Frame,
    Greeting,
    Linked,
    Linking,
    LinkPort,
    Renewed,
)


class Word(Message, frozen=True):
    """Something to say."""

    number: int


class Other(Message, frozen=True):
    """A second kind, so that frames hold a choice."""


class Ear(Component):
    """Notes what it hears."""

    def __init__(self) -> None:
        self.heard: list[int] = []
        self.renewed: list[Address] = []

    def on_word(self, message: Word, source: Address, now: Time) -> None:
        self.heard.append(message.number)

    def on_renewed(self, message: Renewed, source: Address, now: Time) -> None:
        self.renewed.append(message.peer)

    receives = {Word: on_word, Renewed: on_renewed}  # noqa: RUF012 - the table


LINKING = Linking({Word, Other})


class End:
    """One end with a port that records."""

    def __init__(self, address: Address, incarnation: int = 0, *, sure: bool = False) -> None:
        self.ear = Ear()
        self.linked: Linked = LINKING.around(self.ear, incarnation)
        self.port = RecordingPort(address)
        self.port.is_reliable = sure
        self.linked.bind(self.port)
        self.linked.start(0)

    def say(self, to: Address, *numbers: int) -> None:
        for number in numbers:
            self.ear._port.send(to, Word(number))

    def frames(self) -> list[Message]:
        return [effect.message for effect in self.port.drain() if isinstance(effect, Sent)]

    def take(self, messages: list[Message], source: Address, now: Time = 0) -> None:
        for message in messages:
            self.linked.handle(message, source, now)

    def ring(self, peer: Address, now: Time) -> list[Message]:
        before = self.frames()
        self.linked.handle(TimerFired(("link", peer)), self.port.address, now)
        return before + self.frames()


def test_frames_are_delivered_once_and_in_order() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1, 2, 3)
    one, two, three = a.frames()
    b.take([three, one, one, two, three], "a/0")
    assert b.ear.heard == [1, 2, 3]


def test_what_is_not_acknowledged_is_sent_again_by_one_timer_per_peer() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1, 2)
    timers = [effect for effect in a.port.effects if isinstance(effect, TimerSet)]
    assert timers == [TimerSet(("link", "b/0"), RETRY_US)]
    first = a.frames()
    assert a.ring("b/0", RETRY_US) == first
    b.take(first[:1], "a/0", RETRY_US)
    (acknowledgement,) = b.ring("a/0", RETRY_US + 5_000)
    assert acknowledgement == Acknowledgement(0, 0, 1)
    a.take([acknowledgement], "b/0", RETRY_US + 6_000)
    assert a.ring("b/0", 10 * RETRY_US) == first[1:]


def test_retries_come_less_and_less_often() -> None:
    a = End("a/0")
    a.say("b/0", 1)
    a.frames()
    a.linked.handle(TimerFired(("link", "b/0")), "a/0", RETRY_US)
    times = [effect.at for effect in a.port.effects if isinstance(effect, TimerSet)]
    assert times == [3 * RETRY_US]


def test_a_slow_peer_is_given_more_time() -> None:
    """Karn and Partridge: twice what an acknowledgement took, if the frame was sent once."""
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1)
    b.take(a.frames(), "a/0")
    a.take(b.ring("a/0", 5_000), "b/0", 40_000)
    a.say("b/0", 2)
    a.linked.handle(TimerFired(("link", "b/0")), "a/0", RETRY_US)
    assert [effect.at for effect in a.port.effects if isinstance(effect, TimerSet)] == [40_000 + 80_000]


def test_a_frame_acknowledges_what_came_the_other_way() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1)
    b.take(a.frames(), "a/0")
    b.port.drain()
    b.say("a/0", 7)
    (frame,) = b.frames()
    assert isinstance(frame, Frame)
    assert frame.last_received == 1
    assert not b.ring("a/0", 5_000), "nothing is owed any more, and it is too early to send again"
    a.take([frame], "b/0")
    assert a.ear.heard == [7]


def test_all_is_quiet_when_all_is_acknowledged() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1)
    b.take(a.frames(), "a/0")
    a.take(b.ring("a/0", 5_000), "b/0", 5_000)
    assert not a.ring("b/0", RETRY_US)
    assert not a.port.effects
    a.linked.check_rest()


def test_a_new_incarnation_is_greeted_into_and_told_of() -> None:
    """What was sent to the old one is void; frames for it are refused by the new one, however late they come."""
    a, old = End("a/0"), End("b/0")
    a.say("b/0", 1)
    late = a.frames()
    new = End("b/0", incarnation=1)
    new.take(late, "a/0")
    assert not new.ear.heard
    new.port.drain()
    new.say("a/0", 5)
    (greeting,) = new.frames()
    assert isinstance(greeting, Greeting)
    a.take([greeting], "b/0")
    assert a.ear.renewed == ["b/0"]
    new.take(a.ring("b/0", 5_000), "a/0", 5_000)
    a.take(new.frames(), "b/0", 5_000)
    assert a.ear.heard == [5]
    a.say("b/0", 2)
    new.take(a.frames(), "a/0")
    assert new.ear.heard == [2]
    assert not old.ear.heard


def test_what_an_earlier_life_has_said_is_not_heard_once_the_next_is_known() -> None:
    a, old = End("a/0"), End("b/0")
    old.say("a/0", 1)
    late = old.frames()
    new = End("b/0", incarnation=1)
    new.say("a/0", 5)
    a.take(new.frames(), "b/0")
    assert a.ear.renewed == ["b/0"]
    a.take(late, "b/0")
    assert not a.ear.heard


def test_a_new_incarnation_believes_no_session_that_is_not_said_to_it() -> None:
    a, new = End("a/0", incarnation=3), End("b/0", incarnation=1)
    stale = Frame(0, 0, 1, 0, b"\x92\xa4Word\x01")
    new.take([stale], "a/0")
    new.port.drain()
    new.say("a/0", 5)
    a.take(new.frames(), "b/0")
    answers = a.frames()
    new.take(answers, "a/0")
    assert not new.ear.renewed, "the first session that it heard of was the last"
    assert answers


def test_renewing_refuses_what_was_sent_before() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", 1)
    late = a.frames()
    port = b.ear._port
    assert isinstance(port, LinkPort)
    port.renew("a/0")
    b.take(late, "a/0")
    assert not b.ear.heard
    b.port.drain()
    b.say("a/0", 9)
    a.take(b.frames(), "b/0")
    assert (a.ear.renewed, a.ear.heard) == (["b/0"], [9])
    a.say("b/0", 2)
    b.take(a.frames(), "a/0")
    assert b.ear.heard == [2]


def test_the_submitter_is_answered_directly() -> None:
    a = End("a/0")
    a.say(SUBMITTER, 1)
    assert a.frames() == [Word(1)]


def test_a_backlog_is_sent_window_by_window() -> None:
    a, b = End("a/0"), End("b/0")
    a.say("b/0", *range(3 * WINDOW))
    frames = a.frames()
    assert len(frames) == WINDOW
    for _ in range(4):
        b.take(frames, "a/0")
        a.take(b.ring("a/0", 5_000), "b/0", 5_000)
        frames = a.frames()
    assert b.ear.heard == list(range(3 * WINDOW))


@settings(max_examples=60)
@given(st.integers(0, 10_000))
def test_over_any_network_all_arrives_once_and_in_order(seed: int) -> None:
    """Frames and acknowledgements are dropped, repeated and shuffled; timers ring now and then."""
    stream = Random(seed)
    a, b = End("a/0"), End("b/0")
    ways: list[tuple[Message, Callable[[list[Message], Address, Time], None], Address]] = []
    said, now = 0, 0
    while len(b.ear.heard) < 20:
        now += RETRY_US
        if said < 20:
            a.say("b/0", said)
            said += 1
        for end, peer, other in ((a, "b/0", b), (b, "a/0", a)):
            rung = end.ring(peer, now) if peer in end.linked._ends else []
            ways += [(message, other.take, end.port.address) for message in end.frames() + rung]
        stream.shuffle(ways)
        for message, take, source in ways[: len(ways) // 2]:
            for _ in range(stream.choice((0, 1, 1, 2))):
                take([message], source, now)
        del ways[: len(ways) // 2]
        assert b.ear.heard == list(range(len(b.ear.heard)))


def test_where_the_driver_is_sure_nothing_is_numbered_acknowledged_or_timed() -> None:
    a, b = End("a/0", sure=True), End("b/0", sure=True)
    a.say("b/0", 1, 2)
    assert [type(effect) for effect in a.port.effects] == [Sent, Sent]
    frames = a.frames()
    assert [frame.number for frame in frames if isinstance(frame, Frame)] == [0, 0]
    b.take(frames, "a/0")
    assert b.ear.heard == [1, 2]
    assert not b.port.effects
    a.linked.check_rest()


def test_where_the_driver_is_sure_sessions_still_keep_lives_apart() -> None:
    a = End("a/0", sure=True)
    a.say("b/0", 1)
    late = a.frames()
    new = End("b/0", incarnation=1, sure=True)
    new.take(late, "a/0")
    new.port.drain()
    new.say("a/0", 5)
    a.take(new.frames(), "b/0")
    assert a.ear.renewed == ["b/0"]
    new.take(a.frames(), "a/0")
    a.take(new.frames(), "b/0")
    assert a.ear.heard == [5]
    a.say("b/0", 2)
    meant = a.frames()
    port = new.ear._port
    assert isinstance(port, LinkPort)
    port.renew("a/0")
    new.take(meant, "a/0")
    new.say("a/0", 6)
    a.take(new.frames(), "b/0")
    assert (a.ear.renewed, a.ear.heard, new.ear.heard) == (["b/0", "b/0"], [5, 6], [])


def test_two_new_lives_get_to_know_each_other_and_a_greeting_of_which_the_hearer_died_is_repeated() -> None:
    a, b = End("a/0", incarnation=1, sure=True), End("b/0", incarnation=1, sure=True)
    a.say("b/0", 1)
    assert isinstance(a.frames()[0], Greeting)
    (again,) = a.ring("b/0", 1_000_000)
    assert isinstance(again, Greeting)
    b.say("a/0", 7)
    b.frames()
    b.take([again], "a/0")
    a.take(b.frames(), "b/0")
    b.take(a.frames(), "a/0")
    a.take(b.frames(), "b/0")
    assert (a.ear.heard, b.ear.heard) == ([7], [1])
    assert not a.ring("b/0", 9_000_000)


def test_a_frame_that_cannot_be_read_is_an_unknown_message() -> None:
    a = End("a/0", sure=True)
    for payload in (b"\xc1", b"\x92\xa8Nonsense\x01", b"\x92\xa4Word\xa1x"):
        with pytest.raises(UnknownMessageError, match="a/0 cannot read a message of b/0"):
            a.take([Frame(0, 0, 0, 0, payload)], "b/0")
    with pytest.raises(UnknownMessageError, match="Ear does not receive Other"):
        a.take([Frame(0, 0, 0, 0, b"\x91\xa5Other")], "b/0")


def test_a_message_that_the_component_does_not_heed_is_void() -> None:
    ear = Ear()
    linked = LINKING.around(ear, accepts=lambda message, peer: peer != "b/1")
    RecordingPort.under(linked, "a/0")
    for number, peer in enumerate(("b/1", "b/0")):
        linked.handle(Frame(0, 0, 1, 0, msgspec.msgpack.encode(Word(number))), peer, 0)
    assert ear.heard == [1]
