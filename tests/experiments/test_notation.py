"""Words for values and claims: units, ranges, ratios, names only where they tell something apart."""

from __future__ import annotations

import pytest

from experiments.claims import Claim, Judgement, Side
from experiments.judgement import Missing, Scope, Values, judge
from experiments.notation import amount, bar, brief, claim_text, compared, metric_text, ours, spread, verdict
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


def judged_on(claim: Claim, values: dict[tuple[str, str], float]) -> Judgement:
    """The judgement of a claim on workloads and architectures with one value each."""
    workloads = list(dict.fromkeys(workload for workload, _ in values))
    scope = Scope(workloads, ["p"], [0], [InterimLook(1)])
    [judgement] = judge(claim, scope, lambda _metric, of, on, _population: Values({0: values[on, of]}, is_random=False))
    return judgement


def test_values_in_few_words_have_no_ranges_and_of_many_cases_the_lowest_and_the_highest() -> None:
    number = Claim("c", "6", "s", "p", Side(P50, "m"), "<=", 2.0)
    assert brief(number, judged_on(number, {("w", "m"): 1.5})) == "1.50 s"
    assert brief(number, judged_on(number, {(f"w{k}", "m"): 1.0 + k for k in range(2)})) == "1.00 s [w0], 2.00 s [w1]"
    assert brief(number, judged_on(number, {(f"w{k}", "m"): 1.0 + k for k in range(5)})) == "1.00 s to 5.00 s"
    order = Claim("c", "6", "s", "p", Side(P50, "m"), "<", Side(P50, "n"))
    assert brief(order, judged_on(order, {("w", "m"): 1.0, ("w", "n"): 4.0})) == "1.00 s [m] against 4.00 s [n], 1/4.00"
    assert brief(order, judged_on(order, {("w", "m"): 1.0, ("w", "n"): 4.0}), is_ratio=True) == "m/n 1/4.00"
    many = {(f"w{k}", of): value for k in range(4) for of, value in (("m", 1.0 + k), ("n", 4.0))}
    assert brief(order, judged_on(order, many)) == f"m/n 1/4.00 to 1.00{TIMES}"
    zero = {("w", "m"): 0.0, ("w", "n"): 4.0, ("v", "m"): 1.0, ("v", "n"): 4.0}
    assert brief(order, judged_on(order, zero)) == "m/n 0 s against 4.00 s [w], 1.00 s against 4.00 s [v]"
    [missing] = judge(number, Scope(["w"], ["p"], [0], [InterimLook(1)]), lambda *_: Missing("gone"))
    assert brief(number, missing) == NOTHING


def test_several_values_say_which_is_which() -> None:
    pairs = Claim("c", "6", "s", "p", Side(P50, ("a_min", "a_rand")), "<", Side(P50, ("b_min", "b_rand")))
    values = {("w", "a_min"): 1.0, ("w", "a_rand"): 1.0, ("w", "b_min"): 2.0, ("w", "b_rand"): 4.0}
    assert brief(pairs, judged_on(pairs, values)) == "a/b 1/2.00 [min], 1/4.00 [rand]"
    longer = Claim("c", "6", "s", "p", Side(P50, ("a", "a_min")), "<", Side(P50, "b"))
    values = {("w", "a"): 1.0, ("w", "a_min"): 0.5, ("w", "b"): 2.0}
    assert brief(longer, judged_on(longer, values)) == "a/b 1/2.00, 1/4.00 [min]"
    longer = Claim("c", "6", "s", "p", Side(P50, ("a_1", "a_12")), "<", Side(P50, "b"))
    values = {("w", "a_1"): 1.0, ("w", "a_12"): 0.5, ("w", "b"): 2.0}
    assert brief(longer, judged_on(longer, values)) == "a/b 1/2.00 [1], 1/4.00 [12]"
    others = Claim("c", "6", "s", "p", Side(P50, ("a", "x")), "<", Side(P50, "b"))
    values = {("w", "a"): 1.0, ("w", "x"): 1.0, ("w", "b"): 2.0}
    assert brief(others, judged_on(others, values)) == "1/2.00"
    values = {("w", "a"): 1.0, ("w", "x"): 0.5, ("w", "b"): 2.0}
    assert brief(others, judged_on(others, values)) == "1/2.00 [a/b], 1/4.00 [x/b]"
    percentiles = Claim("c", "6", "s", "p", Side("short.jrt_s.p99", "m"), "<", Side("short.jrt_s.p50", "m"))
    text = brief(percentiles, judged_on(percentiles, {("w", "m"): 1.0}))
    assert text == f"1.00 s [short response p99] against 1.00 s [short response median], 1.00{TIMES}"


def test_a_metric_is_told_by_what_others_do_not_share() -> None:
    assert metric_text("short.jrt_s.p50") == "short response median"
    assert metric_text("short.jrt_s.p50", ["short.jrt_s.p50", "short.jrt_s.p99"]) == "median"
    assert metric_text("delay_s", ["delay_s", "delay_s.p99"]) == "delay"


def test_the_two_sides_of_one_comparison_are_told_with_their_names() -> None:
    order = Claim("c", "6", "s", "p", Side(P50, "one_queue"), "<", Side(P50, "n"))
    assert compared(order, judged_on(order, {("w", "one_queue"): 1.0, ("w", "n"): 4.0})) == [
        ("one queue", 1.0, "1.00 s"),
        ("n", 4.0, "4.00 s"),
    ]
    two = {("w", "one_queue"): 1.0, ("w", "n"): 4.0, ("v", "one_queue"): 1.0, ("v", "n"): 4.0}
    assert compared(order, judged_on(order, two)) == []
    number = Claim("c", "6", "s", "p", Side(P50, "m"), "<=", 2.0)
    assert compared(number, judged_on(number, {("w", "m"): 1.5})) == []


@pytest.mark.parametrize(
    ("share", "text"),
    [(1.0, "\u2588" * 4), (0.5, "\u2588" * 2), (0.28, "\u2588\u258f"), (0.001, "\u258f"), (0.0, " ")],
)
def test_a_bar_has_the_length_of_its_share_and_the_smallest_shows(share: float, text: str) -> None:
    assert bar(share, 4) == text
