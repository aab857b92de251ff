"""Utility expressions and their text: what is written reads back, and what is wrong is named by line and column."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from tests.unit.architectures.tetrisched.drawn import each, either, expressions, lncks, ncks, together

from volery.architectures.tetrisched.expressions import (
    DEPTH_MAX,
    WIDTH,
    Expression,
    Max,
    NCk,
    from_json,
    parse,
    worth,
    written,
)
from volery.core.errors import InputError

SETS = {"all": 0b111, "a": 0b011, "b": 0b110}


@given(expressions())
def test_what_is_written_reads_back_as_it_was(node: Expression) -> None:
    assert parse(written(node)) == node
    assert from_json(msgspec.json.encode(node)) == node


def test_long_expressions_are_written_over_lines() -> None:
    node = either(*(ncks(f"rack{rack}", 8, 1000.0, 0, 4) for rack in range(9)))
    assert max(map(len, written(node).splitlines())) <= WIDTH
    assert parse(written(node)) == node


def test_comments_and_white_space_are_free() -> None:
    text = "max( # the racks\n  nCk(rack1+rack2, 8, 4),\n\tnCk(all,8,0,2,2.5) )"
    assert parse(text) == either(ncks("rack1+rack2", 8, 4.0), ncks("all", 8, 2.5, 0, 2))


@pytest.mark.parametrize(
    ("text", "place", "problem"),
    [
        ("max(nCk(all, 2, 1),\n    scal(nCk(all, 2, 1), 2))", "2:5", "'scal' is no operator; did you mean 'scale'?"),
        ("nCk(all, 2, 1", "1:14", "')' is expected here (closing nCk), not the end"),
        ("nCk(all, 2.5, 1)", "1:10", "2.5 is no whole number"),
        ("nCk(all, 2, 1, 1)", "1:10", "3 numbers stand here; write nCk(SETS, k, value)"),
        ("nCk(all, 0, 1)", "1:1", "k is at least 1"),
        ("nCk(2, 1)", "1:5", "the name of a set of machines is expected here, not '2'"),
        ("scale(nCk(all, 1, 1))", "1:21", "scale takes an expression and a number"),
        ("max()", "1:5", "an expression, as nCk(all, 2, 1) is expected here, not ')'"),
        ("nCk(all, 1, 1) nCk", "1:16", "nothing more is expected here, not 'nCk'"),
        ("nCk(all, 1, -1)", "1:13", "'-' has no meaning here"),
        ("nCk(all, 1, 0, 0, 3)", "1:1", "duration 0"),
        ("", "1:1", "is expected here, not the end"),
        ("max(" * (DEPTH_MAX + 1), "1:257", f"more than {DEPTH_MAX} levels"),
    ],
)
def test_what_is_wrong_is_named_by_line_and_column(text: str, place: str, problem: str) -> None:
    with pytest.raises(InputError) as error:
        parse(text, "job.strl")
    assert error.value.place == f"job.strl:{place}"
    assert problem in error.value.problem


@pytest.mark.parametrize(
    ("text", "place"),
    [
        ('{"op":"max","of":[{"op":"nCk","where":["all"],"k":0,"value":1}]}', "$.of[0]"),
        ('{"op":"most","of":[]}', "$"),
        ('{"op":"nCk","where":["all"],"k":1}', "$"),
        ("{", "$"),
    ],
)
def test_wrong_json_is_named_by_its_place(text: str, place: str) -> None:
    with pytest.raises(InputError) as error:
        from_json(text)
    assert error.value.place.startswith(f"STRL {place}")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("LnCk(all, 4, 8)", 6.0),  # S4
        ("barrier(LnCk(all, 4, 8), 7)", 0.0),
        ("barrier(LnCk(all, 4, 8), 6)", 6.0),
        ("scale(nCk(all, 3, 2), 25)", 50.0),
        ("nCk(all, 2, 5)", 0.0),  # exactly k
        ("min(nCk(a, 2, 5), nCk(b, 2, 3))", 3.0),  # children of one job may count the same machine
        ("sum(nCk(a, 2, 5), nCk(b, 2, 3), nCk(b, 1, 9))", 8.0),
        ("max(nCk(all, 1, 9), LnCk(b, 4, 8))", 4.0),
    ],
)
def test_worth_of_machines_that_are_given_now(text: str, expected: float) -> None:
    """alsched (SoCC 2012): primitives and operators over what is allocated."""
    assert worth(parse(text), 0b111, SETS) == expected


def test_an_unknown_set_is_refused_with_a_suggestion() -> None:
    with pytest.raises(InputError, match="there is no set 'al' of machines; did you mean 'all'"):
        worth(ncks("al", 1, 1.0), 1, SETS)


def test_builders_say_the_same_as_the_text() -> None:
    built = each(together(ncks("a", 1, 5.0), lncks("b", 2, 3.0)), either(ncks("all", 1, 2.0, 3, 4)))
    assert parse("sum(min(nCk(a, 1, 5), LnCk(b, 2, 3)), max(nCk(all, 1, 3, 4, 2)))") == built


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -1.0])
def test_values_are_finite_and_not_negative(value: float) -> None:
    with pytest.raises(ValueError, match="finite and at least 0"):
        NCk(("all",), 1, value)
    with pytest.raises(ValueError, match="at least one expression"):
        Max(())
