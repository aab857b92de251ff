"""Designs that tell short jobs from long ones take the cutoff from their trace when none is given."""

from __future__ import annotations

from array import array
from pathlib import Path

from volery.core.trace import Trace
from volery.study import compare
from volery.workload import cutoff_of

SPREAD = "poisson:load=0.8,workers=40,fanout=4,mean=2,jobs=300"
DESIGNS = ("hawk", "eagle", "phoenix", "pigeon")


def test_ninety_percent_of_the_jobs_are_short_at_the_cutoff_of_a_trace() -> None:
    estimates = array("q", [1_000_000 * seconds for seconds in (5, 1, 2, 3, 4, 6, 7, 8, 100, 9)])
    trace = Trace("t", array("q", range(10)), array("q", range(11)), estimates, estimates)
    assert cutoff_of(trace) == 9.0
    assert sum(estimate <= 9_000_000 for estimate in estimates) == 9


def test_the_cutoff_of_a_trace_of_huge_tasks_is_one_that_designs_take() -> None:
    huge = array("q", [2_000_000_000 * 1_000_000] * 3)
    trace = Trace("t", array("q", range(3)), array("q", range(4)), huge, huge)
    assert cutoff_of(trace) == 1e9


def test_without_a_cutoff_some_jobs_are_long_for_designs_that_tell_them_apart(tmp_path: Path) -> None:
    """Under Google's cutoff no job of this trace is long, and their main mechanism is off."""
    results = compare(*DESIGNS, trace=SPREAD, workers=40, folder=tmp_path)
    google = compare(*(f"{name}:cutoff_s=1129.532" for name in DESIGNS), trace=SPREAD, workers=40)
    for taken, given in zip(results.runs, google.runs, strict=True):
        assert taken.cutoff_from_trace_s is not None
        assert 1 < taken.cutoff_from_trace_s < 10
        assert given.cutoff_from_trace_s is None
        assert taken.digest != given.digest
    stated = compare(f"hawk:cutoff_s={results.runs[0].cutoff_from_trace_s!r}", trace=SPREAD, workers=40)
    assert stated.runs[0].digest == results.runs[0].digest


def test_a_cutoff_that_is_given_is_taken_and_other_designs_have_none() -> None:
    runs = compare("hawk", "megha", trace=SPREAD, workers=40, cutoff_s=2.0).runs
    assert [run.cutoff_from_trace_s for run in runs] == [None, None]


def test_a_run_with_the_default_as_its_given_cutoff_is_another_run(tmp_path: Path) -> None:
    given, taken = compare("hawk:cutoff_s=1129.532", "hawk", trace=SPREAD, workers=40, folder=tmp_path).runs
    assert (given.cutoff_from_trace_s, taken.cutoff_from_trace_s is None) == (None, False)
    assert given.digest != taken.digest
