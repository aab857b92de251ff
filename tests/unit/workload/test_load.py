"""Load: one definition, arrivals that are scaled to it, and machines that keep their constraints."""

from __future__ import annotations

from array import array
from pathlib import Path

import msgspec
import numpy as np
import pytest
from tests.comparison import compare

from volery.core.errors import InputError
from volery.core.model import NEVER, Cluster
from volery.core.trace import Trace
from volery.workload import at_load, cutoff_of, load_cluster, load_trace, machines_for, offered_load
from volery.workload.arrays import view
from volery.workload.load import check_load_of_spec
from volery.workload.models import ask

SPEC = "poisson:workers=50,fanout=4,mean=2,jobs=400"


def test_load_is_work_over_slots_times_the_span_of_arrivals() -> None:
    trace = load_trace("syn:5x11,duration=2,interval=3")
    assert offered_load(trace, Cluster.uniform(4, 2)) == pytest.approx(110 / (8 * 30))
    assert offered_load(load_trace("syn:5x1"), Cluster.uniform(4)) is None


def test_load_of_amounts_is_that_of_the_resource_asked_for_most() -> None:
    trace = ask(load_trace("syn:5x11"), "alibaba-like", 0)
    cpus = load_cluster(10, resources=trace.resources, capacity="cpu_milli=64000,memory_mb=1000000000")
    memory = load_cluster(10, resources=trace.resources, capacity="cpu_milli=64000000000,memory_mb=16384")
    both = load_cluster(10, resources=trace.resources, capacity="cpu_milli=64000,memory_mb=16384")
    found = [offered_load(trace, cluster) or 0.0 for cluster in (cpus, memory, both)]
    assert found[2] == pytest.approx(max(found[0], found[1]))


def test_scaled_arrivals_give_the_load_and_leave_the_jobs_alone() -> None:
    trace, cluster = load_trace(SPEC, seed=3), Cluster.uniform(30)
    found = at_load(trace, cluster, 0.65)
    assert offered_load(found, cluster) == pytest.approx(0.65, rel=1e-6)
    assert found.duration_us == trace.duration_us
    assert found.first == trace.first
    gaps, before = np.diff(view(found.arrival_us)), np.diff(view(trace.arrival_us))
    assert gaps / before == pytest.approx(np.full(gaps.size, gaps.sum() / before.sum()), rel=0.01, abs=0.01)


def test_deadlines_and_later_submissions_keep_their_distance_to_the_arrival() -> None:
    trace = Trace(
        "made",
        array("q", [0, 10_000_000]),
        array("q", [0, 1, 3]),
        array("q", [4_000_000] * 3),
        array("q", [4_000_000] * 2),
        deadline_us=array("q", [NEVER, 17_000_000]),
        submit_us=array("q", [0, 10_000_000, 12_000_000]),
    )
    found = at_load(trace, Cluster.uniform(1), 0.6)
    assert found.arrival_us.tolist() == [0, 20_000_000]
    assert found.deadline_us.tolist() == [NEVER, 27_000_000]
    assert found.submit_us.tolist() == [0, 20_000_000, 22_000_000]


def test_a_smaller_cluster_has_the_first_machines_of_the_larger_with_their_constraints() -> None:
    trace, whole = load_trace(SPEC), load_cluster(200, constraints="sharma2011", seed=5)
    half, tenth = machines_for(trace, whole, 0.5), machines_for(trace, whole, 2.0)
    assert len(tenth.constraints) < len(half.constraints) < 200
    for cluster, load in ((half, 0.5), (tenth, 2.0)):
        count = len(cluster.constraints)
        assert cluster.constraints == whole.constraints[:count]
        assert offered_load(trace, cluster) == pytest.approx(load, rel=1 / count)


def test_what_cannot_have_the_load_is_refused_with_the_reason() -> None:
    trace, cluster = load_trace(SPEC), Cluster.uniform(20)
    with pytest.raises(InputError, match=r"load: 0\.1 takes about [0-9,]+ machines, and workers is 20; set workers"):
        machines_for(trace, cluster, 0.1)
    with pytest.raises(InputError, match="all jobs of the trace arrive at once"):
        at_load(load_trace("syn:5x1"), cluster, 0.5)
    with pytest.raises(InputError, match="so little that the last job would arrive after"):
        at_load(trace, cluster, 1e-9)
    racked = msgspec.structs.replace(cluster, racks=(0, 1) * 10)
    with pytest.raises(InputError, match='set load_by = "arrivals"'):
        machines_for(trace, racked, 2.0)


def test_a_spec_with_a_load_of_its_own_contradicts_another() -> None:
    with pytest.raises(InputError, match=r"^axes\.load: 'poisson:load=0\.9,jobs=5' has a load of its own, 0\.9; leave"):
        check_load_of_spec("poisson:load=0.9,jobs=5", "arrivals", "axes.load")
    check_load_of_spec("poisson:load=0.9,jobs=5", "machines", "axes.load")
    check_load_of_spec("recurring:8x5,other=0.4", "arrivals", "axes.load")
    with pytest.raises(InputError, match="vary its rate=N instead"):
        check_load_of_spec("cell:span=10", "machines", "axes.load")


SPREAD = "poisson:load=0.8,workers=40,fanout=4,mean=2,jobs=300"
DESIGNS = ("hawk", "eagle", "phoenix", "pigeon")


def test_ninety_percent_of_the_jobs_are_short_at_the_cutoff_of_a_trace() -> None:
    estimates = array("q", [1_000_000 * seconds for seconds in (5, 1, 2, 3, 4, 6, 7, 8, 100, 9)])
    trace = Trace("t", array("q", range(10)), array("q", range(11)), estimates, estimates)
    assert cutoff_of(trace) == 9.0
    assert sum(estimate <= 9_000_000 for estimate in estimates) == 9


def test_the_cutoff_of_a_trace_of_huge_tasks_is_one_that_designs_take() -> None:
    huge = array("q", [2_000_000_000 * 1_000_000] * 3)
    trace = Trace("t", array("q", range(3)), array("q", range(4)), huge, huge)
    assert cutoff_of(trace) == 1e9


@pytest.mark.slow
def test_without_a_cutoff_some_jobs_are_long_for_designs_that_tell_them_apart(tmp_path: Path) -> None:
    """Under Google's cutoff no job of this trace is long, and their main mechanism is off."""
    results = compare(*DESIGNS, trace=SPREAD, workers=40, folder=tmp_path)
    google = compare(*(f"{name}:cutoff_s=1129.532" for name in DESIGNS), trace=SPREAD, workers=40)
    for taken, given in zip(results.runs, google.runs, strict=True):
        assert taken.cutoff_from_trace_s is not None
        assert 1 < taken.cutoff_from_trace_s < 10
        assert given.cutoff_from_trace_s is None
        assert taken.digest != given.digest
    stated = compare(f"hawk:cutoff_s={results.runs[0].cutoff_from_trace_s!r}", trace=SPREAD, workers=40)
    assert stated.runs[0].digest == results.runs[0].digest


@pytest.mark.slow
def test_a_cutoff_that_is_given_is_taken_and_other_designs_have_none() -> None:
    runs = compare("hawk", "megha", trace=SPREAD, workers=40, cutoff_s=2.0).runs
    assert [run.cutoff_from_trace_s for run in runs] == [None, None]


@pytest.mark.slow
def test_a_run_with_the_default_as_its_given_cutoff_is_another_run(tmp_path: Path) -> None:
    given, taken = compare("hawk:cutoff_s=1129.532", "hawk", trace=SPREAD, workers=40, folder=tmp_path).runs
    assert (given.cutoff_from_trace_s, taken.cutoff_from_trace_s is None) == (None, False)
    assert given.digest != taken.digest
