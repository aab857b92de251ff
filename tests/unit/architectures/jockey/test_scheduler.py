"""Jockey's scheduler alone: who is given tokens, and what a period changes."""

from __future__ import annotations

import pickle
from typing import Any

import msgspec
import pytest
from tests.unit.architectures.parts import SUBMITTER, Alone, submit
from tests.unit.effects import ComputeAsked, Observed, TimerSet

from volery.architectures import configure, lookup
from volery.architectures.jockey.profiles import JobModel, JobRun, profiled
from volery.architectures.jockey.rehearsal import BINS, Remaining, rehearse
from volery.core.errors import InputError
from volery.core.events import Allotted, Cancel, Computed, JobDone, MoreTasks, Submit, TimerFired
from volery.core.model import NEVER, SECOND, Cluster, Gang
from volery.core.streams import Streams
from volery.live.runtime.port import COMPUTE, checksum
from volery.roles.node import Completed, Kill, Launch

MINUTE = 60 * SECOND
ANYWHERE = Gang()
FINE: dict[str, Any] = {"tokens_step": 1, "slack": 1.0, "dead_zone_s": 0.0, "alpha": 1.0}
"""Every number of tokens is a choice, and nothing is added to what is reckoned with."""


def job(number: int, tasks: int, due_us: int, task_us: int = MINUTE, **fields: Any) -> Submit:
    message = submit(number, *[0] * tasks, estimate_us=task_us)
    return Submit(msgspec.structs.replace(message.job, deadline_us=due_us, **fields))


def alone(slots: int, **parameters: Any) -> Alone:
    return Alone("jockey", "scheduler/0", Cluster.uniform(slots), **{**FINE, **parameters})


def sent(effects: list[Any]) -> list[tuple[str, Any]]:
    return [effect for effect in effects if isinstance(effect, tuple)]


def launched(effects: list[Any]) -> list[tuple[str, int]]:
    return [(to, message.task.id) for to, message in sent(effects) if isinstance(message, Launch)]


def allotted(scheduler: Alone, event: Any, now: int = 0) -> list[tuple[int, int]]:
    """(job, slots) of the guarantees that an event changes."""
    scheduler.component.handle(event, SUBMITTER, now)
    scheduler.component.check()
    facts = [effect.fact for effect in scheduler.port.drain() if isinstance(effect, Observed)]
    return [(fact.job, fact.slots) for fact in facts if isinstance(fact, Allotted)]


def test_a_job_is_guaranteed_the_fewest_tokens_that_meet_its_deadline() -> None:
    # Amdahl: one stage of 12 tasks of a minute, S = 1, W = 12 minutes
    assert allotted(alone(20), job(0, 12, 5 * MINUTE)) == [(0, 3)], "1 + 12 / 3 = 5 minutes"
    assert allotted(alone(20), job(0, 12, 4 * MINUTE)) == [(0, 4)]
    assert allotted(alone(20), job(0, 12, 90 * SECOND)) == [(0, 20)], "what cannot be met is given all there is"
    assert allotted(alone(20, control="max"), job(0, 12, 5 * MINUTE)) == [(0, 20)]
    assert allotted(alone(20, tokens_step=8), job(0, 12, 5 * MINUTE)) == [(0, 8)]


def test_guarantees_are_served_before_who_runs_least() -> None:
    scheduler = alone(4, spare=True)
    assert len(launched(scheduler.hear(submit(0, 0, 0, 0, 0)))) == 4, "spare tokens, while nobody else is there"
    assert launched(scheduler.hear(job(1, 12, 7 * MINUTE))) == []
    freed = [launched(scheduler.hear(Completed(task), "node/0", MINUTE)) for task in (0, 1)]
    assert [task for each in freed for _, task in each] == [100, 101], "two tokens are guaranteed: 1 + 12 / 2 = 7"
    scheduler.hear(submit(2, 0, 0))
    assert [task for _, task in launched(scheduler.hear(Completed(2), "node/2", MINUTE))] == [200], "runs least"


def test_without_spare_tokens_a_job_with_a_deadline_runs_no_more_than_its_guarantee() -> None:
    scheduler = alone(4, spare=False)
    assert len(launched(scheduler.hear(job(1, 12, 7 * MINUTE)))) == 2
    assert len(launched(scheduler.hear(submit(0, 0, 0, 0)))) == 2, "the others have what is left"


def test_a_late_job_is_given_more_and_an_early_one_less_at_the_end_of_a_period() -> None:
    scheduler = alone(20, spare=False)
    effects = scheduler.hear(job(0, 12, 5 * MINUTE))
    assert TimerSet("period", MINUTE) in effects
    # after a minute nothing has finished: 12 tasks in 4 minutes
    assert allotted(scheduler, TimerFired("period"), MINUTE) == [(0, 4)]
    for task in range(3):
        scheduler.hear(Completed(task), "node/0", MINUTE + 1)
    # 9 of 12 tasks are left, S = 0.75 and W = 9 minutes: 3 tokens take 3.75 of 3.9 minutes
    assert allotted(scheduler, TimerFired("period"), MINUTE + 6 * SECOND) == [(0, 3)]
    first = alone(20, spare=False, control="first")
    first.hear(job(0, 12, 5 * MINUTE))
    assert allotted(first, TimerFired("period"), MINUTE) == [], "without adaptation the first choice stays"


def test_where_more_is_asked_for_than_there_is_newcomers_wait_for_the_period_and_then_utility_decides() -> None:
    scheduler = alone(6, spare=False)
    assert allotted(scheduler, job(0, 12, 200 * MINUTE)) == [(0, 1)]
    assert allotted(scheduler, job(1, 12, 4 * MINUTE)) == [(1, 4)]
    assert allotted(scheduler, job(2, 12, 4 * MINUTE)) == [(2, 1)], "what is left"
    found = dict(allotted(scheduler, TimerFired("period"), 1))
    assert found == {0: 0, 1: 3, 2: 3}, "the job whose deadline is far away loses least"


def test_tasks_become_ready_as_their_parents_finish_and_cancelling_drops_the_rest() -> None:
    scheduler = alone(4)
    message = submit(0, 0, 0, 0)
    flow = Submit(msgspec.structs.replace(message.job, parents=((), (0,), (0,))))
    assert [task for _, task in launched(scheduler.hear(flow))] == [0]
    assert [task for _, task in launched(scheduler.hear(Completed(0), "node/0", 5))] == [1, 2]
    effects = sent(scheduler.hear(Cancel(0), SUBMITTER, 6))
    assert [message for _, message in effects] == [Kill(1), Kill(2)]
    assert sent(scheduler.hear(Completed(1), "node/0", 7)) == []
    assert sent(scheduler.hear(Completed(2), "node/1", 7)) == [(SUBMITTER, JobDone(0))]


def test_a_job_in_chunks_is_controlled_when_all_of_it_is_known() -> None:
    scheduler = alone(20)
    whole = job(0, 12, 5 * MINUTE).job
    assert allotted(scheduler, Submit(msgspec.structs.replace(whole, tasks=whole.tasks[:5]))) == []
    scheduler.hear(Completed(0), "node/0", 10)
    assert allotted(scheduler, MoreTasks(0, 5, whole.tasks[5:]), 20) == [(0, 3)], "11 tasks are left"


def recurring(tasks: int = 4, task_us: int = MINUTE, left_us: int = MINUTE) -> JobModel:
    """A job of one stage, of which the table says the same whatever its progress and allocation."""
    times = tuple([task_us] * tasks)
    profile = profiled([JobRun(((),) * tasks, (0,) * tasks, (0,) * tasks, times)])
    return JobModel("daily", profile, Remaining((1, 4), ((2 * left_us,) * (BINS + 1), (left_us,) * (BINS + 1))))


def taught(model: JobModel, **parameters: Any) -> Alone:
    return alone(4, models=msgspec.to_builtins((model,)), **parameters)


def test_the_runs_of_a_known_job_are_controlled_by_its_table() -> None:
    daily = job(0, 4, 100 * MINUTE, user="daily")
    assert allotted(taught(recurring(left_us=90 * MINUTE)), daily) == [(0, 4)], "1 token takes 180 minutes, 4 take 90"
    assert allotted(taught(recurring(left_us=90 * MINUTE), simulator=False), daily) == [(0, 1)], "Amdahl: 1 + 4 minutes"
    other = job(0, 4, 100 * MINUTE, user="weekly")
    assert allotted(taught(recurring(left_us=90 * MINUTE)), other) == [(0, 1)], "nothing is known of it"
    message = job(0, 4, 100 * MINUTE, user="daily").job
    chain = Submit(msgspec.structs.replace(message, parents=((), (0,), (1,), (2,))))
    assert allotted(taught(recurring(left_us=90 * MINUTE)), chain) == [(0, 1)], "its stages are others"


def deviating(**parameters: Any) -> Alone:
    """A known job of two stages that takes three times as long as its model says, when the first has ended."""
    waits = ((), (), (0, 1), (0, 1))
    profile = profiled(
        [JobRun(waits, (0, 0, MINUTE, MINUTE), (0, 0, MINUTE, MINUTE), (MINUTE, MINUTE, *[2 * MINUTE] * 2))]
    )
    table = Remaining((1, 4), ((4 * MINUTE,) * (BINS + 1), (2 * MINUTE,) * (BINS + 1)))
    scheduler = taught(JobModel("daily", profile, table), deviation_periods=2, **parameters)
    message = job(0, 4, 60 * MINUTE, user="daily").job
    scheduler.hear(Submit(msgspec.structs.replace(message, parents=((), (), (0, 1), (0, 1)))))
    for task in (0, 1):
        scheduler.hear(Completed(task), "node/0", 3 * MINUTE)
    return scheduler


def test_a_job_that_deviates_for_some_periods_is_simulated_anew_as_it_is() -> None:
    scheduler = deviating(rehearsal_s=5.0, repetitions=2)
    assert not [e for e in scheduler.hear(TimerFired("period"), now=4 * MINUTE) if isinstance(e, ComputeAsked)]
    (asked,) = [e for e in scheduler.hear(TimerFired("period"), now=5 * MINUTE) if isinstance(e, ComputeAsked)]
    assert asked.key == ("rehearsed", 0)
    assert asked.problem.decision_us == 5 * SECOND
    assert asked.problem.argument.run_us == ((3 * MINUTE, 3 * MINUTE), (3 * MINUTE, 3 * MINUTE))
    copy = pickle.loads(pickle.dumps(asked.problem))
    assert checksum([(COMPUTE, asked.key, copy)]) == checksum([(COMPUTE, asked.key, asked.problem)]), "for the journal"
    table = rehearse(asked.problem.argument)
    assert table.at(0.0, 4) == 6 * MINUTE
    scheduler.hear(Computed(asked.key, table), "scheduler/0", 5 * MINUTE + 5)
    more = [scheduler.hear(TimerFired("period"), now=at * MINUTE) for at in (6, 7, 8)]
    assert not [e for effects in more for e in effects if isinstance(e, ComputeAsked)], "the new model fits"
    assert scheduler.hear(Computed(("rehearsed", 99), table), "scheduler/0", 9 * MINUTE) == [], "a job that is gone"


def test_or_it_shares_the_tokens_evenly_or_nothing_happens() -> None:
    sharing = deviating(deviation="share")
    sharing.hear(submit(5, 0))
    sharing.hear(TimerFired("period"), now=4 * MINUTE)
    assert allotted(sharing, TimerFired("period"), 5 * MINUTE) == [(0, 2)], "half of four, for two jobs"
    ignoring = deviating(deviation="ignore")
    found = [allotted(ignoring, TimerFired("period"), at * MINUTE) for at in (4, 5, 6)]
    assert found == [[], [], []]


def test_constraints_are_kept_and_what_fits_nowhere_is_said() -> None:
    scheduler = Alone("jockey", "scheduler/0", Cluster((1, 0), (1, 1)))
    assert launched(scheduler.hear(submit(0, 1, 0, 0))) == [("node/0", 0), ("node/1", 1)], (
        "a machine with few constraints is used first"
    )
    assert sent(scheduler.hear(submit(1, 2)))[-1] == (SUBMITTER, JobDone(1, 1))


@pytest.mark.parametrize("utility", ["0", "5:1+0:2"])
def test_a_utility_that_is_no_curve_is_refused(utility: str) -> None:
    jockey = lookup("jockey")
    with pytest.raises(InputError) as refused:
        jockey.build(Cluster.uniform(2), configure(jockey, {"utility": utility}), Streams(0))
    assert "utility" in refused.value.place


def gang(number: int, *constraints: int, shape: Gang = ANYWHERE, due_us: int = NEVER) -> Submit:
    message = submit(number, *constraints, estimate_us=MINUTE)
    return Submit(msgspec.structs.replace(message.job, deadline_us=due_us, gang=shape))


def starts(scheduler: Alone, *events: Any) -> list[list[int]]:
    """The tasks that each event starts."""
    return [[task for _, task in launched(scheduler.hear(event, SUBMITTER, MINUTE))] for event in events]


def test_a_gang_keeps_idle_tokens_from_later_jobs_until_it_starts_whole() -> None:
    scheduler = alone(4)
    submissions = submit(0, 0, 0), gang(1, 0, 0, 0), submit(2, 0)
    assert starts(scheduler, *submissions) == [[0, 1], [], []], "two tokens are idle, for the gang"
    assert starts(scheduler, Completed(0), Completed(1)) == [[100, 101, 102], [200]]


def test_what_does_not_suit_a_waiting_gang_goes_to_others() -> None:
    scheduler = Alone("jockey", "scheduler/0", Cluster((0, 1, 1), (1, 1, 1)), **FINE)
    assert starts(scheduler, submit(0, 1), gang(1, 1, 1), submit(2, 0), submit(3, 0)) == [[0], [], [200], []]
    assert starts(scheduler, Completed(200)) == [[300]]
    assert starts(scheduler, Completed(0)) == [[100, 101]]


def test_unlike_members_and_shapes_find_room() -> None:
    scheduler = Alone("jockey", "scheduler/0", Cluster((1, 0), (1, 1)), **FINE)
    assert starts(scheduler, gang(0, 0, 1)) == [[0, 1]]
    scheduler = Alone("jockey", "scheduler/0", Cluster.uniform(3, slots=2), **FINE)
    effects = launched(scheduler.hear(gang(0, 0, 0, 0, shape=Gang(3, 1))))
    assert [machine for machine, _ in effects] == ["node/0", "node/1", "node/2"]
    assert starts(scheduler, gang(1, 0, 0, shape=Gang(1, 2)), Completed(0)) == [[], [100, 101]]


def test_a_gang_that_the_empty_cluster_does_not_hold_is_refused_whole() -> None:
    scheduler = Alone("jockey", "scheduler/0", Cluster((1, 0), (1, 1)), **FINE)
    answers = [message for _, message in sent(scheduler.hear(gang(0, 1, 1)))]
    assert JobDone(0, 2) in answers
    assert scheduler.facts(gang(1, 1, 1)) == {"gang_tasks_refused": 2}


def test_a_gang_with_a_deadline_is_guaranteed_a_token_per_task_or_none() -> None:
    scheduler = alone(6, spare=False)
    due: dict[str, Any] = {"due_us": 10 * MINUTE}
    assert allotted(scheduler, gang(0, 0, 0, 0, 0, **due)) == [(0, 4)], "one would keep the deadline of single tasks"
    assert allotted(scheduler, gang(1, 0, 0, 0, **due)) == [], "two tokens are left"
    assert starts(scheduler, *[Completed(task) for task in range(3)]) == [[], [], []]
    assert allotted(scheduler, Completed(3), MINUTE) == [(0, 0)]
    assert allotted(scheduler, TimerFired("period"), 2 * MINUTE) == [(1, 3)]


def test_a_gang_of_several_chunks_starts_when_all_have_come_and_is_cancelled_in_parts() -> None:
    scheduler = alone(3)
    first, second = gang(0, 0, 0), MoreTasks(0, 2, submit(0, 0, 0, 0).job.tasks[2:])
    part = Submit(msgspec.structs.replace(first.job, task_count=3))
    assert starts(scheduler, part, second) == [[], [0, 1, 2]]
    scheduler = alone(3)
    scheduler.hear(part)
    assert [message for _, message in sent(scheduler.hear(Cancel(0)))] == [JobDone(0, 0)]
    scheduler.component.check_rest()
