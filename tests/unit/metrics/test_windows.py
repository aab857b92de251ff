"""Measurement windows: jobs that were submitted within them count, and utilisation is over that time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.metrics import Window, check_moment, check_window, window_of, window_summary
from volery.metrics.arrays import Longs
from volery.metrics.windows import SettledWindow, settle
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


JOBS = {
    "submit_s": np.array([5.0, 6.0, 7.0, 8.0, 9.0]),
    "jrt_s": np.array([10.0, 10.0, 1.0015, 1.0025, 1.0015]),
    "delay_s": np.array([9.0, 9.0, 0.0015, 0.0025, 0.0015]),
    "wait_s": np.array([9.0, 9.0, 0.001, 0.003, 0.002]),
}
CURVE = {"time_s": np.array([5.0, 6.0, 7.0, 8.0, 9.0, 10.0]), "utilisation": np.array([0, 0, 0.6, 0.8, 0.1, 0.1])}
WINDOW = SettledWindow(warm_up_s=2.0, start_s=0.001, answer_s=0.0005)


def test_jobs_of_the_warm_up_and_the_time_after_the_last_submission_are_left_out() -> None:
    found = settle(JOBS, CURVE, WINDOW, "run")
    assert found.jobs == 3
    assert found.load == pytest.approx(0.7)


def test_messages_are_no_queueing_and_a_short_task_may_wait_without_delaying_its_job() -> None:
    found = settle(JOBS, CURVE, WINDOW, "run")
    assert found.never_waits == pytest.approx(1 / 3)
    assert found.never_delayed == pytest.approx(2 / 3)
    assert found.delay_s == pytest.approx(0.0055 / 3)
    assert found.queueing_s == pytest.approx(0.001 / 3)


def test_a_warm_up_as_long_as_the_run_and_jobs_without_an_end_are_refused() -> None:
    with pytest.raises(InputError, match=r"no job was submitted after 4 s of warm-up"):
        settle(JOBS, CURVE, SettledWindow(warm_up_s=4.0), "run")
    with pytest.raises(InputError, match="did not finish"):
        settle(JOBS | {"jrt_s": np.full(5, -1e-6)}, CURVE, WINDOW, "run")


def test_jobs_that_are_faster_than_the_trace_have_finished() -> None:
    found = settle(JOBS | {"delay_s": np.full(5, -0.5)}, CURVE, WINDOW, "run")
    assert found.delay_s == pytest.approx(-0.5)
