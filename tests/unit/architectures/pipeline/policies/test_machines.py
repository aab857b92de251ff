"""Stage R5: worked examples of every policy."""

from __future__ import annotations

from collections import Counter

import pytest
from tests.unit.architectures.pipeline.policies.states import Made, cores, pairs

from volery.architectures.pipeline.policies import Choice, Policy, Waiting
from volery.architectures.pipeline.policies.machines import (
    BestFit,
    Borg,
    Fastest,
    FirstFit,
    Kubernetes,
    MinimumConstraints,
    RandomFit,
    RankedMatch,
    WorstFit,
    from_on,
)
from volery.core.model import Cluster


def choose(made: Made, policy: Policy, waiting: Waiting) -> int:
    found = policy.select(made.view, waiting, made.candidates(waiting), made.draw)  # type: ignore[attr-defined]  # it is a selection
    return found.machine if isinstance(found, Choice) else int(found)


@pytest.fixture
def uneven() -> Made:
    """Free cores: 1, 5, 2, 8."""
    made = Made(cores(4, 8, 4, 8))
    job = made.job(0)
    for machine, taken in enumerate((3, 3, 2)):
        made.run(job, machine, (taken,))
    return made


@pytest.mark.parametrize(("policy", "expected"), [(FirstFit(), 1), (BestFit(), 2), (WorstFit(), 3)])
def test_fits_differ_in_what_they_leave(uneven: Made, policy: Policy, expected: int) -> None:
    """Of 5, 2 and 8 free cores, a task of 2: the first, the least and the most."""
    assert choose(uneven, policy, uneven.wait(uneven.job(1), (2,))) == expected


def test_candidates_have_enough_and_no_others_are_asked(uneven: Made) -> None:
    candidates = uneven.candidates(uneven.wait(uneven.job(1), (3,)))
    assert list(candidates) == [1, 3]
    assert len(candidates) == 2
    assert 3 in candidates
    assert 0 not in candidates
    assert candidates.first(2) == 3
    assert candidates.first(0) == 1


def test_best_and_worst_fit_are_exact_between_the_steps_of_the_index() -> None:
    """1,001 and 1,003 units lie on one step of the ladder of free capacity."""
    made = Made(cores(1003, 1001, 1002))
    waiting = made.wait(made.job(0), (5,))
    assert choose(made, BestFit(), waiting) == 1
    assert choose(made, WorstFit(), waiting) == 0


def test_many_equal_machines_go_by_constraints_then_number() -> None:
    made = Made(Cluster((3, 1, 0, 0), (1, 1, 1, 1)))
    assert choose(made, BestFit(), made.wait(made.job(0))) == 2
    assert choose(made, BestFit(), made.wait(made.job(0), constraints=1)) == 1
    assert choose(made, MinimumConstraints(), made.wait(made.job(0), constraints=2)) == 0


def test_random_fit_takes_each_candidate_alike(uneven: Made) -> None:
    waiting = uneven.wait(uneven.job(1), (2,))
    counts = Counter(choose(uneven, RandomFit(), waiting) for _ in range(3000))
    assert set(counts) == {1, 2, 3}
    assert all(900 < count < 1100 for count in counts.values())


def test_the_fastest_machine_is_the_first_of_those_with_the_highest_speed() -> None:
    made = Made(cores(1, 1, 1, speeds=(35, 41, 41)))
    assert choose(made, Fastest(), made.wait(made.job(0), (1,))) == 1


def test_kubernetes_looks_for_fewer_nodes_in_large_clusters() -> None:
    """kubernetes.io, Scheduler Performance Tuning: all of 99, 100 of 100, 42 % of 1,000, 5 % of 6,000."""
    policy = Kubernetes()
    assert [policy.nodes_to_find(count) for count in (50, 99, 100, 1000, 6000)] == [50, 99, 100, 420, 300]
    assert Kubernetes(percentage=10).nodes_to_find(5000) == 500


def test_kubernetes_scores_least_allocated_and_balance() -> None:
    """Of two nodes with 50 % left on average, (50, 50) is balanced and (90, 10) is not; a fuller one loses."""
    made = Made(pairs((1000, 1000), (1000, 1000), (1000, 1000)))
    job = made.job(0)
    made.run(job, 0, (100, 900))
    made.run(job, 1, (500, 500))
    made.run(job, 2, (700, 700))
    waiting = made.wait(made.job(1), (0, 0))
    assert choose(made, Kubernetes(), waiting) == 1
    assert choose(made, Kubernetes(least_allocated=0, balanced=0, most_allocated=1), waiting) == 2


def test_kubernetes_goes_on_where_it_stopped() -> None:
    made = Made(cores(*(4,) * 200))
    waiting = made.wait(made.job(0), (1,))
    first = Kubernetes().select(made.view, waiting, made.candidates(waiting), made.draw)
    assert first.resume == 100, "48 % of 200 is less than the least of 100 nodes"
    made.state.resume = first.resume
    second = Kubernetes().select(made.view, waiting, made.candidates(waiting), made.draw)
    assert 100 <= second.machine < 200
    assert second.resume == 0


def test_borg_strands_little_packs_and_spreads() -> None:
    """A task of much memory goes where processors have run short, not where memory would be left alone."""
    made = Made(pairs((1000, 1000), (1000, 1000)))
    job = made.job(0)
    made.run(job, 0, (800, 200))
    made.run(job, 1, (200, 800))
    assert choose(made, Borg(), made.wait(made.job(1), (10, 100))) == 0
    assert choose(made, Borg(), made.wait(made.job(1), (100, 10))) == 1
    made = Made(pairs((1000, 1000), (1000, 1000)))
    mine = made.job(2)
    made.run(mine, 0, (100, 100))
    assert choose(made, Borg(), made.wait(mine, (100, 100))) == 1, "spread of one job"
    assert choose(made, Borg(spread=0), made.wait(mine, (100, 100))) == 0, "packing"


def test_ranked_takes_the_fastest_then_the_least_useful_to_others() -> None:
    cluster = Cluster((0, 3, 1, 1), (1, 1, 1, 1), speeds=(1, 2, 2, 2), reference_speed=1)
    made = Made(cluster)
    waiting = made.wait(made.job(0))
    assert {choose(made, RankedMatch(), waiting) for _ in range(50)} == {2, 3}
    assert choose(made, RankedMatch(rank="none"), waiting) == 0


def test_positions_are_listed_from_a_start_on_round_the_end() -> None:
    assert from_on(0b10110, 2, 2) == [2, 4]
    assert from_on(0b10110, 3, 2) == [4, 1]
    assert from_on(0b10110, 3, 9) == [4, 1, 2]
