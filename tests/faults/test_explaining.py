"""Global Masters that explain themselves where components crash: they decide as silent ones do, and tell of losses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pytest

from volery.architectures import lookup
from volery.core.model import SECOND
from volery.core.reasons import KEPT_PER_TASK, Decision, LoggedDecision
from volery.core.records import Records
from volery.faults import Scenario, ScenarioJob, draw
from volery.metrics.explanations import explained, staleness
from volery.sim.faults import Crash, FaultPlan
from volery.sim.kernel import Kernel, Options
from volery.sim.network import Network


def played(scenario: Scenario, *, why: bool) -> Records:
    architecture = lookup(scenario.architecture)
    asked = msgspec.structs.replace(scenario, parameters={**scenario.parameters, "why": why})
    deployment = asked.build(architecture)
    options = Options(check=True, tie_shuffle=asked.tie_shuffle, plan=asked.plan)
    network = Network(delay_us=asked.delay_us, jitter_us=asked.jitter_us)
    return Kernel(deployment, asked.trace(), asked.cluster(), network, asked.seed, options).run(None)


def crashed(
    *addresses: str,
    arrivals_s: tuple[int, ...] = (1, 1),
    tasks: int = 5,
    at_s: int = 5,
    back_s: int = 60,
    again: Sequence[Crash] = (),
    seed: int = 3,
    **given: object,
) -> dict[int, list[LoggedDecision]]:
    """Decisions per task: jobs of tasks of 30 s on twelve machines of one slot, under two GMs and two pairs of LMs."""
    jobs = tuple(
        ScenarioJob(at * SECOND + number, (30 * SECOND,) * tasks, (0,) * tasks) for number, at in enumerate(arrivals_s)
    )
    plan = FaultPlan(
        crashes=(*(Crash(at_s * SECOND, address, back_s * SECOND) for address in addresses), *again),
        deadline_us=3_600 * SECOND,
    )
    parameters = {"reliable": True, "gms": 2, "lms": 2, "heartbeat_s": 1.0, **given}
    scenario = Scenario("megha", seed, parameters, (0,) * 12, (1,) * 12, jobs, 500, 0, None, plan)
    return played(scenario, why=True).decisions.of_task


def of(kept: list[LoggedDecision]) -> list[Decision]:
    return [noted.decision for noted in kept]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["megha", "central", "megha-2021"])
def test_explaining_changes_nothing_in_any_storm(name: str) -> None:
    """Same digest and counters; what is kept is bounded; refusals are as many as are counted without it."""
    lost = 0
    for seed in range(25):
        scenario = draw(lookup(name), seed)
        silent, told = (played(scenario, why=why) for why in (False, True))
        assert silent.digest() == told.digest(), seed
        assert silent.counters == told.counters, seed
        log = told.decisions
        assert not silent.decisions.of_task
        assert max(map(len, log.of_task.values()), default=0) <= KEPT_PER_TASK
        assert log.counts.get("refused", 0) == told.counters.get("inconsistencies", 0), seed
        assert all(age >= 0 for age in log.ages)
        columns = explained(told)
        assert not columns or staleness(columns["pair"], columns["age"]).placed == log.counts.get("placed", 0)
        lost += log.counts.get("lost", 0)
    assert lost, "no storm cost an attempt"


@pytest.mark.parametrize("given", [{}, {"repartition": True}, {"rescheduling": "tail"}], ids=str)
def test_a_task_that_died_with_its_machine_is_told_lost_and_placed_elsewhere(given: dict[str, Any]) -> None:
    stories = [of(kept) for kept in crashed("node/0", **given).values() if len(kept) > 1]
    (story,) = stories
    assert [decision.chosen for decision in story] == ["placed", "lost", "placed"]
    placed, lost, again = story
    assert (placed.machine, lost.machine, lost.asked) == (0, 0, placed.asked)
    assert again.machine > 0


def test_the_second_master_is_asked_once_it_leads_and_the_view_is_as_old_as_its_news() -> None:
    """lm/0 dies at second 5; the jobs of seconds 20 and 21 meet its standby, which has reported meanwhile."""
    decided = crashed("lm/0", arrivals_s=(1, 20, 21), tasks=3)
    late = [noted for task, kept in decided.items() if task >= 3 for noted in kept]
    assert {noted.decision.chosen for noted in late} == {"placed"}
    assert {noted.decision.asked for noted in late} == {"lm/0/standby", "lm/1"}
    heard = [one.time_us - one.decision.view_age_us for one in late if one.decision.asked == "lm/0/standby"]
    assert all(5 * SECOND < at < 7 * SECOND for at in heard), "the last news were its first report"


def test_a_global_master_that_has_begun_anew_decides_when_the_clusters_have_told_it_what_runs() -> None:
    """gm/1 is away from second 5 to 6: tasks that run are no decision of its, those of its later job are."""
    decided = crashed("gm/1", arrivals_s=(1, 1, 2, 5), tasks=3, back_s=6)
    assert [len(kept) for kept in decided.values()] == [1] * 12
    late = [noted for task, kept in decided.items() if task >= 9 for noted in kept]
    assert {noted.by for noted in late} == {"gm/1"}
    assert all(6 * SECOND < noted.time_us < 7 * SECOND for noted in late)
    assert max(noted.decision.view_age_us for noted in late) < SECOND


def test_a_global_master_that_stays_away_leaves_its_jobs_to_another_which_decides_and_says_so() -> None:
    """gm/1 is away from second 5 to 20: its job of second 10 is decided by gm/0 before it is back."""
    decided = crashed("gm/1", arrivals_s=(1, 1, 2, 10), tasks=3, back_s=20)
    late = [noted for task, kept in decided.items() if task >= 9 for noted in kept]
    assert {noted.by for noted in late} == {"gm/0"}
    assert all(10 * SECOND < noted.time_us < 20 * SECOND for noted in late)


def test_a_global_master_that_crashes_twice_has_the_whole_grace_after_the_second_time() -> None:
    """gm/1 is away from second 5 to 16 and 26 to 37: its jobs would move 20 s after the second crash is noticed."""
    second = Crash(26 * SECOND, "gm/1", 37 * SECOND)
    for seed in range(8):  # moments at which crashes are noticed
        decided = crashed(
            "gm/1", arrivals_s=(1, 1, 2, 26), tasks=3, back_s=16, again=[second], seed=seed, detection_s=10.0
        )
        late = [noted for task, kept in decided.items() if task >= 9 for noted in kept]
        assert {noted.by for noted in late} == {"gm/1"}, seed
        assert all(noted.time_us > 37 * SECOND for noted in late), seed
