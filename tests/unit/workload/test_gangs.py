"""Gangs: the shares that are published, and what the rest is."""

from __future__ import annotations

import numpy as np
import pytest

from volery.core.errors import InputError
from volery.core.model import NEVER
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


def test_estimates_are_off_by_the_error() -> None:
    exact, low = (load_trace(f"gangs:gr-mix,jobs=20,error={error}") for error in ("0", "-20"))
    assert exact.duration_us == low.duration_us
    assert list(low.estimate_us) == [round(0.8 * estimate) for estimate in exact.estimate_us]
    assert not exact.preferences


@pytest.mark.parametrize(
    ("spec", "place"),
    [("gangs:gs-hat", "gangs:gs-hat"), ("gangs:gs-het,error=-100", "gangs:error"), ("gangs:", "gangs:")],
)
def test_a_wrong_spec_is_refused(spec: str, place: str) -> None:
    with pytest.raises(InputError) as error:
        load_trace(spec)
    assert error.value.place == place


def test_machines_stand_in_racks_and_a_quarter_has_gpus() -> None:
    bits = load_cluster(16, constraints="gpu-racks").constraints
    assert [mask & GPU for mask in bits] == [1] * 4 + [0] * 12
    assert [mask & RACKS for mask in bits] == [2 << rack for rack in range(8) for _ in range(2)]
