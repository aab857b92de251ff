"""Metric paths: which are known, what they give, and in which unit."""

from __future__ import annotations

import pytest

from volery.core.errors import InputError
from volery.metrics import ConstraintLoad, Distribution, TotalLoad
from volery.reproduction.measures import InputMeasures, check_metric, constraint_statistics, unit, value

LOADS = (ConstraintLoad(0, 0.1, 0.2, 0.3, 0.4), ConstraintLoad(5, 0.3, 0.4, 0.5, 0.9))


@pytest.mark.parametrize("path", ["load.p99", "constraint_load.highest.mean", "constraint_load.c5.p95",
                                  "conflicts.waiting.mean"])  # fmt: skip
def test_metrics_of_the_input_are_known(path: str) -> None:
    assert check_metric(path, "here")


@pytest.mark.parametrize("path", ["delay_s.p50", "short.delay_s.p99", "counters.anything", "utilisation_mean",
                                  "slowdown.p50", "messages"])  # fmt: skip
def test_metrics_of_a_run_are_known(path: str) -> None:
    assert not check_metric(path, "here")


@pytest.mark.parametrize("path", ["load", "load.p98", "load.p99.x", "conflicts.waiting", "delay", "delay_s",
                                  "delay_s.p50.x", "digest", "short.delay"])  # fmt: skip
def test_what_is_no_metric_is_refused_at_its_place(path: str) -> None:
    with pytest.raises(InputError, match=r"^here: "):
        check_metric(path, "here")


def test_constraints_are_summed_up_statistic_by_statistic() -> None:
    found = constraint_statistics(LOADS)
    assert found["c5"]["p99"] == 0.9
    assert found["highest"] == {"mean": 0.3, "median": 0.4, "p95": 0.5, "p99": 0.9}
    assert found["lowest"]["p99"] == 0.4
    assert found["average"]["mean"] == pytest.approx(0.2)


def test_values_are_found_by_path() -> None:
    measures = InputMeasures(TotalLoad(0.1, 0.2, 0.3, 0.4), constraint_statistics(LOADS))
    assert value(measures, "load.median") == 0.2
    assert value(measures, "constraint_load.c0.mean") == 0.1


def test_a_distribution_of_nothing_has_no_value() -> None:
    empty = Distribution(0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0)
    measures = InputMeasures(TotalLoad(0, 0, 0, 0), {}, {"waiting": empty})
    assert value(measures, "conflicts.waiting.mean") is None


def test_units_follow_from_names() -> None:
    assert [unit(path) for path in ("delay_s.p50", "short.jrt_s.max", "load.p99", "counters.x", "tasks_per_cpu_s")] == [
        "s", "s", "%", "", "",
    ]  # fmt: skip
