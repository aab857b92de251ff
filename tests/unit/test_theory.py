"""Closed forms against each other, against brute force and against the values that DESIGN's specification tabulates."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest

from volery import theory


def test_one_server_of_erlang_c_is_mm1() -> None:
    assert theory.erlang_c(1, 0.7) == pytest.approx(0.7)
    assert theory.mmc_wait(1, 0.7, 1.0) == pytest.approx(theory.mm1_wait(0.7, 1.0))
    assert theory.mm1_wait(0.5, 1.0) == pytest.approx(1.0)
    assert theory.mm1_response(0.5, 1.0) == pytest.approx(2.0)


@pytest.mark.parametrize(("servers", "load"), [(2, 0.5), (5, 0.8), (20, 0.95)])
def test_erlang_c_agrees_with_its_textbook_sum(servers: int, load: float) -> None:
    offered = servers * load
    top = offered**servers / math.factorial(servers) / (1 - load)
    assert theory.erlang_c(servers, load) == pytest.approx(
        top / (sum(offered**k / math.factorial(k) for k in range(servers)) + top)
    )


def test_erlang_c_of_very_many_servers_is_finite() -> None:
    assert 0 < theory.erlang_c(30_000, 0.99) < 0.1
    assert theory.erlang_c(30_000, 0.1) == pytest.approx(0, abs=1e-300)
    assert theory.erlang_c(3, 0.0) == 0.0


def test_the_tail_of_the_wait_integrates_to_its_mean() -> None:
    step = 0.001
    tail = sum(theory.mmc_wait_exceeds(4, 3.2, 1.0, (i + 0.5) * step) for i in range(40_000)) * step
    assert tail == pytest.approx(theory.mmc_wait(4, 3.2, 1.0), rel=1e-3)


PIGEON = [
    (50, 0.8, 0.9130, 0.870, 0.9051),
    (50, 0.9, 0.6361, 7.277, 0.5915),
    (75, 0.8, 0.9597, 0.269, 0.9571),
    (75, 0.9, 0.7233, 3.690, 0.6971),
    (100, 0.8, 0.9804, 0.098, 0.9794),
    (100, 0.9, 0.7831, 2.169, 0.7663),
    (150, 0.8, 0.9949, 0.017, 0.9948),
    (150, 0.9, 0.8597, 0.935, 0.8517),
    (200, 0.8, 0.9986, 0.003, 0.9986),
    (200, 0.9, 0.9055, 0.472, 0.9013),
    (100, 0.85, None, 0.499, 0.9205),
    (100, 0.95, 0.4935, 10.13, 0.4460),
    (200, 0.85, None, 0.051, 0.9842),
    (200, 0.95, 0.6347, 3.653, 0.6120),
]


@pytest.mark.parametrize(("workers", "load", "idle", "wait_ms", "job"), PIGEON)
def test_pigeons_equations_1_2_and_6(workers: int, load: float, idle: float | None, wait_ms: float, job: float) -> None:
    """Tasks of 100 ms, groups of 50 to 200 workers (Pigeon, section 3)."""
    if idle is not None:
        assert theory.pigeon_task_zero_queue(workers, load) == pytest.approx(idle, abs=6e-5)
    assert theory.pigeon_task_wait(workers, load, 100.0) == pytest.approx(wait_ms, abs=6e-3 if wait_ms > 10 else 6e-4)
    assert theory.pigeon_job_zero_queue_exponential(workers, load, 100.0) == pytest.approx(job, abs=6e-5)


JOBS = [
    (50, 0.40, 1.0000, 1.0000, 0.9832),
    (50, 0.50, 1.0000, 1.0000, 0.5398),
    (50, 0.60, 0.9999, 1.0000, 0.0271),
    (50, 0.70, 0.9773, 0.9999, 0.0000),
    (50, 0.80, 0.3708, 0.9334, 0.0000),
    (50, 0.85, 0.0204, 0.4616, 0.0),
    (50, 0.90, 0.0000, 0.0070, 0.0),
    (100, 0.40, 1.0000, 1.0000, 0.9983),
    (100, 0.50, 1.0000, 1.0000, 0.5282),
    (100, 0.60, 0.9998, 1.0000, 0.0026),
    (100, 0.70, 0.9551, 0.9999, 0.0000),
    (100, 0.80, 0.1375, 0.8713, 0.0000),
    (100, 0.85, 0.0004, 0.2131, 0.0),
    (100, 0.90, 0.0000, 0.0000, 0.0),
]


@pytest.mark.parametrize(("fanout", "load", "groups_of_100", "groups_of_200", "sparrow"), JOBS)
def test_zero_queueing_of_a_job_under_pigeon_and_sparrow(
    fanout: int, load: float, groups_of_100: float, groups_of_200: float, sparrow: float
) -> None:
    """Equations 3 and 4 (Pigeon, figures 1 and 2)."""
    assert theory.pigeon_job_zero_queue(100, load, fanout) == pytest.approx(groups_of_100, abs=6e-5)
    assert theory.pigeon_job_zero_queue(200, load, fanout) == pytest.approx(groups_of_200, abs=6e-5)
    assert theory.sparrow_job_zero_queue(load, fanout) == pytest.approx(sparrow, abs=6e-5)


def test_sparrows_equation_agrees_with_exact_binomials_and_bears_large_jobs() -> None:
    exact = sum(math.comb(10, i) * 0.3**i * 0.7 ** (10 - i) for i in range(5, 11))
    assert theory.sparrow_job_zero_queue(0.7, 5) == pytest.approx(exact)
    assert theory.sparrow_job_zero_queue(0.5, 20_000) == pytest.approx(0.5, abs=0.01)
    assert (theory.sparrow_job_zero_queue(0.0, 7), theory.sparrow_job_zero_queue(1.0, 7)) == (1.0, 0.0)


def test_one_choice_is_mm1_and_a_second_one_is_a_great_deal_better() -> None:
    assert theory.power_of_choices_response(0.9, 1) == pytest.approx(theory.mm1_response(0.9, 1.0))
    assert theory.power_of_choices_response(0.9, 2) == pytest.approx(2.6141, abs=1e-4)
    assert theory.power_of_choices_response(0.0, 2, 3.0) == 3.0
    many = theory.power_of_choices_response(0.99, 5)
    assert 1 < many < theory.power_of_choices_response(0.99, 2) < 100


def test_the_fixed_point_satisfies_its_balance_equation() -> None:
    """Flow into length i equals flow out: load (s[i-1]^d - s[i]^d) = s[i] - s[i+1]."""
    tail = [theory.power_of_choices_tail(0.8, 3, i) for i in range(8)]
    assert tail[0] == 1.0
    for i in range(1, 7):
        assert 0.8 * (tail[i - 1] ** 3 - tail[i] ** 3) == pytest.approx(tail[i] - tail[i + 1], abs=1e-15)
    assert theory.power_of_choices_tail(0.999, 10, 2000) == 0.0


@pytest.mark.parametrize("load", [1.0, 1.5, -0.1])
def test_loads_without_a_steady_state_are_refused(load: float) -> None:
    with pytest.raises(ValueError, match="load"):
        theory.mm1_wait(load, 1.0)
    with pytest.raises(ValueError, match="load"):
        theory.erlang_c(4, load)
    with pytest.raises(ValueError, match="load"):
        theory.power_of_choices_tail(load, 2, 1)
    with pytest.raises(ValueError, match="load"):
        theory.power_of_choices_response(load, 2)


def test_impossible_arguments_are_refused() -> None:
    with pytest.raises(ValueError, match="servers"):
        theory.erlang_c(0, 0.5)
    with pytest.raises(ValueError, match="load"):
        theory.sparrow_job_zero_queue(1.01, 3)
    with pytest.raises(ValueError, match="choices"):
        theory.power_of_choices_tail(0.5, 0, 3)


def test_a_worker_that_is_held_longer_than_its_task_is_a_longer_task_at_a_higher_load() -> None:
    assert theory.pigeon_task_wait(50, 0.9, 100.0, 1.0) == pytest.approx(theory.pigeon_task_wait(50, 0.909, 101.0))
    assert theory.pigeon_task_wait(50, 0.9, 100.0, 1.0) == pytest.approx(8.977, abs=6e-4)
    assert theory.pigeon_job_zero_queue_exponential(50, 0.9, 100.0, 1.0) == pytest.approx(0.5445, abs=6e-5)
    assert theory.pigeon_job_wait(50, 0.9, 100.0, messages=1.5) == pytest.approx(8.777, abs=6e-4)


def test_delay_scheduling_waits_for_the_shares_that_the_paper_computes() -> None:
    """Section 3.4: data on 10 % of the machines: 10 skips find 65 %, 40 find 98.5 %; 95 % of 20 tasks need 0.231 M."""
    assert theory.delay_local_launch(0.1, 10) == pytest.approx(0.65, abs=0.005)
    assert theory.delay_local_launch(0.1, 40) == pytest.approx(0.985, abs=0.0005)
    assert theory.delay_skips(0.95, 20, 3, 1000) == pytest.approx(231, abs=0.5)
    assert theory.delay_wait(theory.delay_skips(0.95, 20, 3, 100), 1.0, 800) == pytest.approx(0.029, abs=0.0005)
    assert theory.delay_locality(20, 24, 3, 100) >= 0.95 > theory.delay_locality(20, 20, 3, 100)
    assert theory.delay_holders(10, 3, 100) == pytest.approx(1 - 0.9**3)
    assert theory.delay_holders(200, 3, 100) == 1


@pytest.mark.parametrize(("jobs", "locality"), [(2, 0.88), (5, 0.49), (10, 0.27), (20, 0.14), (50, 0.06)])
def test_sticky_slots(jobs: int, locality: float) -> None:
    assert theory.sticky_locality(jobs, 3, 1) == pytest.approx(locality, abs=0.006)


@pytest.mark.parametrize(
    ("form", "arguments"),
    [
        (theory.delay_local_launch, (1.5, 1)),
        (theory.delay_holders, (1, 3, 0)),
        (theory.delay_locality, (0, 1, 3, 10)),
        (theory.delay_skips, (1.0, 1, 3, 10)),
        (theory.sticky_locality, (0, 3, 1)),
    ],
)
def test_delays_out_of_range_are_refused(form: Callable[..., float], arguments: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"give|needed|not in"):
        form(*arguments)
