"""Simulated models are measured under the names of their closed forms."""

from __future__ import annotations

import msgspec
import pytest

from volery import theory
from volery.core.errors import InputError
from volery.study.analytic_models import AnalysisPoint, DelayPoint, Model, simulate_delay, simulate_point

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


@pytest.mark.slow
def test_jobs_that_let_more_opportunities_pass_run_nearer_to_their_input() -> None:
    point = DelayPoint(workers=50, slots=2, jobs=5, fanout=40, skips=0, replicas=1, mean_ms=1000.0)
    greedy = simulate_delay(point, 200, seed=0)
    patient = simulate_delay(msgspec.structs.replace(point, skips=100), 200, seed=0)
    assert greedy["locality"] < patient["locality"] <= 1
    assert greedy["wait_ms"] < patient["wait_ms"]
