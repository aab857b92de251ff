"""How Pigeon divides a cluster, and the supply that distributors weigh by."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.pigeon.groups import GroupSupply, MasterHosts, divide, published_occurrences
from volery.core.errors import InputError
from volery.core.model import Cluster

SETS = st.lists(st.integers(0, 255), min_size=4, max_size=40)
WIDE = st.integers(0, 255) | st.integers(0, (1 << 63) - 1)


def bits(*constraints: int) -> int:
    return sum(1 << constraint for constraint in constraints)


@given(
    constraints=SETS, groups=st.integers(1, 4), reserved=st.integers(0, 3), masks=st.lists(WIDE | st.integers(0, 255))
)
def test_supply_counts_the_units_that_suffice(
    constraints: list[int], groups: int, reserved: int, masks: list[int]
) -> None:
    """Section 4.2 by brute force; long tasks may not use reserved units."""
    cluster = Cluster(tuple(constraints), (1,) * len(constraints))
    reserved = min(reserved, len(constraints) // groups - 1)
    made = divide(cluster, groups, (), reserved)
    supply = GroupSupply(made, "exact")
    for mask in [0, *constraints[:3], *masks]:
        for short in (True, False):
            total, expected = 0, []
            for group in made:
                total += sum(
                    not mask & ~offered and (short or not group.reserved >> unit & 1)
                    for unit, offered in enumerate(group.constraints)
                )
                expected.append(total)
            assert list(supply.cumulative(mask, short)) == expected


@given(constraints=st.lists(st.integers(0, (1 << 63) - 1), min_size=2, max_size=10))
def test_supply_knows_sets_of_up_to_63_constraints(constraints: list[int]) -> None:
    supply = GroupSupply(divide(Cluster(tuple(constraints), (1,) * len(constraints)), 1, (), 0), "exact")
    for mask in constraints:
        assert list(supply.cumulative(mask, True)) == [sum(not mask & ~offered for offered in constraints)]


def test_groups_are_consecutive_and_the_first_machines_are_reserved() -> None:
    groups = divide(Cluster.uniform(10, slots=2), 2, (), 2)
    assert [sorted(set(group.machines)) for group in groups] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    for group, first in zip(groups, (0, 5), strict=True):
        reserved = {machine for unit, machine in enumerate(group.machines) if group.reserved >> unit & 1}
        assert reserved == {first, first + 1}
        assert group.reserved.bit_count() == 4, "all slots of a reserved machine"


def test_unequal_groups_have_the_sizes_that_were_given() -> None:
    """Pigeon, section 6.2."""
    assert [len(group.machines) for group in divide(Cluster.uniform(10), 0, (1, 3, 6), 0)] == [1, 3, 6]


@pytest.mark.parametrize(
    ("groups", "sizes", "reserved", "problem"),
    [
        (11, (), 0, "11 groups are more than 10 workers"),
        (2, (3, 3), 0, "the sizes (3, 3) add up to 6, but there are 10 workers"),
        (2, (0, 10), 0, "give positive sizes"),
        (2, (), 5, "5 reserved workers leave none for long tasks in a group of 5"),
    ],
)
def test_groups_that_cannot_be_are_refused(groups: int, sizes: tuple[int, ...], reserved: int, problem: str) -> None:
    with pytest.raises(InputError, match=re.escape(problem)):
        divide(Cluster.uniform(10), groups, sizes, reserved)


def test_the_published_code_counts_a_weak_worker_as_every_stronger_one_listed_before() -> None:
    assert published_occurrences([bits(2, 4), bits(4), bits(2, 4)]) == {bits(2, 4): 3}
    assert published_occurrences([bits(4), bits(2, 4), bits(2, 4)]) == {bits(4): 1, bits(2, 4): 2}, "order decides"
    assert published_occurrences([bits(1, 2), bits(2, 3), bits(2)]) == {bits(1, 2): 2, bits(2, 3): 2}


def test_under_published_counting_weak_workers_attract_tasks_that_they_cannot_run() -> None:
    """The finding of this project's first step: see docs/papers.md."""
    strong_then_weak = Cluster((0b11, 0b01, 0b01, 0b11), (1,) * 4)
    groups = divide(strong_then_weak, 2, (), 0)
    assert list(GroupSupply(groups, "exact").cumulative(0b11, True)) == [1, 2]
    assert list(GroupSupply(groups, "published-code").cumulative(0b11, True)) == [2, 3]


def test_published_counting_knows_reserved_workers_too() -> None:
    """A long task that only a reserved worker fits would wait for ever: it has to be found unsatisfiable."""
    supply = GroupSupply(divide(Cluster((1, 0), (1, 1)), 1, (), 1), "published-code")
    assert list(supply.cumulative(1, short=False)) == [0]
    assert list(supply.cumulative(1, short=True)) == [2], "the weak worker counts as the strong one before it"


def two_speeds(slow: int, fast: int) -> Cluster:
    speeds = (2000,) * slow + (6000,) * fast
    return Cluster((0,) * (slow + fast), (1,) * (slow + fast), speeds=speeds, reference_speed=2000)


def test_the_power_of_a_group_is_the_sum_of_its_speeds() -> None:
    """Pigeon, section 6.2: groups of as many workers, of which one has three times the power."""
    groups = divide(two_speeds(4, 4), 2, (), 1)
    assert list(GroupSupply(groups, "exact").cumulative(0, True)) == [4, 8]
    supply = GroupSupply(groups, "exact", "speed")
    assert list(supply.cumulative(0, True)) == [4, 16]
    assert list(supply.cumulative(0, False)) == [3, 12], "long tasks may not use the reserved worker"


def test_power_without_speeds_is_the_number_of_workers() -> None:
    groups = divide(Cluster.uniform(9), 3, (), 0)
    assert list(GroupSupply(groups, "exact", "speed").cumulative(0, True)) == [3, 6, 9]


def test_power_that_cannot_be_counted_is_refused() -> None:
    with pytest.raises(InputError, match="pigeon:power: the published code counts constraint sets"):
        GroupSupply(divide(two_speeds(2, 2), 2, (), 0), "published-code", "speed")
    vast = Cluster((0, 0), (1, 1), speeds=(1 << 31, 1), reference_speed=1)
    with pytest.raises(InputError, match="pigeon:power: the speeds of all workers add up to 2147483649"):
        GroupSupply(divide(vast, 2, (), 0), "exact", "speed")


@pytest.mark.parametrize(
    ("hosts", "sizes"),
    [
        (MasterHosts(), [100] * 100),
        (MasterHosts(1), [99] * 100),
        (MasterHosts(10), [*[99, *[100] * 9] * 10]),
        (MasterHosts(1, pairs=True), [98] * 100),
    ],
)
def test_masters_take_a_worker_each_or_ten_share_one(hosts: MasterHosts, sizes: list[int]) -> None:
    """Pigeon, section 4.1: 10,000 workers in groups of 100; 1 % of them, or 0.1 %, for masters."""
    groups = divide(Cluster.uniform(10_000), 100, (), 9, hosts)
    assert [len(group.machines) for group in groups] == sizes
    assert {group.reserved.bit_count() for group in groups} == {9}


def test_masters_that_would_take_a_whole_group_are_refused() -> None:
    with pytest.raises(InputError, match="pigeon:masters_per_worker: its masters take 2 workers of a group"):
        divide(Cluster.uniform(4), 2, (), 0, MasterHosts(1, pairs=True))
