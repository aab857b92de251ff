"""Queues of users at one worker."""

from __future__ import annotations

from collections import Counter

from volery.architectures.sparrow.queues import FairShare, StrictPriority, UserOrder, UserQueues


def filled(order: UserOrder, *users: str) -> UserQueues:
    queues = UserQueues(order)
    for number, user in enumerate(users):
        queues.push(number, user)
    return queues


def test_strict_priority_serves_the_smallest_number_first_and_others_last() -> None:
    queues = filled(StrictPriority({"b": 1, "a": 2}), "x", "a", "b", "a", "b")
    assert [queues.pop() for _ in range(5)] == [2, 4, 1, 3, 0]
    assert len(queues) == 0


def test_fair_shares_follow_the_weights() -> None:
    queues = filled(FairShare({"a": 3.0}), *"ab" * 100)
    users = Counter("ab"[queues.pop() % 2] for _ in range(80))
    assert users == {"a": 60, "b": 20}


def test_a_user_who_comes_back_does_not_make_up_for_the_time_away() -> None:
    queues = filled(FairShare({}), *"a" * 50)
    for _ in range(40):
        queues.pop()
    for number in range(100, 110):
        queues.push(number, "b")
    first = [queues.pop() for _ in range(8)]
    assert sum(number >= 100 for number in first) == 4


def test_what_is_discarded_is_not_served() -> None:
    queues = filled(FairShare({}), "a", "b", "a")
    queues.discard(0)
    queues.discard(1)
    assert [queues.pop()] == [2]
