"""Gangs and recurring jobs: what is published of them, and their deadlines."""

from __future__ import annotations

import numpy as np
import pytest

from volery.architectures.jockey.stages import parents_of, sizes, stages_of
from volery.core.errors import InputError
from volery.core.model import INDIFFERENT, NEVER
from volery.core.trace import Trace
from volery.core.workflows import check_workflows
from volery.workload import load_cluster, load_trace
from volery.workload.constraints import GPU, RACKS


def test_the_heterogeneous_mix_has_its_shares_and_its_load() -> None:
    trace = load_trace("gangs:gs-het,jobs=200,load=0.9,workers=100", seed=3)
    due, arrival = np.array(trace.deadline_us), np.array(trace.arrival_us)
    assert np.count_nonzero(due != NEVER) == 150
    assert sorted(trace.preference.tolist()) == [0] * 100 + [1] * 100
    assert [(one.constraints, one.together) for one in trace.preferences] == [(0, RACKS), (GPU, 0)]
    slack = ((due - arrival) / np.array(trace.estimate_us))[due != NEVER]
    assert 1.2 <= slack.min() < slack.max() <= 4.0
    assert sum(trace.duration_us) / (arrival[-1] * 100) == pytest.approx(0.9, rel=1e-4)


def test_another_load_moves_the_arrivals_alone_and_fewer_jobs_are_the_first_ones() -> None:
    low, high = (load_trace(f"gangs:gs-het,jobs=50,load={load},workers=10") for load in ("0.5", "1"))
    assert low.duration_us == high.duration_us
    assert low.arrival_us != high.arrival_us
    cut = load_trace("gangs:gs-het,jobs=50,load=0.5,workers=10", job_count=7)
    assert (cut.deadline_us, cut.preference) == (low.deadline_us[:7], low.preference[:7])


def test_jobs_of_a_burst_come_together() -> None:
    arrivals = load_trace("gangs:gr-mix,jobs=20,burst=8").arrival_us
    assert [len(set(arrivals[low : low + 8])) for low in (0, 8, 16)] == [1, 1, 1]
    assert len(set(arrivals)) == 3


def test_services_come_between_gangs_and_run_on_when_these_are_done() -> None:
    plain, both = (load_trace(f"gangs:gs-het,jobs=40,workers=50{keys}", seed=2) for keys in ("", ",services=3"))
    own = [job for job, user in enumerate(both.user) if user == "service"]
    assert [both.priority[job] for job in own] == [1] * 3 == [both.first[job + 1] - both.first[job] - 15 for job in own]
    assert {both.arrival_us[job] + both.estimate_us[job] for job in own} == {2 * plain.arrival_us[-1]}
    assert all(both.preferences[both.preference[job]] == INDIFFERENT for job in own)
    others = [job for job in range(both.job_count) if job not in own]
    assert [both.deadline_us[job] for job in others] == list(plain.deadline_us)
    assert [both.preferences[both.preference[job]] for job in others] == [
        plain.preferences[p] for p in plain.preference
    ]
    assert list(both.arrival_us) == sorted(both.arrival_us)


def test_estimates_are_off_by_the_error() -> None:
    exact, low = (load_trace(f"gangs:gr-mix,jobs=20,error={error}") for error in ("0", "-20"))
    assert exact.duration_us == low.duration_us
    assert list(low.estimate_us) == [round(0.8 * estimate) for estimate in exact.estimate_us]
    assert not exact.preferences


@pytest.mark.parametrize(
    ("spec", "place"),
    [
        ("gangs:gs-hat", "gangs:gs-hat"),
        ("gangs:gr-mix,jobs=9,burst=5", "gangs:burst"),
        ("gangs:gs-het,error=-100", "gangs:error"),
        ("gangs:", "gangs:"),
    ],
)
def test_a_wrong_spec_is_refused(spec: str, place: str) -> None:
    with pytest.raises(InputError) as error:
        load_trace(spec)
    assert error.value.place == place


def test_machines_stand_in_racks_and_a_quarter_has_gpus() -> None:
    bits = load_cluster(16, constraints="gpu-racks").constraints
    assert [mask & GPU for mask in bits] == [1] * 4 + [0] * 12
    assert [mask & RACKS for mask in bits] == [2 << rack for rack in range(8) for _ in range(2)]


SPEC = "recurring:4x6,tasks=60,workers=50"


def runs_of(trace: Trace, name: str) -> list[int]:
    return [job for job, user in enumerate(trace.user) if user == name]


def waits(trace: Trace, job: int) -> list[tuple[int, ...]]:
    low = trace.first[job]
    return [tuple(p - low for p in trace.parents_of(task)) for task in range(low, trace.first[job + 1])]


def test_runs_of_a_job_have_its_graph_and_its_deadline_under_any_seed() -> None:
    traces = [load_trace(SPEC, seed=seed) for seed in (1, 2)]
    assert traces[0].duration_us != traces[1].duration_us
    for name in ("job0", "job3"):
        graphs = {tuple(waits(trace, job)) for trace in traces for job in runs_of(trace, name)}
        assert len(graphs) == 1
        dues = {trace.deadline_us[job] - trace.arrival_us[job] for trace in traces for job in runs_of(trace, name)}
        assert len(dues) == 1
    assert {len(runs_of(trace, name)) for trace in traces for name in ("job0", "job1", "job2", "job3")} == {6}
    for trace in traces:
        check_workflows(trace)
        others = runs_of(trace, "other")
        assert {trace.deadline_us[job] for job in others} == {NEVER}
        assert list(trace.arrival_us) == sorted(trace.arrival_us)
        assert not trace.arrival_us[0]
    other = load_trace(f"{SPEC},population=1", seed=1)
    assert waits(other, runs_of(other, "job0")[0]) != waits(traces[0], runs_of(traces[0], "job0")[0])


def test_stages_that_are_drawn_can_be_read_from_the_graph() -> None:
    trace = load_trace("recurring:8x1,tasks=80,other=0", seed=0)
    found = [len(sizes(stages_of(waits(trace, job)))) for job in range(trace.job_count)]
    assert all(3 <= count <= 8 for count in found)
    assert len(set(found)) > 1
    for job in range(trace.job_count):
        graph = waits(trace, job)
        parents = parents_of(graph, stages_of(graph))
        assert not parents[0]
        assert all(parents[1:]), "every stage but the first waits for one"


def test_load_noise_surprises_failures_and_deadlines_are_as_asked_for() -> None:
    plain = "recurring:6x40,tasks=40,noise=0,surprise=0,fail=0,other=0,workers=20,load=0.5"
    trace = load_trace(plain, seed=4)
    work_us, span_us = sum(trace.duration_us), trace.arrival_us[-1]
    assert work_us / (span_us * 20) == pytest.approx(0.5, rel=0.15)
    failing = load_trace(plain.replace("fail=0", "fail=0.5"), seed=4)
    assert sum(failing.duration_us) / work_us == pytest.approx(1.5, rel=0.05), "one failure a task, half of its time"
    twice = load_trace(plain.replace("surprise=0", "surprise=1,times=2"), seed=4)
    assert sum(twice.duration_us) / work_us == pytest.approx(2.0, rel=1e-6)
    later = load_trace(f"{plain},deadline=3", seed=4)
    ratio = (np.array(later.deadline_us) - later.arrival_us) / (np.array(trace.deadline_us) - trace.arrival_us)
    assert ratio == pytest.approx(2.0, rel=1e-6), "1.5 times by default"
    noisy = load_trace(plain.replace("noise=0", "noise=0.5"), seed=4)
    factors = np.array([noisy.estimate_us[job] / trace.estimate_us[job] for job in range(trace.job_count)])
    assert np.std(factors) == pytest.approx(0.5, rel=0.2)


def test_other_jobs_have_their_load() -> None:
    trace = load_trace("recurring:6x40,tasks=40,load=0.5,workers=20,other=0.8,other_tasks=5,other_s=20", seed=4)
    others = runs_of(trace, "other")
    work_us = sum(sum(trace.duration_us[trace.first[job] : trace.first[job + 1]]) for job in others)
    assert work_us / (trace.arrival_us[-1] * 20) == pytest.approx(0.8, rel=0.1)


@pytest.mark.parametrize(
    "spec", ["recurring:", "recurring:3", "recurring:0x5", "recurring:3x5,tasks=3", "recurring:3x5,noise=-1"]
)
def test_what_is_no_such_workload_is_refused(spec: str) -> None:
    with pytest.raises(InputError):
        load_trace(spec)
