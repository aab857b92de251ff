"""Random choice of workers to probe."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from volery.policies.match import Anchors, Matches
from volery.policies.sampler import Sampler

WORKERS = 60
HALF = [worker % 2 for worker in range(WORKERS)]
"""Every other worker satisfies constraint 0."""


def sampler(constraints: list[int], *, replacement: bool = False, seed: int = 0) -> Sampler:
    matches = Matches(constraints, Anchors(constraints))
    return Sampler(constraints, matches, Random(seed).random, replacement=replacement)


@pytest.mark.parametrize("count", [1, 7, 29, 30])
@pytest.mark.parametrize("need", [0, 1])
def test_workers_are_distinct_and_suit(need: int, count: int) -> None:
    drawn = sampler(HALF).draw(need, count)
    assert len(set(drawn)) == len(drawn) == count
    assert all(HALF[worker] & need == need for worker in drawn)


def test_more_probes_than_workers_are_spread_evenly() -> None:
    """Each of 30 suitable workers gets two of 70 probes, ten of them a third (Sparrow's public code)."""
    counts = Counter(sampler(HALF).draw(1, 70))
    assert sorted(counts.values()) == [2] * 20 + [3] * 10
    assert all(HALF[worker] for worker in counts)


@pytest.mark.parametrize("rare", [3, 20, 45])
def test_every_suitable_worker_comes_as_often(rare: int) -> None:
    constraints = [int(worker < rare) for worker in range(WORKERS)]
    drawing = sampler(constraints, seed=rare)
    counts = Counter(worker for _ in range(3000) for worker in drawing.draw(1, 2))
    assert set(counts) == set(range(rare))
    assert max(counts.values()) < 1.4 * min(counts.values()) if rare < 45 else max(counts.values()) < 220


def test_with_replacement_a_worker_may_come_twice() -> None:
    drawn = sampler(HALF, replacement=True).draw(1, 30)
    assert len(drawn) == 30
    assert len(set(drawn)) < 30


def test_a_need_that_no_worker_meets_is_refused() -> None:
    with pytest.raises(ValueError, match="no worker satisfies 0x2"):
        sampler(HALF).draw(2, 1)
