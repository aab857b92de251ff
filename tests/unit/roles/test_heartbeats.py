"""The clock of heartbeats, against a look at every machine."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.roles.heartbeats import Heartbeats


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
