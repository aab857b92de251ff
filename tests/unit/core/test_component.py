"""The one door of a component."""

from __future__ import annotations

from typing import ClassVar

import msgspec
import pytest
from tests.unit.effects import RecordingPort, Sent

from volery.architectures import lookup
from volery.core.capabilities import Draining, Replication, Resumption
from volery.core.component import Component, DeclaredCaptions, Deployment, Sends, UnknownMessageError, role_of
from volery.core.events import Event, Look
from volery.core.model import Address, Message, Time


class Ping(Message, frozen=True):
    number: int


class Pong(Message, frozen=True):
    number: int


class Echo(Component):
    """Answers."""

    __slots__ = ()

    def on_ping(self, message: Ping, source: Address, now: Time) -> None:
        self._port.send(source, Pong(message.number))

    receives = {Ping: on_ping}  # noqa: RUF012 - the base class reads the table once and replaces it


class Louder(Echo):
    """Overrides the method and repeats no table."""

    __slots__ = ()

    def on_ping(self, message: Ping, source: Address, now: Time) -> None:
        self._port.send(source, Pong(10 * message.number))


def test_an_event_goes_to_the_handler_of_its_type() -> None:
    echo = Echo()
    port = RecordingPort.under(echo, "echo/0")
    echo.handle(Ping(3), "gm/1", 0)
    assert port.drain() == [Sent("gm/1", Pong(3))]


def test_a_subclass_that_overrides_a_method_is_heard() -> None:
    """DESIGN section 2: handlers are resolved by name for each subclass."""
    louder = Louder()
    port = RecordingPort.under(louder, "echo/0")
    louder.handle(Ping(3), "gm/1", 0)
    assert port.drain() == [Sent("gm/1", Pong(30))]
    assert Echo.receives[Ping] is not Louder.receives[Ping]


class Counter:
    """Counts answers; see `Attached`."""

    takes: ClassVar[frozenset[type]] = frozenset({Pong})
    sends: ClassVar[Sends] = frozenset({(Ping, "gm")})
    total = 0

    def handle(self, event: Event, source: Address, now: Time) -> None:
        assert isinstance(event, Pong)
        self.total += event.number


class Bearer(Echo):
    """Bears a part with messages of its own."""

    def __init__(self) -> None:
        self.counter = Counter()
        self.attached = (self.counter,)


def test_what_the_table_lacks_goes_to_an_attached_part_that_takes_it() -> None:
    bearer = Bearer()
    bearer.handle(Pong(3), "gm/1", 0)
    assert bearer.counter.total == 3
    assert bearer.takes() == frozenset[type]({Ping, Pong})
    assert bearer.emits() == Counter.sends
    with pytest.raises(UnknownMessageError, match="Bearer does not receive"):
        bearer.handle(Look(1, 0, ()), "gm/1", 0)


def test_an_unknown_message_raises_and_says_what_is_known() -> None:
    with pytest.raises(UnknownMessageError, match=r"Echo does not receive Pong.*it receives Ping"):
        Echo().handle(Pong(1), "gm/1", 0)


def test_a_component_that_receives_nothing_says_so() -> None:
    with pytest.raises(UnknownMessageError):
        Component().handle(Ping(1), "gm/1", 0)


def test_a_role_is_what_stands_before_the_stroke() -> None:
    assert [role_of(address) for address in ("lm/4", "node/117", "submitter")] == ["lm", "node", "submitter"]


def test_a_deployment_or_a_design_has_at_most_one_capability_of_each_class() -> None:
    owners = Draining(lambda node: (Address("owner"),))
    once = Deployment({}, {}, lambda job: Address("entry"), capabilities=(owners, Resumption()))
    assert once.capability(Draining) is owners
    assert once.capability(Replication) is None
    assert once.replaced(Resumption(preempted=True)).capability(Resumption) == Resumption(preempted=True)
    with pytest.raises(AssertionError, match="two capabilities of one class"):
        Deployment({}, {}, lambda job: Address("entry"), capabilities=(Resumption(), Resumption()))
    with pytest.raises(AssertionError, match="two capabilities of one class"):
        msgspec.structs.replace(lookup("megha"), capabilities=(DeclaredCaptions(), DeclaredCaptions()))
