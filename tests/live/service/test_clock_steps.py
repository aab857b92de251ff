"""The system's clock is set while tasks run: what is shown is how long they ran, not how far the clock was moved."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from tests.live.bench import LIMIT_S
from tests.live.loopback import MACHINES
from tests.live.serving import serving

from volery.cli.jobs import _span
from volery.core.events import JobDone
from volery.core.model import SECOND
from volery.live.client import Client
from volery.live.clock import AttemptTimes, monotonic_now_us, unix_now_us
from volery.live.config.constraints import Fleet
from volery.live.jobs import JobDescription
from volery.live.load import _Load
from volery.live.messages import TaskReport
from volery.live.service.reports import NodeTable
from volery.live.service.store import JobStore
from volery.live.status import JobStatus, TaskStatus
from volery.workload import load_trace

DAY_S = 86_400


@pytest.mark.parametrize("step_s", [-2 * DAY_S, -1, 2 * DAY_S])
def test_a_clock_that_is_set_while_a_job_runs_does_not_change_how_long_it_ran(
    step_s: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real, go = time.time_ns, tmp_path / "go"
    wait = f"until test -e {go}; do sleep 0.05; done"
    with serving(tmp_path) as (url, _), Client(url) as client:
        began = time.monotonic()
        job = client.submit({"command": wait, "tasks": 2})
        call = client.run(_wait_for, str(go))
        while client.job(job.id).running < 1:
            time.sleep(0.01)
        monkeypatch.setattr(time, "time_ns", lambda: real() + step_s * 1_000_000_000)
        go.touch()
        ended = job.result(LIMIT_S)
        assert call.result(LIMIT_S) == "here"
        took_us = (time.monotonic() - began) * SECOND
        statuses: list[JobStatus | TaskStatus] = [ended, *client.jobs(), *client.tasks(0), *client.tasks(1)]
        for status in statuses:
            assert status.ended_us is not None
            assert status.started_us is not None
            assert 0 <= status.ended_us - status.started_us <= took_us
            assert status.ran_us == status.ended_us - status.started_us


@pytest.mark.parametrize("step_s", [-2 * DAY_S, -1, 2 * DAY_S])
def test_a_clock_that_is_set_does_not_change_for_how_long_a_task_has_run(
    step_s: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    nodes, real = NodeTable({"node/0": 0}, Fleet(MACHINES, [1, 1]), set()), time.time_ns
    began = time.monotonic()  # before the other clock: between two readings another process may run
    began_us = unix_now_us() - 5 * SECOND
    first = TaskReport(1, 0, 0, "node/0", "running", began_us)
    nodes.report(first)
    monkeypatch.setattr(time, "time_ns", lambda: real() + step_s * 1_000_000_000)
    nodes.report(first)  # repeated, as after a lost acknowledgement
    nodes.report(TaskReport(2, 0, 0, "node/0", "running", unix_now_us()))
    ran_us, late_us = nodes.elapsed_us(1), nodes.elapsed_us(2)
    took_us = (time.monotonic() - began) * SECOND
    assert ran_us is not None
    assert late_us is not None
    assert 5 * SECOND <= ran_us + 10 <= 5 * SECOND + took_us + 20
    assert 0 <= late_us <= took_us
    nodes.report(TaskReport(1, 0, 0, "node/0", "finished", 9))
    assert nodes.elapsed_us(1) is None


@pytest.mark.parametrize("step_s", [-2 * DAY_S, 2 * DAY_S])
def test_a_clock_that_is_set_during_a_load_changes_no_measurement(step_s: int, monkeypatch: pytest.MonkeyPatch) -> None:
    client: Any = None
    load, real = _Load(client, load_trace("syn:1x2"), "sleep"), time.time_ns
    load._origin_us, load._jobs = monotonic_now_us(), {3: 0}
    load.records.trace.arrival_us[0] = 0
    start_us = unix_now_us()
    monkeypatch.setattr(time, "time_ns", lambda: real() + step_s * 1_000_000_000)
    for place, started_us in enumerate((start_us, unix_now_us())):  # one before the step, one after it
        load.take_in(TaskStatus(job=3, index=place, state="finished", started_us=started_us, ended_us=started_us + 100))
    load.take_in(
        JobStatus(
            id=3,
            name="",
            user="",
            state="done",
            tasks=2,
            submitted_us=start_us,
            started_us=start_us,
            ended_us=start_us + 100,
            revision=9,
        )
    )
    took_us = monotonic_now_us() - load._origin_us
    records = load.records
    for start, finish in zip(records.start_us, records.finish_us, strict=True):
        assert 0 <= start <= finish <= took_us + 200
    assert 0 <= records.answered_us[0] <= took_us + 200
    assert max(records.path) <= took_us


def _wait_for(path: str) -> str:
    while not Path(path).exists():
        time.sleep(0.01)
    return "here"


def test_an_attempt_ends_as_long_after_its_start_as_it_took() -> None:
    wall_us, monotonic_us = 1_000, 50
    times = AttemptTimes(lambda: wall_us, lambda: monotonic_us)
    one, other = ("node/0", 7, 0), ("node/0", 7, 1)
    assert times.at_unix_us(one, is_start=True) == 1_000
    wall_us, monotonic_us = -5_000, 80
    assert times.at_unix_us(other, is_start=True) == -5_000
    assert times.at_unix_us(one, is_start=False) == 1_030
    monotonic_us = 90
    assert times.at_unix_us(other, is_start=False) == -4_990
    assert times.at_unix_us(("node/0", 8, 0), is_start=False) == -5_000, "it was ended before it was started"
    assert not times._starts


def ended_job(path: Path, *steps: tuple[int, int | None], restart: bool = False) -> tuple[JobStatus, TaskStatus]:
    """A job whose start and end were taken in at these times, by the wall clock and by the monotonic one."""
    store = JobStore(path / "jobs.sqlite")
    store.begin(durable=False)
    store.insert(0, 0, JobDescription(command="true"), 1, [], 1_000)
    (start_us, start_mono_us), (end_us, end_mono_us) = steps
    store.take_in([TaskReport(0, 0, 0, "node/0", "running", start_us)], start_us, start_mono_us)
    store.commit()
    if restart:
        store.close()
        store = JobStore(path / "jobs.sqlite")
    store.begin(durable=False)
    store.take_in([TaskReport(0, 0, 0, "node/0", "finished", end_us), JobDone(0)], end_us, end_mono_us)
    store.commit()
    job, tasks = store.job(0), store.tasks(0, 0, 1)
    store.close()
    assert job is not None
    return job, tasks[0]


def test_a_job_ends_as_long_after_its_start_as_it_took(tmp_path: Path) -> None:
    job, task = ended_job(tmp_path, (2_000, 10), (-9_000, 40))
    assert (job.started_us, job.ended_us, job.ran_us) == (2_000, 2_030, 30)
    assert (task.started_us, task.ended_us) == (2_000, 2_000), "its host was started again with another clock"


def test_a_clock_that_was_set_back_while_the_api_was_down_makes_no_duration_negative(tmp_path: Path) -> None:
    job, _ = ended_job(tmp_path, (2_000, 10), (-9_000, 3), restart=True)
    assert (job.started_us, job.ended_us, job.ran_us) == (2_000, 2_000, 0)


def test_a_host_whose_clock_is_slow_starts_no_job_before_its_submission(tmp_path: Path) -> None:
    job, _ = ended_job(tmp_path, (-7_000, 10), (-6_000, 1_010))
    assert (job.submitted_us, job.started_us, job.ended_us) == (1_000, 1_000, 2_000)


def test_what_an_earlier_version_has_stored_is_shown_without_negative_durations() -> None:
    task = TaskStatus(job=0, index=0, state="finished", started_us=5 * SECOND, ended_us=2 * SECOND)
    assert (task.ran_us, _span(task)) == (0, "0.00 s")
    assert _span(TaskStatus(job=0, index=0, started_us=5)) == ""
