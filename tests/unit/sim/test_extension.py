"""Extensions of a run: servers with a cost per message, and checks after events."""

from __future__ import annotations

import pytest
from tests.unit.sim.actors import Actor, Note, answer, play

from volery.conformance.cases import trace_of
from volery.core.port import Port
from volery.sim import Network, Options

ONE = trace_of("one", [0], [[]])


def test_a_costly_role_is_a_server_with_a_fifo() -> None:
    """Five messages at once, 100 us each: served at 100, 200 ... after their arrival, in order."""
    actor = Actor()

    def start(port: Port) -> None:
        for number in range(5):
            port.send("server/0", Note(number))

    play(
        {"entry/0": Actor(answer, start), "server/0": actor},
        ONE,
        network=Network(delay_us=500),
        options=Options(costs={"server": 100}),
    )
    assert actor.times(Note) == [600, 700, 800, 900, 1000]
    assert actor.numbers() == [0, 1, 2, 3, 4]


def test_a_check_that_fails_stops_the_run_at_its_event() -> None:
    class Broken(Actor):
        __slots__ = ()

        def check(self) -> None:
            assert len(self.seen) < 2, "two is too many"

    with pytest.raises(AssertionError, match="two is too many"):
        play({"entry/0": Broken(answer)}, trace_of("t", [0, 1], [[], []]), options=Options(check=True))
