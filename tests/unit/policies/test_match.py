"""Bit-vector matching (Thiyyakat et al., IoT 2023, algorithm 1) against brute force; random choice of workers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.policies.match import (
    MEMO_MAX,
    Anchors,
    Matches,
    Sampler,
    bytes_vector,
    fewest_constraints_first,
    nth_position,
    positions,
    vector_bytes,
)

MACHINES = st.lists(st.integers(0, (1 << 21) - 1), min_size=1, max_size=60)
WIDE = st.integers(0, (1 << 63) - 1)
CHI_SQUARE_OF_99_AT_1_IN_10_000 = 161.3


def fitting(constraints: list[int], mask: int) -> int:
    return sum(1 << unit for unit, offered in enumerate(constraints) if not mask & ~offered)


@given(constraints=MACHINES, masks=st.lists(st.integers(0, (1 << 21) - 1) | WIDE, max_size=20))
def test_suitable_units_are_those_whose_constraints_contain_the_tasks(constraints: list[int], masks: list[int]) -> None:
    matches = Matches(constraints, Anchors(constraints))
    for mask in [0, *constraints, *masks]:
        assert matches[mask] == fitting(constraints, mask)


@pytest.mark.parametrize("width", [0, 1, 6, 7, 8, 14, 15, 63])
def test_every_width_of_the_tables_is_right(width: int) -> None:
    """Tables come in groups of 7 constraints; the last one may be shorter."""
    stream = Random(width)
    constraints = [stream.getrandbits(width) if width else 0 for _ in range(40)]
    matches = Matches(constraints, Anchors(constraints))
    for mask in [0, (1 << width) - 1, 1 << width, *(stream.getrandbits(width + 1) for _ in range(300))]:
        assert matches[mask] == fitting(constraints, mask)


def test_beyond_its_memo_a_match_is_still_right_and_memory_stays_bounded() -> None:
    """A trace may have thousands of distinct constraint sets."""
    stream = Random(5)
    constraints = [stream.getrandbits(12) for _ in range(50)]
    matches = Matches(constraints, Anchors(constraints))
    for mask in range(1 << 12):
        assert matches[mask] == fitting(constraints, mask)
    assert len(matches) <= MEMO_MAX


@given(vector=st.integers(1, (1 << 300) - 1), pick=st.floats(0, 1, exclude_max=True))
def test_the_nth_position_is_that_of_the_nth_set_bit(vector: int, pick: float) -> None:
    nth = int(pick * vector.bit_count())
    assert nth_position(vector, nth) == [k for k in range(300) if vector >> k & 1][nth]


@given(vector=st.integers(0, (1 << 300) - 1))
def test_positions_and_bytes_say_the_same_as_the_vector(vector: int) -> None:
    assert positions(vector) == [k for k in range(300) if vector >> k & 1]
    assert bytes_vector(vector_bytes(vector)) == vector


@pytest.mark.parametrize(
    ("mask", "busy_share"), [(0, 0.0), (0, 0.5), (0, 0.99), (1, 0.6), (0b111, 0.7), (0b1111, 0.97)]
)
def test_a_random_choice_is_uniform_over_the_candidates(mask: int, busy_share: float) -> None:
    """Section 4.3.1: any suitable worker is equally probable; by chi-square, and whether few or most are busy."""
    stream = Random(11)
    constraints = [stream.getrandbits(4) | (mask if k % 3 == 0 else 0) for k in range(900)]
    matches = Matches(constraints, Anchors(constraints))
    free = sum(1 << k for k in range(900) if stream.random() >= busy_share)
    candidates = matches[mask] & free
    counts = dict.fromkeys(positions(candidates)[:100], 0)
    wanted = sum(1 << k for k in counts)
    draws = 40 * len(counts)
    for _ in range(draws):
        counts[matches.pick(mask, wanted, stream.random)] += 1
    expected = draws / len(counts)
    chi_square = sum((count - expected) ** 2 / expected for count in counts.values())
    assert chi_square < CHI_SQUARE_OF_99_AT_1_IN_10_000


def test_a_choice_is_always_a_candidate_even_the_only_one() -> None:
    constraints = [3, 1, 2, 0, 3]
    matches = Matches(constraints, Anchors(constraints))
    stream = Random(0)
    assert {matches.pick(3, 1 << 4, stream.random) for _ in range(200)} == {4}
    assert {matches.pick(0, 0b01010, stream.random) for _ in range(200)} == {1, 3}


def test_the_minimum_constraints_policy_prefers_few_and_keeps_the_order_of_equals() -> None:
    """Section 4.3.2; the example's workers A (1,2,3,4) and B (1,2)."""
    a, b = 0b11110, 0b00110
    assert fewest_constraints_first([0, 1], [a, b]) == [1, 0]
    assert fewest_constraints_first([2, 0, 1, 3], [1, 2, 4, 0]) == [3, 2, 0, 1]


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
