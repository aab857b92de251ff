"""Scenarios, the judge's rules, and shrinking, each on their own."""

from __future__ import annotations

import tomllib
from array import array
from collections.abc import Mapping
from fractions import Fraction
from pathlib import Path

import msgspec
import pytest
from tests.conformance.entries import without

from volery.architectures import lookup
from volery.core.capabilities import DueShares, Refusals, Share
from volery.core.component import Deployment
from volery.core.events import Preemption
from volery.core.records import LostAttempt, Records
from volery.faults import Failure, Scenario, ScenarioJob, draw, run_scenario, shrink
from volery.faults.judge import (
    Guarantees,
    _demand_capacity,
    _demand_order,
    _demand_results,
    attempts_of,
    losses_below_guarantee,
)
from volery.faults.scenario import _fewer
from volery.sim.faults import Crash, FaultPlan, MessageFaults, Partition
from volery.sim.orders import Reweighed

KEPT = Path(__file__).parents[2] / "faults" / "kept.toml"
MEGHA = Deployment({}, {}, lambda _: "gm/0")
"""What the judge reads of it: it refuses no task."""


def scenario(jobs: int = 8, machines: int = 8) -> Scenario:
    plan = FaultPlan(
        (MessageFaults(start_us=0, end_us=9, drop=0.1), MessageFaults(start_us=3, end_us=9, delay=0.1)),
        (Partition(0, 5, ("node/7", "gm/0"), ("node/1",)),),
        (Crash(1, "node/7", 2), Crash(3, "node/0", 4)),
        99,
    )
    of = tuple(ScenarioJob(job, (5, 6, 7, 8), (0,) * 4) for job in range(jobs))
    return Scenario("megha", 1, {}, (0,) * machines, (1,) * machines, of, 500, 7, 3, plan)


def records_of(storm: Scenario) -> Records:
    """All tasks of a scenario, one after the other on machine 0."""
    records = Records(storm.trace())
    now = 0
    for task, duration in enumerate(storm.trace().duration_us):
        records.worker[task], records.start_us[task] = 0, now
        now = records.finish_us[task] = now + duration
    records.answered_us = array("q", [now] * storm.trace().job_count)
    return records


def test_the_judge_knows_the_tasks_that_a_design_declares_to_refuse() -> None:
    """A long task of Pigeon that only its reserved worker suits never runs, and is reported."""
    pigeon, none = lookup("pigeon"), FaultPlan((), (), (), 0)
    jobs = (ScenarioJob(0, (2_000_000, 2_000_000), (1, 0)), ScenarioJob(9, (1000,), (1,)))
    given = {**pigeon.conformance.fault_parameters, "groups": 1}
    storm = Scenario("pigeon", 1, given, (1, 0, 0), (1, 1, 1), jobs, 500, 0, None, none)
    assert run_scenario(pigeon, storm).tasks == 3
    with pytest.raises(Failure, match=r"task 0 of job 0.*never finished"):
        run_scenario(without(pigeon, Refusals), storm)


def test_the_judge_accepts_what_is_right_until_it_is_wrong() -> None:
    storm = scenario(2)
    records = records_of(storm)
    _demand_capacity(records, storm)
    _demand_results(records, storm, MEGHA)
    _demand_order(records)
    records.answered_us[0] -= records.finish_us[-1]
    with pytest.raises(Failure, match="job 0"):
        _demand_results(records, storm, MEGHA)


def test_the_judge_rejects_two_attempts_at_once_and_numbers_that_fall() -> None:
    storm = scenario(1)
    records = records_of(storm)
    records.lost.append(LostAttempt(1, 0, 3, 0, 100))
    records.attempt[1] = 1
    with pytest.raises(Failure, match="runs twice: task 1"):
        _demand_order(records)
    records.lost[0] = LostAttempt(1, 4, 3, 0, 2)
    with pytest.raises(Failure, match="attempt 1 after attempt 4"):
        _demand_order(records)


def test_the_judge_rejects_a_machine_with_too_many_tasks() -> None:
    storm = scenario(1)
    records = records_of(storm)
    records.start_us[1] = records.start_us[0]
    with pytest.raises(Failure, match="machine 0 runs 2 tasks"):
        _demand_capacity(records, storm)


def test_the_judge_rejects_lost_tasks_early_answers_and_wrong_counts() -> None:
    storm = scenario(1)
    lost = records_of(storm)
    lost.killed[2, 0] = lost.start_us[2] + 1
    with pytest.raises(Failure, match="lost: task 2"):
        _demand_results(lost, storm, MEGHA)
    early = records_of(storm)
    early.answered_us[0] = early.finish_us[3] - 1
    with pytest.raises(Failure, match="early: task 3"):
        _demand_results(early, storm, MEGHA)
    miscounted = records_of(storm)
    miscounted.unsatisfiable[0] = 1
    with pytest.raises(Failure, match="has 0 tasks that fit nowhere, and 1 were reported"):
        _demand_results(miscounted, storm, MEGHA)


def test_a_result_of_an_attempt_that_was_given_up_counts() -> None:
    storm = scenario(1)
    records = records_of(storm)
    records.lost.append(LostAttempt(3, 0, 5, 0, storm.trace().duration_us[3]))
    records.attempt[3] = 1
    records.killed[3, 1] = records.start_us[3] + 1
    _demand_results(records, storm, MEGHA)


def test_shrinking_finds_the_one_cause() -> None:
    """What fails is a scenario with a task of 7 us and a crash of node 0."""

    def fails(candidate: Scenario) -> bool:
        tasks = [duration for job in candidate.jobs for duration in job.durations_us]
        return 7 in tasks and any(crash.address == "node/0" for crash in candidate.plan.crashes)

    small = shrink(scenario(), fails)
    assert [len(job.durations_us) for job in small.jobs] in ([3], [4])
    assert small.plan == FaultPlan((), (), (Crash(3, "node/0", 4),), 99)
    assert (len(small.slots), small.jitter_us, small.tie_shuffle) == (1, 0, None)


def test_shrinking_stops_when_patience_ends() -> None:
    tried: list[Scenario] = []

    def fails(candidate: Scenario) -> bool:
        tried.append(candidate)
        return True

    shrink(scenario(), fails, runs_max=5)
    assert len(tried) == 5


def test_fewer_leaves_each_item_out_in_the_end() -> None:
    assert (2, 3) in set(_fewer((1, 2, 3)))
    assert list(_fewer((1,))) == [()]
    assert list(_fewer(())) == []


def test_fewer_machines_take_the_faults_of_their_nodes_with_them() -> None:
    small = shrink(scenario(), lambda candidate: len(candidate.plan.crashes) == 2 or len(candidate.slots) < 8, 40)
    addresses = {address for partition in small.plan.partitions for address in partition.one}
    assert all(int(address.split("/")[1]) < len(small.slots) for address in addresses if address.startswith("node/"))


def test_scenarios_are_written_and_read() -> None:
    drawn = draw(lookup("pigeon"), 11)
    assert msgspec.json.decode(msgspec.json.encode(drawn), type=Scenario) == drawn
    assert draw(lookup("pigeon"), 12) != drawn


def test_whatever_goes_wrong_is_a_failure_of_a_kind() -> None:
    broken = msgspec.structs.replace(draw(lookup("sparrow"), 0), parameters={"probe_ratio": 0.1})
    with pytest.raises(Failure, match="ValidationError"):
        run_scenario(lookup("sparrow"), broken)


def shared(plan: FaultPlan) -> tuple[Scenario, Records]:
    """User a, due half of two slots, has two tasks and loses the first at 40; the other ends at 30."""
    jobs = (ScenarioJob(0, (100, 30), (0, 0), user="a"), ScenarioJob(1, (60,), (0,), user="b"))
    storm = Scenario("megha-2021", 1, {}, (0, 0), (1, 1), jobs, 1, 0, None, plan)
    records = Records(storm.trace())
    for task, (start, end, worker) in enumerate(((50, 150, 0), (0, 30, 1), (40, 100, 0))):
        records.start_us[task], records.finish_us[task], records.worker[task] = start, end, worker
    records.attempt[0] = 1
    records.lost.append(LostAttempt(0, 0, 0, 0, 40))
    records.killed[0, 0] = 40
    records.observe(Preemption(45, 0, 0, 2))
    return storm, records


def below(plan: FaultPlan, due: Fraction) -> list[str]:
    storm, records = shared(plan)
    return list(losses_below_guarantee(records, storm, Guarantees({"a": due}), attempts_of(records)))


def test_the_judge_rejects_a_loss_that_leaves_a_user_less_than_its_due() -> None:
    calm = FaultPlan()
    (problem,) = below(calm, Fraction(1, 2))
    assert problem.startswith("task 0 was preempted at 40 us for task 2: 'a' is due 0.500 of the cluster and was left")
    assert not below(calm, Fraction(0))


def test_the_judge_counts_what_had_ended_only_as_long_as_nobody_need_have_known() -> None:
    """The second task has ended ten hops before the loss; a fault at that time may have kept its GM from knowing."""
    assert not below(FaultPlan(partitions=(Partition(20, 50, ("lm/0",)),)), Fraction(1, 2))
    assert below(FaultPlan(partitions=(Partition(60, 90, ("lm/0",)),)), Fraction(1, 2))


def test_the_judge_takes_what_was_due_when_it_was_decided() -> None:
    """Half of the cluster until 10, nothing from then on, and half again from 60."""
    storm, records = shared(FaultPlan())

    def shares(weights: Mapping[str, int]) -> tuple[Share, ...]:
        return (Share("a", (), weights["a"], Fraction(weights["a"], 10)), Share("all", (), 1, Fraction(1), 1))

    def problems(*changes: Reweighed) -> list[str]:
        dues = Guarantees({"a": Fraction(1, 2)}, shares, changes)
        assert "all" not in dues
        return list(losses_below_guarantee(records, storm, dues, attempts_of(records)))

    assert not problems(Reweighed("a", 0, 10), Reweighed("a", 5, 60))
    assert problems(Reweighed("a", 0, 5), Reweighed("a", 5, 20)), "it was due again when it lost"
    assert not problems(Reweighed("a", 0, 5), Reweighed("a", 5, 38)), "its Global Master may just have heard"


def test_weights_change_in_storms_of_some_seeds_and_all_else_is_as_it_was() -> None:
    design = lookup("megha-2021")
    drawn = {seed: draw(design, seed) for seed in range(60)}
    changing = {seed for seed, storm in drawn.items() if storm.reweighs}
    assert changing
    assert all(seed % 5 in (1, 2, 4) and drawn[seed].parameters["shares"] for seed in changing)
    names = {change.name for seed in changing for change in drawn[seed].reweighs}
    assert names <= {share.name for seed in changing for share in shares_of(drawn[seed])}
    kept = [
        seed
        for entry in tomllib.loads(KEPT.read_text())["kept"]
        for seed in entry["seeds"]
        if entry["architecture"] == design.name
    ]
    assert not any(draw(design, seed).reweighs for seed in kept)


def shares_of(storm: Scenario) -> tuple[Share, ...]:
    design = lookup(storm.architecture)
    deployment = storm.build(design)
    shares = deployment.capability(DueShares)
    assert shares is not None
    assert shares.under is not None
    return shares.under({})


def test_a_group_of_neighbours_crashes_at_once_in_storms_of_some_seeds() -> None:
    pipeline = lookup("pipeline")
    for seed in (1, 9, 12):
        crashes = draw(pipeline, seed).plan.crashes
        at_us = {crash.at_us: [one.address for one in crashes if one.at_us == crash.at_us] for crash in crashes}
        numbers = [int(address.removeprefix("node/")) for address in max(at_us.values(), key=len)]
        assert len(numbers) > 1
        assert max(numbers) - min(numbers) < 50 // 2


def test_storms_of_designs_that_vary_have_amounts_and_users_and_settings() -> None:
    drawn = [draw(lookup("megha-2021"), seed) for seed in range(40)]
    assert {bool(storm.capacities) for storm in drawn} == {True, False}
    assert {any(job.user for job in storm.jobs) for storm in drawn} == {True, False}
    assert {storm.parameters["updates"] for storm in drawn} == {"snapshots", "deltas"}
    for storm in drawn:
        assert msgspec.json.decode(msgspec.json.encode(storm), type=Scenario) == storm
        assert len(storm.slots) == len(storm.constraints) == len(storm.capacities or storm.slots)
        assert bool(storm.parameters["shares"]) >= any(job.user for job in storm.jobs)


def test_a_scenario_on_fewer_machines_demands_progress_by_the_same_time() -> None:
    whole = msgspec.structs.replace(scenario(), plan=msgspec.structs.replace(scenario().plan, progress_us=77))
    small = shrink(whole, lambda candidate: len(candidate.slots) < 8)
    assert len(small.slots) < 8
    assert small.plan.progress_us == 77
