"""A Global Master that waits for the answer to each request (arXiv 2103.08413, section V-D)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from tests.unit.architectures.megha.amounts.test_vectors import BIG, CLUSTER, SMALL, WHOLE, job, state
from tests.unit.architectures.parts import Alone, messages, submit
from tests.unit.effects import Observed

from volery.architectures.megha.messages import Refusal, Request, StateUpdate, TasksEnded
from volery.architectures.megha.shares.messages import Holding, Holdings, Preempt, PreemptionDone
from volery.core.events import Cancel, JobDone, JobRejected, Submit
from volery.core.model import Cluster, Task
from volery.core.reasons import Decision

GONE = (0, 0)


def gm(cluster: Cluster = CLUSTER, **parameters: Any) -> Alone:
    """gm/0 of two GMs over one LM: node/0 and node/1 are its partition 0, node/2 and node/3 gm/1's partition 1."""
    return Alone("megha-2021", "gm/0", cluster, **{"gms": 2, "lms": 1, "launch": "synchronous", **parameters})


def wanted(effects: list[Any]) -> list[tuple[int, int, int]]:
    """Task, partition and position of each request, which has one task."""
    return [(asked.tasks[0].id, asked.partition, asked.positions[0]) for _, asked in messages(effects, Request)]


def answer(number: int) -> TasksEnded:
    """An answer without a state to a request."""
    return TasksEnded((), number)


def update(number: int, request: int, *free: Any) -> StateUpdate:
    """An answer with what the machines of both partitions have free."""
    return StateUpdate(number, request, (state(0, *free[:2]), state(1, *free[2:])), 4)


def test_one_request_is_sent_and_the_next_follows_its_answer() -> None:
    master = gm()
    assert wanted(master.hear(job(1, BIG, BIG, BIG))) == [(10, 0, 0)]
    assert wanted(master.hear(answer(1), "lm/0")) == [(11, 0, 1)]
    assert wanted(master.hear(answer(2), "lm/0")) == [(12, 1, 0)]
    assert not wanted(master.hear(answer(3), "lm/0"))


def test_one_request_is_outstanding_whatever_the_number_of_local_masters() -> None:
    master = Alone("megha-2021", "gm/0", CLUSTER, gms=1, lms=2, launch="synchronous")
    assert len(wanted(master.hear(job(1, BIG, BIG)))) == 1
    assert not wanted(master.hear(TasksEnded((), 0), "lm/1")), "nothing was asked of that one"
    assert len(wanted(master.hear(answer(1), "lm/0"))) == 1


def test_jobs_that_arrive_meanwhile_wait_their_turn() -> None:
    master = gm()
    master.hear(job(1, BIG))
    assert not wanted(master.hear(job(2, SMALL, SMALL)))
    assert [task for task, _, _ in wanted(master.hear(answer(1), "lm/0"))] == [20]


def test_a_task_is_matched_on_the_answer_to_the_task_before_it() -> None:
    master = gm(answers="all")
    assert wanted(master.hear(job(1, BIG, BIG))) == [(10, 0, 0)]
    answered = master.hear(update(1, 1, (1000, 7168), GONE, WHOLE, WHOLE), "lm/0")
    assert wanted(answered) == [(11, 1, 0)], "somebody else has the second machine of the partition"


def test_a_state_from_before_the_request_is_no_answer_but_is_adopted() -> None:
    master = gm()
    assert wanted(master.hear(job(1, BIG, BIG))) == [(10, 0, 0)]
    assert not wanted(master.hear(update(1, 0, WHOLE, GONE, WHOLE, WHOLE), "lm/0"))
    assert wanted(master.hear(answer(1), "lm/0")) == [(11, 1, 0)]


def test_a_refused_task_goes_to_the_end_of_the_line() -> None:
    master = gm()
    master.hear(job(1, BIG, SMALL))
    refused = master.hear(Refusal((10,), update(1, 1, GONE, WHOLE, WHOLE, WHOLE)), "lm/0")
    assert wanted(refused) == [(11, 0, 1)]
    assert wanted(master.hear(answer(2), "lm/0")) == [(10, 0, 1)]


def test_a_refused_task_keeps_its_turn_where_it_goes_to_the_head() -> None:
    master = gm(rescheduling="head")
    master.hear(job(1, BIG, SMALL))
    refused = master.hear(Refusal((10,), update(1, 1, GONE, WHOLE, WHOLE, WHOLE)), "lm/0")
    assert wanted(refused) == [(10, 0, 1)]


def test_room_goes_to_waiting_tasks_one_by_one_before_tasks_in_line() -> None:
    master = gm(gms=1)
    first = master.hear(job(1, WHOLE, WHOLE, WHOLE, WHOLE))
    for number in range(1, 5):
        assert wanted(first) == [(9 + number, 0, number - 1)]
        first = master.hear(answer(number), "lm/0")
    assert not wanted(master.hear(job(2, SMALL, SMALL)))
    assert wanted(master.hear(TasksEnded((10, 11), 4), "lm/0")) == [(20, 0, 0)]
    assert not wanted(master.hear(job(3, WHOLE)))
    assert wanted(master.hear(answer(5), "lm/0")) == [(21, 0, 0)]
    assert wanted(master.hear(answer(6), "lm/0")) == [(30, 0, 1)]


def test_tasks_in_line_count_as_queued() -> None:
    master = gm(queue_max=2)
    master.hear(job(1, SMALL, SMALL, SMALL))
    ((_, rejected),) = messages(master.hear(job(2, SMALL)), JobRejected)
    assert rejected.job == 2


def test_cancelled_tasks_leave_the_line() -> None:
    master = gm()
    master.hear(job(1, SMALL))
    master.hear(job(2, SMALL, SMALL))
    assert [done.job for _, done in messages(master.hear(Cancel(2)), JobDone)] == [2]
    assert not wanted(master.hear(answer(1), "lm/0"))


def test_a_task_that_fits_no_machine_is_reported_before_its_turn() -> None:
    master = gm()
    master.hear(job(1, SMALL))
    assert [done.job for _, done in messages(master.hear(job(2, (5000, 1))), JobDone)] == [2]


def test_megha_on_slots_waits_as_well() -> None:
    master = Alone("megha", "gm/0", Cluster.uniform(4), gms=1, lms=2, launch="synchronous")
    assert len(wanted(master.hear(submit(1, 0, 0, 0)))) == 1


# Users with shares.


def shared(**parameters: Any) -> Alone:
    """A GM, the only one unless said otherwise, of users a and b, with half of four machines each, as printed."""
    return gm(**{"gms": 1, "shares": "a:1+b:1", "preemption": "paper", "turns": "round-robin", **parameters})


def of_user(user: str, number: int, *requests: Any) -> Submit:
    """A job of a user."""
    made = job(number, *requests)
    return Submit(msgspec.structs.replace(made.job, user=user))


def test_users_take_turns_in_the_line() -> None:
    master = shared()
    master.hear(of_user("a", 1, SMALL, SMALL, SMALL))
    master.hear(of_user("b", 2, SMALL))
    order = [wanted(master.hear(answer(number), "lm/0"))[0][0] for number in (1, 2, 3)]
    assert order == [11, 20, 12]


def test_a_preemption_waits_for_its_outcome() -> None:
    master = shared()
    for number, effects in enumerate([master.hear(of_user("a", 1, WHOLE, WHOLE, WHOLE, WHOLE))] + [[]] * 3, 1):
        assert not effects or wanted(effects)
        master.hear(answer(number), "lm/0")
    ((_, preempt),) = messages(master.hear(of_user("b", 2, WHOLE, WHOLE)), Preempt)
    assert preempt.task.id == 20
    assert not messages(master.hear(answer(preempt.number), "lm/0"), Preempt), "that says only that it has come"
    ((_, preempt),) = messages(master.hear(PreemptionDone(20), "lm/0"), Preempt)
    assert preempt.task.id == 21


def test_nobody_loses_a_place_while_there_is_room_that_was_not_offered_yet() -> None:
    master = shared(gms=2, queues="1+0")
    taken = [Holding(90 + place, 0, partition, place % 2, WHOLE) for place, partition in enumerate((0, 0, 1, 1))]
    master.hear(Holdings(1, (), tuple(taken)), "lm/0")
    master.hear(update(1, 0, GONE, GONE, GONE, GONE), "lm/0")
    effects = master.hear(of_user("b", 2, WHOLE, WHOLE))
    assert len(messages(effects, Preempt)) == 1
    master.hear(update(2, 0, GONE, WHOLE, GONE, GONE), "lm/0")
    effects = master.hear(PreemptionDone(20), "lm/0")
    assert not messages(effects, Preempt)
    assert len(wanted(effects)) == 1


def test_a_decision_is_reported_when_its_task_has_its_turn() -> None:
    master = gm(why=True)

    def reported(event: Any, source: str = "submitter") -> list[tuple[int, str]]:
        master.component.handle(event, source, 0)
        facts = [effect.fact for effect in master.port.drain() if isinstance(effect, Observed)]
        return [(fact.task, fact.chosen) for fact in facts if isinstance(fact, Decision)]

    assert reported(job(1, BIG, WHOLE)) == [(10, "placed")]
    full = update(1, 1, GONE, GONE, GONE, GONE)
    assert reported(full, "lm/0") == [(11, "queued")]
    assert reported(update(2, 1, GONE, WHOLE, GONE, GONE), "lm/0") == [(11, "placed")]


@pytest.mark.parametrize("name", ["megha-2021", "megha-2021-printed"])
def test_only_the_preset_waits(name: str) -> None:
    master = Alone(name, "gm/0", CLUSTER, gms=1, lms=1)
    effects = master.hear(Submit(msgspec.structs.replace(job(1, SMALL, SMALL).job)))
    assert len(messages(effects, Request)) == (1 if name.endswith("printed") else 2)
    assert all(isinstance(task, Task) for _, request in messages(effects, Request) for task in request.tasks)
