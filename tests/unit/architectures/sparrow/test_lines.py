"""Who is served next at a worker."""

from __future__ import annotations

from collections import Counter

from volery.architectures.sparrow.lines import FairLines, Lines, PriorityLines


def filled(lines: Lines, *users: str) -> Lines:
    for number, user in enumerate(users):
        lines.push(number, user)
    return lines


def test_strict_priority_serves_the_smallest_number_first_and_others_last() -> None:
    lines = filled(PriorityLines({"b": 1, "a": 2}), "x", "a", "b", "a", "b")
    assert [lines.pop() for _ in range(5)] == [2, 4, 1, 3, 0]
    assert len(lines) == 0


def test_fair_shares_follow_the_weights() -> None:
    lines = filled(FairLines({"a": 3.0}), *"ab" * 100)
    users = Counter("ab"[lines.pop() % 2] for _ in range(80))
    assert users == {"a": 60, "b": 20}


def test_a_user_who_comes_back_does_not_make_up_for_the_time_away() -> None:
    lines = filled(FairLines({}), *"a" * 50)
    for _ in range(40):
        lines.pop()
    for number in range(100, 110):
        lines.push(number, "b")
    first = [lines.pop() for _ in range(8)]
    assert sum(number >= 100 for number in first) == 4


def test_what_is_discarded_is_not_served() -> None:
    lines = filled(FairLines({}), "a", "b", "a")
    lines.discard(0)
    lines.discard(1)
    assert [lines.pop()] == [2]
