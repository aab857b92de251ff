"""Sharing by marginal utility."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.jockey.arbiter import TokenClaim, arbitrated

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
