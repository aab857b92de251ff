"""Closed forms as the right side of a claim."""

from __future__ import annotations

import pytest

from experiments.claims import Claim, Side
from experiments.closed_forms import parse_analysis
from experiments.judgement import Lookup, Missing, Scope, Values, judge
from volery import theory
from volery.core.errors import InputError
from volery.statistics import InterimLook


def test_numbers_are_given_and_metrics_are_measured() -> None:
    found = parse_analysis("pigeon_task_wait(group_workers=50, load=settled.load, task_mean=0.1)", "here")
    assert found.measured == {"load": "settled.load"}
    assert found.expected({"settled.load": 0.9}) == pytest.approx(theory.pigeon_task_wait(50, 0.9, 0.1))


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("0.5", "is not FORM"),
        ("mm1_wait(", "is not FORM"),
        ("mm1_wait(0.5, 1.0)", "is not FORM"),
        ("math.exp(x=1)", "is not FORM"),
        ("mm2_wait(arrival_rate=1, service_mean=1)", "no closed form 'mm2_wait'; did you mean '"),
        ("mm1_wait(arrival_rate=1+1, service_mean=1)", "neither a number nor the path"),
        ("mm1_wait(arrival_rate='1', service_mean=1)", "neither a number nor the path"),
        ("mm1_wait(arrival_rate=1)", "missing a required argument"),
    ],
)
def test_what_is_no_call_of_a_closed_form_is_refused(text: str, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        parse_analysis(text, "here")


def claim(right: str) -> Claim:
    return Claim("c", "3", "says", "equal", Side("settled.queueing_s", "a"), "within", right, percent=1.0)


SCOPE = Scope(["w"], ["p"], [0, 1, 2], [InterimLook(3)])


def lookup_of(loads: list[float], waits: list[float]) -> Lookup:
    measured = {"settled.load": loads, "settled.queueing_s": waits}
    return lambda metric, *_: Values(dict(enumerate(measured[metric])))


def test_theory_is_worked_out_at_the_load_of_each_run() -> None:
    text = "mmc_wait(servers=1, arrival_rate=settled.load, service_mean=1)"
    loads = [0.5, 0.6, 0.7]
    waits = [theory.mm1_wait(load, 1.0) for load in loads]
    assert waits[0] == pytest.approx(1.0)
    [right] = judge(claim(text), SCOPE, lookup_of(loads, waits))
    assert right.verdict == "reproduced"
    assert right.cases[0].right is not None
    assert right.cases[0].right.of == "theory"
    assert right.cases[0].right.low == pytest.approx(waits[0])
    [wrong] = judge(claim(text), SCOPE, lookup_of(loads, [wait * 1.02 for wait in waits]))
    assert wrong.verdict == "differs"


def test_a_run_that_is_missing_leaves_the_claim_open() -> None:
    [found] = judge(claim("mm1_wait(arrival_rate=0.5, service_mean=1)"), SCOPE, lambda *_: Missing("not here"))
    assert (found.verdict, found.why) == ("not decidable", "not here")
