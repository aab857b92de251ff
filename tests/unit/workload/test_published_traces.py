"""Our figures of the published traces are those that were taken of them independently (../shared/traces/stats.md)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from volery.workload import constrain, describe, load_cluster, load_trace, read_tr, synthesize
from volery.workload.arrays import view
from volery.workload.constraints import sharma2011
from volery.workload.description import describe_constraints

SHARED = Path(__file__).parents[4] / "shared" / "traces"
pytestmark = pytest.mark.skipif(not SHARED.is_dir(), reason="the published traces (../shared/traces) are not here")

STATS = {
    "GOOG_subtrace.tr.gz": (10_000, 312_558, 31.26, 4_950, 1_408, 314.5, 15_369, 326_131, 93_526, 0.4704),
    "YH1_sub.tr.gz": (2_910, 122_878, 42.23, 3_035, 677.7, 93.91, 17_146, 17_937, 25_805, 0.3227),
    "YH_small.tr": (10, 183, 18.3, 51, 17.23, 15.05, 52.86, 54.56, 67.046, 0.004702),
    "alibaba_10000jobs.tr.gz": (10_000, 86_583, 8.658, 1_002, 120.9, 21, 2_183, 54_252, 31_855, 0.03287),
    "pigeon_EXP_50_new.tr.gz": (5_000, 22_675, 4.535, 9, 0.1991, 0.1393, 0.9227, 1.994, 85.4206, 0.005284),
    "pigeon_NGO_trace80.tr.gz": (5_001, 10_291, 2.058, 98, 3.523, 0.7418, 69.1, 98.21, 379.75, 0.009548),
    "pigeon_NYH_trace50.tr.gz": (5_001, 100_350, 20.07, 100, 0.9974, 0.1603, 26.82, 59.98, 607.6, 0.01647),
    "syn_250.0.tr.gz": (2_000, 500_000, 250, 250, 1, 1, 1, 1, 1_999, 0.02501),
}
"""jobs, tasks, fanout mean and max, duration mean, p50, p99 and max (s), span (s), load at 10,000 workers."""


@pytest.mark.parametrize("name", sorted(STATS))
def test_figures_agree_with_the_independent_statistics(name: str) -> None:
    trace = read_tr(SHARED / "tr" / name)
    d = describe(trace, 10_000)
    jobs, tasks, fanout, fanout_max, mean, p50, p99, longest, span, load = STATS[name]
    assert (d.jobs, d.tasks, d.fanout_max) == (jobs, tasks, fanout_max)
    assert d.fanout_mean == pytest.approx(fanout, rel=5e-4)
    assert d.duration_mean_s == pytest.approx(mean, rel=5e-4)
    assert d.duration_p50_s == pytest.approx(p50, rel=5e-4)
    # the statistics take p99 from one task, we interpolate between two
    assert np.percentile(view(trace.duration_us), 99, method="inverted_cdf") / 1e6 == pytest.approx(p99, rel=5e-4)
    assert d.duration_p99_s == pytest.approx(p99, rel=0.03)
    assert d.duration_max_s == pytest.approx(longest, rel=5e-4)
    assert d.span_s == pytest.approx(span, rel=5e-4)
    assert d.load == pytest.approx(load, rel=5e-4)


def test_the_google_slice_splits_and_peaks_as_measured_before() -> None:
    """peers.md: 9,095 short and 905 long jobs at the published cutoff; algorithms_a.md: it peaks at 22,727 slots."""
    d = describe(read_tr(SHARED / "tr" / "GOOG_subtrace.tr.gz"), 10_000, 1_129.532)
    assert d.short is not None
    assert d.long is not None
    assert (d.short.jobs, d.long.jobs, d.peak_demand) == (9_095, 905, 22_727)


@pytest.mark.parametrize("size", [250, 500])
def test_the_published_constant_traces_are_our_spec(size: int) -> None:
    assert read_tr(SHARED / "tr" / f"syn_{size}.0.tr.gz").digest() == synthesize(f"syn:{size}x2000").digest()


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("GOOG_subtrace", 0.00035),
        ("pigeon_NGO_trace50", 0.15),
        ("pigeon_NYH_trace50", 0.24),
        ("pigeon_EXP_50_new", 0.96),
    ],
)
def test_whole_seconds_lose_as_much_work_as_was_measured(name: str, lost: float) -> None:
    """peers.md 4.6: 0.035 % of the work on GOOG, 15 % on NGO, 24 % on NYH, 96 % on EXP."""
    path = SHARED / "tr" / f"{name}.tr.gz"
    whole, cut = (sum(load_trace(path, durations=d).duration_us) for d in ("exact", "whole-seconds"))
    assert 1 - cut / whole == pytest.approx(lost, rel=0.05)


def test_dephasing_leaves_only_chance_meetings_of_arrivals() -> None:
    path = SHARED / "tr" / "GOOG_subtrace.tr.gz"
    before, after = (describe(load_trace(path, arrivals=a), 1).oddities for a in ("exact", "dephased"))
    assert before.equal_arrivals == 6_474
    assert after.equal_arrivals < 400


def test_the_published_machines_are_read_and_match_the_model() -> None:
    cluster = load_cluster(10_000, machines=SHARED / "constraints" / "machines_10000x21.csv.gz")
    masks = np.array(cluster.constraints)
    assert [float(((masks >> k) & 1).mean()) for k in range(21)] == list(sharma2011().machine_frequency)
    assert sum(mask.bit_count() for mask in cluster.constraints) / 10_000 == 9.6384
    assert len(set(cluster.constraints)) == 8_642


@pytest.mark.parametrize(("name", "dropped"), [("GOOG_subtrace", 11), ("syn_250.0", 16)])
def test_as_many_tasks_fit_no_machine_as_the_published_simulators_drop(name: str, dropped: int) -> None:
    """peers.md 4.5, with their draw; ours is another, and such rare events vary like their square root."""
    trace = constrain(read_tr(SHARED / "tr" / f"{name}.tr.gz"), "sharma2011", 0)
    cluster = load_cluster(10_000, machines=SHARED / "constraints" / "machines_10000x21.csv.gz")
    use = describe_constraints(trace, cluster)
    assert use is not None
    assert abs(use.unsatisfiable_tasks - dropped) < 4 * np.sqrt(2 * dropped)
    assert use.constraints_per_task == pytest.approx(1.8545, rel=0.01)
    assert use.eligible_share == pytest.approx(0.40636, rel=0.01)


def test_a_yahoo_mix_resembles_the_yahoo_slice() -> None:
    real, mixed = read_tr(SHARED / "tr" / "YH1_sub.tr.gz"), synthesize("mix:yahoo,jobs=2910", 1)
    cutoff_us = 90.5811e6
    figures = []
    for trace in (real, mixed):
        means = view(trace.estimate_us)
        short = means <= cutoff_us
        figures.append((short.mean(), np.median(means[short]), np.diff(view(trace.first)).mean()))
    for ours, theirs in zip(figures[1], figures[0], strict=True):
        assert ours == pytest.approx(theirs, rel=0.15)
