"""The control loop: the algorithm as recalled, in minutes, worked out by hand."""

from __future__ import annotations

from volery.architectures.jockey.control import Loop
from volery.architectures.jockey.curves import DEFAULT, due, parsed
from volery.core.model import SECOND, Time

MINUTE = 60 * SECOND
LOOP = Loop(1.2, 0.2, 3 * MINUTE, (10, 20, 50, 100))
DEADLINE_US = 60 * MINUTE
CURVE = due(DEADLINE_US, parsed(DEFAULT, "x"))


def work(minutes: float, critical: float = 0.0) -> object:
    """A job with so many token-minutes of work left."""
    return lambda tokens: round((critical + minutes / tokens) * MINUTE)


def adjusted(held: float, elapsed: float, minutes: float, critical: float = 0.0) -> float:
    left = work(minutes, critical)
    assert callable(left)
    return LOOP.adjusted(held, DEADLINE_US, CURVE, round(elapsed * MINUTE), left)


def test_the_smallest_allocation_that_is_worth_most_is_wanted() -> None:
    def left(tokens: float) -> Time:
        return round(900 / tokens * MINUTE)

    worth = LOOP.utilities(CURVE, 0, left)
    assert worth[1:] == [1.0, 1.0, 1.0], "20 tokens: 1.2 * 45 + 3 = 57 minutes of 60"
    assert worth[0] < -1, "10 tokens: 1.2 * 90 + 3 = 111 minutes"
    assert LOOP.wanted(worth) == 20


def test_a_fifth_of_the_way_is_gone_per_period() -> None:
    assert adjusted(10, 0, 900) == 10 + 0.2 * (20 - 10)
    assert adjusted(100, 0, 900) == 100 + 0.2 * (20 - 100)


def test_within_the_dead_zone_nothing_changes() -> None:
    # target is 57 minutes; with 20 tokens 1.2 * 46 = 55.2, with 19 tokens 1.2 * 48.4 = 58.1
    assert adjusted(20, 0, 920) == 20
    assert adjusted(19, 0, 920) == 19
    assert adjusted(18, 0, 920) != 18, "1.2 * 51.1 = 61.3: 4.3 minutes off"


def test_where_even_the_largest_is_too_little_it_is_given_at_once() -> None:
    assert adjusted(10, 30, 1000, critical=20) == 100, "30 + 1.2 * (20 + 10) = 66"


def test_slack_and_dead_zone_ask_for_more_than_the_bare_deadline_does() -> None:
    bare = Loop(1.0, 1.0, 0, LOOP.grid)
    left = work(590)
    assert callable(left)
    assert bare.wanted(bare.utilities(CURVE, 0, left)) == 10
    assert LOOP.wanted(LOOP.utilities(CURVE, 0, left)) == 20
