"""Whose turn it is whatever fits, who has been passed over, and what is set aside."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.policies.fairness.test_properties import trees

from volery.architectures.oracle.patience import DrfTurns, HdrfTurns, PatientVectorQueue, Reservation
from volery.core.model import SECOND, Task
from volery.core.resources import Packing
from volery.policies.fairness.drf import WeightedDrf
from volery.policies.fairness.hdrf import HierarchicalDrf
from volery.policies.fairness.shares import Resources, Sharer, parse_shares_text

TURNS = pytest.mark.parametrize("kind", [DrfTurns, HdrfTurns])


def served(turns: DrfTurns | HdrfTurns, rounds: int) -> list[str]:
    """Whose turn it is, when each task ends as soon as it has started."""
    found = []
    for _ in range(rounds):
        user = turns.choose()
        assert user is not None
        turns.launched(user, (1, 1))
        turns.ended(user, (1, 1))
        found.append(user)
    turns.check()
    return found


@TURNS
def test_of_equally_poor_users_the_one_served_longest_ago_is_next(kind: type[DrfTurns | HdrfTurns]) -> None:
    turns = kind((1, 1))
    for user in "abc":
        turns.wants(user, (1, 1))
    assert served(turns, 7) == list("abcabca")
    turns.wants("d", (1, 1))
    assert served(turns, 5) == list("dbcad"), "who has never been served comes first"


def test_organisations_take_turns_as_their_users_do() -> None:
    turns = HdrfTurns((1, 1), parse_shares_text("x:1(a:1+b:1)+y:1(c:1)", "shares"))
    for user in "abc":
        turns.wants(user, (1, 1))
    assert served(turns, 8) == list("acbcacbc")


@TURNS
def test_nothing_is_too_large_for_a_turn_and_the_poorer_user_comes_first(kind: type[DrfTurns | HdrfTurns]) -> None:
    turns = kind((2, 2))
    turns.wants("small", (1, 0))
    turns.wants("large", (9, 9))
    turns.launched("small", (2, 0))
    assert turns.choose() == "large"
    turns.launched("large", (2, 2))
    turns.ended("small", (1, 0))
    assert turns.choose() == "small"
    turns.check()


@settings(max_examples=60)
@given(trees(), st.data())
def test_sums_are_kept_whatever_is_served(tree: Sharer, draw: st.DataObject) -> None:
    """Where all wait for ever and what has started ends at once, nobody has more than one turn more than a sibling."""
    turns = HdrfTurns((7, 9), tree)
    for leaf in tree.leaves():
        turns.wants(leaf.name, draw.draw(st.sampled_from([(1, 0), (0, 1), (8, 8)])))
    turns.check()
    counts = Counter(served(turns, 40))
    for node in [tree, *_organisations(tree)]:
        parts = [sum(counts[leaf.name] for leaf in member.leaves()) for member in node.members]
        assert max(parts) - min(parts) <= 1, (node, counts)


@settings(max_examples=60)
@given(trees(), st.data())
def test_sums_are_kept_in_any_history(tree: Sharer, draw: st.DataObject) -> None:
    """Resources that divide badly, so that equals differ by what roundings leave."""
    turns, names = HdrfTurns((7, 9), tree), [leaf.name for leaf in tree.leaves()]
    demand = st.tuples(st.integers(0, 3), st.integers(0, 3)).filter(any)
    running: list[tuple[str, Resources]] = []
    for action in draw.draw(st.lists(st.sampled_from("wwlle"), min_size=1, max_size=30)):
        if action == "w":
            turns.wants(draw.draw(st.sampled_from(names)), draw.draw(st.none() | demand))
        elif action == "l":
            running.append((draw.draw(st.sampled_from(names)), draw.draw(demand)))
            turns.launched(*running[-1])
        elif running:
            turns.ended(*running.pop(draw.draw(st.integers(0, len(running) - 1))))
        turns.choose()
        turns.check()


def _organisations(node: Sharer) -> list[Sharer]:
    inner = [member for member in node.members if member.members]
    return inner + [below for member in inner for below in _organisations(member)]


def queue(patience_s: int = 10) -> PatientVectorQueue:
    """Job 1 is ann's, job 2 bob's; ann has a task that runs."""
    made = PatientVectorQueue(WeightedDrf((4, 4)), DrfTurns((4, 4)), Packing(2), patience_s * SECOND)
    made.belongs(1, "ann")
    made.belongs(2, "bob")
    made.launched(Task(0, 1, request=(1, 1)))
    for number, job in ((10, 1), (20, 2), (21, 2)):
        made.push(Task(number, job, request=(2, 2)))
    made.check()
    return made


def test_a_task_is_overdue_when_it_is_its_users_turn_and_it_was_noted_long_enough_ago() -> None:
    waiting = queue()
    assert waiting.overdue(100 * SECOND) is None, "never noted"
    waiting.note(100 * SECOND)
    waiting.note(105 * SECOND)
    assert waiting.overdue(110 * SECOND - 1) is None
    overdue = waiting.overdue(110 * SECOND)
    assert overdue is not None
    assert overdue.id == 20
    waiting.take(overdue)
    waiting.launched(overdue)
    assert waiting.overdue(120 * SECOND) is None, "bob is the richer one now, and ann was never passed over"
    waiting.ended(overdue)
    assert waiting.overdue(120 * SECOND) is None, "bob's next task has not waited on his turn"
    waiting.check()


def test_whose_turn_it_is_in_between_does_not_begin_the_count_anew() -> None:
    waiting = queue()
    waiting.note(0)
    waiting.launched(Task(99, 2, request=(3, 3)))
    waiting.note(5 * SECOND)
    assert waiting.overdue(12 * SECOND) is None, "it is ann's turn, since second 5"
    waiting.ended(Task(99, 2, request=(3, 3)))
    overdue = waiting.overdue(12 * SECOND)
    assert overdue is not None
    assert overdue.id == 20


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=8))
def test_what_is_set_aside_never_becomes_less_and_never_more_than_is_needed(ends: list[Resources]) -> None:
    kept = Reservation(Task(1, 1, request=(4, 7)), 0, (4, 7))
    left: Resources = (0, 0)
    for more in ends:
        before = kept.kept
        there = (left[0] + before[0] + more[0], left[1] + before[1] + more[1])
        left = kept.set_aside(there)
        assert (left[0] + kept.kept[0], left[1] + kept.kept[1]) == there
        assert before[0] <= kept.kept[0] <= 4
        assert before[1] <= kept.kept[1] <= 7
        assert (kept.kept == (4, 7)) == (there[0] >= 4 and there[1] >= 7)


def test_without_turns_the_orders_are_as_they_were() -> None:
    """Ties go to the first for ever: what patience is for."""
    for order in (WeightedDrf((1,)), HierarchicalDrf((1,))):
        order.wants("a", (1,))
        order.wants("b", (1,))
        for _ in range(5):
            assert order.choose() == "a"
            order.launched("a", (1,))
            order.ended("a", (1,))
