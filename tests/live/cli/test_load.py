"""A trace replayed against a federation: all of it runs, on time, and the lab's own table is filled."""

from __future__ import annotations

import json
from array import array
from pathlib import Path

import msgspec
import pytest
from tests.live.commands import volery
from tests.live.serving import serving

from volery import workload
from volery.cli.generator import federation_of, load_here, report_of
from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.model import NEVER, Task
from volery.live.load import Loaded, LoadProgress, sped_up
from volery.live.runtime.replay import journals
from volery.policies.queues import ConstraintQueue

CLOCK_US = 20_000
"""A timer is set by the time at which the loop's round began, and may fire that much early."""
SPEC = "poisson:load=0.9,workers=12,fanout=5,mean=0.05,jobs=30"


def replayed(folder: Path, spec: str = SPEC, architecture: str = "megha", speedup: float = 1.0) -> Loaded:
    trace = sped_up(workload.load_trace(spec), speedup)
    federation = federation_of(architecture, 12, 1, 2, 2, folder, 0)
    return load_here(federation, trace, "sleep", lambda _: None)


@pytest.mark.parametrize("architecture", ["megha", "pigeon"])
def test_every_task_of_the_trace_runs_for_its_own_duration(architecture: str, tmp_path: Path) -> None:
    loaded = replayed(tmp_path, architecture=architecture)
    records, trace = loaded.records, workload.load_trace(SPEC)
    assert (trace.job_count, trace.task_count) == (30, 150)
    for task, (start, finish) in enumerate(zip(records.start_us, records.finish_us, strict=True)):
        assert finish - start >= trace.duration_us[task] - CLOCK_US
    for job, (arrival, answered) in enumerate(zip(records.trace.arrival_us, records.answered_us, strict=True)):
        tasks = range(trace.first[job], trace.first[job + 1])
        assert min(records.start_us[task] for task in tasks) >= arrival
        assert max(records.finish_us[task] for task in tasks) <= answered
    assert [late >= 0 for late in loaded.late_us] == [True] * 30
    assert loaded.failed == 0


def test_the_parts_of_the_allocation_time_make_the_whole(tmp_path: Path) -> None:
    loaded = replayed(tmp_path)
    report = report_of(loaded, None, workload.load_trace(SPEC), "sleep", 1.0)
    parts = {name: found.mean for name, found in report.allocation_s.items()}
    total = parts.pop("total")
    assert sum(parts.values()) == pytest.approx(total)
    assert parts["processing"] > 0
    assert parts["framework_queueing"] > parts["processing"], "at a load of 0.9 tasks wait for workers"
    assert parts["communication"] == 0, "one host"


def test_speed_divides_all_times() -> None:
    trace = workload.load_trace(SPEC)
    fast = sped_up(trace, 4)
    for slow_column, fast_column in (
        (trace.arrival_us, fast.arrival_us),
        (trace.duration_us, fast.duration_us),
        (trace.estimate_us, fast.estimate_us),
    ):
        assert list(fast_column) == [round(value / 4) for value in slow_column]
    assert sped_up(trace, 1).arrival_us is not trace.arrival_us
    due = msgspec.structs.replace(trace_of("due", [0, 8], [[4], [4]]), deadline_us=array("q", [NEVER, 40]))
    assert sped_up(due, 4).deadline_us.tolist() == [NEVER, 10]


def test_workflows_are_refused() -> None:
    """Nobody holds tasks back here."""
    with pytest.raises(InputError, match=r"workflows run in the lab alone; .* --without-parents"):
        sped_up(workload.load_trace("workflow:chain,jobs=2"), 1)
    plain = trace_of("late", [0], [[1, 1]])
    with pytest.raises(InputError, match=r"its tasks wait or come late; workflows run in the lab alone; .*"):
        sped_up(msgspec.structs.replace(plain, submit_us=array("q", [0, 5])), 1)


def test_a_component_that_raises_ends_the_load(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def push(queue: ConstraintQueue, task: Task) -> None:
        raise RuntimeError("planted")

    monkeypatch.setattr(ConstraintQueue, "push", push)
    with pytest.raises(RuntimeError, match="planted"):
        replayed(tmp_path)


@pytest.mark.slow
def test_the_command_reports_progress_and_figures_and_keeps_the_journal(tmp_path: Path) -> None:
    words = ("load", "--trace", SPEC, "--nodes", "12", "--clusters", "2", "--jobs", "20", "-o", tmp_path / "kept")
    report = json.loads(volery(*words, "--speedup", "2", "--json"))
    assert (report["jobs"], report["tasks"], report["finished"], report["failed"]) == (20, 100, 100, 0)
    assert report["tasks_per_s"] == pytest.approx(100 / report["span_s"])
    assert [str(path) for path in journals(tmp_path / "kept" / "journal")] == [report["journal"]]
    volery("load", "--trace", SPEC, "--speedup", "0", status=2)
    volery("load", "--trace", "nothing.tr", status=2)


def test_progress_is_told_to_the_end(tmp_path: Path) -> None:
    told: list[LoadProgress] = []
    trace = workload.load_trace(SPEC)
    load_here(federation_of("megha", 12, 1, 2, 2, tmp_path, 0), trace, "sleep", told.append)
    assert told[-1] == LoadProgress(30, 30, 150)


def test_tasks_that_spin_are_processes(tmp_path: Path) -> None:
    trace = workload.load_trace("syn:2x2,duration=0.05,interval=0.1")
    loaded = load_here(federation_of("megha", 12, 1, 2, 2, tmp_path, 0), trace, "spin", lambda _: None)
    assert loaded.failed == 0
    assert min(end - start for start, end in zip(loaded.records.start_us, loaded.records.finish_us, strict=True)) > 0


@pytest.mark.parametrize("work", ["sleep", "spin"])
def test_a_running_federation_is_loaded_through_its_api(work: str, tmp_path: Path) -> None:
    with serving(tmp_path) as (url, _):
        words = ("load", "--trace", "syn:3x4,duration=0.05,interval=0.05", "--executor", work, "--api", url)
        report = json.loads(volery(*words, "--json"))
    assert (report["finished"], report["failed"], report["nodes"]) == (12, 0, 0)
    allocation = report["allocation_s"]
    assert 0 < allocation["communication"]["mean"] < allocation["total"]["mean"]


def test_nobody_at_the_address_is_a_mistake_of_the_input() -> None:
    volery("load", "--trace", "syn:1x1", "--api", "http://127.0.0.1:1", status=2)


@pytest.mark.slow
def test_a_rigid_job_of_a_log_is_one_task(tmp_path: Path) -> None:
    """Nobody starts gangs whole here."""
    log = tmp_path / "log.swf"
    log.write_text("; UnixStartTime: 0\n1 0 -1 0.1 4 -1 -1 -1 -1 -1 1 7 -1 -1 -1 -1 -1 -1\n")
    report = json.loads(volery("load", "--trace", log, "--nodes", "12", "--clusters", "2", "--json"))
    assert (report["jobs"], report["tasks"], report["finished"]) == (1, 1, 1)
