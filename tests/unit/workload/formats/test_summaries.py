"""The Yahoo trace rebuilt from the public figures of its jobs, and the error of the rule."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.workload import describe, load_trace, load_workload, read_tr
from volery.workload.arrays import job_means, view
from volery.workload.formats.summaries import Jobs, Summary, read_summary

TRACES = Path(os.environ.get("VOLERY_TRACES", Path(__file__).resolve().parents[5] / "shared" / "traces"))
YAHOO = TRACES / "tr" / "YH_full_jobs_partial.csv.gz"
published = pytest.mark.skipif(not YAHOO.is_file(), reason="the published summary (../shared/traces/tr) is not here")
HEAD = "job_id,arrival_s,ntasks,mean_task_s,max_task_s_floor,ideal_completion_s,source\n"


def test_an_arrival_is_never_later_than_the_end_of_a_later_job(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEAD + "1,0,2,1.5,2,2,a\n2,10,1,3.25,3,13,a\n3,,,,,24,b\n4,,,,,23,b\n5,,,,,22,b\n")
    assert Jobs(read_summary(path)).arrival_s.tolist() == [0, 10, 20, 22, 22]
    assert [view(load_trace(path, job_count=n).arrival_us)[-1] for n in (1, 3)] == [0, 20_000_000]


def test_too_few_complete_jobs_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "jobs.csv"
    path.write_text(HEAD + "1,0,2,1.5,2,2,a\n2,10,,3.25,3,13,a\n")
    with pytest.raises(InputError, match=r"jobs\.csv: has 1 jobs with arrival, mean and number of tasks; give two"):
        load_workload(path)


@published
def test_the_rebuilt_yahoo_trace_has_the_published_figures() -> None:
    """Pigeon, table 1: 24,262 jobs, 968,335 tasks, mean 118.78 s, longest 21,259.9 s; Hawk: 98.3 % in long jobs."""
    trace = load_trace(YAHOO)
    d = describe(trace, 10_000, 90.5811)
    assert (d.jobs, d.tasks) == (24_262, 945_638)
    assert d.tasks == pytest.approx(968_335, rel=0.025)
    assert view(trace.estimate_us).mean() / 1e6 == pytest.approx(118.78, rel=0.001)
    assert d.duration_max_s == pytest.approx(21_259.9, abs=10)
    assert d.long is not None
    assert d.long.work_share == pytest.approx(0.983, abs=0.002)


@pytest.mark.slow
@published
def test_a_quarter_of_the_complete_jobs_from_the_others_keeps_tasks_and_work() -> None:
    """Each complete job once, as if its number of tasks were unknown; then as if its arrival were."""
    whole = read_summary(YAHOO)
    at = np.flatnonzero(whole.complete)
    tasks, work = 0.0, 0.0
    for k in range(4):
        hidden = whole.tasks.copy()
        hidden[at[k::4]] = np.nan
        drawn = Jobs(Summary(whole.arrival_s, hidden, whole.mean_s, whole.end_s)).tasks[at[k::4]]
        tasks += drawn.sum()
        work += (drawn * whole.mean_s[at[k::4]]).sum()
    assert tasks / whole.tasks[at].sum() == pytest.approx(0.97, abs=0.01)
    assert work / (whole.tasks * whole.mean_s)[at].sum() == pytest.approx(1.04, abs=0.01)
    arrival_s = whole.arrival_s.copy()
    arrival_s[at[1::2]] = np.nan
    late_s = Jobs(Summary(arrival_s, whole.tasks, whole.mean_s, whole.end_s)).arrival_s - whole.arrival_s
    assert np.abs(late_s[at]).max() < 1


@published
def test_the_spread_of_durations_in_a_job_is_a_quarter_above_that_of_known_tasks() -> None:
    spreads = []
    for trace in (read_tr(TRACES / "tr" / "YH1_sub.tr.gz"), load_trace(YAHOO, job_count=3_000)):
        first = view(trace.first)
        mean_us = job_means(view(trace.duration_us), first)
        square = np.add.reduceat(view(trace.duration_us).astype(float) ** 2, first[:-1]) / np.diff(first)
        many = np.diff(first) > 1
        spreads.append(np.median(np.sqrt(np.maximum(square[many] / mean_us[many] ** 2 - 1, 0))))
    assert spreads == pytest.approx([0.32, 0.40], abs=0.01)
