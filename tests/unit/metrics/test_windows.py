"""Measurement windows: jobs that were submitted within them count, and utilisation is over that time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.metrics import Window, check_moment, check_window, window_of, window_summary
from volery.metrics.columns import Longs
from volery.study.runs import execute
from volery.study.spec import RunSpec

SUBMITTED: Longs = np.array([5, 15, 25, 105], dtype=np.int64) * 1_000_000
BASE: dict[str, Any] = {"architecture": "oracle", "trace": "syn:4x21,duration=2", "workers": 10, "delay_us": 0}


def test_a_warm_up_ends_with_the_last_submission_and_a_window_has_both_bounds() -> None:
    assert window_of(SUBMITTED, 0.0, None) is None
    assert window_of(SUBMITTED, "10%", None) == Window(15_000_000, 105_000_000)
    assert window_of(SUBMITTED, 20, None) == Window(25_000_000, 105_000_000)
    found = window_of(SUBMITTED, 0.0, [10, "20%"])
    assert found == Window(15_000_000, 25_000_000)
    assert found.holds(SUBMITTED).tolist() == [False, True, True, False]
    told = window_summary(found, SUBMITTED)
    assert told is not None
    assert (told.begin_s, told.end_s, told.jobs) == (10.0, 20.0, 2)


@pytest.mark.parametrize("window", [[200, 300], [30, 60]])
def test_a_window_outside_the_trace_is_refused_with_what_the_trace_holds(window: list[float]) -> None:
    with pytest.raises(InputError, match=r"window: no job was submitted from .* submitted from 0 s to 100 s"):
        window_of(SUBMITTED, 0.0, window)


@pytest.mark.parametrize("value", [-1, 1e308, float("nan"), float("inf"), "10 percent", "200%", True, None])
def test_what_is_no_moment_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^here: .*is no moment; give seconds"):
        check_moment(value, "here")


@pytest.mark.parametrize("value", [[5], "5:6", [6, 5], [5, 5], ["90%", "10%"]])
def test_what_is_no_window_is_refused(value: Any) -> None:
    with pytest.raises(InputError, match=r"^here: .*\[from, to\]"):
        check_window(value, "here")


def test_jobs_outside_count_nowhere_and_utilisation_is_that_of_the_window() -> None:
    whole = execute(RunSpec(**BASE))
    steady = execute(RunSpec(**BASE, window=[5.0, 15.0]))
    assert whole.summary.window is None
    assert whole.jobs["counted"].all()
    assert steady.summary.digest == whole.summary.digest, "a window measures, and changes nothing"
    assert steady.summary.window is not None
    assert steady.summary.window.jobs == steady.summary.delay_s.count == int(steady.jobs["counted"].sum()) == 11
    assert steady.summary.allocation_s.total.count == 44
    assert steady.summary.utilisation_mean == pytest.approx(0.8), "4 tasks of 2 s a second on 10 slots"
    assert whole.summary.utilisation_mean == pytest.approx(21 * 8 / (10 * 22))
