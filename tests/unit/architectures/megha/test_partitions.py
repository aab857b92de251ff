"""How Megha divides a cluster (section 2.1)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from volery.architectures.megha.partitions import Layout
from volery.core.errors import InputError
from volery.core.model import Cluster


@given(
    gms=st.integers(1, 6),
    lms=st.integers(1, 6),
    extra=st.integers(0, 40),
    slots=st.integers(1, 3),
    bits=st.integers(0, 9),
)
def test_every_slot_of_every_machine_is_in_one_partition(gms: int, lms: int, extra: int, slots: int, bits: int) -> None:
    machines = gms * lms + extra
    cluster = Cluster(tuple(k * 7 % (1 << bits) for k in range(machines)), (slots,) * machines)
    layout = Layout(cluster, gms, lms)
    assert sorted(machine for part in layout.machines for machine in part) == sorted(list(range(machines)) * slots)
    assert len(layout.size) == gms * lms
    for partition, members in enumerate(layout.machines):
        assert layout.size[partition] == len(members) > 0
        assert layout.whole(partition) == (1 << len(members)) - 1
        counts = [cluster.constraints[machine].bit_count() for machine in members]
        assert counts == sorted(counts), "the lowest position has the fewest constraints"


def test_machines_stand_in_their_own_order_where_the_first_candidate_is_taken() -> None:
    cluster = Cluster((3, 0, 1, 7), (1,) * 4)
    assert Layout(cluster, 1, 1, in_order=True).machines == [[0, 1, 2, 3]]
    assert Layout(cluster, 1, 1).machines == [[1, 2, 0, 3]]


def test_consecutive_machines_share_a_local_master() -> None:
    layout = Layout(Cluster.uniform(12), 2, 3)
    assert layout.machines == [[0, 1], [2, 3], [4, 5], [6, 7], [8, 9], [10, 11]]
    assert [list(layout.partitions_of_lm(lm)) for lm in range(3)] == [[0, 1], [2, 3], [4, 5]]


def test_more_partitions_than_machines_are_refused() -> None:
    with pytest.raises(InputError, match="5 GMs x 5 LMs make 25 partitions, more than 24 workers"):
        Layout(Cluster.uniform(24), 5, 5)
