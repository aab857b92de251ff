"""Demand over supply, and the formula of Pollaczek and Khinchine."""

from __future__ import annotations

from random import Random

import pytest

from volery.architectures.hybrid.scarcity import (
    LOAD_MAX,
    WINDOW,
    ConstraintDemand,
    Negotiation,
    RecentService,
    scarcity,
    supply,
)
from volery.core.model import Task


def test_supply_counts_slots_of_machines_that_have_a_constraint() -> None:
    assert supply((0b101, 0b001, 0b000), (1, 3, 9)) == [4, 0, 1]


def test_the_crv_is_what_waits_everywhere_over_who_has_it() -> None:
    assert scarcity([(3, 0, 5), (1, 0, 0)], [4, 0, 10]) == [1.0, 0.0, 0.5]
    assert scarcity([], [4, 2]) == [0.0, 0.0]


def test_demand_counts_each_constraint_of_a_set() -> None:
    demand = ConstraintDemand(3)
    demand.add(0b101, 4)
    demand.add(0b001, 2)
    demand.add(0b101, -1)
    assert demand.counts == [5, 0, 3]


def served(services: list[int], gap_us: int, servers: int = 1) -> RecentService:
    recent = RecentService(servers)
    for number, ran_us in enumerate(services):
        recent.add(number * gap_us, ran_us)
    return recent


def test_constant_service_waits_half_as_long_as_exponential_service() -> None:
    """M/D/1: R S / (2 (1 - R)); M/M/1: R S / (1 - R)."""
    constant = served([100] * WINDOW, 200)
    assert constant.load() == pytest.approx(0.5)
    assert constant.wait_us(0.5) == pytest.approx(50)
    assert constant.wait_us(0.9) == pytest.approx(450)
    stream = Random(0)
    waits = [served([int(stream.expovariate(1e-4)) for _ in range(WINDOW)], 1).wait_us(0.5) for _ in range(200)]
    assert sum(waits) / len(waits) == pytest.approx(10_000, rel=0.05)


def test_load_is_per_slot_and_clipped() -> None:
    assert served([100] * 10, 200, servers=2).load() == pytest.approx(0.25)
    assert served([100] * 10, 100).load() == LOAD_MAX
    assert served([100] * 10, 0).load() == LOAD_MAX
    assert served([0] * 10, 0).load() == 0.0


def test_fewer_than_two_tasks_tell_nothing() -> None:
    recent = RecentService(1)
    assert (recent.load(), recent.wait_us(0.5)) == (0.0, 0.0)
    recent.add(0, 100)
    assert recent.load() == 0.0


def test_only_the_last_tasks_count() -> None:
    recent = served([1_000] * WINDOW + [10] * WINDOW, 100)
    assert recent.load() == pytest.approx(0.1)
    assert recent.wait_us(0.5) == pytest.approx(5)


def test_the_scarcest_soft_constraints_are_given_up_until_a_machine_fits() -> None:
    negotiation = Negotiation(0b110, (9, 4, 4))
    negotiation.thousandths = (0, 100, 900)
    task = Task(0, 0, 0b111)
    admitted, dropped = negotiation.admitted(task, lambda needs: needs in (0b011, 0b001))
    assert (admitted.constraints, dropped) == (0b011, 1)
    admitted, dropped = negotiation.admitted(task, lambda needs: needs == 0b001)
    assert (admitted.constraints, dropped) == (0b001, 2)


def test_a_task_is_left_as_it_is_where_giving_up_is_not_needed_or_of_no_use() -> None:
    negotiation = Negotiation(0b110, (9, 4, 4))
    task = Task(0, 0, 0b111)
    assert negotiation.admitted(task, lambda needs: True) == (task, 0)
    assert negotiation.admitted(task, lambda needs: False) == (task, 0)
    hard = Task(1, 0, 0b001)
    assert negotiation.admitted(hard, lambda needs: False) == (hard, 0)
