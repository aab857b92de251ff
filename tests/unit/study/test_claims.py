"""Claims: which verdict follows from which values, and how cases add up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.study.claims import DIFFERS, REPRODUCED, UNDECIDED, Claim, Lookup, Missing, Side, decide, judge

P50 = "delay_s.p50"


def claim(relation: Any, right: float | Side = 10.0, of: Any = "a", **more: Any) -> Claim:
    return Claim("id", "6", "says", "10", Side(P50, of), relation, right, **more)


def lookup(values: Mapping[tuple[str, str, str], Sequence[float]], missing: str = "") -> Lookup:
    def found(metric: str, of: str, on: str, population: str) -> Sequence[float] | Missing:
        assert metric == P50
        key = (of, on, population)
        return values[key] if key in values else Missing(missing)

    return found


@pytest.mark.parametrize(
    ("relation", "values", "verdict"),
    [
        ("<", [8, 9, 9.5], REPRODUCED),
        ("<", [10, 10, 10], DIFFERS),
        ("<", [9, 10, 11], UNDECIDED),
        ("<", [10, 9, 9], UNDECIDED),
        ("<=", [10, 10, 10], REPRODUCED),
        ("<=", [11, 12, 13], DIFFERS),
        (">", [11, 12, 13], REPRODUCED),
        (">", [10, 10, 10], DIFFERS),
        (">=", [10, 10, 12], REPRODUCED),
        (">=", [8, 9, 9.5], DIFFERS),
        (">=", [9, 12, 13], UNDECIDED),
    ],
)
def test_an_inequality_is_decided_by_the_interval_over_seeds(relation: str, values: list[float], verdict: str) -> None:
    assert decide(values, [10.0] * 3, claim(relation)) == verdict


@pytest.mark.parametrize(
    ("values", "verdict"),
    [([9.5, 10, 10.5], REPRODUCED), ([8, 8, 8.5], DIFFERS), ([12, 12, 13], DIFFERS), ([8, 10, 10], UNDECIDED)],
)
def test_within_needs_both_bounds(values: list[float], verdict: str) -> None:
    assert decide(values, [10.0] * 3, claim("within", percent=10.0)) == verdict


def test_the_tolerance_is_relative_to_the_right_side_and_loosens_an_inequality() -> None:
    assert decide([9.1] * 2, [10.0] * 2, claim(">=")) == DIFFERS
    assert decide([9.1] * 2, [10.0] * 2, claim(">=", percent=10.0)) == REPRODUCED
    assert decide([10.9] * 2, [10.0] * 2, claim("<=", margin=1.0)) == REPRODUCED
    assert decide([11.1] * 2, [10.0] * 2, claim("<=", margin=1.0)) == DIFFERS


def test_a_factor_multiplies_the_right_side() -> None:
    assert decide([99.0] * 2, [10.0] * 2, claim(">=", factor=10.0)) == DIFFERS
    assert decide([101.0] * 2, [10.0] * 2, claim(">=", factor=10.0)) == REPRODUCED


def test_equal_numbers_reached_by_other_sums_are_equal() -> None:
    assert decide([0.1 + 0.2] * 2, [0.3] * 2, claim("<=")) == REPRODUCED


def test_values_are_paired_by_seed_so_that_a_steady_order_shows_through_a_wide_spread() -> None:
    assert decide([1.0, 100.0, 1000.0], [2.0, 101.0, 1001.0], claim("<")) == REPRODUCED


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=4), st.floats(0, 1e6))
def test_a_relation_and_its_opposite_are_never_both_reproduced(values: list[float], bound: float) -> None:
    right = [bound] * len(values)
    assert {decide(values, right, claim("<")), decide(values, right, claim(">="))} != {REPRODUCED}


@given(st.lists(st.floats(0.1, 1e6), min_size=1, max_size=4), st.floats(0.1, 1e6), st.floats(0, 50))
def test_more_tolerance_never_turns_reproduced_into_anything_else(
    values: list[float], bound: float, percent: float
) -> None:
    right = [bound] * len(values)
    tight = decide(values, right, claim("within", percent=percent))
    if tight == REPRODUCED:
        assert decide(values, right, claim("within", percent=percent + 10)) == REPRODUCED


def test_one_clear_counterexample_refutes_a_claim_over_several_populations() -> None:
    values = {("a", "w", "p"): [1.0, 2.0], ("a", "w", "q"): [20.0, 21.0]}
    judged = judge(claim("<"), ["w"], ["p", "q"], lookup(values))
    assert (judged.verdict, judged.why) == (DIFFERS, "in 1 of 2 cases (w)")
    assert [case.verdict for case in judged.cases] == [REPRODUCED, DIFFERS]


def test_what_is_missing_makes_a_claim_undecided_and_says_what() -> None:
    judged = judge(claim("<"), ["w"], ["p"], lookup({}, "trace x is not here"))
    assert (judged.verdict, judged.why) == (UNDECIDED, "trace x is not here")


def test_what_is_missing_on_one_workload_does_not_hide_a_counterexample_on_another() -> None:
    judged = judge(claim("<"), ["here", "gone"], ["p"], lookup({("a", "here", "p"): [20.0, 21.0]}, "gone"))
    assert judged.verdict == DIFFERS


def test_a_claim_that_fails_on_a_stand_in_alone_is_not_refuted() -> None:
    values = {("a", "slice", "p"): [20.0, 21.0]}
    judged = judge(claim("<"), ["slice"], ["p"], lookup(values), stand_ins={"slice": "the whole trace"})
    assert (judged.verdict, judged.why) == (UNDECIDED, "the whole trace is not here, and it does not hold on slice")


def test_a_claim_that_holds_on_a_stand_in_is_reproduced_with_a_remark() -> None:
    values = {("a", "slice", "p"): [2.0, 3.0]}
    judged = judge(claim("<"), ["slice"], ["p"], lookup(values), stand_ins={"slice": "the whole trace"})
    assert (judged.verdict, judged.why) == (REPRODUCED, "on slice in place of the whole trace")


def test_a_claim_may_speak_of_one_population_alone() -> None:
    values = {("a", "w", "p"): [1.0, 2.0], ("a", "w", "q"): [20.0, 21.0]}
    assert judge(claim("<", populations=("p",)), ["w"], ["p", "q"], lookup(values)).verdict == REPRODUCED


def test_a_published_average_over_populations_is_held_against_ours() -> None:
    values = {("a", "w", "p"): [3.0, 1.0], ("a", "w", "q"): [17.0, 19.0]}
    averaged = judge(claim("within", percent=1.0, averaged=True), ["w"], ["p", "q"], lookup(values))
    assert averaged.verdict == REPRODUCED
    assert [case.left.mean for case in averaged.cases if case.left] == [10.0]
    assert judge(claim("within", percent=1.0), ["w"], ["p", "q"], lookup(values)).verdict == DIFFERS
    half = judge(claim("within", percent=1.0, averaged=True), ["w"], ["p", "gone"], lookup(values, "not here"))
    assert (half.verdict, half.why) == (UNDECIDED, "not here")


def test_a_claim_about_two_workloads_is_one_case_per_population() -> None:
    values = {("a", "v", "p"): [1.0, 1.0], ("a", "w", "p"): [2.0, 2.0]}
    both = Claim("id", "6", "says", "", Side(P50, "a", "v"), "<", Side(P50, "a", "w"))
    judged = judge(both, ["v", "w"], ["p"], lookup(values))
    assert judged.verdict == REPRODUCED
    assert len(judged.cases) == 1


def test_architectures_are_held_against_each_other_in_pairs() -> None:
    both = claim("<", Side(P50, ("c", "d")), of=("a", "b"))
    assert both.pairs() == [("a", "c"), ("b", "d")]
    assert claim("<", Side(P50, "c"), of=("a", "b")).pairs() == [("a", "c"), ("b", "c")]
    assert claim("<", of=("a", "b")).pairs() == [("a", ""), ("b", "")]


def test_nothing_measured_is_not_decidable() -> None:
    assert judge(claim("<"), [], [], lookup({})).verdict == UNDECIDED
