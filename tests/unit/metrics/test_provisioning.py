"""What machines that come and go cost, and supply against demand, by hand."""

from __future__ import annotations

from array import array
from collections.abc import Sequence

import msgspec
import pytest
from tests.unit.architectures.pipeline.runs import cores_cluster, trace_of_rows

from volery.core.events import Power, Switched
from volery.core.model import NEVER, SECOND
from volery.core.records import Billing, LostAttempt, Records
from volery.metrics import provisioning_summary

MACHINES = cores_cluster(4, 2)
HOURLY = Billing(frozenset((0, 1)), 100 * SECOND, 0.5, 1.0)


def recorded(billing: Billing, switches: Sequence[tuple[int, int, Power]]) -> Records:
    """Three cores on machine 0 from 20 to 60 s, ready at 5 s; one on machine 1 from 20 to 100; answered at 120 s."""
    records = Records(trace_of_rows([(5, 3, 40), (20, 1, 80)]))
    records.billing = billing
    records.start_us = array("q", [20 * SECOND, 20 * SECOND])
    records.finish_us = array("q", [60 * SECOND, 100 * SECOND])
    records.worker = array("i", [0, 1])
    records.answered_us = array("q", [60 * SECOND, 120 * SECOND])
    for at, machine, power in switches:
        records.observe(Switched(at * SECOND, machine, power))
    return records


SWITCHES: Sequence[tuple[int, int, Power]] = [(0, 1, "on"), (0, 0, "booting"), (10, 0, "on"), (150, 0, "off")]


def test_hours_and_cost() -> None:
    """Both are provisioned from 0 to the end at 120 s, which is two intervals."""
    found = provisioning_summary(recorded(HOURLY, SWITCHES), MACHINES)
    assert found is not None
    assert (found.machines, found.boots) == (2, 1)
    assert found.machine_h == pytest.approx(240 / 3600)
    assert found.paid_machine_h == pytest.approx(400 / 3600)
    assert found.cost == pytest.approx((200 * 4.5 + 200 * 2.5) / 3600)
    assert found.unit_h == pytest.approx((120 * 4 + 120 * 2) / 3600)
    assert found.used_machine_h == pytest.approx((40 + 80) / 3600)
    assert found.used_unit_h == pytest.approx((3 * 40 + 80) / 3600)


def test_supply_against_demand() -> None:
    """From 5 s to 120 s: 3, 4, 1 and 0 cores are asked for from 5, 20, 60 and 100 s; 2, then 6 are there from 10 s."""
    found = provisioning_summary(recorded(HOURLY, SWITCHES), MACHINES)
    assert found is not None
    assert found.supply_mean == pytest.approx((5 * 2 + 110 * 6) / 115)
    assert found.demand_mean == pytest.approx((15 * 3 + 40 * 4 + 40) / 115)
    assert found.under_accuracy == pytest.approx(5 / (115 * 6))
    assert found.over_accuracy == pytest.approx((10 * 3 + 40 * 2 + 40 * 5 + 20 * 6) / (115 * 6))
    assert found.under_relative == pytest.approx(5 / 3 / 95)
    assert found.over_relative == pytest.approx((10 + 40 * 2 / 4 + 40 * 5) / 95)
    assert found.under_share == pytest.approx(5 / 115)
    assert found.over_share == pytest.approx(110 / 115)


def test_demand_counts_up_to_what_there_can_be() -> None:
    """Machine 1 alone comes and goes: its task alone counts, and two cores are all there can be."""
    found = provisioning_summary(recorded(Billing(frozenset((1,))), [(0, 1, "on")]), MACHINES)
    assert found is not None
    assert found.demand_mean == pytest.approx(80 / 115)
    assert found.used_machine_h == pytest.approx(80 / 3600)
    assert found.over_accuracy == pytest.approx((35 * 2 + 80) / (115 * 2))


def test_an_attempt_that_died_has_used_its_machine() -> None:
    records = recorded(HOURLY, SWITCHES)
    records.lost.append(LostAttempt(1, 0, 0, 15 * SECOND, NEVER))
    records.killed[1, 0] = 18 * SECOND
    found = provisioning_summary(records, MACHINES)
    assert found is not None
    assert found.used_machine_h == pytest.approx((3 + 40 + 80) / 3600)


def test_a_machine_that_is_released_before_it_is_on_supplies_nothing() -> None:
    found = provisioning_summary(recorded(HOURLY, [(0, 0, "booting"), (7, 0, "off")]), MACHINES)
    assert found is not None
    assert (found.supply_mean, found.over_share) == (0, 0)
    assert found.machine_h == pytest.approx(7 / 3600)


def test_where_machines_are_always_on_there_is_nothing_to_say() -> None:
    assert provisioning_summary(Records(trace_of_rows([(5, 3, 40)])), MACHINES) is None


def test_thousandths_of_a_processor_count_as_processors() -> None:
    trace = msgspec.structs.replace(
        trace_of_rows([(5, 3, 40), (20, 1, 80)]),
        resources=("cpu_milli",),
        requests=tuple((1000 * k,) for k in range(65)),
    )
    cluster = msgspec.structs.replace(MACHINES, resources=("cpu_milli",), capacities=((4000,), (2000,)))
    cores, milli = recorded(HOURLY, SWITCHES), recorded(HOURLY, SWITCHES)
    milli.trace, milli.billing = trace, msgspec.structs.replace(HOURLY, unit_price=0.001)
    expected, found = provisioning_summary(cores, MACHINES), provisioning_summary(milli, cluster)
    assert expected is not None
    assert found is not None
    assert msgspec.structs.astuple(found) == pytest.approx(msgspec.structs.astuple(expected))
