"""Differences are within a setting, paired by seed, first against the others."""

from __future__ import annotations

import msgspec
import pytest

from volery.metrics import RunSummary
from volery.study import compare
from volery.study.differences import differences


@pytest.fixture(scope="module")
def summary() -> RunSummary:
    return compare("megha", trace="syn:2x3", workers=25).runs[0]


def run(summary: RunSummary, seed: int, median_s: float) -> RunSummary:
    delay = msgspec.structs.replace(summary.delay_s, p50=median_s)
    return msgspec.structs.replace(summary, seed=seed, delay_s=delay, digest=f"{seed:064d}")


def test_the_first_is_compared_with_each_other_by_seed(summary: RunSummary) -> None:
    groups = {
        "a": [run(summary, 0, 1.0), run(summary, 1, 2.0)],
        "b": [run(summary, 1, 5.0), run(summary, 0, 4.0)],
        "c": [run(summary, 0, 1.0)],
    }
    found = {(d.a, d.b): d for d in differences([groups]) if d.quantity == "median delay"}
    assert set(found) == {("a", "b"), ("a", "c")}
    between = found["a", "b"]
    assert (between.a_mean, between.b_mean, between.difference.mean) == (1.5, 4.5, -3.0)
    assert between.difference.verdict == "lower"
    assert between.difference.seeds == 2
    assert found["a", "c"].difference.seeds == 1


def test_settings_are_not_mixed(summary: RunSummary) -> None:
    settings = [{"a": [run(summary, 0, 1.0)], "b": [run(summary, 0, 2.0)]}, {"c": [run(summary, 0, 9.0)]}]
    assert {(d.a, d.b) for d in differences(settings)} == {("a", "b")}


def test_classes_that_are_not_told_apart_are_left_out(summary: RunSummary) -> None:
    groups = {"a": [summary], "b": [summary]}
    assert {(d.jobs, d.quantity) for d in differences([groups])} == {
        ("all", "median delay"), ("all", "mean delay"), ("all", "p99 delay"), ("all", "mean utilisation"),
    }  # fmt: skip
