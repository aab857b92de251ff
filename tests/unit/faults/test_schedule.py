"""Schedules: what is drawn, for whom, what becomes of it in the lab; and the rules that judge real processes, too."""

from __future__ import annotations

import msgspec
import pytest

from volery.architectures import lookup
from volery.core.errors import InputError
from volery.core.model import NEVER, SECOND
from volery.faults import draw_schedule, run_scenario
from volery.faults.judge import AttemptRecord, Attempts, excesses, losses, overlaps, reported_twice
from volery.faults.schedule import BACK_US, BUSY_MAX, HostFault, Kind, Schedule
from volery.sim.faults import Crash, MessageFaults, Partition

NODES = ("node/0", "node/2", "node/4", "node/6")


@pytest.mark.parametrize(
    ("name", "amounts"), [("megha", False), ("megha-2021", True), ("pigeon", False), ("sparrow", False)]
)
def test_the_lab_weathers_what_real_processes_have_to(name: str, amounts: bool) -> None:
    for seed in range(3):
        schedule = draw_schedule(lookup(name), seed, 40 * SECOND, amounts=amounts)
        outcome = run_scenario(lookup(name), schedule.scenario())
        assert outcome.tasks == sum(len(job.durations_us) for job in schedule.jobs)
        assert outcome.faults


def test_a_seed_draws_one_schedule_which_is_written_and_read() -> None:
    drawn = draw_schedule(lookup("megha-2021"), 4, 60 * SECOND, amounts=True)
    assert msgspec.json.decode(msgspec.json.encode(drawn), type=Schedule) == drawn
    assert draw_schedule(lookup("megha-2021"), 4, 60 * SECOND, amounts=True) == drawn
    assert {job.user for job in drawn.jobs} == {"a", "b"}
    assert max(len(job.requests) for job in drawn.jobs) == 24


def test_every_kind_is_done_once_first_and_no_more_than_three_hosts_are_harmed_at_once() -> None:
    everything = draw_schedule(lookup("megha"), 1, 600 * SECOND).faults
    (lost,) = (harm for harm in everything if harm.kind == "lose")
    assert lost.host in ("gm-a", "gm-b")
    assert lost.until_us == 600 * SECOND, "for good"
    assert all(harm.until_us < lost.at_us for harm in everything if harm.base == lost.host and harm != lost)
    (again,) = (harm for harm in everything if harm.kind == "restart")
    assert again.at_us > lost.at_us, "of all others"
    harms = [harm for harm in everything if harm not in (lost, again)]
    assert {harm.kind for harm in harms[:7]} == {"kill", "stop", "broker", "tear", "fill", "slow", "cut"}
    assert {harm.base for harm in harms} == {"", "api", "gm-a", "gm-b", "lm-a", "lm-b", "node-a", "node-b"}
    assert any(harm.host == "node-a/keeper" for harm in harms)
    most = 0
    for harm in harms:
        beside = [other for other in harms if other.at_us <= harm.at_us <= other.until_us]
        assert len({other.base for other in beside}) == len(beside), "one host at most once"
        most = max(most, len(beside))
    assert 1 < most <= BUSY_MAX + 1


def test_nothing_is_done_that_the_design_does_not_say_it_bears() -> None:
    pigeon = draw_schedule(lookup("pigeon"), 0, 600 * SECOND).faults
    ended = {harm.base for harm in pigeon if harm.kind in ("kill", "tear")}
    assert ended == {"api", "master-a", "master-b", "node-a", "node-b"}
    assert any(harm.base.startswith("distributor") and harm.kind == "stop" for harm in pigeon)
    sparrow = draw_schedule(lookup("sparrow"), 0, 600 * SECOND).faults
    assert {harm.kind for harm in sparrow} == {"stop", "broker", "fill", "slow", "cut"}
    assert {harm.host for harm in sparrow if harm.kind == "fill"} == {"api"}
    assert not any("keeper" in harm.host for harm in sparrow)
    with pytest.raises(InputError, match="bears no partition"):
        draw_schedule(lookup("oracle"), 0, SECOND)
    with pytest.raises(InputError, match="places slots"):
        draw_schedule(lookup("pigeon"), 0, SECOND, amounts=True)


def test_a_restart_of_all_hosts_crashes_everything_that_is_there() -> None:
    schedule = draw_schedule(lookup("megha"), 1, 60 * SECOND)
    faults = (
        HostFault(1, "lose", 10, "gm-a"),
        HostFault(2 * SECOND, "kill", 3 * SECOND, "lm-a"),
        HostFault(3 * SECOND, "restart", 0),
    )
    plan = msgspec.structs.replace(schedule, faults=faults).scenario().plan
    crashed = [crash.address for crash in plan.crashes if crash.at_us == 3 * SECOND]
    everyone = {address for addresses in schedule.hosts.values() for address in addresses}
    assert sorted(crashed) == sorted(everyone - {*schedule.hosts["gm-a"], *schedule.hosts["lm-a"]})


def test_what_each_harm_is_in_the_lab() -> None:
    schedule = msgspec.structs.replace(draw_schedule(lookup("megha"), 0, 0), faults=())

    def played(*harms: HostFault) -> tuple[object, ...]:
        plan = msgspec.structs.replace(schedule, faults=harms).scenario().plan
        return (*plan.messages, *plan.partitions, *plan.crashes)

    assert schedule.hosts["lm-a"] == ("lm/0", "lm/1/standby")
    ending: tuple[Kind, ...] = ("kill", "tear", "fill")
    for kind in ending:
        back = 15 + BACK_US
        assert played(HostFault(5, kind, 10, "lm-a")) == (Crash(5, "lm/0", back), Crash(5, "lm/1/standby", back))
        assert played(HostFault(5, kind, 10, "api")) == ()
    parting: tuple[Kind, ...] = ("stop", "cut")
    for kind in parting:
        assert played(HostFault(5, kind, 10, "node-a")) == (Partition(5, 15, NODES),)
    assert played(HostFault(5, "slow", 10, "gm-b", extra_us=7)) == (
        MessageFaults(start_us=5, end_us=15, delay=1.0, extra_us=7, among=("gm/1",)),
    )
    assert set(played(HostFault(5, "broker", 10))) == {Partition(5, 15, host) for host in schedule.hosts.values()}
    assert played(HostFault(5, "kill", 0, "node-a/keeper")) == tuple(Crash(5, node, 5 + BACK_US) for node in NODES)
    assert played(HostFault(5, "stop", 10, "node-a/keeper")) == ()


def test_the_rules_reject_what_breaks_them() -> None:
    """The judge's own tests reject it in the lab's records; these attempts might be of real processes."""
    whole: Attempts = {
        0: [AttemptRecord(0, 10, 3, 0, True)],
        1: [AttemptRecord(0, 10, 3, 0, False), AttemptRecord(10, 30, 4, 1, True)],
    }
    answered = {7: 40}
    assert not [*overlaps(whole), *losses(whole, {7: [0, 1]}, answered.__getitem__), *reported_twice({0: {0}, 1: {1}})]
    assert [breach.kind for breach in losses(whole, {7: [0, 1, 2]}, answered.__getitem__)] == ["lost"]
    assert [breach.problem for breach in losses(whole, {8: [0]}, lambda _: NEVER)] == ["job 8 was never reported done"]
    assert [breach.kind for breach in losses(whole, {7: [1]}, lambda _: 29)] == ["early"]
    assert [breach.kind for breach in reported_twice({0: {0, 16}, 1: {1}})] == ["succeeded twice"]
    twice: Attempts = {0: [AttemptRecord(0, 10, 3, 0, True), AttemptRecord(9, 20, 4, 1, True)]}
    assert [breach.kind for breach in overlaps(twice)] == ["runs twice"]
    offered = ((1, 1),) * 5
    assert not list(excesses(whole, offered, ("cpu", "memory"), lambda task: (1, 0) if task else (0, 1)))
    assert [breach.problem for breach in excesses(whole, offered, ("cpu", "memory"), lambda _: (1, 0))] == [
        "machine 3 runs 2 cpu at 0 us"
    ]
