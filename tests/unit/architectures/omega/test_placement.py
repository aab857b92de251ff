"""Randomised first fit, and the packing of a cell's state in messages."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.omega.placement import (
    ANYWHERE,
    NOWHERE,
    FreeCopy,
    Kind,
    Layout,
    PlacementProblem,
    Rings,
    place,
    stretch,
)
from volery.core.model import Cluster, Gang, Task
from volery.core.resources import Packing
from volery.core.streams import Streams


def test_free_amounts_survive_their_packing() -> None:
    cluster = Cluster((0b01, 0b11), (2, 3))
    layout = Layout(cluster, Rings(cluster, Streams(0).of("rings")))
    octets = layout.encode(layout.whole)
    assert (len(octets), layout.decode(octets)) == (2 * layout.state_bytes, layout.whole)
    assert layout.fits_somewhere(Task(0, 0, 0b10))
    assert not layout.fits_somewhere(Task(0, 0, 0b100))


MIXED = Cluster(
    (0b00, 0b01, 0b11, 0b01, 0b00),
    (1,) * 5,
    "mixed",
    ("cpu", "gpu_milli"),
    ((8, 2000), (9, 0), (30, 1500), (13, 3000), (0, 1000)),
)
"""Amounts that lie between thresholds of the index, devices in parts, and a resource that a machine lacks."""
LAYOUT = Layout(MIXED, Rings(MIXED, Streams(0).of("rings")))

REQUESTS = st.tuples(st.integers(0, 12), st.sampled_from([0, 300, 700, 1000, 2000]))
KINDS = st.tuples(st.sampled_from([0b00, 0b01, 0b10, 0b100]), REQUESTS)


@given(
    kinds=st.lists(KINDS, min_size=1, max_size=3),
    changes=st.lists(st.tuples(st.integers(0, 4), st.none() | REQUESTS), max_size=40),
    full_at=st.integers(0, 40),
)
def test_a_copy_has_room_exactly_where_a_draw_from_all_machines_finds_some(
    kinds: list[Kind], changes: list[tuple[int, tuple[int, int] | None]], full_at: int
) -> None:
    """Where a copy took a cell for full that is not, a job would wait for ever."""
    copy, packing, suitable = FreeCopy(LAYOUT), LAYOUT.packing, LAYOUT.rings.suitable
    for number, (machine, request) in enumerate(changes):
        if number == full_at:
            copy.found_full()
        free = copy.free[machine]
        if request is None:
            free = LAYOUT.whole[machine]
        elif (free - packing[request]) & packing.guards == packing.guards:
            free = packing.settled(free - packing.named(free, packing[request]))
        copy.put(machine, free)
    assert copy.has_room(kinds) or full_at < len(changes), "before a search has failed each may find room"
    copy.found_full()
    tasks = tuple(Task(number, 0, needs, request=request) for number, (needs, request) in enumerate(kinds))
    found = place(PlacementProblem(tasks, copy.free, {needs: suitable(needs) for needs, _ in kinds}, packing, 1))
    assert copy.has_room(kinds) == bool(found.places)
    assert LAYOUT.whole == Layout(MIXED, LAYOUT.rings).whole, "what an empty cell has is not changed"


def problem(
    free: list[int], tasks: int, seed: int = 0, whole: Gang | None = None, machines: list[int] | None = None
) -> PlacementProblem:
    packing = Packing(1)
    pool = list(range(len(free))) if machines is None else machines
    amounts = [packing.free((one,)) for one in free]
    return PlacementProblem(tuple(Task(k, 0) for k in range(tasks)), amounts, {0: pool}, packing, seed, whole)


@given(free=st.lists(st.integers(0, 3), max_size=80), tasks=st.integers(0, 90), seed=st.integers(0, 1 << 64))
def test_as_many_tasks_as_there_is_room_for_are_placed_and_no_machine_twice(
    free: list[int], tasks: int, seed: int
) -> None:
    given_free = problem(free, tasks, seed)
    before = list(given_free.free)
    answer = place(given_free)
    assert len(answer.places) == min(tasks, sum(free))
    assert all(count <= free[machine] for machine, count in Counter(answer.machines).items())
    assert given_free.free == before, "the problem is not changed"
    assert place(given_free) == answer, "the same problem, the same answer"


def test_a_gang_finds_room_for_all_or_for_none() -> None:
    assert place(problem([1, 1], 3, whole=ANYWHERE)) == NOWHERE
    assert len(place(problem([1, 2], 3, whole=ANYWHERE)).places) == 3


@pytest.mark.parametrize("seed", range(4))
def test_a_gang_with_a_shape_is_spread_over_its_machines_or_finds_none(seed: int) -> None:
    answer = place(problem([3, 1, 2, 2], 5, seed, whole=Gang(3, 2)))
    assert answer.places == (0, 1, 2, 3, 4)
    counts = Counter(answer.machines)
    assert len(counts) == 3
    assert max(counts.values()) == 2
    assert place(problem([3, 1, 2, 0], 6, seed, whole=Gang(3, 2))) == NOWHERE
    assert place(problem([9, 9, 0, 0], 3, seed, whole=Gang(3, 1))) == NOWHERE


@pytest.mark.slow
def test_every_machine_with_room_is_as_likely_as_another() -> None:
    free = [0, 1, 0, 1, 1] * 40
    counts = Counter(place(problem(free, 1, seed)).machines[0] for seed in range(12_000))
    assert sorted(counts) == [machine for machine, one in enumerate(free) if one]
    assert min(counts.values()) > 60
    assert max(counts.values()) < 150, "100 are expected; five standard deviations are 50"


def test_tasks_find_room_only_among_the_machines_that_may_be_drawn() -> None:
    assert set(place(problem([5] * 9, 10, machines=[2, 7])).machines) == {2, 7}


def test_rings_hold_the_machines_that_satisfy_a_set_in_one_random_order() -> None:
    rings = Rings(Cluster((0b01, 0b11, 0b10, 0b11), (1, 1, 1, 1)), Random(3))
    assert sorted(rings.suitable(0b11)) == [1, 3]
    assert [machine for machine in rings.suitable(0) if machine in (1, 3)] == rings.suitable(0b11)


def test_a_stretch_goes_round_and_leaves_out_its_share() -> None:
    ring = [4, 5, 6, 7]
    assert stretch(ring, 0.5, 0.0) == [4, 5]
    assert stretch(ring, 0.5, 0.9) == [7, 4]
    assert stretch(ring, 0.99, 0.5) == [6], "one at least"
    assert stretch([], 0.5, 0.5) == []
