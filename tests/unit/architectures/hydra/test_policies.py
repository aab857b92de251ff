"""Policies of the federation: YARN Federation's formulas (Apache Hadoop 3), and how queues get their capacities."""

from __future__ import annotations

from fractions import Fraction

import pytest

from volery.architectures.hydra.messages import Directory
from volery.architectures.hydra.policies import (
    Membership,
    by_hash,
    draw_weighted,
    guarantees,
    load_weights,
    proportional,
)
from volery.core.streams import Streams


def test_headroom_splits_an_ask_in_proportion_with_at_most_one_too_many_for_each() -> None:
    """ceil(n (a H + (1 - a) w)), LocalityMulticastAMRMProxyPolicy."""
    assert proportional(10, [0, 1, 2], [1000, 1000, 1000], {0: 50, 1: 30, 2: 20}, Fraction(1)) == {0: 5, 1: 3, 2: 2}
    assert proportional(10, [0, 1, 2], [1000, 500, 500], {}, Fraction(0)) == {0: 5, 1: 3, 2: 3}
    assert proportional(4, [0, 1], [1000, 0], {0: 0, 1: 0}, Fraction(1)) == {0: 2, 1: 2}, "nobody has room: equal"
    assert proportional(8, [0, 1], [1000, 1000], {0: 7}, Fraction(1)) == {0: 4, 1: 4}, "one has not answered yet"
    assert proportional(8, [0, 1], [3000, 1000], {0: 1, 1: 3}, Fraction(1, 2)) == {0: 4, 1: 4}


def test_a_full_subcluster_is_asked_for_nothing() -> None:
    assert proportional(3, [0, 1], [1000, 1000], {0: 0, 1: 9}, Fraction(1)) == {1: 3}


def test_the_three_fullest_lose_weight_between_the_thresholds() -> None:
    """LoadBasedGlobalPolicy: 1 up to 100 waiting applications, 0 from 1,000, linear between."""
    assert load_weights([0, 100, 1000, 2000, 550], 100, 1000) == [1000, 1000, 0, 0, 500]
    assert load_weights([900, 901, 902, 903], 0, 10) == [1000, 0, 0, 0], "only three, the fullest"
    assert load_weights([5000, 5000], 100, 1000) == [1000, 1000], "all at 0 are all at 1"


def test_guarantees_are_max_min_fair_over_the_federation_not_in_each_subcluster() -> None:
    """A wants one sub-cluster only, B both: A is due half of all, which is the whole of that one."""
    laid = guarantees({"a": [30, 0], "b": [30, 30]}, {"a": 1, "b": 1}, [10, 10])
    assert laid == {"a": (10, 0), "b": (5, 5)}
    assert guarantees({"b": [4, 0]}, {"a": 1, "b": 3}, [8, 4])["a"] == (2, 1), "no demand: its part of each"
    assert guarantees({"a": [1, 1]}, {"a": 1}, [0, 0]) == {"a": (0, 0)}, "nothing is active"


def test_draws_follow_weights_and_a_hash_always_says_the_same() -> None:
    random = Streams(0).of("router/0")
    drawn = [draw_weighted([0, 2], [1, 5, 3], random) for _ in range(4000)]
    assert drawn.count(2) / len(drawn) == pytest.approx(0.75, abs=0.03)
    assert set(drawn) == {0, 2}
    assert {draw_weighted([1, 2], [5, 0, 0], random) for _ in range(50)} == {1, 2}, "no weight at all: alike"
    assert len({by_hash([0, 1, 2], "web") for _ in range(9)}) == 1
    assert len({by_hash([0, 1, 2], f"user{k}") for k in range(20)}) == 3


def test_stale_news_are_ignored_and_losses_are_named() -> None:
    membership = Membership(2)
    assert membership.update(Directory(2, (True, False), (1000, 0), (3, -1))) == ([1], [])
    assert membership.update(Directory(1, (True, True), (1000, 1000), (0, 0))) == ([], [])
    assert membership.headroom == {0: 3}
    assert membership.usable([0, 1]) == [0]
    assert membership.usable([1]) == [1], "rather one that is lost than none"
    assert membership.update(Directory(3, (True, True), (1000, 1000), (0, 2))) == ([], [1])
