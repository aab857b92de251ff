"""What the published simulators do to a trace, as switches."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.core.workflows import check_workflows, with_parents
from volery.workload.quirks import apply_quirks, first_jobs, in_order, with_exact_estimates
from volery.workload.tr import read_tr


def one_task_jobs(arrivals: list[int]) -> Trace:
    """Job j runs for j microseconds, so that jobs can be told apart after a sort."""
    count = len(arrivals)
    numbers = array("q", range(count))
    users = tuple(f"u{j}" for j in range(count))
    return Trace("t", array("q", arrivals), array("q", range(count + 1)), numbers, numbers, numbers, users)


def test_whole_seconds_cut_durations_and_leave_the_estimate(tmp_path: Path) -> None:
    path = tmp_path / "t.tr"
    path.write_text("0 3 1.633333 0.9 1 3.999999\n")
    trace = read_tr(path, durations="whole-seconds")
    assert trace.duration_us.tolist() == [0, 1_000_000, 3_000_000]
    assert trace.estimate_us.tolist() == [1_633_333]


def test_dephasing_moves_the_kth_equal_arrival_by_k_times_ten_milliseconds() -> None:
    trace = apply_quirks(one_task_jobs([0, 0, 0, 5, 7_000_000, 7_000_000]), "exact", "dephased")
    assert sorted(trace.arrival_us) == [0, 5, 10_000, 20_000, 7_000_000, 7_010_000]


def test_a_job_that_is_moved_past_another_comes_after_it() -> None:
    """The moved job does not itself count as an arrival that others equal."""
    trace = apply_quirks(one_task_jobs([0, 0, 4_000, 10_000]), "exact", "dephased")
    assert trace.arrival_us.tolist() == [0, 4_000, 10_000, 10_000]
    assert trace.duration_us.tolist() == [0, 2, 1, 3]
    assert trace.user == ("u0", "u2", "u1", "u3")


@given(st.lists(st.integers(0, 50_000), min_size=1, max_size=40).map(sorted))
def test_dephasing_agrees_with_the_dictionary_of_the_published_simulators(arrivals: list[int]) -> None:
    """They keep, per original arrival, the last moved one, and add 10 ms to it."""
    moved: dict[int, int] = {}
    expected = []
    for at in arrivals:
        moved[at] = moved[at] + 10_000 if at in moved else at
        expected.append(moved[at])
    trace = apply_quirks(one_task_jobs(arrivals), "exact", "dephased")
    assert sorted(zip(trace.arrival_us, trace.duration_us, strict=True)) == sorted(
        zip(expected, range(len(expected)), strict=True)
    )
    assert list(trace.arrival_us) == sorted(trace.arrival_us)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 4)), min_size=1, max_size=30))
def test_ordering_is_a_stable_sort_of_whole_jobs(shape: list[tuple[int, int]]) -> None:
    first = array("q", [0])
    for _, size in shape:
        first.append(first[-1] + size)
    tasks = array("q", range(first[-1]))
    numbers = array("q", range(len(shape)))
    trace = in_order(Trace("t", array("q", [at for at, _ in shape]), first, tasks, numbers, tasks))
    expected = sorted(range(len(shape)), key=lambda j: shape[j][0])
    assert trace.estimate_us.tolist() == expected
    for place, job in enumerate(expected):
        got = trace.duration_us[trace.first[place] : trace.first[place + 1]].tolist()
        assert got == list(range(first[job], first[job + 1]))
    assert trace.constraints == trace.duration_us


def test_the_first_jobs_are_a_trace_of_their_own() -> None:
    trace = one_task_jobs([0, 1, 2])
    cut = first_jobs(trace, 2)
    assert (cut.job_count, cut.task_count, len(cut.user), len(cut.constraints)) == (2, 2, 2, 2)
    assert cut.first.tolist() == [0, 1, 2]
    assert first_jobs(trace, 3) is trace
    assert first_jobs(trace, 99) is trace


def test_unknown_switches_are_refused_with_a_suggestion() -> None:
    trace = one_task_jobs([0])
    with pytest.raises(InputError, match=r"durations: .*did you mean 'whole-seconds'"):
        apply_quirks(trace, "whole-second", "exact")
    with pytest.raises(InputError, match=r"arrivals: .*did you mean 'dephased'"):
        apply_quirks(trace, "exact", "dephase")


def test_workflows_priorities_deadlines_and_limits_move_with_their_jobs() -> None:
    trace = trace_of("t", [9, 5, 7], [[1, 2], [3], [4, 5, 6]])
    trace = msgspec.structs.replace(trace, priority=array("q", [1, 2, 3]), deadline_us=array("q", [90, -1, 70]))
    trace = msgspec.structs.replace(trace, limit_us=array("q", [8, -1, 6]), partition=("a", "b", ""))
    trace = with_parents(trace, [(), (0,), (), (), (3,), (3, 4)])
    moved = in_order(trace)
    assert moved.duration_us.tolist() == [3, 4, 5, 6, 1, 2]
    assert [moved.parents_of(task) for task in range(6)] == [(), (), (1,), (1, 2), (), (4,)]
    assert (moved.priority.tolist(), moved.deadline_us.tolist()) == ([2, 3, 1], [-1, 70, 90])
    assert (moved.limit_us.tolist(), moved.partition) == ([-1, 6, 8], ("b", "", "a"))
    check_workflows(moved)
    cut = first_jobs(moved, 2)
    assert [cut.parents_of(task) for task in range(4)] == [(), (), (1,), (1, 2)]
    assert (cut.priority.tolist(), cut.deadline_us.tolist(), cut.limit_us.tolist()) == ([2, 3], [-1, 70], [-1, 6])
    assert cut.partition == ("b", "")
    check_workflows(cut)
    check_workflows(first_jobs(moved, 1))


def test_exact_estimates_tell_schedulers_of_each_task_what_the_job_s_mean_hides() -> None:
    mean = with_parents(trace_of("t", [0, 5], [[1, 3], [7]], [[0, 2], [0]]), [(), (0,), ()])
    exact = with_exact_estimates(mean)
    assert [task.estimate_us for task in mean.tasks_of(0, range(2))] == [2, 2]
    assert [(task.estimate_us, task.constraints) for task in exact.tasks_of(0, range(2))] == [(1, 0), (3, 2)]
    assert [task.estimate_us for task in exact.tasks_of(0, [1])] == [3]
    assert exact.estimate_us == mean.estimate_us
    assert exact.digest() != mean.digest()


def apart() -> Trace:
    """Two jobs of two tasks, the second of which comes later; the second job arrives with the first."""
    trace = trace_of("apart", [10, 10], [[1, 2], [3, 4]])
    return msgspec.structs.replace(trace, submit_us=array("q", [10, 15, 10, 30]))


def test_tasks_that_come_late_move_with_their_jobs_and_keep_to_them() -> None:
    moved = apply_quirks(apart(), "exact", "dephased")
    assert moved.submit_us.tolist() == [10, 15, 10_010, 10_030]
    check_workflows(moved)
    turned = in_order(
        msgspec.structs.replace(apart(), arrival_us=array("q", [10, 0]), submit_us=array("q", [10, 15, 0, 30]))
    )
    assert turned.submit_us.tolist() == [0, 30, 10, 15]
    check_workflows(turned)
    assert first_jobs(apart(), 1).submit_us.tolist() == [10, 15]
