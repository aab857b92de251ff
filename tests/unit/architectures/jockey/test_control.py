"""Control: the algorithm as recalled, in minutes, worked out by hand; utility curves; sharing by marginal utility."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.jockey.control import DEFAULT, Loop, TokenClaim, UtilityCurve, arbitrated, due, parsed
from volery.core.errors import InputError
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


@pytest.mark.parametrize(
    ("minutes", "utility"),
    [(0, 1.0), (40, 1.0), (45, 0.0), (50, -1.0), (1040, -1000.0), (50 + 2 * 990, -1 - 2 * 999)],
)
def test_the_default_falls_from_1_at_the_deadline_to_minus_1_ten_minutes_later_and_on(
    minutes: int, utility: float
) -> None:
    assert due(40 * MINUTE, parsed(DEFAULT, "x")).at(minutes * MINUTE) == pytest.approx(utility)


def test_a_single_point_is_worth_the_same_whenever() -> None:
    assert {UtilityCurve(((5, 2.0),)).at(at) for at in (0, 5, 500)} == {2.0}


@pytest.mark.parametrize("text", ["", "0", "0:1+", "0:x", "a:1", "0:nan", "inf:1"])
def test_what_is_no_curve_is_refused_by_its_place(text: str) -> None:
    with pytest.raises(InputError, match="is not SECONDS:UTILITY") as refused:
        parsed(text, "jockey:utility")
    assert refused.value.place == "jockey:utility"


@pytest.mark.parametrize("text", ["0:1+0:2", "5:1+-5:2"])
def test_times_increase(text: str) -> None:
    with pytest.raises(InputError, match="times increase"):
        parsed(text, "jockey:utility")
    with pytest.raises(InputError, match="no point"):
        UtilityCurve(())


URGENT = TokenClaim((0, 10, 20), (-8.0, -2.0, 1.0))
LATER = TokenClaim((0, 10, 20), (-1.0, 0.0, 1.0))


def test_all_get_what_they_ask_for_where_it_is_there() -> None:
    assert arbitrated([URGENT, LATER], 40) == [20, 20]
    assert arbitrated([], 5) == []


def test_tokens_go_where_they_are_worth_most() -> None:
    assert arbitrated([LATER, URGENT], 30) == [10, 20]
    assert arbitrated([LATER, URGENT], 20) == [0, 20]
    assert arbitrated([LATER, URGENT], 10) == [0, 10]
    assert arbitrated([LATER, URGENT], 9) == [0, 0], "nobody gets part of a step"


def test_a_step_that_pays_only_further_up_is_seen() -> None:
    cliff = TokenClaim((0, 10, 20), (0.0, 0.0, 5.0))
    assert arbitrated([cliff, LATER], 20) == [20, 0]
    assert arbitrated([cliff, LATER], 10) == [0, 10]


def test_ties_go_to_the_first() -> None:
    assert arbitrated([LATER, LATER], 20) == [10, 10] or arbitrated([LATER, LATER], 20) == [20, 0]
    assert arbitrated([LATER, LATER], 10) == [10, 0]


concave = st.lists(st.integers(1, 50), min_size=1, max_size=3).map(lambda gains: sorted(gains, reverse=True))


@given(st.lists(concave, min_size=1, max_size=4), st.integers(0, 12))
def test_where_more_is_worth_less_and_less_the_sum_is_the_best_there_is(gains: list[list[int]], tokens: int) -> None:
    claims = [
        TokenClaim(tuple(range(len(each) + 1)), tuple(itertools.accumulate(map(float, each), initial=0.0)))
        for each in gains
    ]
    given_out = arbitrated(claims, tokens)
    assert sum(given_out) <= max(tokens, 0) or given_out == [claim.steps[-1] for claim in claims]
    best = max(
        sum(claim.utilities[at] for claim, at in zip(claims, places, strict=True))
        for places in itertools.product(*[range(len(claim.steps)) for claim in claims])
        if sum(places) <= tokens
    )
    assert sum(claim.utilities[at] for claim, at in zip(claims, given_out, strict=True)) == best
