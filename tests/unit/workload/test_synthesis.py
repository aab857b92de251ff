"""Synthetic workloads."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.core.trace import Trace
from volery.core.workflows import levels
from volery.workload import synthesize, write_tr
from volery.workload.arrays import view
from volery.workload.synthesis import PRESETS, chain, expanded, fork_join, is_spec, nested


def load(trace: Trace, workers: int) -> float:
    return sum(trace.duration_us) / (trace.arrival_us[-1] * workers)


def test_constant_jobs_are_equal_and_evenly_spaced() -> None:
    trace = synthesize("syn:3x4,duration=0.5,interval=2")
    assert trace.arrival_us.tolist() == [0, 2_000_000, 4_000_000, 6_000_000]
    assert trace.first.tolist() == [0, 3, 6, 9, 12]
    assert set(trace.duration_us) == set(trace.estimate_us) == {500_000}
    assert trace.name == "syn:3x4,duration=0.5,interval=2"


def test_constant_jobs_last_a_second_and_come_every_second_by_default() -> None:
    trace = synthesize("syn:2x3")
    assert trace.arrival_us.tolist() == [0, 1_000_000, 2_000_000]
    assert set(trace.duration_us) == {1_000_000}


def test_poisson_arrivals_give_the_load_that_was_asked_for() -> None:
    trace = synthesize("poisson:load=0.7,workers=50,fanout=10,mean=0.1,jobs=20000", seed=1)
    assert trace.task_count == 200_000
    assert load(trace, 50) == pytest.approx(0.7, rel=0.03)


def test_poisson_gaps_and_tasks_are_exponential() -> None:
    """An exponential has a standard deviation equal to its mean, and exceeds that mean with chance 1/e."""
    trace = synthesize("poisson:load=0.5,workers=100,fanout=5,mean=2,jobs=20000", seed=3)
    gaps, durations = np.diff(view(trace.arrival_us)), view(trace.duration_us)
    assert gaps.mean() / 1e6 == pytest.approx(5 * 2 / (0.5 * 100), rel=0.02)
    for drawn in (gaps, durations):
        assert drawn.std() / drawn.mean() == pytest.approx(1, rel=0.03)
        assert (drawn > drawn.mean()).mean() == pytest.approx(np.exp(-1), rel=0.03)
    assert durations.mean() == pytest.approx(2e6, rel=0.02)


@pytest.mark.parametrize(
    ("fanout", "mean", "least", "most"), [("geometric:10", 10, 1, 400), ("uniform:1-19", 10, 1, 19)]
)
def test_drawn_fanouts_have_their_mean_and_keep_the_load(fanout: str, mean: float, least: int, most: int) -> None:
    trace = synthesize(f"poisson:load=0.9,workers=30,fanout={fanout},jobs=20000", seed=2)
    sizes = np.diff(view(trace.first))
    assert sizes.mean() == pytest.approx(mean, rel=0.03)
    assert least == sizes.min()
    assert sizes.max() <= most
    assert load(trace, 30) == pytest.approx(0.9, rel=0.05)


def test_the_estimate_is_the_mean_of_the_jobs_own_durations() -> None:
    trace = synthesize("poisson:fanout=7,jobs=50", seed=5)
    for job in range(50):
        durations = trace.duration_us[trace.first[job] : trace.first[job + 1]]
        assert trace.estimate_us[job] == round(sum(durations) / 7)


def test_another_load_moves_the_arrivals_and_leaves_the_jobs() -> None:
    low = synthesize("poisson:load=0.4,fanout=geometric:4,jobs=200", seed=8)
    high = synthesize("poisson:load=0.8,fanout=geometric:4,jobs=200", seed=8)
    assert low.duration_us == high.duration_us
    assert low.first == high.first
    assert low.arrival_us[-1] == pytest.approx(2 * high.arrival_us[-1], rel=1e-6)


@pytest.mark.parametrize("spec", ["poisson:jobs=300,fanout=geometric:5", "mix:yahoo,jobs=300"])
def test_a_workload_depends_on_spec_and_seed_alone(spec: str) -> None:
    assert synthesize(spec, 4).digest() == synthesize(spec, 4).digest()
    assert synthesize(spec, 4).digest() != synthesize(spec, 5).digest()
    program = f"from volery.workload import synthesize; print(synthesize({spec!r}, 4).digest(), end='')"
    environment = {**os.environ, "PYTHONHASHSEED": "77"}
    other = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, text=True, check=True)
    assert other.stdout == synthesize(spec, 4).digest()


@pytest.mark.parametrize("name", sorted(PRESETS))
def test_a_preset_has_exactly_the_means_of_pigeons_table_1(name: str) -> None:
    """Expected fanout, duration and shares of the two classes together are the published ones."""
    table_1 = {"yahoo": (39.91, 118.78), "cloudera": (272.93, 162.19), "google": (35.32, 661.74)}
    p = PRESETS[name]
    share = p.long_share
    assert share * p.long_fanout.mean() + (1 - share) * p.short_fanout.mean() == pytest.approx(table_1[name][0])
    assert share * p.long_duration.mean() + (1 - share) * p.short_duration.mean() == pytest.approx(table_1[name][1])
    long_work = share * p.long_fanout.mean() * p.long_duration.mean()
    short_work = (1 - share) * p.short_fanout.mean() * p.short_duration.mean()
    assert long_work / (long_work + short_work) == pytest.approx(p.long_work)


@pytest.mark.parametrize(("name", "jobs"), [("yahoo", 24_262), ("cloudera", 4_000), ("google", 10_000)])
def test_a_mix_comes_close_to_the_trace_that_it_mimics(name: str, jobs: int) -> None:
    """Means hold in the sample; only the work of the long jobs, a product of two heavy tails, may wander."""
    p = PRESETS[name]
    trace = synthesize(f"mix:{name},jobs={jobs}", seed=11)
    sizes, means = np.diff(view(trace.first)), view(trace.estimate_us) / 1e6
    is_long = means > p.cutoff_s
    work = sizes * means
    assert is_long.mean() == pytest.approx(p.long_share, rel=0.001)
    assert sizes.mean() == pytest.approx(p.fanout_mean, rel=0.1)
    assert means.mean() == pytest.approx(p.duration_mean_s, rel=0.1)
    assert means[~is_long].mean() == pytest.approx(p.short_mean_s, rel=0.01)
    assert work[is_long].sum() / work.sum() == pytest.approx(p.long_work, abs=0.1)
    assert 1 == sizes.min() < 0.2 * p.fanout_max < sizes.max() <= p.fanout_max
    assert max(trace.duration_us) <= p.duration_max_s * 1e6
    assert min(trace.duration_us) >= 1


def test_a_mix_has_its_load_exactly() -> None:
    trace = synthesize("mix:google,jobs=500,load=0.65,workers=3000", seed=6)
    assert load(trace, 3_000) == pytest.approx(0.65, rel=1e-6)


def test_a_mix_spreads_durations_within_a_job_as_asked() -> None:
    """The spread alone changes: jobs keep their sizes and mean durations, which the longest task does not cap here."""
    told = {spread: synthesize(f"mix:cloudera,jobs=200,spread={spread}", seed=3) for spread in (0, 0.2, 2)}
    wide, narrow, none = told[2], told[0.2], told[0]
    assert narrow.digest() == synthesize("mix:cloudera,jobs=200", seed=3).digest(), "the preset has 0.2"
    assert wide.first == narrow.first
    largest = int(np.argmax(np.diff(view(wide.first))))
    for trace, spread in ((wide, 2), (narrow, 0.2), (none, 0)):
        tasks = view(trace.duration_us)[trace.first[largest] : trace.first[largest + 1]]
        assert tasks.std() / tasks.mean() == pytest.approx(spread, rel=0.1, abs=1e-3)
    assert view(wide.estimate_us)[largest] == pytest.approx(view(narrow.estimate_us)[largest], rel=1e-4)


def test_a_workload_begins_at_zero_in_order_of_arrival() -> None:
    for spec in ("syn:1x3", "poisson:jobs=100", "mix:cloudera,jobs=50"):
        arrivals = synthesize(spec, 1).arrival_us.tolist()
        assert arrivals[0] == 0
        assert arrivals == sorted(arrivals)


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [
        ("syn:250", "syn:250: '250' is not TASKSxJOBS"),
        ("syn:", "syn:: lacks its first part"),
        ("syn:0x5", "is not TASKSxJOBS"),
        ("syn:99999x99999999", "at most 100000000"),
        ("syn:2x2,duration=0", "syn:duration: '0' is not a number above 0"),
        ("syn:2x2,interval=x", "syn:interval: 'x' is not a number"),
        ("syn:2x2,intervall=1", "syn:intervall: no such key; did you mean 'interval'?"),
        ("syn:2x2,duration=1,duration=2", "syn:duration: is given twice"),
        ("syn:2x2,fast", "'fast' is not of the form key=value"),
        ("poisson:load=-1", "poisson:load: '-1' is not a number above 0"),
        ("poisson:load=nan", "poisson:load: 'nan' is not a number"),
        ("poisson:workers=0", "poisson:workers: '0' is not a whole number from 1"),
        ("poisson:jobs=1.5", "poisson:jobs: '1.5' is not a whole number"),
        ("poisson:fanout=0", "poisson:fanout: '0' is not a whole number from 1"),
        (
            "poisson:fanout=geometrical:3",
            "poisson:fanout: 'geometrical:3' is neither a number nor a law; did you mean 'geometric'?",
        ),
        ("poisson:fanout=geometric:0.5", "poisson:fanout: 'geometric:0.5' needs a mean of at least 1"),
        ("poisson:fanout=uniform:5-2", "poisson:fanout: 'uniform:5-2' needs bounds"),
        ("poisson:fanout=1000000,jobs=1000", "at most 100000000"),
        ("mix:gogle", "mix:gogle: 'gogle' is not a preset; did you mean 'google'?"),
        ("mix:jobs=5", "lacks its first part"),
        ("mix:google,jobs=1", "mix:jobs: '1' is not a whole number from 2"),
        ("mix:google,spread=-1", "mix:spread: '-1' is not a number from 0 to 100"),
        ("sny:1x1", "'sny' is not a kind of synthetic workload; did you mean 'syn'?"),
    ],
)
def test_a_wrong_spec_is_refused_by_its_key(spec: str, complaint: str) -> None:
    with pytest.raises(InputError) as caught:
        synthesize(spec, 0)
    assert complaint in str(caught.value)


def test_specs_are_told_from_files() -> None:
    assert is_spec("syn:2x2")
    assert is_spec("mix:google")
    assert not is_spec("syn_250.0.tr.gz")
    assert not is_spec("syn")
    assert not is_spec("C:\\trace.tr")


def of_job(trace: Trace, job: int) -> list[tuple[int, ...]]:
    """Per task of a job, places of its parents."""
    low, high = trace.first[job], trace.first[job + 1]
    return [tuple(parent - low for parent in trace.parents_of(task)) for task in range(low, high)]


def test_workflows_are_chains_forks_and_layers() -> None:
    chained = synthesize("workflow:chain,jobs=3,fanout=4")
    assert of_job(chained, 2) == [(), (0,), (1,), (2,)]
    forked = synthesize("workflow:fork-join,jobs=3,fanout=5")
    assert of_job(forked, 2) == [(), (0,), (0,), (0,), (1, 2, 3)]
    assert of_job(synthesize("workflow:fork-join,jobs=1,fanout=2"), 0) == [(), (0,)]
    assert not synthesize("workflow:chain,jobs=3,fanout=1").parents


@pytest.mark.parametrize(("shape", "depth"), [(0.5, 20), (1.0, 10), (2.0, 5), (100.0, 1)])
def test_the_shape_makes_layers_deep_or_wide(shape: float, depth: int) -> None:
    """Topcuoglu, Hariri and Wu (TPDS 2002), section 5.1: the depth is sqrt(tasks) / shape."""
    trace = synthesize(f"workflow:layered,jobs=4,fanout=100,shape={shape},degree=2", 1)
    deep = levels(trace).tolist()
    for job in range(4):
        low = trace.first[job]
        assert max(deep[low : low + 100]) + 1 == depth
        for task, waits in enumerate(of_job(trace, job)):
            assert len(waits) <= 2
            assert {deep[low + parent] for parent in waits} <= {deep[low + task] - 1}
            assert bool(waits) == bool(deep[low + task])


def test_a_workflow_keeps_jobs_and_graph_when_the_load_changes() -> None:
    one, other = (synthesize(f"workflow:layered,jobs=50,fanout=geometric:9,load={load}", 3) for load in (0.5, 1.0))
    assert one.parents == other.parents
    assert one.duration_us == other.duration_us
    assert one.arrival_us != other.arrival_us
    assert synthesize("workflow:layered,jobs=50", 4).digest() != synthesize("workflow:layered,jobs=50", 5).digest()


@pytest.mark.parametrize(
    ("spec", "complaint"),
    [("workflow:layerd", "did you mean 'layered'"), ("workflow:chain,depth=3", "depth"), ("workflow:", "SHAPE|shape")],
)
def test_a_wrong_workflow_is_refused(spec: str, complaint: str) -> None:
    with pytest.raises(InputError, match=complaint):
        synthesize(spec)


def test_a_tr_file_holds_no_workflow(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no constraints, requests, users, tags or workflows"):
        write_tr(synthesize("workflow:chain,jobs=2"), tmp_path / "a.tr")
    assert not (tmp_path / "a.tr").exists()


def test_a_workflow_of_workflows_is_one_graph() -> None:
    """Two chains of two beside a lone task: the second chain begins after the end of the first."""
    outer, pair = [(), (0,), ()], chain(2)
    assert expanded(outer, [pair, pair, chain(1)]) == [(), (0,), (1,), (2,), ()]
    assert expanded([(), (0,)], [[(), ()], [(), ()]]) == [(), (), (0, 1), (0, 1)]
    assert nested(8, 3, chain) == chain(8), "a chain of chains is a chain"
    assert nested(9, 2, fork_join) == expanded(fork_join(3), [fork_join(3)] * 3)


def test_hierarchical_workflows_have_the_tasks_of_flat_ones() -> None:
    flat, deep = (synthesize(f"workflow:layered,fanout=20,jobs=9{levels}") for levels in ("", ",levels=3"))
    assert flat.duration_us == deep.duration_us
    assert flat.parents != deep.parents
    assert synthesize("workflow:layered,fanout=20,jobs=9,levels=1").parents == flat.parents
