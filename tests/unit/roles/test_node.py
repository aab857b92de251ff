"""The plain node: each launch once, and its end told to the master."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.effects import Killed, Launched, RecordingPort, Sent

from volery.core.events import TaskFinished
from volery.core.model import Task
from volery.roles.node import Completed, Heartbeats, Kill, Launch, Node

TASK = Task(7, 0)


def test_a_repeated_or_overtaken_launch_is_ignored_and_an_end_is_told() -> None:
    node = Node("master/0")
    port = RecordingPort.under(node, "node/0")
    for message in (Launch(2, TASK), Launch(2, TASK), Launch(1, Task(8, 0)), Kill(7)):
        node.handle(message, "master/0", 5)
    node.handle(TaskFinished(TASK, 0, "killed"), "node/0", 6)
    assert port.drain() == [Launched(TASK, 0), Killed(7, 0), Sent("master/0", Completed(7, killed=True))]


@given(st.integers(1, 70), st.integers(0, 400), st.integers(0, 3000), st.integers(1))
def test_the_next_heartbeat_is_that_of_the_first_machine_that_is_due(
    seats: int, more: int, now: int, bits: int
) -> None:
    beats = Heartbeats(seats + more, seats)
    candidates = bits & ((1 << seats) - 1) or 1
    expected = min((beats.after(seat, now), seat) for seat in range(seats) if candidates >> seat & 1)
    seat, at = beats.next_of(candidates, now)
    assert (at, seat) == expected
    assert now < at <= now + seats + more


def test_every_machine_has_one_heartbeat_in_each_interval() -> None:
    beats = Heartbeats(1000, 3)
    assert [beats.after(seat, 0) for seat in range(3)] == [1000, 333, 666]
    assert beats.after(1, 333) == 1333
    with pytest.raises(ValueError, match="3 machines need an interval of 3 us"):
        Heartbeats(2, 3)
