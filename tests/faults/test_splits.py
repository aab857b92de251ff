"""A leader that was deposed unnoticed launches nothing on machines that began anew: splits of seeds, and some plans."""

from __future__ import annotations

from typing import Any

import pytest
from tests.faults.splits import parted, split

from volery.architectures import lookup
from volery.core.model import SECOND, Address
from volery.faults import Scenario, run_scenario
from volery.faults.scenario import ScenarioJob
from volery.sim.faults import Crash, FaultPlan, MessageFaults, Partition

SEEDS = 40
NAMES = [("pigeon", {"candidates": 0}), ("pigeon", {"candidates": 3}), ("pigeonc", {"candidates": 0}), ("megha", {})]
KEPT = [("pigeon", 378), ("pigeonc", 206), ("pigeonc", 270), ("central", 189), ("megha-2021", 95)]
"""Splits that have failed once; all but the second: a new leader reported an attempt that the former one had lost."""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "parameters"), NAMES, ids=["pigeon", "candidates", "pigeonc", "megha"])
def test_the_design_weathers_splits(name: str, parameters: dict[str, Any]) -> None:
    for seed in range(SEEDS):
        run_scenario(lookup(name), split(lookup(name), seed, **parameters))


@pytest.mark.parametrize(("name", "seed"), KEPT)
def test_a_split_that_has_failed_once_fails_no_more(name: str, seed: int) -> None:
    fixed = {"candidates": 0} if name.startswith("pigeon") else {}
    run_scenario(lookup(name), split(lookup(name), seed, **fixed))


@pytest.mark.parametrize(("name", "seed"), [("megha", 12), ("megha", 30), *(("megha-2021", k) for k in (9, 29, 71))])
def test_a_parted_scheduler_that_has_failed_once_fails_no_more(name: str, seed: int) -> None:
    """Its heir had lost a unit of its view; gave up a task that it had not placed; took a task twice."""
    run_scenario(lookup(name), parted(lookup(name), seed))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megha", "megha-2021"])
def test_the_design_weathers_parted_schedulers(name: str) -> None:
    for seed in range(SEEDS):
        run_scenario(lookup(name), parted(lookup(name), seed))


FIRST, STANDBY, THIRD = "master/0", "master/0/standby", "master/0/2"
NODES = ("node/0", "node/1", "node/2", "node/3")
DEALERS = ("distributor/0", "distributor/1", "distributor/2")


def on_four(
    name: str, parameters: dict[str, Any], jobs: list[tuple[float, list[int]]], plan: FaultPlan, seed: int
) -> Scenario:
    """A scenario with four machines; of a job the arrival and the durations of its tasks, in seconds."""
    listed = [
        ScenarioJob(round(at_s * SECOND), tuple(SECOND * duration for duration in durations), (0,) * len(durations))
        for at_s, durations in jobs
    ]
    return Scenario(name, seed, parameters, (0,) * 4, (1,) * 4, tuple(listed), 500, 0, None, plan)


def one_group(candidates: int, jobs: list[tuple[float, list[int]]], plan: FaultPlan, seed: int) -> Scenario:
    """Pigeon with one group of them."""
    parameters = {"reliable": True, "groups": 1, "reserved": 0, "distributors": 3, "candidates": candidates}
    return on_four("pigeon", parameters, jobs, plan, seed)


def cut(start_s: float, end_s: float, one: Address, *other: Address) -> Partition:
    return Partition(round(start_s * SECOND), round(end_s * SECOND), (one,), other)


def crash(at_s: float, address: Address, back_s: float) -> Crash:
    return Crash(round(at_s * SECOND), address, round(back_s * SECOND))


@pytest.mark.parametrize("seed", range(3))
def test_a_lead_that_waited_for_a_machine_does_not_make_a_deposed_candidate_its_master(seed: int) -> None:
    """The candidate began anew cut off from a machine, and reaches it when that has begun anew under the next one."""
    plan = FaultPlan(
        partitions=(
            cut(0.4, 5.5, STANDBY, "node/3"),
            cut(4, 9, STANDBY, FIRST, THIRD, *NODES[:3], *DEALERS),
            cut(6, 9, THIRD, "node/3"),
        ),
        crashes=(crash(0.5, STANDBY, 0.6), crash(1.5, FIRST, 3), crash(6, "node/3", 6.1)),
        deadline_us=600 * SECOND,
    )
    run_scenario(lookup("pigeon"), one_group(3, [(2.2, [3, 3, 3]), (2.6, [10, 10, 10, 10])], plan, seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_partner_that_began_anew_makes_no_leader_sure_before_it_knows_whose_its_machines_are(seed: int) -> None:
    """It led three of them until then, and its questions to them are lost."""
    plan = FaultPlan(
        messages=(MessageFaults(start_us=3 * SECOND, end_us=12 * SECOND, among=NODES[:3], drop=1.0),),
        partitions=(
            cut(1, 3.05, FIRST, STANDBY),
            cut(1, 14, FIRST, *NODES[:3]),
            cut(1, 14, STANDBY, "node/3", *DEALERS),
        ),
        crashes=(crash(3, STANDBY, 3.1),),
        deadline_us=600 * SECOND,
    )
    run_scenario(lookup("pigeon"), one_group(0, [(0.2, [20, 20, 20, 1])], plan, seed))


@pytest.mark.parametrize("seed", range(3))
def test_what_only_the_clients_remember_keeps_a_deposed_leader_from_launching(seed: int) -> None:
    """Its partner and all machines, which have followed that, begin anew."""
    plan = FaultPlan(
        partitions=(cut(1, 4.2, FIRST, STANDBY, *NODES), cut(4, 12, STANDBY, *DEALERS)),
        crashes=tuple(crash(4, address, 4.2) for address in (STANDBY, *NODES)),
        deadline_us=600 * SECOND,
    )
    run_scenario(lookup("pigeon"), one_group(0, [(0.2, [3, 3, 3, 3]), (0.5, [20, 20, 20])], plan, seed))


@pytest.mark.parametrize("seed", range(3))
def test_a_request_that_its_global_master_has_given_up_is_void_at_a_deposed_leader(seed: int) -> None:
    """It was lost on its way, and is sent again when the other Local Master and all machines have begun anew."""
    leader, standby = "lm/0", "lm/0/standby"
    plan = FaultPlan(
        partitions=(
            cut(1, 4.2, leader, standby, *NODES),
            cut(1.1, 4.4, leader, "gm/0"),
            cut(4, 12, standby, "gm/0"),
        ),
        crashes=tuple(crash(4, address, 4.2) for address in (standby, *NODES)),
        deadline_us=600 * SECOND,
    )
    parameters = {"reliable": True, "gms": 1, "lms": 1, "heartbeat_s": 1.0}
    run_scenario(lookup("megha"), on_four("megha", parameters, [(1.2, [20, 20, 20])], plan, seed))
