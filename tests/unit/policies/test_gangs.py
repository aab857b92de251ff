"""Machines for gangs: as many members as there is room for, in their shape, and unlike members wherever all fit."""

from __future__ import annotations

from itertools import product

from hypothesis import given
from hypothesis import strategies as st

from volery.core.model import PREFERS_RACK, REQUIRES_RACK, Cluster, Gang
from volery.core.resources import DevicePacking, Packing
from volery.policies.gangs import MemberDemand, Rooms, UnitGangs, assign, by_rack, rack_vectors, rooms_on, spread
from volery.policies.match import Anchors, Matches

ONE = Packing(1)
ANY = Gang()


def free(*amounts: int) -> list[int]:
    return [ONE.free((amount,)) for amount in amounts]


def test_rooms_are_counted_by_amounts_and_by_devices() -> None:
    two = Packing(2)
    assert Rooms(two)[two.free((9, 7)), two.pack((2, 3))] == 2
    assert Rooms(two)[two.free((9, 7)), two.pack((0, 3))] == 2
    devices = DevicePacking(1, 0, 2)
    empty = devices.free((2000,))
    assert [Rooms(devices)[empty, devices.pack((milli,))] for milli in (700, 500, 1000, 1500)] == [2, 4, 2, 1]


def test_machines_without_room_are_left_out() -> None:
    assert rooms_on(0b1101, free(2, 9, 0, 5), ONE.pack((2,)), Rooms(ONE)) == [(0, 1), (3, 2)]


def test_a_gang_without_a_shape_fills_the_machines_in_order() -> None:
    assert spread([(4, 2), (1, 3), (0, 9)], 4, Gang()) == [(4, 2), (1, 2)]
    assert spread([(4, 2), (1, 3)], 6, Gang()) == []


@given(rooms=st.lists(st.integers(0, 4), max_size=7), nodes=st.integers(1, 5), size=st.integers(1, 12))
def test_a_shape_is_met_wherever_it_can_be(rooms: list[int], nodes: int, size: int) -> None:
    """By comparison with all choices of machines."""
    if nodes > size:
        return
    shape = Gang(nodes, -(-size // nodes))
    places = spread(list(enumerate(rooms)), size, shape)
    usable = [min(room, shape.tasks_per_node) for room in rooms if room]
    can_be = len(usable) >= nodes and sum(sorted(usable)[-nodes:]) >= size
    assert bool(places) == can_be
    if places:
        assert len({machine for machine, _ in places}) == nodes
        assert sum(count for _, count in places) == size
        assert all(1 <= count <= min(rooms[machine], shape.tasks_per_node) for machine, count in places)


@given(
    suits=st.lists(st.integers(0, 15), min_size=1, max_size=4),
    counts=st.lists(st.integers(1, 3), min_size=4, max_size=4),
    slots=st.lists(st.integers(0, 2), min_size=4, max_size=4),
)
def test_unlike_members_of_one_slot_each_find_room_wherever_there_is_some(
    suits: list[int], counts: list[int], slots: list[int]
) -> None:
    """By Hall's theorem: each set of classes has as many slots as members."""
    demands = [MemberDemand(ONE.pack((1,)), machines, count) for machines, count in zip(suits, counts, strict=False)]
    machines = assign(demands, free(*slots), ONE)
    fits = all(
        sum(demand.members for demand, is_chosen in zip(demands, chosen, strict=True) if is_chosen)
        <= sum(
            slots[machine]
            for machine in range(4)
            if any(
                is_chosen and demand.machines >> machine & 1 for demand, is_chosen in zip(demands, chosen, strict=True)
            )
        )
        for chosen in product((False, True), repeat=len(demands))
    )
    assert bool(machines) == fits
    if machines:
        assert [len(places) for places in machines] == [demand.members for demand in demands]
        assert all(
            demand.machines >> machine & 1
            for demand, places in zip(demands, machines, strict=True)
            for machine in places
        )
        taken = [machine for places in machines for machine in places]
        assert all(taken.count(machine) <= slots[machine] for machine in range(4))


def test_unlike_amounts_are_placed_largest_first() -> None:
    demands = [MemberDemand(ONE.pack((1,)), 0b11, 2), MemberDemand(ONE.pack((5,)), 0b11, 1)]
    assert assign(demands, free(5, 2), ONE) == [[1, 1], [0]]
    assert assign(demands, free(4, 4), ONE) == []


UNITS = UnitGangs(Matches([0b00, 0b01, 0b11, 0b00], Anchors([0b00, 0b01, 0b11, 0b00])), [0, 1, 2, 0])


def test_units_are_taken_in_order_and_some_of_them_last() -> None:
    assert UNITS.choose([0, 0], ANY, 0b1111) == [0, 1]
    assert UNITS.choose([0, 0], ANY, 0b1111, last=0b0001) == [1, 2]
    assert UNITS.choose([0, 0, 0, 0], ANY, 0b1111, last=0b0101) == [1, 3, 0, 2]
    assert UNITS.choose([1, 1, 1], ANY, 0b1111) == []


def test_unlike_members_find_units_wherever_all_do() -> None:
    assert UNITS.choose([0, 0, 1, 0b11], ANY, 0b1111) == [0, 3, 1, 2]
    assert UNITS.choose([1, 0b11], ANY, 0b1110, last=0b0110) == [1, 2]
    assert UNITS.choose([0b11, 0b11, 0], ANY, 0b1111) == []
    assert UNITS.suitable([1, 0b11]) == 0b0110


def test_machines_of_a_shape_suit_all_members() -> None:
    assert UNITS.choose([0, 0], Gang(1, 2), 0b1111) == [0, 3]
    assert UNITS.choose([0, 0], Gang(2, 1), 0b1001) == []
    assert UNITS.choose([0, 1], Gang(2, 1), 0b1111) == [1, 2]


def test_a_gang_takes_the_first_rack_that_has_room_and_others_only_if_it_merely_prefers_one() -> None:
    cluster = Cluster((0,) * 5, (1,) * 5, racks=(7, 3, 7, 3, 7))
    racks = rack_vectors(cluster)
    assert racks == (0b01010, 0b10101)
    assert rack_vectors(Cluster.uniform(3)) == (0b111,)

    def places(rack: int, size: int, *free_slots: int) -> list[tuple[int, int]]:
        def place(machines: int) -> list[tuple[int, int]]:
            rooms = rooms_on(0b11111 & machines, free(*free_slots), ONE.pack((1,)), Rooms(ONE))
            return spread(rooms, size, gang)

        gang = Gang(rack=rack)
        return by_rack(gang, racks, place)

    for wish in (PREFERS_RACK, REQUIRES_RACK):
        assert places(wish, 2, 1, 1, 1, 1, 1) == [(1, 1), (3, 1)]
        assert places(wish, 2, 1, 1, 1, 0, 1) == [(0, 1), (2, 1)]
    assert places(PREFERS_RACK, 4, 1, 1, 1, 1, 1) == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert places(REQUIRES_RACK, 4, 1, 1, 1, 1, 1) == []
    assert places(0, 2, 1, 1, 1, 1, 1) == [(0, 1), (1, 1)]
