"""Models of estimates: what schedulers are told changes, and nothing else does."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.trace import Trace
from volery.workload import load_trace, with_estimates
from volery.workload.columns import job_means, view

SPEC = "poisson:fanout=3,mean=10,jobs=2000"


def told_us(trace: Trace, job: int) -> tuple[int, int]:
    """The estimate of a job, and of its first task, as a scheduler receives them."""
    submit = trace.submission(job)[0]
    assert isinstance(submit, Submit)
    return submit.job.estimate_us, submit.job.tasks[0].estimate_us


def test_the_default_changes_nothing() -> None:
    trace = load_trace(SPEC)
    assert with_estimates(trace, "mean", 0) is trace
    assert trace.digest() == load_trace(SPEC).digest()


def test_lognormal_errors_have_their_spread_and_an_exact_median() -> None:
    trace = load_trace(SPEC)
    found = with_estimates(trace, "lognormal:0.5", 0)
    errors = np.log(view(found.told_estimate_us) / job_means(view(trace.duration_us), view(trace.first)))
    assert np.median(errors) == pytest.approx(0, abs=0.05)
    assert errors.std() == pytest.approx(0.5, rel=0.05)
    assert told_us(found, 7) == (found.told_estimate_us[7],) * 2


def test_the_f_model_never_asks_for_less_than_the_mean_and_at_most_for_so_many_times_more() -> None:
    trace = load_trace(SPEC)
    found = with_estimates(trace, "f:3", 0)
    factors = view(found.told_estimate_us) / job_means(view(trace.duration_us), view(trace.first))
    assert factors.min() >= 1 - 1e-6
    assert factors.max() <= 4 + 1e-6
    assert factors.mean() == pytest.approx(2.5, rel=0.05)


def test_errors_come_from_a_stream_of_their_own_and_leave_jobs_in_their_class() -> None:
    trace = load_trace(SPEC, seed=4)
    first, again, other = (with_estimates(trace, "lognormal:1", seed) for seed in (4, 4, 5))
    assert first.digest() == again.digest() != other.digest()
    assert first.estimate_us == trace.estimate_us
    assert first.duration_us == trace.duration_us
    assert first.arrival_us == trace.arrival_us


def test_exact_estimates_are_per_task() -> None:
    trace = with_estimates(load_trace(SPEC), "exact", 0)
    assert told_us(trace, 0)[1] == trace.duration_us[0]


def test_requested_times_are_those_of_the_log_and_refused_where_it_has_none(tmp_path: Path) -> None:
    rows = [f"{n} {60 * n} 0 100 1 -1 -1 1 3600 -1 1 1 1 1 1 -1 -1 -1" for n in range(1, 4)]
    log = tmp_path / "log.swf"
    log.write_text("; Version: 2.2\n" + "\n".join(rows) + "\n")
    trace = with_estimates(load_trace(log), "requested", 0)
    assert told_us(trace, 0) == (3_600_000_000, 3_600_000_000)
    with pytest.raises(InputError, match=r"estimates: the trace .* has no requested times; give mean"):
        with_estimates(load_trace(SPEC), "requested", 0)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lognormal", "'lognormal' needs a number from 0 to 10; for example lognormal:0.5"),
        ("lognormal:nan", "needs a number from 0 to 10"),
        ("f:-1", "needs a number from 0 to 1000"),
        ("f:inf", "needs a number from 0 to 1000"),
        ("exakt", "there is no 'exakt'; did you mean 'exact'"),
        ("mean:1", "there is no 'mean:1'"),
    ],
)
def test_another_model_is_refused(text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        with_estimates(load_trace("syn:2x2"), text, 0)
