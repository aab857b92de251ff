"""A scheduler of a shared cell state: decision times, transactions, retries, and when it gives up."""

from __future__ import annotations

from typing import Any

import pytest
from tests.unit.architectures.parts import Alone, messages, submit
from tests.unit.effects import ComputeAsked, Observed, Sent, TimerSet

from volery.architectures.omega.messages import Changes, Commit, Ended, Refresh, Verdict, Withdraw
from volery.core.events import Cancel, Computed, JobDone, MoreTasks, TimerFired, Transaction
from volery.core.model import SECOND, Cluster, Job, Task, Time

FRONT, CELL, ME = "front/0", "cell/0", "scheduler/0"


class Placing(Alone):
    """A scheduler on machines of one slot, and what it decides."""

    def __init__(self, machines: int, **parameters: Any) -> None:
        super().__init__("omega", ME, Cluster.uniform(machines), **parameters)
        self.transactions: list[Transaction] = []

    def decide(self, number: int, now: Time = 0) -> ComputeAsked:
        """Answer its question for changes: none. The problem that it hands out."""
        (asked,) = [one for one in self.hear(Changes(number, (), b"", ()), CELL, now) if isinstance(one, ComputeAsked)]
        return asked

    def answer(self, asked: ComputeAsked, now: Time = 0) -> list[Any]:
        return self.tell(Computed(asked.key, asked.problem.solve(asked.problem.argument)), ME, now)

    def tell(self, event: Any, source: str = FRONT, now: Time = 0) -> list[Any]:
        """As `hear`, and keep the facts."""
        self.component.handle(event, source, now)
        self.component.check()
        facts = [effect.fact for effect in self.port.effects if isinstance(effect, Observed)]
        self.transactions += [fact for fact in facts if isinstance(fact, Transaction)]
        effects = [effect for effect in self.port.drain() if not isinstance(effect, Observed)]
        return [(one.to, one.message) if isinstance(one, Sent) else one for one in effects]

    def timers(self, effects: list[Any]) -> list[TimerSet]:
        return [effect for effect in effects if isinstance(effect, TimerSet)]


def test_the_decision_takes_a_time_per_job_and_per_task_that_is_left() -> None:
    """100 tasks: 0.1 + 100 x 0.005 = 0.6 s; the retry with 1 task left: 0.105 s (section 4)."""
    scheduler = Placing(120)
    assert messages(scheduler.hear(submit(0, *[0] * 100), FRONT), Refresh) == [(CELL, Refresh(1))]
    asked = scheduler.decide(1)
    assert asked.problem.decision_us == 600_000
    ((_, claims),) = messages(scheduler.answer(asked, 600_000), Commit)
    assert len(claims.tasks) == 100
    assert not claims.gang
    retry = scheduler.timers(scheduler.tell(Verdict(1, (claims.tasks[7].id,)), CELL, 600_000))
    assert retry == [TimerSet(0, 1_600_000)], "after 1 s"
    scheduler.hear(TimerFired(0), ME, 1_600_000)
    again = scheduler.decide(2, 1_600_000)
    assert again.problem.decision_us == 105_000
    assert [task.id for task in again.problem.argument.tasks] == [claims.tasks[7].id]
    assert scheduler.transactions == [Transaction(ME, "batch", 0, 0, 600_000, 99, 1, 1, 0, 600_000)]


def test_service_jobs_have_decision_times_of_their_own() -> None:
    scheduler = Placing(4, service="estimate:10", service_job_s=7.0, service_task_s=0.5)
    scheduler.hear(submit(0, 0, 0, estimate_us=11 * SECOND), FRONT)
    assert scheduler.decide(1).problem.decision_us == 8 * SECOND


def test_one_job_at_a_time_first_come_first_served_and_a_retry_goes_to_the_tail() -> None:
    scheduler = Placing(1)
    scheduler.hear(submit(0, 0, 0), FRONT)
    asked = scheduler.decide(1)
    assert messages(scheduler.hear(submit(1, 0), FRONT), Refresh) == []
    scheduler.answer(asked)
    effects = scheduler.tell(Verdict(1, ()), CELL, 5)
    assert scheduler.timers(effects) == [TimerSet(0, SECOND + 5), TimerSet("next", 5)]
    assert messages(scheduler.hear(TimerFired("next"), ME, 5), Refresh) == [(CELL, Refresh(2))]
    assert scheduler.decide(2).problem.argument.tasks[0].job == 1
    assert scheduler.hear(TimerFired(0), ME, SECOND + 5) == [], "the first job waits for its turn"


def test_claims_of_one_job_on_one_machine_carry_consecutive_sequence_numbers() -> None:
    """So that they do not conflict with each other (section 5.2)."""
    alone = Alone("omega", ME, Cluster((0,), (4,)))
    alone.hear(submit(0, 0, 0, 0), FRONT)
    (asked,) = alone.hear(Changes(1, (0,), (5 | 1 << 40).to_bytes(6, "little"), (9,)), CELL)
    ((_, claims),) = messages(alone.hear(Computed(asked.key, asked.problem.solve(asked.problem.argument)), ME), Commit)
    assert claims.sequences == (9, 10, 11)


def test_an_attempt_that_finds_no_room_commits_nothing_and_comes_again() -> None:
    scheduler = Placing(1)
    scheduler.hear(submit(0, 0), FRONT)
    (asked,) = scheduler.hear(Changes(1, (0,), (1 << 40).to_bytes(6, "little"), (1,)), CELL)
    effects = scheduler.answer(asked, 105_000)
    assert messages(effects, Commit) == []
    assert scheduler.timers(effects) == [TimerSet(0, 1_105_000)]
    assert scheduler.transactions[0].placed == scheduler.transactions[0].refused == 0


@pytest.mark.parametrize(("limit", "refusals"), [("attempts_max", True), ("fruitless_max", False)])
def test_a_job_is_given_up_after_its_attempts_and_the_submitter_is_told_how_many_tasks(
    limit: str, refusals: bool
) -> None:
    scheduler = Placing(2, **{limit: 2})
    scheduler.tell(submit(0, 0, 0))
    told: list[Any] = []
    for number in (1, 2, 3):
        assert messages(told, JobDone) == []
        (asked,) = scheduler.tell(Changes(number, (0, 1), 2 * (refusals | 1 << 40).to_bytes(6, "little"), (0, 0)), CELL)
        told = scheduler.answer(asked, number)
        if refusals:
            told = scheduler.tell(Verdict(number, (0, 1)), CELL, number)
        if number < 3:
            scheduler.tell(TimerFired(0), ME, number)
    assert messages(told, JobDone) == [(FRONT, JobDone(0, 2))]
    assert [one.abandoned for one in scheduler.transactions] == [0, 0, 2]


def test_a_job_with_a_task_placed_is_not_given_up_for_fruitless_attempts() -> None:
    scheduler = Placing(1, fruitless_max=1)
    scheduler.tell(submit(0, 0, 0))
    scheduler.answer(scheduler.decide(1))
    scheduler.tell(Verdict(1, ()), CELL)
    full = Changes(0, (0,), (1 << 40).to_bytes(6, "little"), (1,))
    for number in (2, 3, 4):
        scheduler.tell(TimerFired(0), ME)
        (asked,) = scheduler.tell(Changes(number, full.machines, full.free, full.sequences), CELL)
        assert messages(scheduler.answer(asked), JobDone) == []


def test_a_gang_is_claimed_whole_or_not_at_all() -> None:
    scheduler = Placing(3, gang="true")
    scheduler.tell(submit(0, 0, 0, 0))
    (asked,) = scheduler.tell(Changes(1, (1,), (1 << 40).to_bytes(6, "little"), (1,)), CELL)
    assert messages(scheduler.answer(asked), Commit) == [], "room for two of three"
    scheduler.tell(TimerFired(0), ME)
    (asked,) = scheduler.tell(Changes(2, (1,), (1 | 1 << 40).to_bytes(6, "little"), (1,)), CELL)
    ((_, claims),) = messages(scheduler.answer(asked), Commit)
    assert (len(claims.tasks), claims.gang) == (3, True)


def test_a_gang_that_no_empty_cell_can_hold_is_refused_whole() -> None:
    scheduler = Placing(2, gang="true")
    scheduler.tell(submit(0, 0, 0, 0))
    effects = scheduler.answer(scheduler.decide(1))
    assert messages(effects, Commit) == []
    assert messages(effects, JobDone) == [(FRONT, JobDone(0, 3))]


def test_a_gang_with_a_task_that_fits_no_machine_is_refused_whole() -> None:
    scheduler = Placing(2, gang="true")
    assert messages(scheduler.tell(submit(0, 0, 1 << 9)), JobDone) == [(FRONT, JobDone(0, 2))]


def test_what_is_claimed_when_its_job_is_cancelled_is_killed_as_soon_as_it_runs() -> None:
    scheduler = Placing(2)
    scheduler.tell(submit(0, 0, 0, 0))
    ((_, claims),) = messages(scheduler.answer(scheduler.decide(1)), Commit)
    assert scheduler.tell(Cancel(0)) == []
    effects = scheduler.tell(Verdict(1, (claims.tasks[0].id,)), CELL)
    assert messages(effects, Withdraw) == [(CELL, Withdraw((claims.tasks[1].id,)))]
    assert scheduler.tell(Ended(0, claims.tasks[1].id), CELL) == [(FRONT, JobDone(0))]


def test_a_chunk_that_comes_late_is_placed_without_a_pause() -> None:
    scheduler = Placing(3)
    first, second = Task(0, 0), Task(1, 0)
    scheduler.tell(type(submit(0))(Job(0, 2, (first,))))
    asked = scheduler.decide(1)
    scheduler.tell(MoreTasks(0, 1, (second,)))
    scheduler.answer(asked)
    assert scheduler.timers(scheduler.tell(Verdict(1, ()), CELL, 9)) == [TimerSet("next", 9)]
    scheduler.tell(TimerFired("next"), ME, 9)
    assert scheduler.decide(2).problem.argument.tasks == (second,)


def test_a_picky_job_considers_a_part_of_the_machines() -> None:
    scheduler = Placing(100, pickiness=0.75)
    scheduler.tell(submit(0, 0))
    (pool,) = scheduler.decide(1).problem.argument.pools.values()
    assert len(pool) == len(set(pool)) == 25


def test_workers_beyond_the_width_wait_until_one_ends() -> None:
    scheduler = Placing(5, width=2)
    scheduler.tell(submit(0, 0, 0, 0))
    ((_, claims),) = messages(scheduler.answer(scheduler.decide(1)), Commit)
    assert len(claims.tasks) == 2
    assert scheduler.timers(scheduler.tell(Verdict(1, ()), CELL)) == []
    effects = scheduler.tell(Ended(0, claims.tasks[0].id), CELL)
    assert messages(effects, Refresh) == [(CELL, Refresh(2))]


@pytest.mark.parametrize(
    ("policy", "workers"), [("none", 1), ("relative-size", 4), ("max-parallelism", 6), ("global-cap", 5)]
)
def test_elastic_jobs_use_idle_workers_as_far_as_their_policy_goes(policy: str, workers: int) -> None:
    """10 machines, 1 in use: a cap of 60 % leaves 5; relative size is 4 x the one that was asked for (section 6)."""
    scheduler = Placing(10, width=1, elastic=policy)
    scheduler.tell(submit(0, *[0] * 6))
    (asked,) = scheduler.tell(Changes(1, (4,), (1 << 40).to_bytes(6, "little"), (1,)), CELL)
    assert len(asked.problem.argument.tasks) == workers


def test_the_monolithic_scheduler_decides_before_it_looks() -> None:
    master = Alone("monolithic", ME, Cluster.uniform(2), path="single", service_job_s=3.0)
    (_, thinking) = master.hear(submit(0, 0))
    assert isinstance(thinking, ComputeAsked)
    assert thinking.problem.decision_us == 3_005_000, "single path: all jobs take the times of service jobs"
    answer = thinking.problem.solve(thinking.problem.argument)
    assert master.hear(Computed(thinking.key, answer), ME, 3_005_000) == [(CELL, Refresh(1))]
    (asked,) = master.hear(Changes(1, (), b"", ()), CELL, 3_005_000)
    assert asked.problem.decision_us == 0
