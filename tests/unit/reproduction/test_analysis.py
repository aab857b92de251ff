"""Closed forms as the right side of a claim."""

from __future__ import annotations

import msgspec
import pytest

from volery import theory
from volery.core.errors import InputError
from volery.reproduction.analysis import (
    AnalysisPoint,
    DelayPoint,
    Model,
    parse_analysis,
    simulate_delay,
    simulate_point,
)
from volery.reproduction.claims import Claim, Side
from volery.reproduction.judgement import Lookup, Missing, Scope, Values, judge
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


POINT = AnalysisPoint(load=0.5, workers=3, fanout=2, mean_ms=100.0, choices=2)


@pytest.mark.parametrize(
    ("model", "measures", "expected"),
    [
        ("mm1", ["wait_ms", "response_ms"], {"wait_ms": 1e3 * theory.mm1_wait(arrival_rate=5, service_mean=0.1)}),
        ("mmc", ["waits", "wait_ms"], {}),
        ("sparrow", ["job_never_waits"], {}),
        ("choices", ["response_ms", "wait_ms"], {}),
        (
            "pigeon",
            [
                "task_never_waits",
                "task_wait_ms",
                "job_never_waits_equal_tasks",
                "job_not_delayed_exponential_tasks",
            ],
            {"task_wait_ms": 1e3 * theory.pigeon_task_wait(3, 0.5, 0.1)},
        ),
    ],
)
def test_a_model_is_simulated_under_the_names_of_its_closed_forms(
    model: Model, measures: list[str], expected: dict[str, float]
) -> None:
    """3,000 tasks are too few for the closed form itself; twice or half of it would be another model."""
    found = simulate_point(model, POINT, 3000, seed=1)
    assert list(found) == measures
    for name, value in expected.items():
        assert value / 2 < found[name] < 2 * value
    assert all(0 <= value <= 1 for name, value in found.items() if not name.endswith("_ms"))


def test_nothing_is_simulated_without_load_and_delay_has_points_of_its_own() -> None:
    with pytest.raises(InputError, match="nothing arrives at load 0"):
        simulate_point("mm1", msgspec.structs.replace(POINT, load=0.0), 10, seed=0)
    with pytest.raises(ValueError, match="give a DelayPoint"):
        simulate_point("delay", POINT, 10, seed=0)


def test_jobs_that_let_more_opportunities_pass_run_nearer_to_their_input() -> None:
    point = DelayPoint(workers=50, slots=2, jobs=5, fanout=40, skips=0, replicas=1, mean_ms=1000.0)
    greedy = simulate_delay(point, 200, seed=0)
    patient = simulate_delay(msgspec.structs.replace(point, skips=100), 200, seed=0)
    assert greedy["locality"] < patient["locality"] <= 1
    assert greedy["wait_ms"] < patient["wait_ms"]
