"""The index of free capacity against brute force."""

from __future__ import annotations

import itertools

from hypothesis import given
from hypothesis import strategies as st

from volery.core.model import Amounts
from volery.core.resources import Packing
from volery.policies.capacity import CapacityIndex, Ladders, ladder

AMOUNTS = st.tuples(st.integers(0, 70), st.integers(0, 5000), st.integers(0, 2))
MACHINES = st.lists(AMOUNTS, min_size=1, max_size=40)
STEPS = st.lists(st.tuples(AMOUNTS, st.integers(0, 1 << 40), st.integers(0, 39)), max_size=40)


def holds(free: Amounts, request: Amounts) -> bool:
    return all(a <= b for a, b in zip(request, free, strict=True))


def check_picks(index: CapacityIndex, ladders: Ladders, free: list[Amounts], request: Amounts, mask: int) -> None:
    need = ladders[request]
    fitting = [p for p, amounts in enumerate(free) if mask >> p & 1 and holds(amounts, request)]
    assert index.fitting(need, mask) == sum(1 << p for p in fitting)
    sure = index.sure(need, mask)
    assert not sure & ~index.fitting(need, mask), "what is sure must fit"
    assert not index.fitting(need, mask) & ~index.near(need, mask), "nothing that fits may be overlooked"
    for choice in ("first", "random", "best-fit"):
        for start in (0, len(free) // 2, len(free) - 1):
            picked = index.pick(need, mask, choice, start)
            assert picked in (fitting or [-1]), (choice, start)


@given(machines=MACHINES, steps=STEPS)
def test_it_finds_a_machine_exactly_when_one_fits(
    machines: list[Amounts], steps: list[tuple[Amounts, int, int]]
) -> None:
    ladders = Ladders(machines)
    index, free = CapacityIndex(machines, ladders), list(machines)
    twin = index.copy()
    taken: list[tuple[int, Amounts]] = []
    every = (1 << len(machines)) - 1
    for request, bits, back in steps:
        check_picks(index, ladders, free, request, bits & every)
        position = index.pick(ladders[request], every, "random", back % len(machines))
        if position >= 0:
            index.put(position, index.free[position] - ladders.packing[request])
            free[position] = tuple(a - b for a, b in zip(free[position], request, strict=True))
            taken.append((position, request))
        if taken and bits % 3 == 0:
            place, returned = taken.pop(back % len(taken))
            index.put(place, index.free[place] + ladders.packing[returned])
            free[place] = tuple(a + b for a, b in zip(free[place], returned, strict=True))
    assert [ladders.packing.amounts(packed) for packed in index.free] == free
    assert [ladders.packing.amounts(packed) for packed in twin.free] == machines, "a copy shares no state"


@given(largest=st.integers(0, 1 << 40))
def test_a_ladder_has_no_gap_above_a_quarter(largest: int) -> None:
    rungs = ladder(largest)
    assert rungs == sorted(set(rungs))
    assert all(upper * 4 <= lower * 5 or upper - lower == 1 for lower, upper in itertools.pairwise(rungs))
    assert not largest or rungs[0] == 1
    assert not rungs or rungs[-1] <= largest < rungs[-1] * 1.25 + 1


def test_best_fit_leaves_least_of_the_dominant_resource() -> None:
    """Of machines with 64, 8 and 16 cores free, a request for 6 cores and hardly any memory takes the one with 8."""
    machines: list[Amounts] = [(64, 4096), (8, 4096), (16, 4096), (4, 4096)]
    ladders = Ladders(machines)
    index = CapacityIndex(machines, ladders)
    assert index.pick(ladders[6, 1], 0b1111, "best-fit") == 1
    assert index.pick(ladders[6, 1], 0b1101, "best-fit") == 2
    assert index.pick(ladders[1, 4096], 0b1111, "best-fit") == 0, "equal in memory, which dominates: the first"


def test_random_goes_round_from_the_start() -> None:
    machines: list[Amounts] = [(4,)] * 5
    ladders = Ladders(machines)
    index = CapacityIndex(machines, ladders)
    assert [index.pick(ladders[3,], 0b10010, "random", start) for start in range(5)] == [1, 1, 4, 4, 4]
    assert [index.pick(ladders[4,], 0b00010, "random", start) for start in range(5)] == [1] * 5


@given(free=AMOUNTS, request=AMOUNTS)
def test_one_subtraction_compares_all_resources(free: Amounts, request: Amounts) -> None:
    packing = Packing(3)
    left = packing.free(free) - packing[request]
    assert (left & packing.guards == packing.guards) == holds(free, request)
    if holds(free, request):
        assert packing.amounts(left) == tuple(a - b for a, b in zip(free, request, strict=True))
        assert left + packing[request] == packing.free(free)
