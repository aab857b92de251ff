"""Trees of users, from tables and from text."""

from __future__ import annotations

from typing import Any

import pytest

from volery.core.errors import InputError
from volery.policies.fairness.shares import Sharer, equal_users, parse_shares, parse_shares_text

TREE = Sharer("", 1, (Sharer("alt"), Sharer("dev", 3, (Sharer("little"), Sharer("big", 9)))))


def test_tables_and_text_say_the_same() -> None:
    tables: dict[str, Any] = {"alt": 1, "dev": {"weight": 3, "users": {"little": 1, "big": {"weight": 9}}}}
    assert parse_shares(tables) == TREE
    for text in ("alt:1+dev:3(little:1+big:9)", "alt + dev : 3 ( little + big:9 )"):
        assert parse_shares_text(text) == TREE
    assert parse_shares_text("a+b") == equal_users("a", "b")
    assert [leaf.name for leaf in TREE.leaves()] == ["alt", "little", "big"]
    assert parse_shares_text("a(b(c:2+d)+e)+f").members[0].members[0].members[0] == Sharer("c", 2)


@pytest.mark.parametrize(
    ("tables", "problem"),
    [
        ({}, "shares: names no user"),
        ([1], "shares: expected a table"),
        ({"a": 0}, "shares.a: 0 is not a weight"),
        ({"a": True}, "shares.a: True is not a weight"),
        ({"a": 1.5}, "shares.a: 1.5 is not a weight"),
        ({"a": {"wieght": 2}}, "shares.a.wieght: unknown key; did you mean 'weight'?"),
        ({"a": {"weight": -1}}, "shares.a.weight: -1 is not a weight"),
        ({"a": {"users": {"b": "x"}}}, "shares.a.users.b: 'x' is not a weight"),
        ({"a": {"users": {}}}, "shares.a.users: names no user"),
        ({"a": {"users": {"x": 1}}, "b": {"users": {"x": 1}}}, "shares: names the user 'x' twice"),
        ({"": 1}, "is not a name"),
        ({1: 1}, "1 is not a name"),
    ],
)
def test_wrong_tables_are_refused_by_their_place(tables: Any, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_shares(tables)
    assert problem in str(caught.value)


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "has nothing where a name belongs"),
        ("a+", "has nothing where a name belongs"),
        ("a:+b", "shares.a: '+' is not a weight"),
        ("a:x", "shares.a: 'x' is not a weight"),
        ("a:99999999999", "is not a weight"),
        ("a+a", "shares.a: is given twice"),
        ("a(b", "lacks a ')'"),
        ("a)", "has ')' where '+' or the end belongs"),
        ("a b", "has 'b' where '+' or the end belongs"),
        ("(a)", "has '(' where a name belongs"),
        ("a(" * 70 + "b" + ")" * 70, "lies deeper than"),
    ],
)
def test_wrong_texts_are_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_shares_text(text)
    assert problem in str(caught.value)
