"""What each crash costs: one fault at a time, on a cluster whose every task is long enough to meet it."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from volery.architectures import lookup
from volery.core.model import SECOND, Time
from volery.core.records import Records
from volery.core.streams import Streams
from volery.faults import Scenario, ScenarioJob
from volery.faults.judge import attempts_of
from volery.sim.faults import Crash, FaultPlan, MessageFaults, Partition
from volery.sim.kernel import Kernel, Options
from volery.sim.network import Network

LONG_US: Time = 30 * SECOND
MACHINES = 12
SIZES: dict[str, dict[str, Any]] = {
    "megha-2021": {"reliable": True, "gms": 2, "lms": 2, "heartbeat_s": 1.0},
    "megha-2021-printed": {"reliable": True, "gms": 2, "lms": 2, "heartbeat_s": 1.0},
    "megha": {"reliable": True, "gms": 2, "lms": 2, "heartbeat_s": 1.0},
    "pigeon": {"reliable": True, "groups": 2, "reserved": 0, "distributors": 2},
    "hydra": {
        "reliable": True,
        "subclusters": 2,
        "proxies": 1,
        "routing": "hash",
        "node_heartbeat_s": 0.1,
        "am_heartbeat_s": 0.1,
    },
}


def run(name: str, plan: FaultPlan, tasks: int = 6, **parameters: Any) -> tuple[Records, Kernel]:
    """Two jobs of long tasks from second 1 on."""
    jobs = tuple(ScenarioJob(SECOND + job, (LONG_US,) * tasks, (0,) * tasks) for job in range(2))
    whole = msgspec.structs.replace(plan, deadline_us=3_600 * SECOND)
    given = {**SIZES[name], **parameters}
    scenario = Scenario(name, 3, given, (0,) * MACHINES, (1,) * MACHINES, jobs, 500, 0, None, whole)
    architecture = lookup(name)
    deployment = architecture.build(scenario.cluster(), scenario.config(architecture), Streams(3))
    options = Options(check=True, plan=whole)
    kernel = Kernel(deployment, scenario.trace(), scenario.cluster(), Network(), 3, options)
    records = kernel.run(None)
    kernel.check_rest()
    return records, kernel


def crash(*addresses: str, at_s: int = 5, back_s: int = 20) -> FaultPlan:
    return FaultPlan(crashes=tuple(Crash(at_s * SECOND, address, back_s * SECOND) for address in addresses))


LOCAL = ("lm/0", "lm/0/standby", "lm/1", "lm/1/standby")
MASTERS = ("master/0", "master/0/standby", "master/1", "master/1/standby")


@pytest.mark.parametrize(
    ("name", "addresses", "back_s"),
    [
        ("megha", ("gm/0",), 20),
        ("megha", ("gm/0", "gm/1"), 20),
        ("megha", ("lm/0",), 20),
        ("megha", ("lm/0/standby",), 20),
        ("megha", LOCAL, 6),
        ("megha", ("gm/0", "gm/1", *LOCAL), 6),
        ("megha-2021", ("gm/0",), 20),
        ("megha-2021", ("lm/0",), 20),
        ("megha-2021", ("gm/0", "gm/1", *LOCAL), 6),
        ("megha-2021-printed", ("lm/0",), 20),
        ("megha-2021-printed", ("gm/0", "gm/1", *LOCAL), 6),
        ("pigeon", ("master/0",), 20),
        ("pigeon", ("master/0/standby",), 20),
        ("pigeon", MASTERS, 6),
    ],
)
def test_a_crash_above_the_nodes_costs_no_task_its_work(name: str, addresses: tuple[str, ...], back_s: int) -> None:
    """Megha 2021, section IV: GMs are stateless, LMs have a standby. Pigeon, section 6.1: even of both masters."""
    records, _ = run(name, crash(*addresses, back_s=back_s))
    assert not records.killed
    assert not records.lost
    assert max(records.finish_us) < 2 * SECOND + LONG_US


@pytest.mark.parametrize(("name", "addresses"), [("megha", LOCAL), ("megha-2021", LOCAL), ("pigeon", MASTERS)])
def test_nodes_that_hear_of_no_master_for_longer_than_their_grace_end_what_runs(
    name: str, addresses: tuple[str, ...]
) -> None:
    """They cannot tell a dead master from one that has given them up."""
    records, _ = run(name, crash(*addresses, back_s=20))
    assert len(records.killed) == len(records.lost) == 12
    assert min(records.start_us) >= 20 * SECOND


@pytest.mark.parametrize(
    ("name", "masters"), [("megha", LOCAL), ("megha-2021", LOCAL), ("pigeon", MASTERS)], ids=["megha", "2021", "pigeon"]
)
@pytest.mark.parametrize("gone", [("node/0",), ("node/0", "node/2", "node/5")], ids=["one machine", "three machines"])
def test_a_machine_that_stays_away_holds_nothing_up_when_all_masters_begin_anew(
    name: str, masters: tuple[str, ...], gone: tuple[str, ...]
) -> None:
    """A cold start without one machine held every job of a Global Master until that machine was back."""
    away = tuple(Crash(5 * SECOND, address, 500 * SECOND) for address in gone)
    schedulers = ("gm/0", "gm/1") if name.startswith("megha") else ()
    anew = tuple(Crash(5 * SECOND, address, 6 * SECOND) for address in (*schedulers, *masters))
    plan = FaultPlan(crashes=away + anew, progress_us=90 * SECOND)
    records, _ = run(name, plan, tasks=5)
    assert max(records.finish_us) < 90 * SECOND


@pytest.mark.parametrize("name", ["megha", "megha-2021", "pigeon"])
def test_a_machines_tasks_run_elsewhere_after_its_lease_or_as_soon_as_it_is_back(name: str) -> None:
    for back_s, soonest_s, latest_s in ((60, 9, 11), (6, 6, 7)):
        records, kernel = run(name, crash("node/0", back_s=back_s), tasks=5)
        moved = [attempts for attempts in attempts_of(records).values() if len(attempts) > 1]
        assert kernel.lab.now > back_s * SECOND
        for (_, end, worker, *_), (start, *_) in moved:
            assert (end, worker) == (5 * SECOND, 0)
            assert soonest_s * SECOND <= start <= latest_s * SECOND
        assert len(moved) == 1


@pytest.mark.parametrize(
    ("name", "master"),
    [("megha", "lm/0"), ("megha-2021", "lm/0"), ("megha-2021-printed", "lm/0"), ("pigeon", "master/0")],
)
def test_work_goes_on_under_the_second_master_while_the_first_is_down(name: str, master: str) -> None:
    """A job that comes after the crash does not wait for the first master's return."""
    plan = crash(master, at_s=0, back_s=600)
    records, _ = run(name, plan)
    assert max(records.start_us) < 5 * SECOND


@pytest.mark.parametrize(("name", "master"), [("megha", "lm/0"), ("megha-2021", "lm/0"), ("pigeon", "master/0")])
def test_a_master_behind_a_partition_is_deposed_and_nothing_runs_twice(name: str, master: str) -> None:
    """Both masters reach the nodes and not each other: the second takes over, nodes refuse the first, tasks run on."""
    cut = FaultPlan(partitions=(Partition(5 * SECOND, 40 * SECOND, (master,), (f"{master}/standby",)),))
    records, _ = run(name, cut)
    assert not records.killed
    assert not records.lost


def test_a_master_that_is_deposed_unnoticed_launches_nothing_on_a_machine_that_began_anew() -> None:
    """It reaches that machine alone, which has forgotten the new master, and the queues of the two are the same."""
    gone = {"master/0", "node/0"}
    others = tuple(address for address in (*MASTERS, "distributor/0", "distributor/1") if address not in gone)
    nodes = tuple(f"node/{number}" for number in range(1, MACHINES))
    cuts = (
        Partition(5 * SECOND, 45 * SECOND, ("master/0",), (*others, *nodes)),
        Partition(5 * SECOND, 10 * SECOND + SECOND // 2, ("master/0",), ("node/0",)),
        Partition(10 * SECOND - 1, 45 * SECOND, ("node/0",), ("master/0/standby",)),
    )
    plan = FaultPlan(partitions=cuts, crashes=(Crash(10 * SECOND, "node/0", 11 * SECOND),))
    records, _ = run("pigeon", plan, tasks=12)
    assert records.counters["nodes_unconfirmed"]
    again = [attempts for attempts in attempts_of(records).values() if len(attempts) > 1]
    assert [[attempt.whole for attempt in attempts] for attempts in again] == [[False, True]], "what ran on node/0"


@pytest.mark.parametrize(("name", "masters"), [("megha", LOCAL), ("megha-2021", LOCAL), ("pigeon", MASTERS)])
@pytest.mark.parametrize("away", [0, 1])
def test_masters_and_machines_that_all_begin_anew_come_up_again(name: str, masters: tuple[str, ...], away: int) -> None:
    """Nobody remembers an epoch; a machine that stays away delays the others for a lease."""
    schedulers = ("gm/0", "gm/1") if name.startswith("megha") else ()
    nodes = [f"node/{number}" for number in range(away, MACHINES)]
    anew = [Crash(5 * SECOND, address, 6 * SECOND) for address in (*schedulers, *masters, *nodes)]
    stays = [Crash(5 * SECOND, "node/0", 500 * SECOND)] * away
    records, _ = run(name, FaultPlan(crashes=(*anew, *stays)), tasks=5)
    last_us = max(records.start_us)
    assert 6 * SECOND <= last_us < (15 if away else 10) * SECOND


@pytest.mark.parametrize(
    ("name", "partner"),
    [("megha", "lm/0/standby"), ("megha-2021", "lm/0"), ("pigeon", "master/0"), ("pigeon", "master/0/standby")],
)
def test_without_its_partner_a_master_gives_up_what_ran_on_a_restarted_machine_and_uses_the_others(
    name: str, partner: str
) -> None:
    plan = FaultPlan(crashes=(Crash(2 * SECOND, partner, 90 * SECOND), Crash(10 * SECOND, "node/0", 11 * SECOND)))
    records, _ = run(name, plan, tasks=6)
    ((_, second),) = [attempts for attempts in attempts_of(records).values() if len(attempts) > 1]
    assert second.worker != 0
    assert 30 * SECOND < second.start_us < 35 * SECOND, "once another machine is free"


@pytest.mark.parametrize("name", ["megha", "megha-2021", "pigeon"])
def test_a_node_that_is_cut_off_ends_its_task_before_another_runs_it(name: str) -> None:
    cut = FaultPlan(partitions=(Partition(5 * SECOND, 40 * SECOND, ("node/0",)),))
    records, _ = run(name, cut, tasks=5)
    (task,) = {task for task, _ in records.killed}
    (_, end, worker, *_), (start, _, other, *_) = attempts_of(records)[task]
    assert worker == 0 != other
    assert 7 * SECOND < end <= 8 * SECOND, "told within a second, and two of grace"
    assert end < start <= 11 * SECOND


@pytest.mark.parametrize("at_us", range(SECOND, SECOND + 12_000, 1_500))
def test_a_gm_that_waits_for_an_answer_goes_on_when_the_next_leader_reports(at_us: Time) -> None:
    """Its Local Master fails between request and answer and comes back late: the report of the other ends the wait."""
    plan = FaultPlan(crashes=(Crash(at_us, "lm/0", 600 * SECOND),))
    records, _ = run("megha-2021-printed", plan)
    assert max(records.start_us) < 6 * SECOND


def test_a_gm_that_waits_goes_on_when_a_lost_answer_is_repeated() -> None:
    records, _ = run(
        "megha-2021-printed", FaultPlan(messages=(MessageFaults(start_us=0, end_us=60 * SECOND, drop=0.3),))
    )
    assert max(records.start_us) < 20 * SECOND
