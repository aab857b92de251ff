"""Descriptions of traces, and pictures of load curves."""

from __future__ import annotations

from array import array
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.model import SECOND, Cluster
from volery.core.trace import Trace
from volery.core.workflows import with_parents
from volery.workload import constrain, describe, load_curve, synthesize
from volery.workload.description import (
    BLOCKS,
    LoadCurve,
    WorkflowShape,
    describe_constraints,
    draw_load_curve,
    sparkline,
)
from volery.workload.tr import scan_tr

SHAPES = st.lists(
    st.tuples(st.integers(0, 30), st.lists(st.integers(0, 40), min_size=1, max_size=4)), min_size=1, max_size=12
)


def made(jobs: list[tuple[int, list[int]]], unit_us: int = SECOND, constraints: list[int] | None = None) -> Trace:
    jobs = sorted(jobs, key=lambda job: job[0])
    first = array("q", [0])
    for _, durations in jobs:
        first.append(first[-1] + len(durations))
    return Trace(
        "t",
        array("q", [(at - jobs[0][0]) * unit_us for at, _ in jobs]),
        first,
        array("q", [d * unit_us for _, durations in jobs for d in durations]),
        array("q", [round(sum(durations) * unit_us / len(durations)) for _, durations in jobs]),
        array("q", constraints or []),
    )


def test_the_figures_of_a_small_trace_are_those_counted_by_hand() -> None:
    d = describe(made([(0, [2, 4]), (5, [10]), (10, [1, 1, 2])]), workers=2, cutoff_s=3.0)
    assert (d.jobs, d.tasks, d.fanout_mean, d.fanout_max) == (3, 6, 2.0, 3)
    assert (d.task_seconds, d.span_s, d.load) == (20.0, 10.0, 1.0)
    assert (d.duration_p50_s, d.duration_max_s) == (2.0, 10.0)
    assert d.duration_mean_s == pytest.approx(20 / 6)
    assert d.duration_p99_s == pytest.approx(9.7), "linear between the two longest, 4 and 10"
    assert d.peak_demand == 4
    assert d.short is not None
    assert (d.short.jobs, d.short.tasks, d.short.task_seconds) == (2, 5, 10.0)
    assert d.long is not None
    assert d.long.job_share == pytest.approx(1 / 3)
    assert d.long.task_share == pytest.approx(1 / 6)
    assert d.long.work_share == 0.5


def test_a_job_whose_mean_equals_the_cutoff_is_short() -> None:
    d = describe(made([(0, [3]), (1, [4])]), workers=1, cutoff_s=3.0)
    assert d.short is not None
    assert d.short.jobs == 1


def test_without_a_cutoff_there_are_no_classes_and_without_a_span_no_load() -> None:
    d = describe(made([(0, [1]), (0, [1])]), workers=1)
    assert (d.short, d.long, d.load, d.span_s) == (None, None, None, 0.0)


def test_work_of_nothing_is_described_too() -> None:
    d = describe(made([(0, [0]), (4, [0])]), workers=1, cutoff_s=1)
    assert (d.task_seconds, d.load, d.peak_demand, d.oddities.zero_durations) == (0.0, 0.0, 0, 2)
    assert d.short is not None
    assert d.short.work_share == 0
    assert load_curve(made([(0, [0])]), 1).running.max() == 0


@given(SHAPES)
def test_peak_demand_is_the_most_tasks_at_once(jobs: list[tuple[int, list[int]]]) -> None:
    trace = made(jobs)
    earliest = min(at for at, _ in jobs)
    moments = range(75)
    running = [sum(at - earliest <= t < at - earliest + d for at, ds in jobs for d in ds) for t in moments]
    assert describe(trace, 1).peak_demand == max(running)


@given(SHAPES, st.integers(1, 7))
def test_the_load_curve_conserves_work(jobs: list[tuple[int, list[int]]], workers: int) -> None:
    trace = made(jobs)
    curve = load_curve(trace, workers, points=9)
    widths = np.diff(curve.time_s)
    assert float((curve.arriving * widths).sum()) * workers == pytest.approx(sum(trace.duration_us) / SECOND)
    end_s = float(curve.time_s[-1])
    starts = trace.job_of_task()
    inside = sum(
        max(
            0.0,
            min(trace.arrival_us[starts[i]] / SECOND + trace.duration_us[i] / SECOND, end_s)
            - trace.arrival_us[starts[i]] / SECOND,
        )
        for i in range(trace.task_count)
    )
    assert float((curve.running * widths).sum()) * workers == pytest.approx(inside, abs=1e-6)


def test_the_load_curve_is_exact_in_each_interval() -> None:
    """One task of 5 s from 0, two of 1 s from 10, over intervals of 2.5 s on two workers."""
    curve = load_curve(made([(0, [5]), (10, [1, 1])]), workers=2, points=4)
    assert curve.time_s.tolist() == [0, 2.5, 5, 7.5, 10]
    assert curve.running.tolist() == [0.5, 0.5, 0, 0]
    assert curve.arriving.tolist() == [1.0, 0, 0, 0.4]


def test_oddities_are_counted(tmp_path: Path) -> None:
    path = tmp_path / "odd.tr"
    path.write_text("7 1 1 1\n7 2 1 0 2\n\n5 1 9 3\n8 3 1.000 1.001 1 1\n")
    trace, reading = scan_tr(path)
    odd = describe(trace, 1, None, reading).oddities
    assert (odd.equal_arrivals, odd.zero_durations, odd.unsorted_rows, odd.blank_lines) == (1, 1, 1, 1)
    assert odd.wrong_means == 1, "9 for 3; 1.000 for 1.000333 is within the digits that files hold"
    assert odd.first_arrival_s == 5.0
    synthetic = describe(synthesize("syn:1x1"), 1).oddities
    assert (synthetic.unsorted_rows, synthetic.blank_lines, synthetic.first_arrival_s) == (None, None, None)


def test_constraint_use_is_counted_against_the_machines() -> None:
    trace = made([(0, [1, 1]), (1, [1, 1])], constraints=[0b000, 0b001, 0b011, 0b100])
    use = describe_constraints(trace, Cluster(constraints=(0b001, 0b011, 0b011, 0b000), slots=(1, 1, 1, 1)))
    assert use is not None
    assert use.constraints_per_task == 1.0
    assert use.frequency == (0.5, 0.25, 0.25)
    assert (use.unconstrained_tasks, use.unsatisfiable_tasks) == (1, 1)
    assert use.eligible_share == pytest.approx((4 + 3 + 2 + 0) / 16)


def test_tasks_without_constraints_have_no_constraint_use() -> None:
    trace = synthesize("syn:1x1")
    assert describe_constraints(trace, Cluster.uniform(1)) is None
    some = describe_constraints(constrain(trace, "sharma2011", 0), Cluster.uniform(1, constraints=(1 << 21) - 1))
    assert some is not None
    assert some.unsatisfiable_tasks == 0


def test_impossible_questions_are_refused() -> None:
    trace = synthesize("syn:1x1")
    with pytest.raises(InputError, match="workers"):
        describe(trace, 0)
    for cutoff_s in (-1.0, float("nan"), float("inf")):
        with pytest.raises(InputError, match="cutoff"):
            describe(trace, 1, cutoff_s)


def test_workflows_have_depth_width_and_a_critical_path() -> None:
    trace = trace_of("t", [0, 1_000_000, 2_000_000], [[1_000_000] * 4, [2_000_000, 500_000], [9]])
    trace = with_parents(trace, [(), (0,), (0,), (1, 2), (), (4,), ()])
    found = describe(trace, 1).workflows
    assert found == WorkflowShape(
        jobs=2,
        tasks=6,
        waits=5,
        depth_mean=2.5,
        depth_max=3,
        width_mean=1.5,
        width_max=2,
        critical_path_mean_s=2.75,
        critical_path_max_s=3.0,
    )
    assert describe(trace_of("t", [0], [[1]]), 1).workflows is None


def test_tasks_of_workflows_ask_for_slots_when_their_parents_end() -> None:
    trace = with_parents(trace_of("t", [0, 0], [[10, 10, 10], [15]]), [(), (0,), (0,), ()])
    assert describe(trace, 1).peak_demand == 3, "two children beside the other job"
    curve = load_curve(trace, 1, points=2)
    assert curve.running.tolist() == [2.0, 2.5], "25 us of work in the second 10 us"


def curve_of(*running: float) -> LoadCurve:
    values = np.array(running)
    return LoadCurve(np.arange(len(running) + 1.0), values, values)


@pytest.mark.parametrize(("ending", "magic"), [("png", b"\x89PNG"), ("svg", b"<?xml"), ("pdf", b"%PDF")])
def test_the_same_curve_gives_the_same_bytes(tmp_path: Path, ending: str, magic: bytes) -> None:
    curve = load_curve(synthesize("mix:google,jobs=50", 1), 10_000)
    for name in ("a", "b"):
        draw_load_curve(curve, "google", tmp_path / f"{name}.{ending}")
    drawn = (tmp_path / f"a.{ending}").read_bytes()
    assert drawn.startswith(magic)
    assert drawn == (tmp_path / f"b.{ending}").read_bytes()


def test_the_axes_have_units_and_the_title_its_name(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    draw_load_curve(load_curve(synthesize("syn:2x100"), 2), "two by a hundred", path)
    text = path.read_text()
    for words in ("time since the first arrival (s)", "load (% of the machines)", "two by a hundred", "all full"):
        assert words in text


def test_long_spans_are_in_hours_and_bursts_are_said_to_be_cut(tmp_path: Path) -> None:
    path = tmp_path / "a.svg"
    burst = LoadCurve(np.array([0.0, 20_000, 40_000]), np.array([9.0, 0.1]), np.array([0.5, 0.5]))
    draw_load_curve(burst, "t", path)
    assert "arrival (h)" in path.read_text()
    assert "cut off at the top" in path.read_text()


def test_other_endings_and_unwritable_places_are_refused(tmp_path: Path) -> None:
    curve = curve_of(1.0)
    with pytest.raises(InputError, match="must end in"):
        draw_load_curve(curve, "t", tmp_path / "a.gif")
    with pytest.raises(InputError, match="cannot be written"):
        draw_load_curve(curve, "t", tmp_path / "absent" / "a.png")


def test_a_sparkline_fills_its_highest_interval_and_blanks_an_empty_one() -> None:
    assert sparkline(curve_of(0, 0.5, 1)) == f" {BLOCKS[4]}{BLOCKS[8]}"
    assert sparkline(curve_of(0, 0)) == "  "
