"""Resources of clusters and workloads, and devices: shares lie on one device, whole numbers take whole devices."""

from __future__ import annotations

from array import array
from itertools import permutations
from random import Random

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.model import AMOUNT_MAX, Amounts, Cluster, Task
from volery.core.resources import DEVICES_MAX, WHOLE, DevicePacking, Packing, check_resources, check_vectors, packing_of
from volery.core.trace import Trace

AMOUNT = st.sampled_from([0, 1, AMOUNT_MAX - 1, AMOUNT_MAX]) | st.integers(0, AMOUNT_MAX)
NAMES = ("cpu_milli", "memory_mb")
SLOTS = Cluster.uniform(2)
OFFERING = msgspec.structs.replace(SLOTS, resources=NAMES, capacities=((4000, 8192), (1000, 1024)))


def asking(names: tuple[str, ...] = NAMES, constraints: tuple[tuple[int, ...], ...] = ()) -> Trace:
    trace = trace_of("t", [0, 5], [[10, 20], [30]], constraints)
    return msgspec.structs.replace(
        trace, resources=names, requests=((1000, 512), (2000, 64)), request=array("H", [1, 0, 1])
    )


def requests_of(trace: Trace) -> list[Amounts]:
    return [
        task.request
        for job in range(trace.job_count)
        for message in trace.submission(job)
        if isinstance(message, Submit)
        for task in message.job.tasks
    ]


@pytest.mark.parametrize("constraints", [(), ((1, 2), (4,))])
def test_tasks_carry_their_requests(constraints: tuple[tuple[int, ...], ...]) -> None:
    assert requests_of(asking(constraints=constraints)) == [(2000, 64), (1000, 512), (2000, 64)]
    assert requests_of(trace_of("t", [0], [[10, 20]], constraints[:1])) == [(), ()]


def test_requests_are_part_of_what_a_trace_is() -> None:
    plain, trace = trace_of("t", [0, 5], [[10, 20], [30]]), asking()
    swapped = msgspec.structs.replace(trace, request=array("H", [0, 0, 1]))
    assert len({plain.digest(), trace.digest(), swapped.digest(), asking(("gpus", "memory_mb")).digest()}) == 4


@pytest.mark.parametrize(
    ("capacities", "names", "problem"),
    [
        (((1, 2),), NAMES, "2 machine constraint sets but 1 capacities"),
        (((1, 2), (1,)), NAMES, "machine 1 offers 1 amounts of 2 resources"),
        (((1, 2), (1, -1)), NAMES, "machine 1 offers"),
        (((1, 2), (1, AMOUNT_MAX + 1)), NAMES, "machine 1 offers"),
        (((), ()), (), "resources need names"),
        (((1, 2), (1, 2)), ("gpus", "gpus"), "each its own"),
        ((), NAMES, "but 0 capacities"),
    ],
)
def test_a_cluster_says_what_each_machine_offers(
    capacities: tuple[Amounts, ...], names: tuple[str, ...], problem: str
) -> None:
    with pytest.raises(ValueError, match=problem):
        Cluster((0, 0), (1, 1), "c", names, capacities)


def test_workload_and_machines_must_count_the_same() -> None:
    check_resources(asking(), OFFERING)
    check_resources(trace_of("t", [0], [[1]]), SLOTS)
    with pytest.raises(InputError, match=r"^t: its tasks ask for cpu_milli, memory_mb where machines have slots; give"):
        check_resources(asking(), SLOTS)
    with pytest.raises(InputError, match="one slot each where machines offer cpu_milli, memory_mb; give --requests"):
        check_resources(trace_of("t", [0], [[1]]), OFFERING)
    with pytest.raises(InputError, match="ask for memory_mb, cpu_milli where machines offer cpu_milli, memory_mb"):
        check_resources(asking(NAMES[::-1]), OFFERING)


def test_a_design_of_slots_is_refused_machines_with_capacities() -> None:
    check_vectors("pigeon", has_vectors=False, cluster=SLOTS)
    check_vectors("oracle", has_vectors=True, cluster=OFFERING)
    with pytest.raises(InputError, match=r"^pigeon: places slots only.*--slot-request cpu_milli=N,memory_mb=N"):
        check_vectors("pigeon", has_vectors=False, cluster=OFFERING)


@pytest.mark.parametrize("amounts", [(1,), (1, 2, 3), (-1, 0), (0, AMOUNT_MAX + 1)])
def test_amounts_that_no_field_holds_are_refused(amounts: Amounts) -> None:
    with pytest.raises(ValueError, match="amounts"):
        Packing(2)[amounts]


@given(st.lists(st.tuples(AMOUNT, AMOUNT), min_size=1, max_size=5))
def test_a_request_fits_exactly_where_every_amount_does_and_the_rest_stays_free(pairs: list[tuple[int, int]]) -> None:
    offered, asked = (tuple(amounts) for amounts in zip(*pairs, strict=True))
    packing = Packing(len(pairs))
    left = packing.free(offered) - packing[asked]
    fits = left & packing.guards == packing.guards
    assert fits == all(ask <= offer for offer, ask in pairs)
    if fits:
        assert packing.amounts(left) == tuple(offer - ask for offer, ask in pairs)


SHARES = (0, 1, 250, 300, 500, 600, 800, 999, 1000, 1300, 1500, 2000, 2500, 3000)


def packing_for(milli: int) -> DevicePacking:
    packing = packing_of(Cluster((0,), (1,), resources=("cpu_milli", "gpu_milli"), capacities=((10_000, milli),)))
    assert isinstance(packing, DevicePacking)
    return packing


def fits(packing: DevicePacking, free: int, request: Amounts) -> bool:
    return (free - packing[request]) & packing.guards == packing.guards


def take(packing: DevicePacking, free: int, milli: int) -> tuple[int, tuple[int, ...]]:
    """What is free after a request, and what it takes of each device."""
    took = packing.named(free, packing[0, milli])
    return packing.settled(free - took), packing.fields(took)[2:]


def can_hold(devices: list[int], milli: int) -> bool:
    """The rule, by trying all orders of devices."""
    count, share = divmod(milli, WHOLE)
    wanted = [WHOLE] * count + [share] * bool(share)
    return any(
        all(part <= device for part, device in zip(wanted, order, strict=False))
        for order in permutations(devices)
        if len(wanted) <= len(devices)
    )


def test_600_and_600_and_800_thousandths_do_not_lie_on_two_devices_together() -> None:
    packing = packing_for(2000)
    free = packing.free((10_000, 2000))
    free, first = take(packing, free, 600)
    free, second = take(packing, free, 600)
    assert (first, second) == ((600, 0), (0, 600))
    assert not fits(packing, free, (0, 800)), "800 thousandths are free, on two devices"
    assert packing.totals(free) == (10_000, 800)
    free = packing.settled(free + packing[0, 600, *first])
    assert fits(packing, free, (0, 800))


def test_whole_numbers_take_whole_devices_and_shares_the_fullest_that_has_room() -> None:
    packing = packing_for(4000)
    free, taken = packing.free((0, 4000)), []
    for milli in (300, 500, 2000, 200):
        free, parts = take(packing, free, milli)
        taken.append(parts)
    assert taken == [(300, 0, 0, 0), (500, 0, 0, 0), (0, WHOLE, WHOLE, 0), (200, 0, 0, 0)]
    assert not fits(packing, free, (0, 1001))
    assert fits(packing, free, (0, 1000))


def test_what_is_beyond_whole_devices_is_a_smaller_one() -> None:
    packing = packing_for(1500)
    free, parts = take(packing, packing.free((0, 1500)), 1300)
    assert parts == (WHOLE, 300)
    assert not fits(packing, free, (0, 201))
    assert fits(packing, free, (0, 200))


@pytest.mark.parametrize("seed", range(40))
def test_what_fits_and_what_it_takes_is_what_a_search_over_all_devices_finds(seed: int) -> None:
    stream = Random(seed)
    milli = stream.choice((0, 700, 1000, 2000, 2500, 4000))
    packing, devices = packing_for(milli), [WHOLE] * (milli // WHOLE) + [milli % WHOLE] * bool(milli % WHOLE)
    free, whole = packing.free((10_000, milli)), packing.free((10_000, milli))
    running: list[Task] = []
    for number in range(80):
        if running and stream.random() < 0.4:
            task = running.pop(stream.randrange(len(running)))
            free = packing.settled(free + packing[task.request])
            for device, part in enumerate(task.request[2:]):
                devices[device] += part
        asked = stream.choice(SHARES)
        assert fits(packing, free, (0, asked)) == can_hold(devices, asked), f"{asked} of {devices}"
        if not can_hold(devices, asked):
            with pytest.raises(ValueError, match="do not fit"):
                packing.named(free, packing[0, asked])
            continue
        task = Task(number, 0, request=(5, asked))
        claim = packing.naming(task, packing.named(free, packing[task.request]))
        assert not packing.splits(claim.request)
        assert packing.anywhere(claim) == task
        parts = claim.request[2:]
        share = asked % WHOLE
        if share:
            rooms = [
                room for device, room in enumerate(devices) if room >= share and parts[device : device + 1] != (WHOLE,)
            ]
            assert min(rooms) == devices[parts.index(share)], "the fullest that has room"
        for device, part in enumerate(parts):
            devices[device] -= part
        assert min(devices, default=0) >= 0
        free = packing.settled(free - packing[claim.request])
        running.append(claim)
        assert packing.totals(free) == (10_000 - 5 * len(running), sum(devices))
    for task in running:
        free = packing.settled(free + packing[task.request])
    assert free == whole


@pytest.mark.parametrize("parts", [(300, 300), (600,), (999, 1), (0, 500), (0, 0, 600, 600), (1000,)])
def test_a_share_on_two_devices_is_seen(parts: tuple[int, ...]) -> None:
    packing = packing_for(4000)
    assert packing.splits((0, 600, *parts)) == (parts != (600,))
    assert not packing.splits((0, 600)), "which names none"


def test_free_at_both_times_is_free_on_the_same_device() -> None:
    packing = packing_for(2000)
    whole = packing.free((0, 2000))
    first, second = (packing.settled(whole - packing[0, 1000, *parts]) for parts in ((WHOLE, 0), (0, WHOLE)))
    assert fits(packing, first, (0, 1000))
    assert fits(packing, second, (0, 1000))
    assert not fits(packing, packing.common(first, second), (0, 1))


def test_devices_that_are_waited_for_are_those_with_most_free() -> None:
    packing = packing_for(3000)
    whole = packing.free((0, 3000))
    free = packing.settled(whole - packing[0, 1900, 900, 400, 600])
    need = packing.awaited(whole, free, packing[0, 1500])
    assert packing.fields(need)[2:] == (0, WHOLE, 500)


@pytest.mark.parametrize("seed", range(20))
def test_what_has_to_be_given_back_makes_room_and_none_of_it_is_needless(seed: int) -> None:
    stream, packing = Random(seed), packing_for(4000)
    free, given = packing.free((0, 4000)), list[int]()
    while fits(packing, free, (0, 100)):
        took = packing.named(free, packing[0, stream.choice([one for one in SHARES if fits(packing, free, (0, one))])])
        free = packing.settled(free - took)
        given.append(took)
    stream.shuffle(given)
    for asked in (250, 1000, 1500, 4000):
        needed = packing.needed(free, packing[0, asked], given)
        assert sorted(needed) == list(needed)
        for left_out in (None, *needed):
            some = sum(given[place] for place in needed if place != left_out)
            assert fits(packing, packing.settled(free + some), (0, asked)) == (left_out is None)


def test_more_devices_than_a_machine_has_are_refused() -> None:
    cluster = Cluster((0,), (1,), "many", resources=("gpu_milli",), capacities=(((DEVICES_MAX + 1) * WHOLE,),))
    with pytest.raises(InputError, match="a machine has 64 devices of 1000 at most"):
        packing_of(cluster)
