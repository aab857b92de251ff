"""Words for values and claims: units, ranges, ratios, names only where they tell something apart."""

from __future__ import annotations

import pytest

from experiments.claims import Claim, Side
from experiments.judgement import Missing, Scope, Values, judge
from experiments.notation import amount, claim_text, ours, spread, verdict
from volery.look.text import NOTHING, TIMES
from volery.statistics import InterimLook

P50 = "delay_s.p50"


@pytest.mark.parametrize(
    ("metric", "number", "text"),
    [
        (P50, 0.0015, "1.50 ms"),
        (P50, 507.74, "508 s"),
        (P50, 45402.0, "45,402 s"),
        ("utilisation_mean", 0.123, "12.3 %"),
        ("counters.inconsistencies", 1892.0, "1,892"),
        ("delay_s.count", 1000.0, "1,000"),
    ],
)
def test_values_carry_their_unit(metric: str, number: float, text: str) -> None:
    assert amount(metric, number) == text


def test_a_range_is_told_only_where_there_is_one() -> None:
    assert spread(P50, 1.0, 1.0, 1.001) == "1.00 s"
    assert spread(P50, 2.0, 1.0, 3.0) == "2.00 s (1.00 s to 3.00 s)"


def test_a_claim_is_written_as_its_inequality() -> None:
    against = Side(P50, ("m", "n"))
    bound = Claim("c", "6", "s", "p", Side(P50, ("p", "q")), ">=", against, factor=10.0, percent=5.0)
    assert claim_text(bound) == f"delay_s.p50 of p, q >= 10 {TIMES} that of m, n ± 5 %"
    assert (
        claim_text(Claim("c", "6", "s", "p", Side("load.p99", on="w"), ">", 1.0))
        == "load.p99 on w > 100 % by 5 % and more"
    )
    sign = Claim("c", "6", "s", "p", Side("counters.x", "m"), ">", 0.0)
    assert claim_text(sign) == "counters.x of m > 0"
    less = Claim("c", "6", "s", "p", Side(P50, "m"), "<", Side(P50, "n"), effect=2.0)
    assert claim_text(less) == "delay_s.p50 of m < that of n by 2 % and more"
    number = Claim("c", "6", "s", "p", Side(P50, "m"), "about", 1.003, printed="1.003")
    assert claim_text(number) == "delay_s.p50 of m about 1.00 s ± 20 %"
    medians = Claim("c", "6", "s", "p", Side("delay_s.p99", "m"), "within", Side(P50, "m"), margin=1.0)
    assert claim_text(medians) == "delay_s.p99 of m within delay_s.p50 of m ± 1.00 s"
    shares = Claim("c", "6", "s", "p", Side("settled.load", "m"), "within", "mm1_wait(x=1)", percent=2.0, margin=0.01)
    assert claim_text(shares) == "settled.load of m within mm1_wait(x=1) ± 2 % + 1 percentage points"


def test_ours_names_what_differs_between_its_values_and_gives_both_sides() -> None:
    values = {("a", "v"): [0.002], ("a", "w"): [0.004], ("b", "v"): [0.001], ("b", "w"): [1.0]}
    claim = Claim("c", "6", "s", "p", Side(P50, "a"), "<", Side(P50, "b"))
    scope = Scope(["v", "w"], ["p"], [0], [InterimLook(1)])
    [judged] = judge(claim, scope, lambda _metric, of, on, _population: Values({0: values[of, on][0]}, False))
    assert ours(claim, judged) == [f"v: 2.00 ms against 1.00 ms, 2.00{TIMES}", "w: 4.00 ms against 1.00 s, 1/250"]
    assert verdict(judged) == "differs: in 1 of 2 cases (v)"


def test_nothing_measured_is_a_dash() -> None:
    claim = Claim("c", "6", "s", "p", Side(P50, "a"), "<", 1.0)
    [judged] = judge(claim, Scope(["v"], ["p"], [0], [InterimLook(1)]), lambda *_: Missing("trace v is not here"))
    assert ours(claim, judged) == [NOTHING]
    assert verdict(judged) == "not decidable: trace v is not here"
