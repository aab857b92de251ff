"""The window of a run in which its queues have settled."""

from __future__ import annotations

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.study.steadystate import SettledWindow, settle

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
