"""Resources: what clusters and workloads say of them, and when they do not fit together."""

from __future__ import annotations

from array import array

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.conformance.cases import trace_of
from volery.core.errors import InputError
from volery.core.events import Submit
from volery.core.model import AMOUNT_MAX, Amounts, Cluster
from volery.core.resources import Packing, check_resources, check_vectors
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
    check_vectors("pigeon", vectors=False, cluster=SLOTS)
    check_vectors("oracle", vectors=True, cluster=OFFERING)
    with pytest.raises(InputError, match=r"^pigeon: places slots only.*--slot-request cpu_milli=N,memory_mb=N"):
        check_vectors("pigeon", vectors=False, cluster=OFFERING)


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
